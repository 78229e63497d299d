"""The parts of the learned Dec-POMDP, each an ensemble that can be replaced by a known function."""

from collections.abc import Callable
from operator import attrgetter
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from marco.model.frames import present, remember
from marco.model.inputs import ComponentName, Inputs
from marco.model.likelihoods import Layout, Prediction, Targets
from marco.model.predictors import Predictor
from marco.model.relations import Copies, Habits, Relations
from marco.model.rows import REWARD_VALUES
from marco.sampling import draw_below
from marco.types import (
    Categorical,
    Continuous,
    Feature,
    Spec,
    action_table,
    binary,
    split_observations,
)


class Scaling(NamedTuple):
    """An affine normalisation: what is subtracted, and what is divided by."""

    shift: Float[Array, " dimensions"]
    scale: Float[Array, " dimensions"]

    def normalise(self, raw: Float[Array, "*batch dimensions"]) -> Float[Array, "*batch dimensions"]:
        """In units of the standard deviation; 0 where that is 0."""
        safe = jnp.where(self.scale > 0.0, self.scale, 1.0)
        return jnp.where(self.scale > 0.0, (raw - self.shift) / safe, 0.0)

    def denormalise(self, scaled: Float[Array, "*batch dimensions"]) -> Float[Array, "*batch dimensions"]:
        """Back to raw units; a dimension that never varied has its constant value."""
        return self.shift + self.scale * scaled


class Bounds(NamedTuple):
    """Bounds of the normalised values: the observed range, extended by half its width to each side.

    A network may predict anything for inputs far from its data, and its predictions are its next inputs:
    without bounds imagined episodes may diverge to infinity within a few steps.
    """

    low: Float[Array, " C"]
    high: Float[Array, " C"]

    def within(self, values: Float[Array, "*batch C"]) -> Float[Array, "*batch C"]:
        """The nearest values within the bounds."""
        return jnp.clip(values, self.low, self.high)


class Component(eqx.Module):
    """An ensemble that predicts a row of features from a row of inputs."""

    members: Predictor
    """Stacked: the first axis of every array is that of the members."""
    inputs: Scaling
    values: Scaling
    seen: Bool[Array, "F K"]
    """The classes that occur in the data: no other class is ever drawn."""
    bounds: Bounds
    layout: Layout = eqx.field(static=True)
    guess: Habits | Copies | None = None
    """By which the inputs are widened."""

    @property
    def num_members(self) -> int:
        """The size of the ensemble, m."""
        return int(jax.tree.leaves(self.members)[0].shape[0])

    def predict(self, x: Float[Array, " in"], classes: Int[Array, " F"]) -> Prediction:
        """The prediction of each member; values are normalised."""
        scaled = self._scaled(x)
        predicted = self._each_member(lambda one: one.predict(scaled, classes, self.seen))
        return predicted._replace(mean=self.bounds.within(predicted.mean))

    def draw(self, u: Float[Array, " draws"], member: Float[Array, ""], x: Float[Array, " in"]) -> Targets:
        """Draw a row from one member; uniform noise draws it, and has chosen the `member`."""
        scaled = self._scaled(x)
        # All members draw and one is kept: in a batch of environments that is one matrix product, whereas
        # picking weights for each environment would copy them.
        every = self._each_member(lambda one: one.draw(u, scaled, self.seen))
        classes, values = jax.tree.map(lambda leaf: leaf[self._index(member)], every)
        return Targets(classes, self.values.denormalise(self.bounds.within(values)))

    def one(self, member: Float[Array, ""], prediction: Prediction) -> Prediction:
        """The prediction of the chosen member."""
        return jax.tree.map(lambda leaf: leaf[self._index(member)], prediction)

    def by_member(self, count: int) -> tuple["Component", "Component"]:
        """One component of a single member for each of `count` members, and what of it differs between them.

        A component of fewer members lends each to several, to each as often as to any other.
        """
        alone, differs = self, jax.tree.map(lambda _: False, self)
        if self.num_members > 1:
            times = count // self.num_members
            members = jax.tree.map(lambda leaf: jnp.repeat(leaf, times, axis=0)[:, None], self.members)
            alone = eqx.tree_at(lambda part: part.members, self, members)
            marks = jax.tree.map(lambda _: True, self.members)
            differs = eqx.tree_at(lambda part: part.members, differs, marks)
        return alone, differs

    def _each_member(self, function: Callable[[Predictor], Any]) -> Any:
        """What every member gives. One alone needs no axis, without which products are compiled better."""
        if self.num_members > 1:
            return jax.vmap(function)(self.members)
        alone = function(jax.tree.map(lambda leaf: leaf[0], self.members))
        return jax.tree.map(lambda leaf: leaf[None], alone)

    def _scaled(self, x: Float[Array, " in"]) -> Float[Array, " wider"]:
        return self.inputs.normalise(x if self.guess is None else self.guess.widen(self.layout, x))

    def _index(self, member: Float[Array, ""]) -> Int[Array, ""]:
        return jnp.minimum((member * self.num_members).astype(jnp.int32), self.num_members - 1)


