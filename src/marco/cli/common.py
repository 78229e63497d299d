"""What the commands share."""

import ast
import sys
from typing import Any

from rich.console import Console

console = Console()


def parse_settings(settings: tuple[str, ...], option: str = "--set") -> dict[str, Any]:
    """Settings from name=value words; a value that is no Python literal is a string."""
    parsed: dict[str, Any] = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not (name.isidentifier() and equals):
            raise ValueError(f"{option} takes name=value, got {setting!r}.")
        try:
            parsed[name] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            parsed[name] = value
    return parsed


def tell_bounds(lower: float, upper: float, seconds: float) -> None:
    """How a search for the best team stands."""
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
