"""What the columns of an environment mean to a model: features, and how raw columns become them and back.

An environment shows rows of raw columns, which are kept and played as they are. A model learns from
described rows: a column with few values is a class, a constant is left out, columns of one place stand
together. Learned rows are decoded again: policies see what they see in the true environment.
"""

from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from marco.types import Agent, Categorical, Continuous, Episode, Feature, Spec, TimeStep, binary, total_width

Values = tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class Part:
    """Some columns of a row, and what they are together.

    Numbers, unless `values` lists what they show: each row of it is a class; a single one is a constant. A
    row of values that is all zeros is the first, and blank: silence, an empty place, a light that is off.
    """

    feature: str
    columns: tuple[int, ...]
    values: Values = ()
    labels: tuple[str, ...] = ()
    """The names of the classes."""
    absent: bool = False
    """Of numbers: they are all 0 where the thing is not there, which is a feature of its own."""
    repeats: tuple[int, ...] = ()
    """The columns that these are always equal to."""

    def __post_init__(self) -> None:
        what = f"feature {self.feature!r}"
        if not self.columns or len(set(self.columns)) < len(self.columns):
            raise ValueError(f"{what} needs columns, each once, got {list(self.columns)}.")
        if any(len(row) != len(self.columns) for row in self.values):
            raise ValueError(f"{what} has {len(self.columns)} columns: give as many numbers for each class.")
        if len(set(self.values)) < len(self.values):
            raise ValueError(f"{what} has the same values for two classes: give each class its own.")
        if any(not np.isfinite(row).all() for row in self.values):
            raise ValueError(f"{what} has values that are no finite numbers.")
        if self.labels and len(self.labels) != len(self.values):
            raise ValueError(f"{what} has {len(self.values)} classes but {len(self.labels)} labels.")
        if self.repeats and len(self.repeats) != len(self.columns):
            raise ValueError(f"{what} repeats {len(self.repeats)} columns with {len(self.columns)}.")
        if (self.absent or self.repeats) and self.values:
            raise ValueError(f"{what} has values, so it can neither be absent nor repeat other columns.")

    @property
    def features(self) -> tuple[Feature, ...]:
        """What the model learns of these columns."""
        if self.repeats or len(self.values) == 1:
            return ()
        if self.values:
            return (Categorical(self.feature, len(self.values), self._blank, labels=self.labels),)
        there = (binary(f"{self.feature} is there"),) if self.absent else ()
        return (*there, Continuous(self.feature, len(self.columns)))

    @property
    def _blank(self) -> bool:
        return not any(self.values[0])

    def encode(self, raw: Any, xp: Any) -> list[Any]:
        """The described columns of raw ones, in parts; values that are in no class count as the nearest."""
        if self.repeats or len(self.values) == 1:
            return []
        if not self.values:
            there = [(raw != 0.0).any(-1, keepdims=True).astype(np.float32)] if self.absent else []
            return [*there, raw]
        table = np.array(self.values, np.float32)
        if len(self.columns) == 1:
            index = xp.argmin(abs(raw - table[:, 0]), axis=-1)
        else:  # the squared distance, without what is the same for all classes
            index = xp.argmax(xp.matmul(raw, table.T) - 0.5 * np.square(table).sum(-1), axis=-1)
        hot = index[..., None] == np.arange(self._blank, len(table))
        return [hot.astype(np.float32)]


class _Map(NamedTuple):
    """Decoding as arithmetic: raw = (constant + described @ matrix) * (described[gate] or 1)."""

    matrix: np.ndarray
    constant: np.ndarray
    gate: np.ndarray
    """The column that says whether the thing is there; that after the last one, which is 1, for most."""


