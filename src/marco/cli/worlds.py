"""`marco worlds`. For the list neither JAX nor numpy is imported: the answer comes at once."""

from dataclasses import dataclass
from typing import Annotated, Any

import tyro
from rich.table import Table

from marco.cli.common import console, say
from marco.cli.settings import options_of, parse_with_rest, refuse_unknown, take_env
from marco.environments.catalogue import CATALOGUE, FORMS, Entry


@dataclass(frozen=True)
class Worlds:
    """List the environments that have a name, and how to name others; or describe one of them.

    Settings of the environment: --env.agents 4.
    """

    world: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="WORLD")] = None
    """The environment whose actions, observations and state to describe; if not given, list all."""


def main(arguments: list[str]) -> None:
    """Print the tables."""
    options, rest = parse_with_rest(Worlds, arguments, "marco worlds")
    settings, rest = take_env(rest)
    refuse_unknown(rest, options_of(Worlds))
    if options.world is not None:
        _describe(options.world, settings)
        return
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


def _describe(name: str, settings: dict[str, Any]) -> None:
    """What the spec of an environment says, column by column."""
    from marco.environments.base import guessed_of
    from marco.environments.registry import make
    from marco.types import Categorical, blocks

    env = make(name, **settings)
    spec, guessed = env.spec, guessed_of(env)
    say(f"{name}: {spec.num_agents} agents, up to {spec.horizon} steps")
    rows = [("state", spec.state)]
    for agent in spec.agents:
        actions = " x ".join(f"{part.name} ({part.size})" for part in agent.actions)
        say(f"agent {agent.name}: {agent.num_actions} actions: {actions}")
        rows.append((f"agent {agent.name} sees", agent.observation))
    for title, features in rows:
        table = Table(title=title, title_justify="left", title_style="bold")
        for column in ("columns", "feature", "is"):
            table.add_column(column)
        for feature, block in zip(features, blocks(features), strict=True):
            kind = f"{feature.size} classes" if isinstance(feature, Categorical) else "numbers"
            last = "" if feature.width == 1 else f" to {block.stop - 1}"
            table.add_row(f"{block.start}{last}", feature.name, kind)
        console.print(table)
    parts = [part for part, guess in guessed._asdict().items() if guess]
    if parts:
        say(
            f"The {' and the '.join(parts)} of this environment: read off shapes. `marco train` describes "
            "them from its first real samples (description.json in its folder), --describe FILE by hand."
        )


def _cells(entry: Entry) -> list[str]:
    sizes = (entry.agents, entry.actions, entry.observation_width, entry.state_width, entry.horizon)
    optimum = "unknown" if entry.optimum is None else f"{entry.optimum:.6f}"
    return [*map(str, sizes), optimum]
