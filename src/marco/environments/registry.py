"""The built-in worlds by name, and any other by its path."""

import inspect
from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

from marco.environments.base import Environment, HostWorld
from marco.environments.bridge import Bridge
from marco.environments.delayed import Delayed
from marco.environments.reference import Reference
from marco.environments.switch import Switch


class BuiltIn(NamedTuple):
    """A world that has a name."""

    make: Callable[..., Environment]
    summary: str


def bridge(agents: int = 3, length: int = 3, horizon: int = 9) -> Bridge:
    """The riddle behind a bridge."""
    return Bridge(Switch(agents), length, horizon)


WORLDS = {
    "switch": BuiltIn(Switch, "prisoners and a light"),
    "bridge": BuiltIn(bridge, "the same, past a bridge"),
    "reference": BuiltIn(Reference, "MPE simple reference"),
    "delayed": BuiltIn(Delayed, "a light that is late"),
}


def make(name: str, **settings: Any) -> Environment | HostWorld:
    """A world by its name (`switch`) or its path (`package.module:function`), with settings of its own.

    A path leads to a function that returns a PettingZoo `ParallelEnv`.
    """
    if ":" in name:
        from marco.environments.adapters.pettingzoo import from_path

        return from_path(name, **settings)
    if name not in WORLDS:
        raise ValueError(
            f"unknown world {name!r}: the built-in ones are {', '.join(WORLDS)}; "
            "for your own PettingZoo world give package.module:function."
        )
    maker = WORLDS[name].make
    accepted = inspect.signature(maker).parameters
    for setting in settings:
        if setting not in accepted:
            raise ValueError(f"{name} has no setting {setting!r}: it has {', '.join(accepted)}.")
    world = maker(**settings)
    world.spec  # noqa: B018  (a bad size is refused here, not at the first step)
    return world


def optimum(world: Environment | HostWorld) -> float | None:
    """The value of the best decentralised team, where it is known."""
    match world:
        case Switch():
            return _riddle_optimum(world.agents, world.horizon)
        case Bridge():
            return _riddle_optimum(world.inner.agents, world.horizon - world.length)
        case Delayed():
            return float(world.horizon // (world.delay + 1))
    return None


def _riddle_optimum(agents: int, steps: int) -> float | None:
    """Certified for three agents: equal to the bound with full information."""
    known = {3: Fraction(2, 9), 4: Fraction(4, 9), 5: Fraction(50, 81), 6: Fraction(20, 27)}
    return float(known[steps]) if agents == 3 and steps in known else None
