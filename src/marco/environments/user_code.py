"""Errors of code that is not MARCO's: they keep their traceback and get a note of what was called."""

import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from traceback import walk_stack
from typing import Any

import numpy as np

from marco.environments.base import WorldWarning

MARK = "MARCO called: "
"""How our notes begin. JAX and others add notes too."""
RETRACED = 100
"""The most steps whose actions are told with an error; those of a run are all in its folder."""


@contextmanager
def noted(call: str) -> Iterator[None]:
    """Note on an error of the code inside what was called; one note is enough, the innermost knows most."""
    try:
        yield
    except Exception as error:
        if not is_noted(error):
            error.add_note(MARK + call)
        raise


@contextmanager
def during(what: str) -> Iterator[None]:
    """Say below an error of an environment when it came: `during("episode 5 of 6")`."""
    try:
        yield
    except Exception as error:
        if is_noted(error):
            error.add_note(f"This was {what}.")
        raise


@contextmanager
def retraced(actions: Sequence[np.ndarray]) -> Iterator[None]:
    """Say below an error of an environment what was done since the reset, so that it can be done again."""
    try:
        yield
    except Exception as error:
        if is_noted(error):
            first = max(0, len(actions) - RETRACED)
            which = f" (steps {first + 1} to {len(actions)})" if first else ""
            error.add_note(f"Actions since the reset{which}: {[one.tolist() for one in actions[first:]]}")
        raise


def calling(env: Any, what: str) -> AbstractContextManager[None]:
    """`noted` for an environment of the user's own; MARCO's own environments need no note."""
    if type(env).__module__.split(".")[0] == "marco":
        return nullcontext()
    return noted(f"{what} of {type(env).__name__}")


def is_noted(error: BaseException) -> bool:
    """Whether the error came out of code that is not MARCO's."""
    return any(note.startswith(MARK) for note in getattr(error, "__notes__", ()))


def warn(message: str) -> None:
    """Warn about an environment, at the line of the user's own code that called MARCO, not at one of ours."""
    frames = enumerate(walk_stack(sys._getframe()), 1)
    ours = [level for level, (frame, _) in frames if frame.f_globals["__name__"].split(".")[0] == "marco"]
    warnings.warn(message, WorldWarning, stacklevel=max(ours) + 1)


def call(function: Callable[..., Any], settings: dict[str, Any], name: str) -> Any:
    """What a function returns for the settings; a setting that it does not take is refused with the cure."""
    try:
        with noted(f"{name} with the settings {settings}"):
            return function(**settings)
    except TypeError as error:
        # Factories that pass **settings on are asked by calling them: their signature does not tell.
        unexpected = any(f"unexpected keyword argument '{setting}'" in str(error) for setting in settings)
        missing = "required positional argument" in str(error) or "required keyword-only" in str(error)
        if not (unexpected or (missing and _raised_by_call_itself(error))):
            raise
        raise ValueError(
            f"{name} cannot be called with the settings {settings}: {error}. Leave out or add what it says."
        ) from error


def _raised_by_call_itself(error: BaseException) -> bool:
    """Whether no line of the function was run."""
    trace = error.__traceback__
    return trace is not None and trace.tb_next is None
