"""How things stand to each other: what the networks see of it beside the features themselves.

In one-hot columns nobody is beside anybody. That agent 0 is one row above food 1 is a fact about two blocks
of columns, which a network has to learn for each pair of rows anew. As a difference it is one column.
"""

import re
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, groupby, pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from marco.model.codes import Block
from marco.model.likelihoods import REACH, WIDTH, Layout
from marco.types import Feature, total_width

MOST_COLUMNS = 1_000
"""They grow with the square of the features: where they would be more, there are fewer, or none."""

MANY_COLUMNS = 120
"""Up to so many columns features are compared whatever they are called."""


def _ways() -> Float[np.ndarray, "WIDTH WIDTH ways"]:
    """Offsets that are turned or mirrored into each other are equally far away."""
    steps = np.sort(np.abs(np.stack(np.meshgrid(*[np.arange(-REACH, REACH + 1)] * 2))), axis=0)
    each, which = np.unique(steps.reshape(2, -1), axis=1, return_inverse=True)
    return np.eye(each.shape[1], dtype=np.float32)[which].reshape(WIDTH, WIDTH, -1)


WAYS = _ways()


@dataclass(frozen=True)
class Relations:
    """Differences between the classes of any two features of one kind, as one-hot columns from -2 to 2.

    Features are of one kind if they have the same classes, more than two. Where such pairs are many, they
    have to be the same of different things, too, by their names: "agent 0 row" and "food row"; a name that
    tells nothing of that may be anything. Two things that share several attributes have an *offset* for each
    two of them, the pair of differences as one class: what is one row above, in the same column. A network
    learns a rule about two columns (the offset, and the action) from a tenth of the data that it needs for
    three.

    Of a state with a memory, features of the present stand to each other, and each to what it was before: a
    velocity is a difference, too.
    """

    features: tuple[Feature, ...]
    frames: int = 1
    """Of how many timesteps the features are, the present first."""

    @cached_property
    def layout(self) -> Layout:
        """Where the classes are."""
        return Layout(self.features)

    @property
    def width(self) -> int:
        """The number of columns."""
        return sum(block.width for block in self.blocks)

    @property
    def blocks(self) -> list[Block]:
        """Every difference is a code, and every offset."""
        offsets = len(self.offsets)
        return [Block(WIDTH)] * len(self.pairs) + [Block(WIDTH**2)] * offsets + [Block(len(WAYS.T))] * offsets

    def __call__(self, s: Float[Array, "*batch S"]) -> Float[Array, "*batch width"]:
        """The columns of a state."""
        if not len(self.pairs):
            return s[..., :0]
        return self.between(self.layout.class_numbers(s[..., : total_width(self.features)]))

    def between(self, classes: Float[Array, "*batch F"]) -> Float[Array, "*batch width"]:
        """The columns of a state of these classes."""
        gap = classes[..., self.pairs[:, 0]] - classes[..., self.pairs[:, 1]]
        hot = (gap[..., None] == jnp.arange(-REACH, REACH + 1)).astype(classes.dtype)
        offset = hot[..., self.offsets[:, 0], :, None] * hot[..., self.offsets[:, 1], None, :]
        away = jnp.einsum("...ij,ijk->...k", offset, WAYS)
        shape = (*classes.shape[:-1], -1)
        return jnp.concatenate([code.reshape(shape) for code in (hot, offset, away)], axis=-1)

    @cached_property
    def pairs(self) -> Int[np.ndarray, "pairs 2"]:
        """The two features of every difference, by their number among the categorical ones."""
        now = self._pairs
        both = np.concatenate([now, self._changes])
        return next((found for found in (both, now) if WIDTH * len(found) <= MOST_COLUMNS), now[:0])

    @cached_property
    def offsets(self) -> Int[np.ndarray, "offsets 2"]:
        """The two differences of every offset."""
        found = self._offsets
        columns = WIDTH * len(self.pairs) + (WIDTH**2 + WAYS.shape[-1]) * len(found)
        return found if columns <= MOST_COLUMNS else found[:0]

    @cached_property
    def _pairs(self) -> Int[np.ndarray, "pairs 2"]:
        """Those of the present: of all with the same classes; where these are many, of one attribute."""
        kinds = [(f.size, f.labels) for f in self.layout.categorical]
        pairs = [two for two in combinations(self._many_classes, 2) if kinds[two[0]] == kinds[two[1]]]
        if WIDTH * len(pairs) > MANY_COLUMNS:
            pairs = [two for two in pairs if self._alike(*two)]
        return np.array(pairs, int).reshape(-1, 2)

    def _alike(self, one: int, other: int) -> bool:
        """Whether two features may be the same of different things, as far as their names tell."""
        first, second = self._attributes[one], self._attributes[other]
        return first is None or second is None or first == second

    @cached_property
    def _attributes(self) -> list[str | None]:
        """What each feature is of its thing; None if nothing else is that of another."""
        named = [(f.size, f.labels, thing_and_attribute(f.name)[1]) for f in self.layout.categorical]
        return [own[-1] if own[-1] and named.count(own) > 1 else None for own in named]

    @cached_property
    def _changes(self) -> Int[np.ndarray, "pairs 2"]:
        """Every feature and itself a timestep before."""
        begins = range(0, self.layout.num_categorical, max(1, self._num_present))[: self.frames]
        found = [(begin + one, then + one) for begin, then in pairwise(begins) for one in self._many_classes]
        return np.array(found, int).reshape(-1, 2)

    @property
    def _num_present(self) -> int:
        """The categorical features of the present."""
        return self.layout.num_categorical // self.frames

    @property
    def _many_classes(self) -> list[int]:
        """The numbers of those with more than two classes."""
        now = self.layout.categorical[: self._num_present]
        return [place for place, feature in enumerate(now) if feature.size > 2]

    @cached_property
    def _offsets(self) -> Int[np.ndarray, "offsets 2"]:
        features = self.layout.categorical
        things = [thing_and_attribute(f.name)[0] for f in features]

        def between(pair: int) -> tuple[str, str]:
            one, other = self.pairs[pair]
            return things[one], things[other]

        def of_places(pair: int) -> bool:
            """Of few classes a network learns the pairs by itself."""
            one, other = (self._attributes[place] for place in self.pairs[pair])
            return features[self.pairs[pair][0]].size > REACH + 1 and one is not None and one == other

        many = [pair for pair in range(len(self.pairs)) if of_places(pair)]
        groups = groupby(sorted(many, key=between), key=between)
        found = [two for (one, other), pairs in groups if one != other for two in combinations(pairs, 2)]
        return np.array(found, int).reshape(-1, 2)


