"""Finding out from real data what an environment's columns mean, where nobody has said it.

Columns that take few values, the same in one half of the episodes as in the other, are classes. Adjacent ones
of which one is on are a one-hot block. What never varies is left out, and so is what repeats other columns.
Numbers that are all 0 at once, and often, are of a thing that is not always there. All the rest are numbers:
`places` finds which of them belong together.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from marco.environments.base import Guessed
from marco.model.description import Description, Row
from marco.model.parts import Part
from marco.model.places import Changes, with_places
from marco.model.values import few_values, tables_of, with_classes, within_budget
from marco.types import Continuous, Episode, Feature, Spec

LEAST_EPISODES = 4
"""With fewer nothing is found out: one episode says nothing of the others."""
TOGETHER = 3.0
"""A column joins a one-hot block if it would be on with others in so many rows, were it independent."""
PLACE = 4
"""Of several things alike, up to so many numbers each stay together: places of constant height."""
ABSENT = (0.05, 0.95)
"""The share of rows in which a thing is not there: from, to."""


class Rows(NamedTuple):
    """Raw rows of all timesteps that were shown, with the episode and the time of each."""

    raw: Float[np.ndarray, "rows columns"]
    episode: Int[np.ndarray, " rows"]
    time: Int[np.ndarray, " rows"]
    actions: Int[np.ndarray, "rows N"]
    """What the agents did then; anything at the end of an episode."""

    def changes(self) -> Changes:
        """The steps between these rows."""
        order = np.lexsort((self.time, self.episode))
        now, then = order[:-1], order[1:]
        follows = (self.episode[now] == self.episode[then]) & (self.time[then] == self.time[now] + 1)
        now, then = now[follows], then[follows]
        return Changes(self.raw[now], self.raw[then], self.actions[now], self.raw)


def describe(spec: Spec, episodes: Sequence[Episode], guessed: Guessed) -> Description:
    """The description of an environment by its real episodes (axes T B), those of all seeds together.

    What is not `guessed` is as its spec says.
    """
    stated = Description.of(spec)
    found = stated
    if guessed.state:
        rows = _rows(episodes, [np.asarray(own.state) for own in episodes])
        row = describe_row(spec.state, rows)
        # A model needs something to predict, even if it never changes.
        found = replace(found, state=row if row.features else stated.state)
    if guessed.observation:
        own = [_observed(spec, episodes, index) for index in range(spec.num_agents)]
        views = [describe_row(agent.observation, rows) for agent, rows in zip(spec.agents, own, strict=True)]
        if any(row.features for row in views):
            found = replace(found, agents=tuple(within_budget(views, stated.agents)))
    return found


def fits(description: Description, spec: Spec, episodes: Sequence[Episode]) -> bool:
    """Whether real episodes are described without loss: no value is new, and no constant varies."""
    state = _rows(episodes, [np.asarray(own.state) for own in episodes])
    views = [_observed(spec, episodes, index).raw for index in range(spec.num_agents)]
    rows = [(description.state, state.raw), *zip(description.agents, views, strict=True)]
    return all(row.fits(raw) for row, raw in rows)


def numbers(description: Description) -> int:
    """How many columns are described as numbers."""
    rows = (description.state, *description.agents)
    return sum(len(part.columns) for row in rows for part in row.parts if part.features and not part.values)


def describe_row(features: tuple[Feature, ...], rows: Rows) -> Row:
    """The description of rows of which `features` are known so far."""
    stated = Row.of(features)
    if len(np.unique(rows.episode)) < LEAST_EPISODES:
        return stated
    finder, parts = _Finder(rows), list[Part]()
    with_columns = zip((feature for feature in features if feature.width), stated.parts, strict=True)
    for kind, group in groupby(with_columns, key=lambda pair: _kind(pair[0])):
        alike = [part for _, part in group]
        if kind is None:
            parts += [finder.unless_constant(part) for part in alike]
        else:
            parts += finder.of_numbers(kind[0], alike)
    (row,) = within_budget([Row(stated.width, tuple(parts))], [stated])
    whole = tuple(_without_repeats(row.parts, rows.raw))
    return replace(row, parts=tuple(with_places(whole, rows.changes())))


class _Field(NamedTuple):
    """Columns that may belong together, as numbers of one array do."""

    name: str
    separator: str
    columns: tuple[int, ...]
    apart: bool = False
    """Whether each is a feature by itself, unless they turn out to be a one-hot block."""
    place: bool = False
    """Whether they stay together if any is a number: the coordinates of one of several things."""

    def named(self, columns: Sequence[int]) -> str:
        """The name of some of the columns."""
        if len(columns) == len(self.columns) and not (self.apart and len(columns) > 1):
            return self.name
        first, last = columns[0] - self.columns[0], columns[-1] - self.columns[0]
        return f"{self.name}{self.separator}{first}" + (f"-{last}" if last != first else "")


class _Finder:
    """What the columns of some rows are."""

    def __init__(self, rows: Rows) -> None:
        self.rows, self.raw = rows, rows.raw
        self.constant = (self.raw == self.raw[:1]).all(0)
        self.values = [few_values(column, rows.episode) for column in self.raw.T]

    def unless_constant(self, part: Part) -> Part:
        """The part, or a constant."""
        columns = list(part.columns)
        return self._fixed(part.feature, columns) if self.constant[columns].all() else part

    def of_numbers(self, name: str, alike: list[Part]) -> Iterator[Part]:
        """The parts of features of one kind, which so far are numbers: several places, or one flat Box."""
        many, width = len(alike) > 1, len(alike[0].columns)
        if many and width == 1:
            fields = [_Field(name, " ", tuple(part.columns[0] for part in alike), apart=True)]
        else:
            place = many and width <= PLACE
            fields = [_Field(part.feature, ".", part.columns, place=place) for part in alike]
        # What is a number in one of several like things is one in all of them.
        numeric = {part.columns[i] for i in range(width) for part in alike if self._is_number(alike, i, many)}
        columns = [column for field in fields for column in field.columns if column not in numeric]
        tables = tables_of({column: self.values[column] for column in columns if self.values[column]})
        for field in fields:
            yield from self._split(field, tables)

    def _is_number(self, alike: list[Part], offset: int, many: bool) -> bool:
        columns = [part.columns[offset] for part in alike]
        return many and any(not self.values[column] for column in columns)

    def _split(self, field: _Field, tables: dict[int, tuple[float, ...]]) -> Iterator[Part]:
        """A field in parts: one-hot blocks, classes, constants, and the numbers that are left."""
        left = list(field.columns)
        for block in self._one_hot_blocks([column for column in left if column in tables]):
            yield self._one_hot(field.named(block), block)
            left = [column for column in left if column not in block]
        constant = [column for column in left if self.constant[column]]
        classes = [column for column in left if column in tables and column not in constant]
        numbers = [column for column in left if column not in (*constant, *classes)]
        if numbers and field.place:
            constant, classes, numbers = [], [], left
        if constant and not field.apart:
            yield self._fixed(field.named(constant), constant)
        elif constant:
            yield from (self._fixed(field.named([column]), [column]) for column in constant)
        for column in classes:
            yield with_classes(field.named([column]), column, tables[column])
        yield from self._numbers(field, numbers)

    def _one_hot_blocks(self, columns: list[int]) -> list[list[int]]:
        """The adjacent columns of which never two are on: where they vary, it cannot be by chance."""
        blocks, block = [], list[int]()
        for column in columns:
            if block and column == block[-1] + 1 and self._exclude_each_other(block, column):
                block = [*block, column]
                continue
            blocks.append(block)
            block = [column] if len(self.values[column]) <= 2 else []
        blocks = [_without_edges(block, self.constant) for block in (*blocks, block)]
        return [block for block in blocks if len(block) > 1]

    def _exclude_each_other(self, block: list[int], column: int) -> bool:
        low, high = self._levels([*block, column])
        on, before = self.raw[:, column] == high, (self.raw[:, block] == high).any(1)
        if len(self.values[column]) > 2 or low == high:
            return False
        if self.constant[column]:
            return bool(self.raw[0, column] == low)
        same = all(set(self.values[c]) == {low, high} for c in (*block, column) if not self.constant[c])
        enough = on.mean() * before.mean() * len(on) >= TOGETHER or not before.any()
        # Where one of two is always on, they exclude each other however rare that is.
        certain = bool((on | before).all())
        return same and not (on & before).any() and bool(enough or certain)

    def _levels(self, columns: list[int]) -> tuple[float, float]:
        """Off and on."""
        return float(self.raw[:, columns].min()), float(self.raw[:, columns].max())

    def _one_hot(self, name: str, block: list[int]) -> Part:
        low, high = self._levels(block)
        rows = [[low] * len(block)] if (self.raw[:, block] == low).all(1).any() else []
        rows += [[high if i == j else low for j in range(len(block))] for i in range(len(block))]
        return Part(name, tuple(block), tuple(map(tuple, rows)))

    def _fixed(self, name: str, columns: list[int]) -> Part:
        return Part(name, tuple(columns), (tuple(self.raw[0, columns].tolist()),))

    def _numbers(self, field: _Field, columns: list[int]) -> Iterator[Part]:
        """Numbers, and apart those that are 0 at the same times: of a thing that is not always there.

        One number alone may be 0 for other reasons: a step to the side leaves half of a velocity at 0.
        """
        zero = self.raw[self.rows.time > 0] == 0.0  # much is 0 at the start, as velocities are
        share = zero.mean(0) if len(zero) else np.zeros(zero.shape[1])
        together: dict[bytes, list[int]] = {}
        for column in columns:
            often = ABSENT[0] <= share[column] <= ABSENT[1]
            key = np.packbits(zero[:, column]).tobytes() if often else b""
            together.setdefault(key, []).append(column)
        if field.place and len(together) > 1:
            together = {b"": columns}
        alone = [own[0] for key, own in together.items() if key and len(own) == 1 and not field.apart]
        if alone:
            others = {key: own for key, own in together.items() if len(own) > 1 and key}
            together = {b"": sorted([*together.get(b"", []), *alone])} | others
        for key, own in together.items():
            for group in [[column] for column in own] if field.apart else [own]:
                yield Part(field.named(group), tuple(group), absent=bool(key) and len(group) > 1)


def _without_edges(block: list[int], constant: Bool[np.ndarray, " columns"]) -> list[int]:
    """The block from the first to the last of its columns that vary: others are classes not seen yet."""
    varying = [index for index, column in enumerate(block) if not constant[column]]
    return block[varying[0] : varying[-1] + 1] if varying else []


def _without_repeats(parts: tuple[Part, ...], raw: Float[np.ndarray, "rows columns"]) -> Iterator[Part]:
    """The parts, without features of those that are always equal to earlier ones."""
    first: dict[bytes, tuple[int, ...]] = {}
    for part in parts:
        if not part.features:
            yield part
            continue
        columns = np.ascontiguousarray(raw[:, list(part.columns)] + 0.0)  # no -0.0, which equals 0.0
        before = first.setdefault(columns.tobytes(), part.columns)
        yield part if before == part.columns else Part(part.feature, part.columns, repeats=before)


def _kind(feature: Feature) -> tuple[str, int] | None:
    """What features of one array share: name without number, and width. None of those that are known."""
    if not isinstance(feature, Continuous):
        return None
    return re.sub(r" [0-9]+$", "", feature.name), feature.width


def _observed(spec: Spec, episodes: Sequence[Episode], index: int) -> Rows:
    width = spec.agents[index].observation_width
    return _rows(episodes, [np.asarray(own.observation)[..., index, :width] for own in episodes])


def _rows(episodes: Sequence[Episode], columns: list[np.ndarray]) -> Rows:
    """The rows of all timesteps that were shown; episodes are numbered over all seeds."""
    raw, episode, time, actions, begun = [], [], [], [], 0
    for own, values in zip(episodes, columns, strict=True):
        mask = np.asarray(own.mask)
        shown = np.concatenate([np.ones_like(mask[:1]), mask])
        numbers = np.broadcast_to(begun + np.arange(mask.shape[1]), shown.shape)
        times = np.broadcast_to(np.arange(len(shown))[:, None], shown.shape)
        begun += mask.shape[1]
        raw.append(values[shown])
        episode.append(numbers[shown])
        time.append(times[shown])
        taken = np.asarray(own.actions)
        actions.append(np.concatenate([taken, taken[-1:]])[shown])
    return Rows(*(np.concatenate(part) for part in (raw, episode, time, actions)))
