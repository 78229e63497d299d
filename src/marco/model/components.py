"""The parts of the learned Dec-POMDP, each an ensemble that can be replaced by a known function."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from marco.model.inputs import ComponentName, Inputs
from marco.model.likelihoods import Layout, Prediction, Targets
from marco.model.predictors import Predictor
from marco.model.rows import REWARD_VALUES
from marco.sampling import draw_below
from marco.types import Categorical, Continuous, Feature, Spec, binary, split_observations


class Scaling(NamedTuple):
    """Where numbers lie: what is taken off, and what they are divided by."""

    shift: Float[Array, " columns"]
    scale: Float[Array, " columns"]

    def normalise(self, raw: Float[Array, "*batch columns"]) -> Float[Array, "*batch columns"]:
        """In units of their own spread; 0 where there is none."""
        safe = jnp.where(self.scale > 0.0, self.scale, 1.0)
        return jnp.where(self.scale > 0.0, (raw - self.shift) / safe, 0.0)

    def denormalise(self, scaled: Float[Array, "*batch columns"]) -> Float[Array, "*batch columns"]:
        """Back to raw numbers; one that never varied is what it always was."""
        return self.shift + self.scale * scaled


class Bounds(NamedTuple):
    """How far numbers go, in units of their spread: half as far again, to each side, as any that was seen.

    A network that is asked about what it has never seen says anything, and what it says is asked about next:
    without bounds imagined episodes may run off to infinity within a few steps.
    """

    low: Float[Array, " C"]
    high: Float[Array, " C"]

    def within(self, values: Float[Array, "*batch C"]) -> Float[Array, "*batch C"]:
        """The nearest that are."""
        return jnp.clip(values, self.low, self.high)


class Component(eqx.Module):
    """An ensemble that predicts a row of features from a row of inputs."""

    members: Predictor
    """Stacked: every array has the members first."""
    inputs: Scaling
    values: Scaling
    seen: Bool[Array, "F K"]
    """The classes that occur in the data: no other is ever drawn."""
    bounds: Bounds
    layout: Layout = eqx.field(static=True)

    @property
    def num_members(self) -> int:
        """m."""
        return int(jax.tree.leaves(self.members)[0].shape[0])

    def predict(self, x: Float[Array, " in"], classes: Int[Array, " F"]) -> Prediction:
        """What each member says; numbers in units of their own spread."""
        scaled = self.inputs.normalise(x)
        said = jax.vmap(lambda one: one.predict(scaled, classes, self.seen))(self.members)
        return said._replace(mean=self.bounds.within(said.mean))

    def draw(self, key: PRNGKeyArray, member: Float[Array, ""], x: Float[Array, " in"]) -> Targets:
        """Draw a row from one member, chosen by a number from 0 to 1."""
        scaled = self.inputs.normalise(x)
        # All chance in one go: on a CPU to draw one number costs more than a layer of a small network.
        luck = jax.random.uniform(key, (self.layout.num_draws,))
        # All members draw and one is kept: in a batch of worlds that is one matrix product, where picking
        # weights world by world would copy them for each.
        every = jax.vmap(lambda one: one.draw(luck, scaled, self.seen))(self.members)
        classes, values = jax.tree.map(lambda leaf: leaf[self._index(member)], every)
        return Targets(classes, self.values.denormalise(self.bounds.within(values)))

    def one(self, member: Float[Array, ""], prediction: Prediction) -> Prediction:
        """What the chosen member says."""
        return jax.tree.map(lambda leaf: leaf[self._index(member)], prediction)

    def _index(self, member: Float[Array, ""]) -> Int[Array, ""]:
        return jnp.minimum((member * self.num_members).astype(jnp.int32), self.num_members - 1)


class Known(eqx.Module):
    """A component that need not be learned."""

    function: Callable[..., Any] = eqx.field(static=True)


class Model(eqx.Module):
    """The learned Dec-POMDP: T(s'|s,a), R(s,a,s'), O(o|s,a_prev), termination, available actions, starts.

    All functions treat one example. `member` is a number from 0 to 1 that chooses the member of every
    ensemble. A known function is called with what the learned one would be: the key first where it draws.
    """

    dynamics: Component | Known
    reward: Component | Known
    observation: Component | Known
    termination: Component | Known
    available: Component | Known
    known_start: Known | None
    reward_values: Float[Array, " R"]
    starts: Float[Array, "rows S"]
    num_starts: Int[Array, ""]
    inputs: Inputs = eqx.field(static=True)

    @property
    def spec(self) -> Spec:
        """The shape of the world."""
        return self.inputs.spec

    def draw_start(self, key: PRNGKeyArray) -> Float[Array, " S"]:
        """One of the first states that were seen."""
        if self.known_start is not None:
            return self.known_start.function(key)
        return self.starts[draw_below(key, self.num_starts)]

    def draw_following(
        self, key: PRNGKeyArray, member: Float[Array, ""], s: Float[Array, " S"], a: Int[Array, " N"]
    ) -> Float[Array, " S"]:
        """s' ~ T(s, a). Numbers are predicted as changes."""
        if isinstance(self.dynamics, Known):
            return self.dynamics.function(key, s, a)
        drawn = self.dynamics.draw(key, member, self.inputs.before_step(s, a))
        layout = self.dynamics.layout
        return layout.join(drawn._replace(values=drawn.values + s[layout.value_columns]))

    def expected_reward(
        self,
        member: Float[Array, ""],
        s: Float[Array, " S"],
        a: Int[Array, " N"],
        following: Float[Array, " S"],
    ) -> Float[Array, ""]:
        """R(s, a, s'): as in a Dec-POMDP an expected value, not a draw."""
        if isinstance(self.reward, Known):
            return jnp.asarray(self.reward.function(s, a, following), jnp.float32)
        x = self.inputs.after_step(s, a, following)
        said = self.reward.one(member, self.reward.predict(x, _no_classes(self.reward.layout)))
        if self.reward_values.size:
            return jnp.sum(jnp.exp(said.log_probability[0]) * self.reward_values)
        return self.reward.values.denormalise(said.mean)[0]

    def draw_termination(
        self,
        key: PRNGKeyArray,
        member: Float[Array, ""],
        s: Float[Array, " S"],
        a: Int[Array, " N"],
        following: Float[Array, " S"],
    ) -> Bool[Array, ""]:
        """Whether the step ends the episode. The time limit is known, and no part of this."""
        if isinstance(self.termination, Known):
            return jnp.asarray(self.termination.function(s, a, following), bool)
        drawn = self.termination.draw(key, member, self.inputs.after_step(s, a, following))
        return drawn.classes[0] == 1

    def draw_observation(
        self, key: PRNGKeyArray, member: Float[Array, ""], s: Float[Array, " S"], previous: Int[Array, " N"]
    ) -> Float[Array, "N O"]:
        """o ~ O(s, a_prev), of all agents together: what they see may hang together."""
        if isinstance(self.observation, Known):
            return self.observation.function(key, s, previous)
        drawn = self.observation.draw(key, member, self.inputs.before_step(s, previous))
        return split_observations(self.spec, self.observation.layout.join(drawn))

    def available_actions(self, s: Float[Array, " S"]) -> Bool[Array, "N A"]:
        """The actions that are more likely available than not; the likeliest, if none is."""
        if isinstance(self.available, Known):
            return self.available.function(s)
        exist = self.spec.actions_exist
        said = self.available.predict(self.inputs.moment(s), _no_classes(self.available.layout))
        mean = jnp.exp(said.log_probability[..., 1]).mean(axis=0)
        chance = jnp.full(exist.shape, -1.0).at[np.nonzero(exist)].set(mean)
        return (chance > 0.5) | (chance >= jnp.max(chance, axis=-1, keepdims=True))


def layouts(spec: Spec, continuous_reward: bool) -> dict[ComponentName, Layout]:
    """What each component predicts, from the spec alone."""
    seen: tuple[Feature, ...] = tuple(f for agent in spec.agents for f in agent.observation)
    reward = Continuous("reward") if continuous_reward else Categorical("reward", REWARD_VALUES)
    masks = tuple(
        binary(f"{agent.name}: {agent.action_label(action)}")
        for agent in spec.agents
        for action in range(agent.num_actions)
    )
    return {
        "dynamics": Layout(spec.state),
        "reward": Layout((reward,)),
        "observation": Layout(seen),
        "termination": Layout((binary("terminated"),)),
        "available": Layout(masks),
    }


def _no_classes(layout: Layout) -> Int[Array, " F"]:
    """For predictors of a single feature, or of independent ones: there is nothing before them."""
    return jnp.zeros(layout.num_categorical, jnp.int32)


def draw_member(key: PRNGKeyArray) -> Float[Array, ""]:
    """Choose a member of every ensemble."""
    return jax.random.uniform(key)
