"""Checks of settings: a bad value is refused by its name before anything is compiled."""

import math
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from numbers import Integral, Real
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

LARGEST = 2**31 - 1
"""The largest count: compiled programs count in 32 bits."""
COLUMNS = 1_000_000
"""The most columns of a state of MARCO's own environments."""
TEST_EPISODES = 1_000_000
"""The most test episodes: they are played side by side."""
SEEDS = 2**32
"""Seeds are below: JAX keeps 32 bits of one, so that larger ones would be others' doubles."""

WORDS = {int: "a whole number", float: "a number", bool: "True or False", str: "a word", NoneType: "None"}


def check_fields(config: Any) -> None:
    """Refuse values of another type than a dataclass says, and numbers that nothing can be computed from."""
    owner = type(config).__name__
    values = {field.name: getattr(config, field.name) for field in fields(config)}
    check_types(owner, values, {field.name: field.type for field in fields(config)})
    check_numbers(owner, values)


def check_numbers(owner: str, values: Mapping[str, Any]) -> None:
    """Refuse numbers that are not finite, and counts beyond 32 bits."""
    for name, value in values.items():
        for number in _numbers(value):
            if isinstance(number, Integral):
                if abs(int(number)) > LARGEST:
                    raise ValueError(f"{owner}: {name} must be at most {LARGEST}, got {value}.")
            elif not math.isfinite(number):
                raise ValueError(f"{owner}: {name} must be a finite number, got {value}.")


def check_types(owner: str, values: Mapping[str, Any], kinds: Mapping[str, Any]) -> None:
    """Refuse values of another type than annotated."""
    for name, value in values.items():
        if name in kinds and not is_of(value, kinds[name]):
            raise ValueError(f"{owner}: {name} must be {in_words(kinds[name])}, got {value!r}.")


def is_of(value: Any, kind: Any) -> bool:
    """Whether a value is of an annotated type. True is no number; of types not known here anything is."""
    origin, inner = get_origin(kind) or kind, get_args(kind)
    if origin in (Union, UnionType):
        return any(is_of(value, one) for one in inner)
    if origin is Literal:
        return value in inner
    if origin in (int, float):
        return isinstance(value, Integral if origin is int else Real) and not isinstance(value, bool)
    if origin in (tuple, list) and inner and isinstance(value, origin):
        of_each = inner if origin is tuple and inner[-1] is not ... else inner[:1] * len(value)
        return len(value) == len(of_each) and all(map(is_of, value, of_each))
    if origin in (bool, str, NoneType, tuple, list, dict):
        return isinstance(value, origin)
    if is_dataclass(origin) or getattr(origin, "_is_runtime_protocol", False):
        return isinstance(value, origin)
    return origin is not None or value is None


def in_words(kind: Any) -> str:
    """A type for the reader."""
    if get_origin(kind) is Literal:
        return f"one of {', '.join(map(str, get_args(kind)))}"
    if get_origin(kind) in (Union, UnionType):
        return " or ".join(map(in_words, get_args(kind)))
    return WORDS.get(kind) or (f"a {kind.__name__}" if isinstance(kind, type) else str(kind))


def check_positive(owner: str, **values: float | int) -> None:
    """Refuse settings that must be positive and are not."""
    for name, value in values.items():
        if not value > 0:
            raise ValueError(f"{owner}: {name} must be positive, got {value}.")


def check_not_negative(owner: str, **values: float | int) -> None:
    """Refuse settings that must not be negative and are."""
    for name, value in values.items():
        if value < 0:
            raise ValueError(f"{owner}: {name} must not be negative, got {value}.")


def check_between(owner: str, low: float, high: float, **values: float | int) -> None:
    """Refuse settings outside a closed range."""
    for name, value in values.items():
        if not low <= value <= high:
            raise ValueError(f"{owner}: {name} must be between {low} and {high}, got {value}.")


def check_seed(name: str, seed: Any) -> None:
    """Refuse what is no seed."""
    if not is_of(seed, int) or not 0 <= seed < SEEDS:
        raise ValueError(f"{name} must be a whole number from 0 to {SEEDS - 1}, got {seed!r}.")


def check_seeds(seeds: Sequence[Any]) -> None:
    """Refuse equal seeds, and what is no seed."""
    good = all(is_of(seed, int) and 0 <= seed < SEEDS for seed in seeds)
    if not seeds or not good or len(set(seeds)) != len(seeds):
        raise ValueError(f"seeds must be different whole numbers from 0 to {SEEDS - 1}, got {list(seeds)}.")


def check_episodes(name: str, episodes: Any) -> None:
    """Refuse a number of test episodes that gives no estimate with its error."""
    if not is_of(episodes, int) or episodes < 2:
        raise ValueError(f"{name} must be at least 2, got {episodes!r}.")
    if episodes > TEST_EPISODES:
        raise ValueError(f"{name} must be at most {TEST_EPISODES:,}, got {episodes}.")


def same_world(one: str, other: str) -> bool:
    """Whether two names are of one environment: a file may have been moved, or be named from elsewhere."""
    return Path(one).name == Path(other).name


def check_columns(what: str, columns: int) -> None:
    """Refuse a state of so many columns before their names are listed."""
    if columns > COLUMNS:
        raise ValueError(
            f"{what} has a state of {columns:,} columns, {gib(4 * columns)} in every step; {COLUMNS:,} are "
            "the most: make it smaller."
        )


def check_fits(what: str, numbers: int, cure: str, available: int | None = None) -> None:
    """Refuse arrays of so many numbers (of 4 bytes) that the memory cannot hold them."""
    available = machine_memory() if available is None else available
    if 4 * numbers > available:
        raise ValueError(
            f"{what} would take about {gib(4 * numbers)}, but {gib(available)} are there: {cure}."
        )


def machine_memory() -> int:
    """The machine's memory in bytes."""
    if not hasattr(os, "sysconf"):  # Windows does not say
        return sys.maxsize
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def cores() -> int:
    """How many threads can run at once: those of this process, which may have been given fewer than all."""
    if (given := os.environ.get("NPROC", "")).isdigit() and int(given):  # as XLA understands it
        return int(given)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def gib(size: int) -> str:
    """An amount of memory for the reader."""
    return f"{size // 2**20 / 1024:,.1f} GiB" if size < 2**80 else "more than all memory there is"


def _numbers(value: Any) -> Iterable[Any]:
    """The numbers in a value; nested configurations have checked theirs."""
    if isinstance(value, tuple):
        return (number for one in value for number in _numbers(one))
    return (value,) if isinstance(value, Real) else ()