class Known(eqx.Module):
    """A component that is given and not learned."""

    function: Callable[..., Any] = eqx.field(static=True)


class Noise(NamedTuple):
    """What one component draws by: uniform numbers if it is learned, a key if it is a known function."""

    u: Float[Array, " draws"]
    key: PRNGKeyArray | None


class Model(eqx.Module):
    """The learned Dec-POMDP: T(s'|s,a), R(s,a,s'), O(o|s,a_prev), termination, available actions, starts.

    All functions treat one example. `member` is uniform noise that chooses the member of every ensemble. A
    known function has the arguments of the learned one, with a key for the noise where it draws.
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
        """The shape of the modelled environment."""
        return self.inputs.spec

    @property
    def num_members(self) -> int | None:
        """The size of its largest ensemble; None if the others cannot be lent to it evenly."""
        sizes = [part.num_members for part in self._drawn.values()]
        most = max(sizes, default=1)
        return None if any(most % size for size in sizes) else most

    def by_member(self, count: int) -> tuple["Model", "Model"]:
        """One model for each of `count` members, and which arrays differ between them."""
        alone, differs = self, jax.tree.map(lambda _: False, self)
        for name, part in self._drawn.items():
            where, (own, marks) = attrgetter(name), part.by_member(count)
            alone, differs = eqx.tree_at(where, alone, own), eqx.tree_at(where, differs, marks)
        return alone, differs

    @property
    def _drawn(self) -> dict[str, Component]:
        """The components of which one member predicts a step; available actions are those of all members."""
        parts = {name: getattr(self, name) for name in ("dynamics", "reward", "observation", "termination")}
        return {name: part for name, part in parts.items() if isinstance(part, Component)}

    def noise(
        self, key: PRNGKeyArray, *names: Literal["dynamics", "observation", "termination"]
    ) -> tuple[Float[Array, ""], tuple[Noise, ...]]:
        """Uniform noise that chooses a member, and the noise of some components.

        All of it is drawn at once: on a CPU one draw costs more than a layer of a small network.
        """
        parts = [getattr(self, name) for name in names]
        keys: Any = [None] * len(parts)
        if any(isinstance(part, Known) for part in parts):
            key, *keys = jax.random.split(key, 1 + len(parts))
        counts = [0 if isinstance(part, Known) else part.layout.num_draws for part in parts]
        member, *drawn = jnp.split(jax.random.uniform(key, (1 + sum(counts),)), np.cumsum([1, *counts[:-1]]))
        return member[0], tuple(Noise(u, key) for u, key in zip(drawn, keys, strict=True))

    def draw_start(self, key: PRNGKeyArray) -> Float[Array, " S"]:
        """Draw one of the first states in the data."""
        if self.known_start is not None:
            return self.known_start.function(key)
        return self.starts[draw_below(key, self.num_starts)]

    def draw_next_state(
        self, noise: Noise, member: Float[Array, ""], s: Float[Array, " S"], a: Int[Array, " N"]
    ) -> Float[Array, " S"]:
        """s' ~ T(s, a). Of continuous features the change is predicted; what is past follows from s."""
        if isinstance(self.dynamics, Known):
            return self.dynamics.function(noise.key, s, a)
        drawn = self.dynamics.draw(noise.u, member, self.inputs.before_step(s, a))
        layout = self.dynamics.layout
        now = layout.join(drawn._replace(values=drawn.values + s[layout.value_dimensions]))
        return remember(self.spec, s, a, now)

    def expected_reward(
        self,
        member: Float[Array, ""],
        s: Float[Array, " S"],
        a: Int[Array, " N"],
        next_s: Float[Array, " S"],
    ) -> Float[Array, ""]:
        """R(s, a, s'): an expected value and no draw, as in a Dec-POMDP."""
        if isinstance(self.reward, Known):
            return jnp.asarray(self.reward.function(s, a, next_s), jnp.float32)
        x = self.inputs.after_step(s, a, next_s)
        predicted = self.reward.one(member, self.reward.predict(x, _no_classes(self.reward.layout)))
        if self.reward_values.size:
            return jnp.sum(jnp.exp(predicted.log_probability[0]) * self.reward_values)
        return self.reward.values.denormalise(predicted.mean)[0]

    def draw_termination(
        self,
        noise: Noise,
        member: Float[Array, ""],
        s: Float[Array, " S"],
        a: Int[Array, " N"],
        next_s: Float[Array, " S"],
    ) -> Bool[Array, ""]:
        """Whether the step ends the episode. The time limit is known and not modelled here."""
        if isinstance(self.termination, Known):
            return jnp.asarray(self.termination.function(s, a, next_s), bool)
        drawn = self.termination.draw(noise.u, member, self.inputs.after_step(s, a, next_s))
        return drawn.classes[0] == 1

    def draw_observation(
        self, noise: Noise, member: Float[Array, ""], s: Float[Array, " S"], previous: Int[Array, " N"]
    ) -> Float[Array, "N O"]:
        """o ~ O(s, a_prev), jointly for all agents: their observations may be correlated."""
        if isinstance(self.observation, Known):
            return self.observation.function(noise.key, s, previous)
        drawn = self.observation.draw(noise.u, member, self.inputs.before_step(s, previous))
        return split_observations(self.spec, self.observation.layout.join(drawn))

    def available_actions(self, s: Float[Array, " S"]) -> Bool[Array, "N A"]:
        """The actions with a probability above 1/2 of being available; if there is none, the likeliest."""
        if isinstance(self.available, Known):
            return self.available.function(s)
        exist = self.spec.actions_exist
        predicted = self.available.predict(self.inputs.state(s), _no_classes(self.available.layout))
        mean = jnp.exp(predicted.log_probability[..., 1]).mean(axis=0)
        probability = jnp.full(exist.shape, -1.0).at[np.nonzero(exist)].set(mean)
        return (probability > 0.5) | (probability >= jnp.max(probability, axis=-1, keepdims=True))


