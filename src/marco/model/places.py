"""Finding places in a flat row of numbers: which adjacent numbers are the coordinates of one vector.

Coordinates are told apart by what moves together. A position changes by its velocity and a way to a landmark
against it, each coordinate by itself: so columns that are *linked* are of one axis, and the axes of a plane
are two sets of columns of which one is the other moved on by a column. Numbers that have nothing to do with
each other have no links, and stay as they are.

Ways between the same places contradict each other unless some are computed from the others. So of vectors
that are sums and differences of others the model learns nothing: they are *derived* from places.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby, pairwise, product
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from marco.model.parts import Part

LINK = 0.9
"""Columns are linked if one correlates so much with the change of the other, or their changes do."""
DRIVEN = 0.1
"""An agent drives a column if its actions explain this share of the variance of its changes."""
SIZES = (2, 3)
"""The coordinates of a place."""
ALIKE = 3.0
"""Coordinates of what never moves may differ so much in their spread."""
EXACT = 1e-4
"""The largest error of a sum or difference, as a share of the column's root mean square."""
MOST_COLUMNS, MOST_ROWS = 256, 4_000
"""Beyond so many numbers no places are looked for; links are found in so many steps."""

Vector = tuple[int, ...]


class Changes(NamedTuple):
    """What numbers were before and after real steps, and what the agents did; and all rows."""

    before: Float[np.ndarray, "steps columns"]
    after: Float[np.ndarray, "steps columns"]
    actions: Int[np.ndarray, "steps N"]
    raw: Float[np.ndarray, "rows columns"]


def with_places(parts: Sequence[Part], changes: Changes) -> list[Part]:
    """The parts, of which those of several numbers are split into vectors where data show these."""
    numeric = [part for part in parts if _is_numeric(part)]
    columns = sorted(column for part in numeric for column in part.columns)
    if not columns or len(columns) > MOST_COLUMNS or len(changes.before) < 2:
        return list(parts)
    starts = _coordinates(_axes(np.array(columns), changes))
    split = {part: list(_split(part, starts, changes)) for part in numeric}
    found = [vector for part, vectors in split.items() if len(vectors) > 1 for vector in vectors]
    places = _frame([vector for vector in found if len(vector) > 1], changes.raw)
    return [one for part in parts for one in (_named(part, split[part], places) if part in split else [part])]


def _is_numeric(part: Part) -> bool:
    return not (part.values or part.repeats or part.absent)


def _axes(columns: Int[np.ndarray, " D"], changes: Changes) -> list[tuple[Vector, frozenset[int]]]:
    """The sets of linked columns, two at least, and the agents that drive them."""
    stride = 1 + len(changes.before) // MOST_ROWS
    before, after = (part[::stride, columns].astype(np.float64) for part in changes[:2])
    change = after - before
    # What moves by no more than it is rounded does not move.
    still = change.std(0) <= 1e-5 * (np.abs(before).max(0) + 1e-12)
    change[:, still] = 0.0
    linked = np.maximum.reduce([_correlation(change, other) for other in (before, after, change)]) > LINK
    drives = np.stack([_explained(change, acted) > DRIVEN for acted in changes.actions[::stride].T], axis=-1)
    found = []
    for members in _components(linked | linked.T):
        if len(members) > 1:
            agents = frozenset(np.flatnonzero(drives[members].any(0)).tolist())
            found.append((tuple(columns[members].tolist()), agents))
    return found


def _correlation(
    left: Float[np.ndarray, "steps D"], right: Float[np.ndarray, "steps D"]
) -> Float[np.ndarray, "D D"]:
    """The size of the correlation of any two columns; 0 where one never varies."""

    def standard(part: Float[np.ndarray, "steps D"]) -> Float[np.ndarray, "steps D"]:
        centred = part - part.mean(0)
        spread = np.sqrt(np.square(centred).sum(0))
        return centred / np.where(spread > 0.0, spread, 1.0)

    return np.abs(standard(left).T @ standard(right))


def _explained(
    change: Float[np.ndarray, "steps D"], actions: Int[np.ndarray, " steps"]
) -> Float[np.ndarray, " D"]:
    """The share of the variance of changes that an agent's actions explain, adjusted for their number."""
    _, index, count = np.unique(actions, return_inverse=True, return_counts=True)
    free = len(change) - len(count)
    if free < 1:
        return np.zeros(change.shape[1])
    sums = np.zeros((len(count), change.shape[1]))
    np.add.at(sums, index, change)
    within = np.square(change - (sums / count[:, None])[index]).sum(0) / free
    whole = change.var(0, ddof=1)
    return np.where(whole > 0.0, 1.0 - within / np.where(whole > 0.0, whole, 1.0), 0.0)


def _components(linked: Bool[np.ndarray, "D D"]) -> Iterator[list[int]]:
    """The connected components of a graph."""
    left = set(range(len(linked)))
    while left:
        members, reached = set[int](), {min(left)}
        while reached:
            members |= reached
            reached = set(np.flatnonzero(linked[list(reached)].any(0)).tolist()) - members
        left -= members
        yield sorted(members)


def _coordinates(axes: list[tuple[Vector, frozenset[int]]]) -> dict[int, int]:
    """The first column of every vector, and how many it has.

    Axes of one plane, or of space, follow each other by one column, and the same agents drive them: two
    agents that never meet have four such axes, of which the first two are one's.
    """
    drivers, starts = dict(axes), dict[int, int]()
    for axis, agents in axes:
        earlier = tuple(column - 1 for column in axis)
        if drivers.get(earlier) == agents:
            continue
        size, following = 1, tuple(column + 1 for column in axis)
        while drivers.get(following) == agents:
            size, following = size + 1, tuple(column + 1 for column in following)
        if size in SIZES:
            starts |= dict.fromkeys(axis, size)
    return starts


