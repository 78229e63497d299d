"""The inputs of a model's components: states, distances and relations within them, action components."""

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from typing import Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from marco.model.codes import Block
from marco.model.frames import present, timesteps
from marco.model.likelihoods import Layout
from marco.model.relations import Relations
from marco.types import Categorical, Continuous, Feature, Spec, action_table, blocks

ComponentName = Literal["dynamics", "reward", "observation", "termination", "available", "start"]
COMPONENTS: tuple[ComponentName, ...] = get_args(ComponentName)


MOST_DISTANCES = 1_000


@dataclass(frozen=True)
class Inputs:
    """The inputs of each component.

    Distances are those between any two continuous features of the same width, at least two: mostly positions.
    The length of a vector is one, too.
    They grow with the square of the features: where they would be more than a thousand, there are none.
    Rewards in space often depend on distance, which a network is slow to learn by itself: with distances the
    reward of `reference` is learned three times as well from 10,000 samples.
    Relations are the same for classes: the differences between features of one kind. Of a state with a memory
    both are those of the present, and the changes of classes since the timesteps before. A number that is
    past is seen as its change, too: a velocity is small beside the places that it is the difference of.
    """

    spec: Spec
    distances: bool = True
    relations: bool = False

    def state(self, s: Float[Array, "*batch S"]) -> Float[Array, "*batch in"]:
        """s with its distances and relations, of the available actions; classes are 0 or 1 in any units."""
        gaps = [jnp.linalg.norm(s[..., left] - s[..., right], axis=-1) for left, right in self._pairs]
        gaps += [jnp.linalg.norm(s[..., vectors], axis=-1) for vectors in self._vectors]
        off, on = self._classes
        shown = (s - off) / (on - off)
        if self.spec.frames > 1:
            past = self._past_numbers
            shown = shown.at[..., past].add(-s[..., past - self._present.spec.state_width])
        return jnp.concatenate([shown, *gaps, self._relations(s)], axis=-1)

    def before_step(
        self, s: Float[Array, "*batch S"], a: Int[Array, "*batch N"]
    ) -> Float[Array, "*batch in"]:
        """(s, a), of the dynamics, and (s, a_prev), of the observations."""
        return jnp.concatenate([self.state(s), self._actions(a)], axis=-1)

    def after_step(
        self, s: Float[Array, "*batch S"], a: Int[Array, "*batch N"], next_s: Float[Array, "*batch S"]
    ) -> Float[Array, "*batch in"]:
        """(s, a, s'), of the reward and the termination; with relations also which classes have changed."""
        now = self._present
        after = next_s[..., : now.spec.state_width]  # what is past in s' is in (s, a)
        return jnp.concatenate(
            [self.state(s), self._actions(a), now.state(after), self._changed(s, after)], axis=-1
        )

    def numeric(self, name: ComponentName) -> tuple[bool, ...]:
        """Which dimensions of a component's inputs are continuous, and have to be normalised."""
        return tuple(block.numbers for block in self.blocks(name) for _ in range(block.width))

    def blocks(self, name: ComponentName) -> list[Block]:
        """The codes and the numbers that a component's inputs consist of."""
        match name:
            case "available":
                return self._state_blocks
            case "dynamics" | "observation":
                return self._state_blocks + self._action_blocks
            case _:
                changed = [Block(1)] * self._num_changes
                return self._state_blocks + self._action_blocks + self._present._state_blocks + changed

    def _changed(
        self, s: Float[Array, "*batch S"], after: Float[Array, "*batch present"]
    ) -> Float[Array, "*batch classes"]:
        """1 for each class of the state that is another one now."""
        now = Layout(self._now)
        before, then = (now.class_numbers(row[..., : after.shape[-1]]) for row in (s, after))
        return (before != then).astype(s.dtype)[..., : self._num_changes]

    @property
    def _num_changes(self) -> int:
        return Layout(self._now).num_categorical if self.relations else 0

    @cached_property
    def _present(self) -> "Inputs":
        """The inputs of a state without its past."""
        if self.spec.frames == 1:
            return self
        return replace(self, spec=replace(self.spec, state=present(self.spec), frames=1))

    @property
    def _state_blocks(self) -> list[Block]:
        """What `state` consists of."""
        state = [Block(feature.width, isinstance(feature, Continuous)) for feature in self.spec.state]
        return [*state, Block(self._num_distances, numbers=True), *self._relations.blocks]

    @property
    def _action_blocks(self) -> list[Block]:
        """A code per component of every agent's action, and the padding of agents that have fewer actions."""
        found: list[Block] = []
        for agent in self.spec.agents:
            sizes = [component.size for component in agent.actions]
            found += map(Block, [*sizes, action_table(self.spec, factored=True).shape[-1] - sum(sizes)])
        return found

    @cached_property
    def _classes(self) -> tuple[Float[np.ndarray, " S"], Float[np.ndarray, " S"]]:
        """What the columns of a class hold if it is off, and on; numbers stay as they are."""
        off, on = np.zeros(self.spec.state_width, np.float32), np.ones(self.spec.state_width, np.float32)
        for feature, block in zip(self.spec.state, blocks(self.spec.state), strict=True):
            if isinstance(feature, Categorical):
                off[block], on[block] = feature.low, feature.high
        return off, on

    @cached_property
    def _relations(self) -> Relations:
        return Relations(timesteps(self.spec), self.spec.frames) if self.relations else Relations(())

    @cached_property
    def _pairs(self) -> list[tuple[Int[np.ndarray, "pairs width"], Int[np.ndarray, "pairs width"]]]:
        """The columns of both ends of every distance, for each width of features."""
        placed = [
            (feature.width, np.arange(block.start, block.stop))
            for feature, block in zip(self._now, blocks(self._now), strict=True)
            if isinstance(feature, Continuous) and feature.width > 1
        ]
        alike = [[columns for width, columns in placed if width == size] for size in {w for w, _ in placed}]
        pairs = [list(combinations(columns, 2)) for columns in alike if len(columns) > 1]
        if not self.distances or sum(map(len, pairs)) > MOST_DISTANCES:
            return []
        return [(np.array([a for a, _ in two]), np.array([b for _, b in two])) for two in pairs]

    @cached_property
    def _vectors(self) -> list[Int[np.ndarray, "vectors width"]]:
        """The columns of vectors, for each width of features."""
        found = [
            np.arange(block.start, block.stop)
            for feature, block in zip(self._now, blocks(self._now), strict=True)
            if isinstance(feature, Continuous) and feature.vector
        ]
        alike = [[own for own in found if len(own) == size] for size in sorted({len(own) for own in found})]
        return [np.array(columns) for columns in alike] if self.distances else []

    @cached_property
    def _past_numbers(self) -> Int[np.ndarray, " columns"]:
        """The columns of numbers that are past."""
        shown = timesteps(self.spec)
        numbers = [
            np.arange(block.start, block.stop)
            for feature, block in zip(shown, blocks(shown), strict=True)
            if isinstance(feature, Continuous)
        ]
        columns = np.concatenate([np.zeros(0, int), *numbers])
        return columns[columns >= self._present.spec.state_width]

    @property
    def _now(self) -> tuple[Feature, ...]:
        return present(self.spec)

    @property
    def _num_distances(self) -> int:
        return sum(len(left) for left, _ in self._pairs) + sum(map(len, self._vectors))

    def _actions(self, actions: Int[Array, "*batch N"]) -> Float[Array, "*batch dimensions"]:
        """A one-hot code per component of every agent's action; all zeros for no action."""
        table = jnp.asarray(action_table(self.spec, factored=True))
        hot = jax.nn.one_hot(actions, self.spec.num_actions)
        return jnp.einsum("...na,nah->...nh", hot, table).reshape(*actions.shape[:-1], -1)
