"""Environments: the contract, the built-in ones, tables, adapters, and `make` for all of them by name.

Names are loaded when they are first used, so that the catalogue can be read without importing JAX.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from marco.environments.adapters.jaxmarl import JaxMARLWorld
    from marco.environments.adapters.pettingzoo import PettingZooWorld
    from marco.environments.base import (
        Environment,
        EnvironmentState,
        FiniteEnvironment,
        HostWorld,
        Transition,
        WorldError,
    )
    from marco.environments.bridge import Bridge
    from marco.environments.catalogue import CATALOGUE
    from marco.environments.delayed import Delayed
    from marco.environments.experts import GoToCentroid, LoadInTurn, StandStill, SwitchProtocol, TellAndGo
    from marco.environments.foraging import Foraging
    from marco.environments.reference import Reference
    from marco.environments.registry import make, problem
    from marco.environments.render import draw_gif, episode_table
    from marco.environments.switch import Switch
    from marco.environments.tabular import Tabular, from_tables

__all__ = [
    "CATALOGUE",
    "Bridge",
    "Delayed",
    "Environment",
    "EnvironmentState",
    "FiniteEnvironment",
    "Foraging",
    "GoToCentroid",
    "HostWorld",
    "JaxMARLWorld",
    "LoadInTurn",
    "PettingZooWorld",
    "Reference",
    "StandStill",
    "Switch",
    "SwitchProtocol",
    "Tabular",
    "TellAndGo",
    "Transition",
    "WorldError",
    "draw_gif",
    "episode_table",
    "from_tables",
    "make",
    "problem",
]

_HOMES = {
    "adapters.jaxmarl": ("JaxMARLWorld",),
    "adapters.pettingzoo": ("PettingZooWorld",),
    "base": ("Environment", "EnvironmentState", "FiniteEnvironment", "HostWorld", "Transition", "WorldError"),
    "bridge": ("Bridge",),
    "catalogue": ("CATALOGUE",),
    "delayed": ("Delayed",),
    "experts": ("GoToCentroid", "LoadInTurn", "StandStill", "SwitchProtocol", "TellAndGo"),
    "foraging": ("Foraging",),
    "reference": ("Reference",),
    "registry": ("make", "problem"),
    "render": ("draw_gif", "episode_table"),
    "switch": ("Switch",),
    "tabular": ("Tabular", "from_tables"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)
