"""What the commands share."""

import sys
from typing import Any

from rich.console import Console

console = Console()


def print_bounds(lower: float, upper: float, seconds: float) -> None:
    """The bounds of a search for the best team so far."""
    print(f"{seconds:6.1f} s: {lower:.6f} to {upper:.6f}", file=sys.stderr, flush=True)


def cell(value: Any) -> str:
    """A value as a table shows it."""
    match value:
        case None:
            return "unknown"
        case float():
            return f"{value:.4f}"
        case [low, high]:
            return f"{low:.4f} to {high:.4f}"
    return str(value)
