"""Errors of code that is not MARCO's: they keep their traceback and get a note of what was called."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from marco.environments.base import WorldError

MARK = "MARCO called: "
"""How our notes begin. JAX and others add notes too."""


@contextmanager
def noted(call: str) -> Iterator[None]:
    """Note on an error of the code inside what was called; one note is enough, the innermost knows most.

    A `WorldError` is MARCO's own complaint about the environment, and says where by itself.
    """
    try:
        yield
    except WorldError:
        raise
    except Exception as error:
        if not is_noted(error):
            error.add_note(MARK + call)
        raise


def calling(env: Any, what: str) -> AbstractContextManager[None]:
    """`noted` for an environment of the user's own; MARCO's own environments need no note."""
    if type(env).__module__.split(".")[0] == "marco":
        return nullcontext()
    return noted(f"{what} of {type(env).__name__}")


def is_noted(error: BaseException) -> bool:
    """Whether the error came out of code that is not MARCO's."""
    return any(note.startswith(MARK) for note in getattr(error, "__notes__", ()))


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