@dataclass(frozen=True)
class Row:
    """The description of a row of `width` raw columns."""

    width: int
    parts: tuple[Part, ...]

    def __post_init__(self) -> None:
        seen = Counter(column for part in self.parts for column in part.columns)
        if wrong := sorted(column for column in seen if not 0 <= column < self.width):
            raise ValueError(f"there is no column {wrong[0]}: they are numbered from 0 to {self.width - 1}.")
        if twice := sorted(column for column, count in seen.items() if count > 1):
            raise ValueError(f"column {twice[0]} is described twice: leave one out.")
        if missing := sorted(set(range(self.width)) - set(seen)):
            raise ValueError(f"column {missing[0]} is not described: each needs a feature.")
        names = Counter(part.feature for part in self.parts)
        if doubled := [name for name, count in names.items() if count > 1]:
            raise ValueError(f"two features are called {doubled[0]!r}: give each a name of its own.")
        own = {column for part in self.parts if part.features for column in part.columns}
        for part in self.parts:
            if not set(part.repeats) <= own:
                raise ValueError(f"feature {part.feature!r} repeats columns that have no feature themselves.")

    @classmethod
    def of(cls, features: tuple[Feature, ...]) -> "Row":
        """The row as features have it, with nothing made of it."""
        parts, at = [], 0
        for feature in features:
            if not feature.width:  # of one class, which is blank
                continue
            columns = tuple(range(at, at + feature.width))
            at += feature.width
            classes = (_table(feature), feature.labels) if isinstance(feature, Categorical) else ((), ())
            parts.append(Part(feature.name, columns, *classes))
        return cls(at, tuple(parts))

    @cached_property
    def features(self) -> tuple[Feature, ...]:
        """What the model learns."""
        return tuple(feature for part in self.parts for feature in part.features)

    def encode(self, raw: Float[Any, "*batch raw"]) -> Any:
        """Described rows, by numpy if these are numpy's."""
        xp: Any = np if isinstance(raw, np.ndarray) else jnp
        shown = [one for part in self.parts for one in part.encode(raw[..., list(part.columns)], xp)]
        return xp.concatenate([raw[..., :0], *shown], axis=-1)

    def decode(self, described: Float[Any, "*batch described"]) -> Any:
        """The raw rows of described ones."""
        xp: Any = np if isinstance(described, np.ndarray) else jnp
        matrix, constant, gate = self._map
        # At full precision: it is no arithmetic but a choice of columns.
        precision = {} if xp is np else {"precision": jax.lax.Precision.HIGHEST}
        raw = constant + xp.matmul(described, matrix, **precision)
        if not any(part.absent for part in self.parts):
            return raw
        ones = xp.ones((*described.shape[:-1], 1), np.float32)
        return raw * xp.concatenate([described, ones], axis=-1)[..., gate]

    def fits(self, raw: Float[np.ndarray, "rows raw"]) -> bool:
        """Whether these rows can be described without loss."""
        return bool(np.array_equal(self.decode(self.encode(raw)), raw))

    @cached_property
    def _map(self) -> _Map:
        described = total_width(self.features)
        matrix = np.zeros((described, self.width), np.float32)
        constant = np.zeros(self.width, np.float32)
        gate, at = np.full(self.width, described), 0
        for part in self.parts:
            columns = list(part.columns)
            if len(part.values) == 1:
                constant[columns] = part.values[0]
            elif part.values:
                rows = np.array(part.values[part._blank :], np.float32)
                matrix[at : at + len(rows), columns] = rows
            elif not part.repeats:
                matrix[at + part.absent + np.arange(len(columns)), columns] = 1.0
                gate[columns] = at if part.absent else described
            at += total_width(part.features)
        for part in self.parts:
            if part.repeats:
                matrix[:, list(part.columns)] = matrix[:, list(part.repeats)]
                gate[list(part.columns)] = gate[list(part.repeats)]
        return _Map(matrix, constant, gate)


@dataclass(frozen=True)
class Description:
    """The description of an environment's state, and of what each of its agents observes."""

    state: Row
    agents: tuple[Row, ...]

    @classmethod
    def of(cls, spec: Spec) -> "Description":
        """An environment in the words of its own spec."""
        return cls(Row.of(spec.state), tuple(Row.of(agent.observation) for agent in spec.agents))

    def spec(self, spec: Spec) -> Spec:
        """The environment as a model of it learns it."""
        agents: list[Agent] = [
            replace(agent, observation=row.features)
            for agent, row in zip(spec.agents, self.agents, strict=True)
        ]
        return replace(spec, agents=tuple(agents), state=self.state.features)

    def episodes(self, episodes: Episode) -> Episode:
        """The same episodes (or timesteps) in described columns."""
        shown = {"observation": self.encode_observation(episodes.observation)}
        return episodes._replace(state=self.state.encode(episodes.state), **shown)

    def timestep(self, timestep: TimeStep) -> TimeStep:
        """A timestep in described columns."""
        shown = {"observation": self.encode_observation(timestep.observation)}
        return timestep._replace(state=self.state.encode(timestep.state), **shown)

    def encode_observation(self, raw: Float[Any, "*batch N O"]) -> Any:
        """What the agents observe, in described columns."""
        own = [row.encode(raw[..., i, : row.width]) for i, row in enumerate(self.agents)]
        return _padded(own)

    def decode_observation(self, described: Float[Array, "*batch N _"]) -> Float[Array, "*batch N O"]:
        """The raw columns that the agents observe."""
        widths = [total_width(row.features) for row in self.agents]
        return _padded([row.decode(described[..., i, : widths[i]]) for i, row in enumerate(self.agents)])


def in_words(description: Description, spec: Spec) -> tuple[str, ...]:
    """A line for the state, and for what each agent observes: the features, and what was left out."""
    agents = zip(spec.agents, description.agents, strict=True)
    rows = [("state", description.state), *((f"agent {agent.name} sees", row) for agent, row in agents)]
    lines = []
    for title, row in rows:
        names = [
            f"{f.name} ({f.size} classes)" if isinstance(f, Categorical) else f"{f.name} ({f.width})"
            for f in row.features
        ]
        constant = sum(len(part.columns) for part in row.parts if len(part.values) == 1)
        repeated = sum(len(part.columns) for part in row.parts if part.repeats)
        left = [
            f"{count} {what}" for count, what in ((constant, "constant"), (repeated, "repeated")) if count
        ]
        out = f"; left out: {', '.join(left)} columns" if left else ""
        lines.append(f"{title}: {', '.join(names) or 'nothing that varies'}{out}")
    return tuple(lines)


def _padded(rows: list[Any]) -> Any:
    """Rows of several agents, filled up with zeros to the widest."""
    xp: Any = np if isinstance(rows[0], np.ndarray) else jnp
    widest = max(row.shape[-1] for row in rows)
    return xp.stack(
        [xp.pad(row, [(0, 0)] * (row.ndim - 1) + [(0, widest - row.shape[-1])]) for row in rows], axis=-2
    )


def _table(feature: Categorical) -> Values:
    """The columns of each class."""
    hot = np.eye(feature.size, dtype=np.float32)[:, int(feature.blank) :]
    rows = feature.low + (feature.high - feature.low) * hot
    return tuple(tuple(row) for row in rows.tolist())
