"""Settings on the command line: `--env.NAME VALUE` of an environment, `--team.learning-rate 5e-4` of MARCO.

Settings are the fields of the configurations themselves, checked by their types (tyro).
"""

import ast
from collections.abc import Iterator, Sequence
from dataclasses import field, fields, is_dataclass, make_dataclass
from difflib import get_close_matches
from typing import Annotated, Any

import tyro

from marco.checks import check_types

HIDDEN = ("samples", "candidates", "offline")
"""Fields of a configuration that are options of the command itself."""


def wants_help(arguments: list[str]) -> bool:
    """Whether help is asked for."""
    return any(argument in ("-h", "--help") for argument in arguments)


def parse(command: type[Any], arguments: list[str], prog: str) -> Any:
    """A command without settings from its arguments."""
    return tyro.cli(command, args=arguments, prog=prog)


def parse_with_rest(command: type[Any], arguments: list[str], prog: str) -> tuple[Any, list[str]]:
    """A command from its own arguments, and the arguments that are none of its own."""
    return tyro.cli(command, args=arguments, prog=prog, return_unknown_args=True)


def take_env(arguments: list[str], reward: str | None = None) -> tuple[dict[str, Any], list[str]]:
    """The settings of an environment among the arguments, and the other arguments.

    A value that is no Python literal is a string. `--reward` is a setting with an option of its own.
    """
    settings: dict[str, Any] = {} if reward is None else {"reward": reward}
    rest: list[str] = []
    words = iter(arguments)
    for word in words:
        if not word.startswith("--env."):
            rest.append(word)
            continue
        name, equals, value = word.removeprefix("--env.").partition("=")
        name = name.replace("-", "_")
        if not name.isidentifier():
            raise ValueError(f"--env.NAME VALUE names a setting of the environment, got {word!r}.")
        if not equals:
            value = next(words, "")
            value = "" if value.startswith("--") else value
        if not value:
            raise ValueError(f"--env.{name} needs a value.")
        settings[name] = _literal(value)
    return settings, rest


def table_of(options: Any, arguments: list[str]) -> tuple[Any, int]:
    """The tables of the environment that a planning command names, and the horizon."""
    from marco.environments.catalogue import CATALOGUE
    from marco.environments.registry import function_at, make, problem

    settings, rest = take_env(arguments)
    refuse_unknown(rest, options_of(type(options)))
    name, horizon = options.problem, options.horizon
    function_at(name)  # refuses a name that leads nowhere, whatever else is missing
    if ":" in name:  # a function of the user's own may take a horizon, and its environment has one
        horizon = make(name, **settings).spec.horizon if horizon is None else horizon
        return problem(name, **settings), horizon
    given = settings.pop("horizon", None)
    default = CATALOGUE[name].horizon if name in CATALOGUE else None
    horizon = next((one for one in (horizon, given, default) if one is not None), None)
    if horizon is None:
        raise ValueError(f"{name} does not say how long an episode lasts: give --horizon.")
    check_types(name, {"horizon": horizon}, {"horizon": int})
    return problem(name, **settings), horizon


def take_changes(config: Any, arguments: list[str], prog: str, also: Sequence[str] = ()) -> dict[str, Any]:
    """The fields of a configuration that the arguments give, by dotted name; `also` has other options."""
    default = _unchecked(config, hidden=HIDDEN)
    parsed, rest = tyro.cli(
        type(default),
        args=arguments,
        prog=prog,
        default=default,
        config=(tyro.conf.AvoidSubcommands, tyro.conf.FlagConversionOff),
        return_unknown_args=True,
    )
    leaves = dict(_leaves(parsed))
    refuse_unknown(rest, [*also, *(option_of(name) for name in leaves)])
    given = {word[2:].partition("=")[0].replace("-", "_") for word in arguments if word.startswith("--")}
    return {name: value for name, value in leaves.items() if name in given}


def option_of(name: str) -> str:
    """A setting as an option."""
    return f"--{name.replace('_', '-')}"


def options_of(command: type[Any]) -> list[str]:
    """The options of a command itself."""
    return [option_of(one.name) for one in fields(command)]


def refuse_unknown(rest: list[str], options: list[str]) -> None:
    """Refuse arguments that nobody took; a near miss is answered by the name meant."""
    if not rest:
        return
    word = rest[0].partition("=")[0]
    if not word.startswith("-"):
        raise ValueError(f"{word!r} belongs to no option: one environment comes first, then the options.")
    meant = get_close_matches(word, options, 1, cutoff=0.6)
    hint = f"do you mean {meant[0]}?" if meant else "--help lists the options."
    raise ValueError(f"there is no option {word}: {hint}")


def _unchecked(config: Any, hidden: Sequence[str] = ()) -> Any:
    """The configuration in a type with the concrete types of its parts: tyro parses what types say.

    It checks nothing: `apply_changes` does, by the name of the setting and in one line.
    """
    concrete: list[Any] = []
    for one in fields(config):
        kind, value = one.type, getattr(config, one.name)
        if one.name in hidden:
            kind = Annotated[kind, tyro.conf.Suppress]
        elif is_dataclass(value):
            value = _unchecked(value)
            kind = type(value)
        concrete.append((one.name, kind, field(default=value)))
    unchecked = {"__post_init__": lambda self: None, "__doc__": type(config).__doc__}
    bases, name = (type(config),), type(config).__name__
    return make_dataclass(name, concrete, bases=bases, namespace=unchecked, frozen=True, kw_only=True)()


def _leaves(config: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The fields of a configuration and of its parts, by dotted name."""
    for one in fields(config):
        value = getattr(config, one.name)
        if is_dataclass(value):
            yield from _leaves(value, f"{prefix}{one.name}.")
        elif prefix or one.name not in HIDDEN:
            yield f"{prefix}{one.name}", value


def _literal(value: str) -> Any:
    try:
        return ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return value
