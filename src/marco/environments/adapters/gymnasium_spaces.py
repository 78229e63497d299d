"""Gymnasium's spaces in MARCO's terms: observations become features in columns, actions an index.

Gymnasium is optional: it is imported only once there is a space to describe.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from types import ModuleType
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

from marco.environments.adapters.common import action_components, array_features, count, parts_of
from marco.environments.base import WorldError
from marco.optional import require
from marco.types import ActionComponent, Agent, Categorical, Feature, binary

Space = Any
"""A gymnasium space. Gymnasium is no dependency, so its types cannot be named."""

Value = Any
"""Whatever an environment returned as a member of a space. Nothing is known of it until it is checked."""

MASK = "action_mask"
"""The key under which PettingZoo's environments give the available actions."""

MAX_CLASSES = 100_000
"""The most actions of an agent, and the most classes of a feature: each has its own column somewhere."""

TOLERANCE = 1e-5
"""How far a number may lie outside its bounds, relative to the bound if that is above 1: float32 rounds."""


@dataclass(frozen=True)
class Leaf:
    """A part of a space that has no parts itself: where it stands in a value, and how it is shown."""

    name: str
    path: tuple[str | int, ...]
    space: Space
    features: tuple[Feature, ...]

    def encode(self, value: Value, where: str) -> Float[np.ndarray, " O"]:
        """The columns that show the leaf's part of `value`, once that is known to lie in the space."""
        array = _numbers(self._pick(value, where), self.space, f"{where}, {self.name!r}")
        if isinstance(self.space, _spaces().Box):
            return array.astype(np.float32).ravel()
        first = np.array([part.first for part in parts_of(self.space, self.name)])
        return _one_hot(self.features, array.astype(np.int64).ravel() - first)

    def _pick(self, value: Value, where: str) -> Value:
        for key in self.path:
            try:
                value = value[key]
            except (KeyError, IndexError, TypeError) as error:
                raise WorldError(
                    f"{where}: the part {self.name!r} of its space is missing from {value!r}. "
                    "Return a value for every key of the space."
                ) from error
        return value


@dataclass(frozen=True)
class Columns:
    """How the members of a space are shown as columns. `mask_key` says that a mask travels with them."""

    leaves: tuple[Leaf, ...]
    mask_key: bool = False

    @property
    def features(self) -> tuple[Feature, ...]:
        """What the columns mean."""
        return tuple(feature for leaf in self.leaves for feature in leaf.features)

    def encode(self, value: Value, where: str) -> Float[np.ndarray, " O"]:
        """The columns that show `value`; `where` begins the message if it lies outside the space."""
        nothing = np.zeros(0, np.float32)
        return np.concatenate([nothing, *(leaf.encode(value, where) for leaf in self.leaves)])


@dataclass(frozen=True)
class Actions:
    """A finite space of actions, numbered from 0; the first component runs fastest."""

    space: Space
    actions: tuple[ActionComponent, ...]

    def native(self, index: int) -> int | Int[np.ndarray, "..."]:
        """The action with this number as the environment knows it."""
        components = Agent("", self.actions, ()).components_of(index)
        first = [part.first for part in parts_of(self.space, "action")]
        values = np.add(first, components)
        if isinstance(self.space, _spaces().Discrete):
            return int(values[0])
        return np.asarray(values.reshape(self.space.shape), self.space.dtype)

    def mask(self, raw: Value, where: str) -> Bool[np.ndarray, " A"]:
        """The available actions from one flat mask over the numbers, or from one mask per component."""
        sizes = [component.size for component in self.actions]
        if isinstance(raw, tuple | list) and len(raw) == len(sizes) and np.ndim(raw[0]) > 0:
            parts = [_flags(part, size, where) for part, size in zip(raw, sizes, strict=True)]
            return reduce(lambda joint, part: np.logical_and.outer(part, joint).ravel(), parts)
        return _flags(raw, count(self.actions), where)


def columns(space: Space, root: str, where: str) -> Columns:
    """Describe a space of observations or states; `root` names it if its parts have no names.

    `where` begins error messages. A mask that a Dict holds beside the observation is no part of it.
    """
    mask_key = isinstance(space, _spaces().Dict) and MASK in space.spaces
    parts = _leaves(space, (), root, where)
    return Columns(tuple(leaf for leaf in parts if not (mask_key and leaf.path[0] == MASK)), mask_key)


def actions(space: Space, where: str) -> Actions:
    """Describe a space of actions, or refuse one that is not finite."""
    spaces = _spaces()
    if not isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        raise ValueError(
            f"{where}: the action space {space} is not supported, only Discrete and MultiDiscrete are. "
            "Make the actions discrete: many environments take continuous_actions=False, others need a "
            "wrapper that offers a finite choice."
        )
    if (number := count(parts_of(space, "action"))) > MAX_CLASSES:
        raise ValueError(
            f"{where}: the action space {space} has {number:,} joint actions, more than {MAX_CLASSES:,}. "
            "Use fewer or coarser components."
        )
    return Actions(space, action_components(space))


