"""What the commands share."""

import sys
from dataclasses import dataclass
from typing import Annotated, Any

import tyro
from rich.console import Console

console = Console()


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Options of the commands that read the folder of a run."""

    world: Annotated[str | None, tyro.conf.arg(metavar="WORLD")] = None
    """The environment of the run, named again: needed where it is code (package.module:function), since a
    folder may be anyone's."""
    trust: bool = False
    """Run the code that the folder names, whatever it is."""


def say(line: str, style: str | None = None) -> None:
    """Print a line as it stands: what is in brackets is a path or a value, and no markup."""
    console.print(line, style=style, soft_wrap=True, markup=False, highlight=False)


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
