"""The file of a sweep: which environments, which settings, which seeds. Nothing that it names is imported.

worlds = ["bridge", { name = "switch", env.agents = 4 }]
seeds = 5                      # 0 to 4; or a list of them
[settings]                     # of all runs, by their names in `marco train WORLD --help`
samples = 2000
[variants.random]              # a name for several settings; without variants there is one, the settings
collector = "random"
[grid]                         # every value with every other
lam = [0.0, 2.0]
[search]                       # in place of a grid: values that Optuna proposes
"""

import tomllib
from collections.abc import Collection
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

from marco.checks import check_seeds, is_of

Settings = dict[str, Any]
Objective = Literal["return", "imagined"]

TABLES = ("worlds", "seeds", "settings", "variants", "grid", "search")
SEARCH = ("method", "trials", "objective", "seed", "settings", "scale")
RANGE = ("low", "high", "log")


@dataclass(frozen=True)
class World:
    """An environment, and settings of its own."""

    name: str
    settings: Settings = field(default_factory=dict)


@dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high`, both included; whole ones if both are whole."""

    low: float | int
    high: float | int
    log: bool = False


@dataclass(frozen=True)
class Search:
    """Which settings are searched, and how."""

    settings: dict[str, Range | tuple[Any, ...]]
    """For each a range, or the values to choose from."""
    trials: int
    method: Literal["random", "halving"] = "random"
    """random: every trial runs every seed; halving: after 1, 2, 4, ... seeds only the better half goes on."""
    objective: Objective = "return"
    """What is maximised: the mean return in the true environment, or in the model."""
    seed: int = 0
    """The seed of what is drawn."""
    scale: dict[str, tuple[float, float]] = field(default_factory=dict)
    """For each environment the returns that count as 0 and as 1; needed where there are several."""


@dataclass(frozen=True)
class SweepFile:
    """What a file says."""

    path: Path
    worlds: tuple[World, ...]
    seeds: tuple[int, ...]
    settings: Settings
    variants: dict[str, Settings]
    grid: dict[str, tuple[Any, ...]]
    search: Search | None = None


def read_sweep(path: Path) -> SweepFile:
    """The sweep in a file; a mistake is named with its key."""
    try:
        tables = tomllib.loads(path.read_text())
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}. Give the file of a sweep.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is no TOML: {error}.") from error
    try:
        return _sweep(path, tables)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _sweep(path: Path, tables: dict[str, Any]) -> SweepFile:
    for name in tables:
        if name not in TABLES and not get_close_matches(name, TABLES, 1, cutoff=0.7):
            raise ValueError(f"{name} is no table of a sweep ({', '.join(TABLES)}): is it for [settings]?")
    _refuse_unknown("the file", tables, TABLES)
    if "worlds" not in tables:
        raise ValueError('worlds is missing: name the environments, as in worlds = ["switch"].')
    settings = _settings("settings", tables)
    variants = {
        name: _settings(f"variants.{name}", _table("variants", tables)[name], True)
        for name in _table("variants", tables)
    }
    grid = {name: _choices(f"[grid] {name}", values) for name, values in _settings("grid", tables).items()}
    worlds = tuple(_world(one) for one in _list("worlds", tables["worlds"]))
    for where, own in (
        *((f"[variants.{name}]", own) for name, own in variants.items()),
        *((f"worlds: {world.name}", world.settings) for world in worlds),
    ):
        if twice := set(own) & set(grid):
            raise ValueError(f"{min(twice)} is in [grid] and in {where}: leave one out.")
    search = _search(tables["search"], worlds) if "search" in tables else None
    if search and grid:
        raise ValueError("[grid] and [search] both choose settings: leave one out.")
    if search and len(variants) > 1:
        raise ValueError("[search] looks for one setting, and has no use for [variants]: leave one out.")
    return SweepFile(path, worlds, _seeds(tables.get("seeds", 1)), settings, variants, grid, search)


def _world(given: Any) -> World:
    if isinstance(given, str):
        return World(given)
    if not isinstance(given, dict) or not isinstance(given.get("name"), str):
        raise ValueError(
            'worlds: each is a name, or a table with its name, as { name = "switch", env.agents = 4 }, got '
            f"{given!r}."
        )
    return World(given["name"], _flat({key: value for key, value in given.items() if key != "name"}))


def _seeds(given: Any) -> tuple[int, ...]:
    if is_of(given, int):
        if given < 1:
            raise ValueError(f"seeds must be at least 1, or a list of seeds, got {given}.")
        return tuple(range(given))
    if isinstance(given, dict):
        _refuse_unknown("seeds", given, ("first", "count"))
        first, count = given.get("first", 0), given.get("count", 1)
        if not is_of(first, int) or not is_of(count, int) or count < 1:
            raise ValueError(f"seeds: first and count must be whole numbers, got {given}.")
        given = list(range(first, first + count))
    seeds = tuple(_list("seeds", given))
    check_seeds(seeds)
    return seeds


def _search(given: Any, worlds: tuple[World, ...]) -> Search:
    if not isinstance(given, dict):
        raise ValueError(f"[search] must be a table, got {given!r}.")
    _refuse_unknown("[search]", given, SEARCH)
    settings = {name: _range(name, one) for name, one in _flat(given.get("settings", {}), RANGE).items()}
    if not settings:
        raise ValueError(
            "[search.settings] is missing: name what is searched, as in lam = { low = 0.0, high = 4.0 } or "
            'bonus = ["variance", "standard-deviation"].'
        )
    trials, seed = given.get("trials", 20), given.get("seed", 0)
    for name, value, least in (("trials", trials, 1), ("seed", seed, 0)):
        if not is_of(value, int) or value < least:
            raise ValueError(f"[search] {name} must be a whole number, at least {least}, got {value!r}.")
    method = _one_of("method", given.get("method", "random"), ("random", "halving"))
    objective = _one_of("objective", given.get("objective", "return"), ("return", "imagined"))
    scale = {name: _scale(name, one) for name, one in given.get("scale", {}).items()}
    names = [world.name for world in worlds]
    if len(set(names)) < len(names):
        raise ValueError(f"worlds: a search takes every environment once, got {names}.")
    if len(names) > 1 and set(names) != set(scale):
        raise ValueError(
            "[search.scale] must say for every environment which returns count as 0 and as 1, as in "
            f"{names[0]} = [0.0, 1.0]: returns of different environments have no common mean."
        )
    return Search(settings, trials, method, objective, seed, scale)


def _one_of(name: str, value: Any, words: tuple[str, ...]) -> Any:
    if value not in words:
        raise ValueError(f"[search] {name} must be one of {', '.join(words)}, got {value!r}.")
    return value


def _range(name: str, given: Any) -> Range | tuple[Any, ...]:
    if isinstance(given, list):
        return _choices(f"[search.settings] {name}", given)
    if not isinstance(given, dict) or not {"low", "high"} <= set(given):
        raise ValueError(
            f"[search.settings] {name} must be a list of values, or a range {{ low = 1e-4, high = 1e-2, "
            f"log = true }}, got {given!r}."
        )
    _refuse_unknown(f"[search.settings] {name}", given, RANGE)
    found = Range(given["low"], given["high"], given.get("log", False))
    sound = is_of(found.low, float) and is_of(found.high, float) and isinstance(found.log, bool)
    if not sound or not found.low < found.high or (found.log and not found.low > 0):
        raise ValueError(
            f"[search.settings] {name}: low must be below high (and positive if log = true), got {given}."
        )
    return found


def _scale(name: str, given: Any) -> tuple[float, float]:
    if not is_of(given, list[float]) or len(given) != 2 or not given[0] < given[1]:
        raise ValueError(f"[search.scale] {name} must be two returns, [low, high], got {given!r}.")
    return given[0], given[1]


def _table(name: str, tables: dict[str, Any]) -> dict[str, Any]:
    found = tables.get(name, {})
    if not isinstance(found, dict):
        raise ValueError(f"{name} must be a table, [{name}], got {found!r}.")
    return found


def _settings(name: str, tables: dict[str, Any], whole: bool = False) -> Settings:
    if whole and not isinstance(tables, dict):
        raise ValueError(f"[{name}] must be a table of settings, got {tables!r}.")
    return _flat(tables if whole else _table(name, tables))


def _flat(table: dict[str, Any], stop: Collection[str] = (), prefix: str = "") -> Settings:
    """Settings by dotted name, however they were nested; a table with a key of `stop` is a value."""
    found: Settings = {}
    for key, value in table.items():
        name = f"{prefix}{key.replace('-', '_')}"
        if isinstance(value, dict) and not set(value) & set(stop):
            found |= _flat(value, stop, f"{name}.")
        else:
            found[name] = value if stop else _frozen(value)
    return found


def _frozen(value: Any) -> Any:
    """Settings hold tuples where TOML has lists."""
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def _choices(name: str, values: Any) -> tuple[Any, ...]:
    if not isinstance(values, list | tuple) or not values:
        raise ValueError(f"{name} must be a list of values to try, as in [0.0, 2.0], got {values!r}.")
    found = tuple(map(_frozen, values))
    if len({repr(value) for value in found}) < len(found):
        raise ValueError(f"{name} has a value twice: {list(values)}.")
    return found


def _list(name: str, given: Any) -> list[Any]:
    if not isinstance(given, list) or not given:
        raise ValueError(f"{name} must be a list, got {given!r}.")
    return given


def _refuse_unknown(where: str, given: Collection[str], known: Collection[str]) -> None:
    for name in given:
        if name not in known:
            meant = get_close_matches(name, known, 1, cutoff=0.5)
            hint = f"do you mean {meant[0]!r}?" if meant else f"there are {', '.join(known)}."
            raise ValueError(f"{where} has no key {name!r}: {hint}")
