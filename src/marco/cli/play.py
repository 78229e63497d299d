"""`marco worlds` and `marco play`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import jax
import tyro
from rich.table import Table

from marco.cli.common import console, parse_settings
from marco.environments.base import Environment, FiniteEnvironment, HostWorld
from marco.environments.experts import SwitchProtocol, TellAndGo
from marco.environments.registry import WORLDS, make, optimum
from marco.environments.render import episode_table, reference_gif
from marco.evaluation import exact_value
from marco.policies.base import Policy, RandomPolicy
from marco.rollout import play, rollout
from marco.types import Episode, Spec


@dataclass(frozen=True)
class Worlds:
    """List the built-in worlds: sizes, horizon, and the value of the best team where it is known."""

    def run(self) -> None:
        """Print the table."""
        table = Table(show_lines=True)
        for column in ("world", "agents", "actions", "sees", "state", "horizon", "optimum"):
            table.add_column(column, justify="left" if column == "world" else "right")
        for name, built_in in WORLDS.items():
            world = built_in.make()
            spec, best = world.spec, optimum(world)
            sizes = (
                spec.num_agents,
                spec.num_actions,
                spec.observation_width,
                spec.state_width,
                spec.horizon,
            )
            value = "unknown" if best is None else f"{best:.6f}"
            table.add_row(f"[bold]{name}[/bold]\n{built_in.summary}", *map(str, sizes), value)
        console.print(table)
        console.print(
            "actions: per agent; sees: columns of an observation; state: columns of the central state."
        )
        console.print("Change sizes with --set, as in: marco play switch --set agents=4 horizon=10")
        console.print("Your own PettingZoo world: marco play package.module:function")


@dataclass(frozen=True)
class Play:
    """Show episodes of a world in the terminal."""

    world: Annotated[str, tyro.conf.Positional]
    """A built-in world (see `marco worlds`), or package.module:function for a PettingZoo world."""
    episodes: int = 1
    """How many episodes to show."""
    seed: int = 0
    """The seed of everything drawn at random."""
    policy: Literal["random", "expert"] = "random"
    """Random play, or the hand-written team where there is one (switch, bridge, reference)."""
    set: tuple[str, ...] = ()
    """Settings of the world, as in --set agents=4 horizon=10."""
    gif: Path | None = None
    """Draw the episodes into this file (reference only)."""

    def run(self) -> None:
        """Play and show."""
        if self.episodes < 1:
            raise ValueError(f"--episodes must be at least 1, got {self.episodes}.")
        world = make(self.world, **parse_settings(self.set))
        if self.gif is not None:
            _check_gif(world.spec, self.gif)
        policy: Policy = RandomPolicy() if self.policy == "random" else expert(world.spec)
        keys = jax.random.split(jax.random.key(self.seed), self.episodes)
        episodes = [_play(key, world, policy) for key in keys]
        for number, episode in enumerate(episodes, 1):
            console.print(episode_table(world.spec, episode, f"{world.spec.name}, episode {number}"))
        if isinstance(world, FiniteEnvironment):
            _print_value(world, policy, self.policy)
        if self.gif is not None:
            reference_gif(world.spec, episodes, self.gif)
            console.print(f"Drawn: {self.gif}")


def expert(spec: Spec) -> Policy:
    """The hand-written team of a world."""
    if spec.name in ("switch", "bridge"):
        return SwitchProtocol(spec)
    if spec.name == "reference":
        return TellAndGo()
    raise ValueError(f"there is no expert for {spec.name}: use --policy random.")


def _play(key: jax.Array, world: Environment | HostWorld, policy: Policy) -> Episode:
    if isinstance(world, Environment):
        return jax.jit(rollout)(key, world, policy)
    return play(key, world, policy)


def _print_value(world: FiniteEnvironment, policy: Policy, name: str) -> None:
    best = optimum(world)
    beside = "" if best is None else f"; the best team's is {best:.6f}"
    console.print(f"Exact value of the {name} team: {exact_value(world, policy):.6f}{beside}.")


def _check_gif(spec: Spec, path: Path) -> None:
    if spec.name != "reference":
        raise ValueError(f"only reference can be drawn, got {spec.name}: leave out --gif.")
    if path.suffix.lower() != ".gif":
        raise ValueError(f"--gif writes a .gif file, got {str(path)!r}.")
    if not path.absolute().parent.is_dir():
        raise ValueError(f"--gif: there is no folder {str(path.absolute().parent)!r}: make it first.")