def layouts(
    spec: Spec, continuous_reward: bool, changes: bool = False, relations: bool = False
) -> dict[ComponentName, Layout]:
    """The features that each component predicts; of the state also as `changes`, guessed by `relations`."""
    observed: tuple[Feature, ...] = tuple(f for agent in spec.agents for f in agent.observation)
    reward = Continuous("reward") if continuous_reward else Categorical("reward", REWARD_VALUES)
    masks = tuple(
        binary(f"{agent.name}: {agent.action_label(action)}")
        for agent in spec.agents
        for action in range(agent.num_actions)
    )
    return {
        "dynamics": Layout(present(spec), changes, _action_columns(spec) if changes and relations else 0),
        "reward": Layout((reward,)),
        "observation": Layout(
            observed, copied=spec.state if changes and relations and _may_copy(spec) else ()
        ),
        "termination": Layout((binary("terminated"),)),
        "available": Layout(masks),
    }


def _may_copy(spec: Spec) -> bool:
    """Whether state and observations both have classes."""
    rows = (spec.state, tuple(f for agent in spec.agents for f in agent.observation))
    return all(any(isinstance(feature, Categorical) for feature in row) for row in rows)


def _action_columns(spec: Spec) -> int:
    """The inputs of the dynamics that are actions; 0 where there are no relations to guess."""
    agents, _, heads = action_table(spec, factored=True).shape
    return agents * heads if Relations(present(spec)).width else 0


def _no_classes(layout: Layout) -> Int[Array, " F"]:
    """For predictors of one feature or of independent ones: nothing comes before them."""
    return jnp.zeros(layout.num_categorical, jnp.int32)