def _split(part: Part, starts: dict[int, int], changes: Changes) -> Iterator[Vector]:
    """The columns of a part as vectors, and as what is left between them."""
    sizes = {starts[column] for column in part.columns if column in starts}
    left, rest = list(part.columns), list[int]()
    while left:
        size = starts.get(left[0], 0)
        if size and left[:size] == list(range(left[0], left[0] + size)):
            yield from _still(rest, sizes, changes)
            yield tuple(left[:size])
            left, rest = left[size:], []
        else:
            rest.append(left.pop(0))
    yield from _still(rest, sizes, changes)


def _still(columns: list[int], sizes: set[int], changes: Changes) -> list[Vector]:
    """Numbers without links, as landmarks are: vectors as large as those around them, if they are alike."""
    if not columns:
        return []
    (size,) = sizes if len(sizes) == 1 else (1,)
    adjacent = all(b == a + 1 for a, b in pairwise(columns))
    if not adjacent or size == 1 or len(columns) % size:
        return [tuple(columns)]
    vectors = [tuple(columns[i : i + size]) for i in range(0, len(columns), size)]
    spreads = [changes.raw[:, list(vector)].std(0) for vector in vectors]
    alike = all(spread.max() <= ALIKE * spread.min() for spread in spreads)
    return vectors if alike else [tuple(columns)]


def _frame(vectors: list[Vector], raw: Float[np.ndarray, "rows columns"]) -> dict[Vector, Part]:
    """The parts of vectors, without names: places, ways between them, and vectors that nothing depends on."""
    parts = {}
    for _, alike in groupby(sorted(vectors, key=len), key=len):
        own = sorted(alike)
        coefficients = _derived(own, raw)
        basis = [index for index in range(len(own)) if index not in coefficients]
        shown = np.zeros((len(own), len(basis)), int)
        shown[basis] = np.eye(len(basis), dtype=int)
        for index, by in coefficients.items():
            shown[index] = by[basis]
        shown = _as_differences(shown, basis)
        for vector, row in zip(own, shown, strict=True):
            plus, minus = ([own[basis[i]] for i in np.flatnonzero(row == sign)] for sign in (1, -1))
            if plus == [vector] and not minus:
                plus = []
            parts[vector] = Part("", vector, plus=_flat(plus), minus=_flat(minus), vector=True)
    return parts


def _flat(vectors: list[Vector]) -> Vector:
    return tuple(column for vector in vectors for column in vector)


def _derived(vectors: list[Vector], raw: Float[np.ndarray, "rows columns"]) -> dict[int, np.ndarray]:
    """Vectors that are sums and differences of earlier ones, each coordinate alike: by how much of each."""
    found: dict[int, np.ndarray] = {}
    stride = 1 + len(raw) // MOST_ROWS
    rows = raw.astype(np.float64)
    for index in range(1, len(vectors)):
        basis = [i for i in range(index) if i not in found]
        by = np.zeros(len(vectors), int)
        earlier, own = rows[:, [vectors[i][0] for i in basis]], rows[:, vectors[index][0]]
        solved = np.linalg.lstsq(earlier[::stride], own[::stride], rcond=None)[0]
        by[basis] = np.clip(np.round(solved), -1, 1)
        exact = all(
            np.abs(rows[:, column] - rows[:, [vectors[i][k] for i in basis]] @ by[basis]).max()
            <= EXACT * np.sqrt(np.square(rows[:, column]).mean())
            for k, column in enumerate(vectors[index])
        )
        if exact and by.any():
            found[index] = by
    return found


def _as_differences(shown: Int[np.ndarray, "V P"], basis: list[int]) -> Int[np.ndarray, "V P"]:
    """Every vector by places, each of which is a vector, or that one added to or taken from another place.

    Chosen so that the most vectors are a place or the way between two: then their lengths are distances
    between places, which the networks see. Greedily, one place after the other.
    """
    best, cost = shown, _cost(shown)
    improved = True
    while improved:
        improved = False
        for place, (parent, sign) in product(range(1, len(basis)), product(range(len(basis)), (-1, 1))):
            if parent >= place or (best[basis[place]] != 0).sum() > 1:
                continue
            # The old place is sign times (the new one less its parent): z = sign (z' - z_parent).
            moved = best.copy()
            moved[:, place] = sign * best[:, place]
            moved[:, parent] = best[:, parent] - sign * best[:, place]
            if np.abs(moved).max() <= 1 and _cost(moved) < cost:
                best, cost, improved = moved, _cost(moved), True
    return best


def _cost(shown: Int[np.ndarray, "V P"]) -> tuple[int, int]:
    """How many vectors are neither a place nor the way between two; and of how many places all are made."""
    many, total = (shown != 0).sum(1), shown.sum(1)
    plain = (many == 1) | ((many == 2) & (total == 0))
    return int((~plain).sum()), int(many.sum())


def _named(part: Part, vectors: list[Vector], places: dict[Vector, Part]) -> Iterator[Part]:
    """The parts of a part's vectors, named by their columns within its field."""
    if len(vectors) == 1:
        yield part
        return
    field = re.fullmatch(r"(.*)\.([0-9]+)-[0-9]+", part.feature, re.DOTALL)
    name, offset = (field[1], int(field[2])) if field else (part.feature, 0)
    begin = part.columns[0] - offset
    for vector in vectors:
        first, last = vector[0] - begin, vector[-1] - begin
        own = f"{name}.{first}" + (f"-{last}" if last != first else "")
        yield replace(places.get(vector, Part(own, vector)), feature=own)