class Habits(NamedTuple):
    """By how much each class changes with each action, on average: a guess of the next state.

    The guess is what would be if nothing stood in the way, and how things would then stand to each other
    tells what does: two agents in one cell, an agent on a food. As a column of its own a collision is learned
    from a few; from where two agents are, and what both do, it takes hundreds.
    """

    change: Float[Array, "actions F"]

    @classmethod
    def of(
        cls,
        layout: Layout,
        x: Float[Array, "rows in"],
        classes: Int[Array, "rows F"],
        number: Int[Array, ""],
    ) -> "Habits":
        """Least squares over the first rows, `number` of them."""
        true = (jnp.arange(x.shape[0]) < number)[:, None]
        now = _class_numbers(layout.features, x)
        acted = jnp.where(true, x[:, -layout.num_actions :], 0.0)
        change = jnp.where(true, classes - now, 0.0)
        # Columns of an agent's actions add up to 1: a little is added, so that the system has one solution.
        square = acted.T @ acted + 1e-3 * jnp.eye(layout.num_actions)
        return cls(jnp.linalg.solve(square, acted.T @ change))

    def widen(self, layout: Layout, x: Float[Array, "*rows in"]) -> Float[Array, "*rows wider"]:
        """The inputs, and the relations in the state that they make one expect."""
        now = _class_numbers(layout.features, x)
        guess = now + jnp.round(x[..., -layout.num_actions :] @ self.change)
        return jnp.concatenate([x, Relations(layout.features).between(guess)], axis=-1)


