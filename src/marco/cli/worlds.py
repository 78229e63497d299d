"""`marco worlds`. Neither JAX nor numpy is imported: the answer comes at once."""

from dataclasses import dataclass

from rich.table import Table

from marco.cli.common import console
from marco.cli.settings import parse
from marco.environments.catalogue import CATALOGUE, FORMS, Entry


@dataclass(frozen=True)
class Worlds:
    """List the environments that have a name, and how to name others."""


def main(arguments: list[str]) -> None:
    """Print the tables."""
    parse(Worlds, arguments, "marco worlds")
    for kind, title in (("built-in", "Built-in environments"), ("table", "Tables (finite Dec-POMDPs)")):
        table = Table(title=title, title_justify="left", title_style="bold", show_lines=True)
        for column in ("name", "agents", "actions", "sees", "state", "horizon", "optimum"):
            table.add_column(column, justify="left" if column == "name" else "right")
        for name, entry in CATALOGUE.items():
            if entry.kind == kind:
                table.add_row(f"[bold]{name}[/bold]\n{entry.summary}", *_cells(entry))
        console.print(table)
    console.print(
        "actions: per agent; sees: dimensions of an observation; state: dimensions of the central state."
    )
    console.print("The optimum of a table: marco solve NAME --horizon STEPS")
    console.print("\n[bold]Other environments[/bold]")
    others = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for form, meaning in FORMS.items():
        others.add_row(f"[bold]{form}[/bold]", meaning)
    console.print(others)
    console.print("\nChange sizes with --env, as in: marco play switch --env.agents 4 --env.horizon 10")


def _cells(entry: Entry) -> list[str]:
    sizes = (entry.agents, entry.actions, entry.observation_width, entry.state_width, entry.horizon)
    optimum = "unknown" if entry.optimum is None else f"{entry.optimum:.6f}"
    return [*map(str, sizes), optimum]
