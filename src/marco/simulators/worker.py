"""A simulator in another process: what it is asked, and what it answers."""

import os
import pickle
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Int

from marco.environments.base import HostWorld, WorldError
from marco.environments.registry import make, name_of
from marco.types import Spec, TimeStep

START = 600.0
"""Seconds that the making of a simulator may take."""
PATIENCE = 5.0
"""Seconds that a simulator has to close what it holds."""


class SimulatorLostError(RuntimeError):
    """A simulator does not answer any more: its process has ended, or it hangs."""


@runtime_checkable
class Worker(HostWorld, Protocol):
    """A host environment in another process. An error in it is raised here, with its own traceback."""

    def close(self, patience: float = PATIENCE) -> None:
        """End the process; after so many seconds whatever it does. Another thread may ask for it."""


class Recipe(NamedTuple):
    """How to make the environment anew in another process: by its name."""

    name: str
    settings: dict[str, Any]
    folder: str
    """The working folder: a name may be of a module that is there."""
    path: list[str]
    """Where modules are looked for."""

    def make(self) -> HostWorld:
        """The environment, in a fresh process."""
        sys.path[:] = [*self.path, *(one for one in sys.path if one not in self.path)]
        with suppress(OSError):  # another machine may have no such folder
            os.chdir(self.folder)
        made = make(self.name, **self.settings)
        assert isinstance(made, HostWorld)
        return made


def recipe_of(world: HostWorld) -> Recipe:
    """The recipe of an environment that `marco.make` gave; others are refused with the cure."""
    name, settings = name_of(world)
    if name is None:
        raise ValueError(
            f"workers make {world.spec.name} anew, each for itself, and this one was made in Python: give a "
            "function that makes it by its name, as in env='package.module:function' or "
            "env=marco.make('path/to/file.py:function', size=5)."
        )
    return Recipe(name, settings, os.getcwd(), list(sys.path))


class Raised(NamedTuple):
    """An error of a simulator, on its way."""

    error: bytes
    """Pickled; it may be of a class that only the simulator has."""
    text: str
    """The traceback."""


class RemoteTracebackError(Exception):
    """The traceback of an error in another process, as text."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


def answered(function: Callable[..., Any], *arguments: Any) -> bytes:
    """What a function of the simulator returns or raises, as it is sent."""
    try:
        return pickle.dumps(function(*arguments))
    except Exception as error:
        return pickle.dumps(Raised(_pickled(error), "".join(traceback.format_exception(error))))


def _pickled(error: Exception) -> bytes:
    try:
        raw = pickle.dumps(error)
        pickle.loads(raw)  # some can be written, but not read
    except Exception:
        plain = RuntimeError(f"{type(error).__name__}: {error}")
        for note in getattr(error, "__notes__", ()):
            plain.add_note(note)
        return pickle.dumps(plain)
    return raw


def unpacked(answer: bytes) -> Any:
    """What the simulator returned; what it raised is raised here."""
    value = pickle.loads(answer)
    if not isinstance(value, Raised):
        return value
    error: Exception = pickle.loads(value.error)
    raise error from RemoteTracebackError(value.text)


class Simulator:
    """The simulator in its process; workers of every kind ask it the same."""

    def ask(self, method: str, *arguments: Any) -> bytes:
        """What one of the methods below returns or raises, as it is sent."""
        return answered(getattr(self, method), *arguments)

    def make(self, recipe: Recipe) -> Spec:
        """Make the environment, and say of what shape it is."""
        self._world = recipe.make()
        return self._world.spec

    def reset(self, seed: int) -> TimeStep:
        """Begin an episode."""
        return self._world.reset(seed)

    def step(self, actions: Int[np.ndarray, " N"]) -> TimeStep:
        """Take one real step."""
        return self._world.step(actions)

    def close(self) -> None:
        """Let the environment give back what it holds, if it can."""
        close = getattr(self._world, "close", None)
        if close is not None:
            close()


def check_same(ours: Spec, theirs: Spec, name: str) -> None:
    """Refuse a function that makes another environment every time."""
    if ours != theirs:
        raise WorldError(
            f"{name} made another environment in another process: {theirs} is not {ours}. Make it the same "
            "every time, for the same settings."
        )
