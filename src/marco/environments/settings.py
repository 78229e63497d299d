"""The settings of an environment: which a function takes, of what types, and how config.json holds them."""

import inspect
import math
from collections.abc import Callable, Collection
from contextlib import suppress
from difflib import get_close_matches
from numbers import Integral, Real
from typing import Any

from marco.checks import check_types

TUPLE = "tuple"
"""JSON has lists alone: a tuple is written as {"tuple": [3, 3]}, and read back as what it was."""


def parameters_of(function: Callable[..., Any]) -> tuple[dict[str, inspect.Parameter], bool]:
    """A function's settings by name, and whether it takes any others."""
    try:
        signature = _signature(function)
    except ValueError:  # of some functions written in C there is none
        return {}, True
    parameters = signature.parameters.values()
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    named = {parameter.name: parameter for parameter in parameters if parameter.kind in kinds}
    return named, any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters)


def defaults_of(function: Callable[..., Any]) -> dict[str, Any]:
    """The settings that a function has if none are given, as config.json holds them, if it can."""
    found = {}
    for name, one in parameters_of(function)[0].items():
        with suppress(ValueError):  # that there is no default is held by no file, either
            found[name] = _written(name, one.default)
    return found


def check_names(name: str, settings: Collection[str], accepted: Collection[str]) -> None:
    """Refuse a setting that an environment does not have; a near miss is answered by the one meant."""
    for setting in settings:
        if setting not in accepted:
            known = f"it has {', '.join(accepted)}" if accepted else "it has none"
            meant = get_close_matches(setting, accepted, 1)
            question = f" Do you mean {meant[0]!r}?" if meant else ""
            raise ValueError(f"{name} has no setting {setting!r}: {known}.{question}")


def check_annotated(name: str, settings: dict[str, Any], named: dict[str, inspect.Parameter]) -> None:
    """Refuse values of another type than the function's annotations say; its defaults are always good."""
    given = {key: value for key, value in settings.items() if key in named}
    kinds = {key: named[key].annotation for key, value in given.items() if value is not named[key].default}
    check_types(
        name, given, {key: kind for key, kind in kinds.items() if kind is not inspect.Parameter.empty}
    )


def as_json(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings as config.json holds them. What it cannot hold is refused by name."""
    return {name: _written(name, value) for name, value in settings.items()}


def from_json(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings that `as_json` wrote."""
    return {name: _read(value) for name, value in settings.items()}


def _written(name: str, value: Any) -> Any:
    match value:
        case None | bool() | str():
            return value
        case Integral():
            return int(value)
        case Real() if math.isfinite(value):
            return float(value)
        case tuple():
            return {TUPLE: [_written(name, one) for one in value]}
        case list():
            return [_written(name, one) for one in value]
        case dict() if all(isinstance(key, str) and key != TUPLE for key in value):
            return {key: _written(name, one) for key, one in value.items()}
    raise ValueError(
        f"the setting {name} of the environment cannot be written to config.json, got {value!r}: give "
        "finite numbers, words, lists and tuples, or make the environment in Python."
    )


def _read(value: Any) -> Any:
    match value:
        case list():
            return [_read(one) for one in value]
        case {"tuple": list() as items, **more} if not more:
            return tuple(map(_read, items))
        case dict():
            return {key: _read(one) for key, one in value.items()}
    return value


def _signature(function: Callable[..., Any]) -> inspect.Signature:
    try:
        return inspect.signature(function, eval_str=True)
    except (NameError, SyntaxError, TypeError, AttributeError):  # an annotation that only its author reads
        return inspect.signature(function)