def _leaves(space: Space, path: tuple[str | int, ...], root: str, where: str) -> Iterator[Leaf]:
    spaces, name = _spaces(), ".".join(map(str, path)) or root
    if isinstance(space, spaces.Dict):
        for key, part in space.spaces.items():
            yield from _leaves(part, (*path, key), root, where)
    elif isinstance(space, spaces.Tuple):
        for index, part in enumerate(space.spaces):
            yield from _leaves(part, (*path, index), root, where)
    elif isinstance(space, spaces.Box | spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary):
        yield Leaf(name, path, space, _features(space, name, where))
    else:
        raise ValueError(
            f"{where}: the space {space} of {name!r} is not supported, only Box, Discrete, MultiDiscrete, "
            "MultiBinary, and Dict and Tuple of these are. Wrap the environment to show one of them."
        )


def _features(space: Space, name: str, where: str) -> tuple[Feature, ...]:
    spaces = _spaces()
    if isinstance(space, spaces.Box):
        return array_features(name, space.shape, space.dtype, apart=False)
    parts = parts_of(space, name)
    if (most := max((part.size for part in parts), default=0)) > MAX_CLASSES:
        raise ValueError(
            f"{where}: {name!r} of the space {space} has {most:,} classes, more than {MAX_CLASSES:,}, "
            "and each needs a column. Show it as a Box or split it into parts."
        )
    if isinstance(space, spaces.MultiBinary):
        return tuple(binary(part.name) for part in parts)
    return tuple(Categorical(part.name, part.size, labels=part.labels) for part in parts)


def _numbers(value: Value, space: Space, where: str) -> Shaped[np.ndarray, "..."]:
    """`value` as an array that lies in a space without parts, or an error that says how it does not."""
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise WorldError(f"{where}: {value!r} is no array of numbers, as {space} demands.") from error
    if array.dtype.kind not in "biuf":
        raise WorldError(f"{where}: {value!r} is no number or array of numbers, as {space} demands.")
    if array.shape != space.shape:
        raise WorldError(
            f"{where}: got the shape {array.shape}, but {space} demands {space.shape}. "
            "Correct the environment's space or what it returns."
        )
    if not np.isfinite(array.astype(np.float32)).all():
        raise WorldError(
            f"{where}: got {array}, but NaN and infinity cannot be learned from. Clip or drop them."
        )
    low, high = _bounds(space)
    flat = array.ravel()
    if (outside := (flat < low) | (flat > high)).any():
        raise WorldError(
            f"{where}: got {flat[outside][0]}, outside {space}. "
            "Correct the environment's space or what it returns."
        )
    if not isinstance(space, _spaces().Box) and (array != np.round(array)).any():
        raise WorldError(
            f"{where}: got {array}, but {space} holds whole numbers only. Round what it returns."
        )
    return array


def _bounds(space: Space) -> tuple[Float[np.ndarray, " parts"], Float[np.ndarray, " parts"]]:
    if not isinstance(space, _spaces().Box):
        parts = parts_of(space, "")
        first, last = [part.first for part in parts], [part.first + part.size - 1 for part in parts]
        return np.array(first, np.float64), np.array(last, np.float64)
    low, high = space.low.ravel().astype(np.float64), space.high.ravel().astype(np.float64)
    return low - TOLERANCE * np.maximum(1.0, abs(low)), high + TOLERANCE * np.maximum(1.0, abs(high))


def _one_hot(features: tuple[Feature, ...], indices: Int[np.ndarray, " parts"]) -> Float[np.ndarray, " O"]:
    # `Categorical.encode` would compile for every new shape; here a single value is shown, by numpy.
    shown = [
        np.arange(feature.width) == index - (isinstance(feature, Categorical) and feature.blank)
        for feature, index in zip(features, indices, strict=True)
    ]
    return np.concatenate([np.zeros(0, np.float32), *shown]).astype(np.float32)


def _flags(raw: Value, size: int, where: str) -> Bool[np.ndarray, " A"]:
    array = np.asarray(raw)
    if array.shape != (size,):
        raise WorldError(
            f"{where}: the action mask has the shape {array.shape}, but there are {size} actions. "
            f"Give {size} zeros and ones, or a tuple with one mask per component."
        )
    if not np.isin(array, (0, 1)).all():
        raise WorldError(f"{where}: the action mask is {array}, but only 0 and 1 have a meaning in it.")
    return array.astype(np.bool_)


def _spaces() -> ModuleType:
    return require("gymnasium.spaces", "pettingzoo")