class Copies(NamedTuple):
    """Of which feature of the state each observed class is a copy, if of any: that with which it agrees most.

    What agents observe is mostly a part of the state, or nothing where they do not see it. From one-hot
    columns a network learns that for each class anew; that two features agree is one number.
    """

    source: Int[Array, " F"]

    @classmethod
    def of(
        cls,
        layout: Layout,
        x: Float[Array, "rows in"],
        classes: Int[Array, "rows F"],
        number: Int[Array, ""],
    ) -> "Copies":
        """That which agrees in all of the first rows, `number` of them, or in most beyond chance.

        Of an observed class that never varied no agreement is beyond chance.
        """
        true = (jnp.arange(x.shape[0]) < number)[:, None]
        now = _class_numbers(layout.copied, x)

        def in_class(k: Array, sums: tuple[Array, Array]) -> tuple[Array, Array]:
            one = jnp.where(true, classes == k, False).astype(jnp.float32)
            other = jnp.where(true, now == k, False).astype(jnp.float32)
            both = jnp.matmul(one.T, other, precision="highest")
            return sums[0] + both, sums[1] + jnp.outer(one.sum(0), other.sum(0)) / number

        none = jnp.zeros((classes.shape[-1], now.shape[-1]))
        agree, chance = jax.lax.fori_loop(0, layout.num_classes, in_class, (none, none))
        excess = jnp.where(agree == number, jnp.inf, agree - chance)
        return cls(jnp.argmax(excess, axis=-1).astype(jnp.int32))

    def widen(self, layout: Layout, x: Float[Array, "*rows in"]) -> Float[Array, "*rows wider"]:
        """The inputs, and the classes that they make one expect."""
        guess = _class_numbers(layout.copied, x)[..., self.source]
        return jnp.concatenate([x, guess / layout.num_classes], axis=-1)


def guess_by(
    layout: Layout, x: Float[Array, "rows in"], classes: Int[Array, "rows F"], number: Int[Array, ""]
) -> Habits | Copies | None:
    """What the classes to come are guessed by, where anything is."""
    kind: Any = Habits if layout.num_actions else Copies if layout.copied else None
    return kind and kind.of(layout, x, classes, number)


def guess_blocks(layout: Layout) -> list[Block]:
    """What a guess widens the inputs by."""
    if layout.num_actions:
        return Relations(layout.features).blocks
    return [Block(layout.num_categorical, numbers=True)] if layout.copied else []


def _class_numbers(features: tuple[Feature, ...], x: Float[Array, "*rows in"]) -> Float[Array, "*rows F"]:
    """The classes of the features that inputs begin with."""
    return Layout(features).class_numbers(x[..., : total_width(features)])


def thing_and_attribute(name: str) -> tuple[str, str]:
    """What a feature is about, and what of it, by its name: numbers tell things apart.

    "agent 0 row" is the row of agent 0, "goal 1" the goal of 1. In a name without a number the last word is
    the attribute, if there are others: "food row".
    """
    before, after = re.fullmatch(r"(.*\d+)?[\W_]*(.*)", name, re.DOTALL).groups()  # type: ignore[union-attr]
    if before is None:
        words = re.fullmatch(r"(.*[^\W_])[\W_]+(.*)", name, re.DOTALL)
        return (words[1], words[2]) if words else (name, "")
    if after:
        return before, after
    attribute, number = re.fullmatch(r"(.*?)(\d+)", before, re.DOTALL).groups()  # type: ignore[union-attr]
    return number, attribute
