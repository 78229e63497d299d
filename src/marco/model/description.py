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

from marco.model.parts import Part, Values
from marco.types import Agent, Categorical, Episode, Feature, Spec, TimeStep, total_width

EXACT = 1e-4
"""The largest error of a sum of places, relative to the size of the column."""


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
            if not {*part.plus, *part.minus} <= {c for one in self._places for c in one.columns}:
                raise ValueError(f"feature {part.feature!r} is a sum of columns that are no places.")
        if self._sums and np.linalg.matrix_rank(self._ways) < self.width:
            raise ValueError("the places of plus and minus depend on each other: describe one by itself.")

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
        if self._sums:
            raw = _matmul(raw, self._from_ways)
        shown = [one for part in self.parts for one in part.encode(raw[..., list(part.columns)], xp)]
        return xp.concatenate([raw[..., :0], *shown], axis=-1)

    def decode(self, described: Float[Any, "*batch described"]) -> Any:
        """The raw rows of described ones."""
        xp: Any = np if isinstance(described, np.ndarray) else jnp
        matrix, constant, gate = self._map
        raw = constant + _matmul(described, matrix)
        if not any(part.absent for part in self.parts):
            return raw
        ones = xp.ones((*described.shape[:-1], 1), np.float32)
        return raw * xp.concatenate([described, ones], axis=-1)[..., gate]

    def fits(self, raw: Float[np.ndarray, "rows raw"]) -> bool:
        """Whether these rows can be described without loss; of sums, but for how they are rounded."""
        again, summed = self.decode(self.encode(raw)), [c for part in self._sums for c in part.columns]
        off = np.abs(again - raw).max(0, initial=0.0)
        allowed = np.zeros(self.width)
        allowed[summed] = EXACT * np.abs(raw[:, summed]).max(0, initial=0.0)
        return bool((off <= allowed).all())

    @cached_property
    def _sums(self) -> tuple[Part, ...]:
        """The parts that are sums of places."""
        return tuple(part for part in self.parts if part.plus or part.minus)

    @cached_property
    def _places(self) -> tuple[Part, ...]:
        """The parts with places of their own: numbers that are always there."""
        return tuple(part for part in self.parts if part.features and not (part.values or part.absent))

    @cached_property
    def _ways(self) -> Float[np.ndarray, "places raw"]:
        """From places, at the columns that are theirs, to what these columns show: raw = places @ ways."""
        ways = np.eye(self.width, dtype=np.float32)
        for part in self._sums:
            if part.features:
                ways[:, list(part.columns)] = 0.0
                for sign, columns in part.terms():
                    ways[list(columns), list(part.columns)] += sign
        return ways

    @cached_property
    def _from_ways(self) -> Float[np.ndarray, "raw places"]:
        return np.round(np.linalg.inv(self._ways)).astype(np.float32)

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
                rows = np.array(part.values[part.blank :], np.float32)
                matrix[at : at + len(rows), columns] = rows
            elif part.features:
                matrix[at + part.absent + np.arange(len(columns)), columns] = 1.0
                gate[columns] = at if part.absent else described
            at += total_width(part.features)
        places = matrix.copy()
        for part in self._sums:
            signed = [sign * places[:, list(columns)] for sign, columns in part.terms()]
            matrix[:, list(part.columns)] = np.sum(signed, axis=0)
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
        derived = sum(len(part.columns) for part in row.parts if part.derived)
        counts = ((constant, "constant"), (repeated, "repeated"), (derived, "derived"))
        left = [f"{count} {what}" for count, what in counts if count]
        out = f"; left out: {', '.join(left)} columns" if left else ""
        lines.append(f"{title}: {', '.join(names) or 'nothing that varies'}{out}")
    return tuple(lines)


def _matmul(rows: Any, matrix: np.ndarray) -> Any:
    """A product at full precision: it is hardly arithmetic but a choice of columns."""
    if isinstance(rows, np.ndarray):
        return np.matmul(rows, matrix)
    return jnp.matmul(rows, matrix, precision=jax.lax.Precision.HIGHEST)


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
