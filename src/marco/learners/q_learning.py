"""IQL, VDN and QMIX: one recurrent Q-learner that differs by its mixer."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from marco.checks import check_between, check_fields, check_positive
from marco.data.replay import Buffer, add, empty_buffer, sample
from marco.learners.base import Metrics
from marco.learners.mixers import Mixer, MixerName, make_mixer
from marco.learners.optimiser import OptimiserName, make_optimiser
from marco.networks import TeamNetwork, mask_scores, unrolled
from marco.policies.base import EpsilonGreedy, Policy, RecurrentPolicy
from marco.types import Episode, Spec, previous_actions
from marco.units import Units, UnitsName, go_on_measuring, unmeasured


class QFunction(eqx.Module):
    """What is learned: the agents' network and the mixer."""

    team: TeamNetwork
    mixer: Mixer


class QState(NamedTuple):
    """The state of a Q-learner."""

    online: QFunction
    target: QFunction
    optimiser: optax.OptState
    replay: Buffer
    """Episodes in the environment's own units."""
    updates: Int[Array, ""]
    units: Units | None
    """None, if numbers are taken as they are."""


@dataclass(frozen=True)
class QLearner:
    """Recurrent Q-learning from replayed episodes. The defaults are the paper's numbers, where it has any."""

    mixer: MixerName = "iql"
    hidden: int = 64
    mixing_embed_dim: int = 32
    """Width of QMIX's mixing network."""
    share_parameters: bool = True
    """One network for all agents, or one each."""
    factored: bool = False
    """One head per component of a composite action, summed, or one joint head as in the paper."""
    gamma: float = 0.99
    td_lambda: float = 0.0
    """The lambda of lambda-returns: 0 looks one step ahead, 1 to the end of the episode."""
    double: bool = True
    optimiser: OptimiserName = "rmsprop"
    learning_rate: float = 1e-4
    learning_rate_end: float | None = None
    """What the learning rate falls to, linearly, over `learning_rate_anneal_updates`; None: it stays."""
    learning_rate_anneal_updates: int = 4_000
    max_grad_norm: float = 10.0
    """The largest norm of a gradient."""
    epsilon_start: float = 1.0
    epsilon_end: float = 0.05
    epsilon_anneal_steps: int = 100_000
    """Over how many samples epsilon goes from its start to its end, linearly."""
    buffer_size: int = 5_000
    """How many of the last episodes are kept."""
    batch_size: int = 32
    """Episodes per gradient step."""
    episodes_per_update: int = 1
    gradient_steps: int = 1
    """Gradient steps per update."""
    target_update_interval: int = 200
    """Updates between two copies of the online network into the target."""
    units: UnitsName = "raw"
    """Whether rewards and columns are scaled by what the data show, or taken as they are."""

    def __post_init__(self) -> None:
        check_fields(self)
        counts = (
            "hidden",
            "mixing_embed_dim",
            "buffer_size",
            "batch_size",
            "episodes_per_update",
            "gradient_steps",
        )
        rates = ("learning_rate", "max_grad_norm", "target_update_interval", "epsilon_anneal_steps")
        check_positive("QLearner", **{name: getattr(self, name) for name in (*counts, *rates)})
        shares = ("gamma", "td_lambda", "epsilon_start", "epsilon_end")
        check_between("QLearner", 0.0, 1.0, **{name: getattr(self, name) for name in shares})
        if self.buffer_size < self.batch_size:
            raise ValueError(
                f"QLearner: buffer_size={self.buffer_size} never holds a batch of {self.batch_size}: "
                "make it larger."
            )
        if self.buffer_size % self.episodes_per_update:
            raise ValueError(
                f"QLearner: buffer_size={self.buffer_size} must be a multiple of "
                f"episodes_per_update={self.episodes_per_update}."
            )

    def init(self, key: PRNGKeyArray, spec: Spec) -> QState:
        """Draw the networks; the replay is empty."""
        key_team, key_mixer = jax.random.split(key)
        team = TeamNetwork.create(key_team, spec, self.hidden, self.share_parameters, self.factored)
        online = QFunction(team, make_mixer(key_mixer, self.mixer, spec, self.mixing_embed_dim))
        return QState(
            online=online,
            target=jax.tree.map(jnp.copy, online),
            optimiser=self._optimiser.init(online),
            replay=empty_buffer(spec, self.buffer_size),
            updates=jnp.int32(0),
            units=unmeasured(spec) if self.units == "scaled" else None,
        )

    def with_units(self, state: QState, units: Units) -> QState:
        """Train on in these units, which were measured in real data."""
        return state if state.units is None else state._replace(units=units)

    def act(self, state: QState, samples: Int[Array, ""]) -> Policy:
        """Epsilon-greedy."""
        return EpsilonGreedy(self.greedy(state), self.epsilon(samples))

    def greedy(self, state: QState) -> RecurrentPolicy:
        """Each agent takes the action it values most."""
        return RecurrentPolicy(state.online.team, columns=state.units and state.units.observation.columns)

    def epsilon(self, samples: Int[Array, ""]) -> Float[Array, ""]:
        """The probability of a random action after `samples` steps."""
        done = jnp.clip(samples / self.epsilon_anneal_steps, 0.0, 1.0)
        return self.epsilon_start + done * (self.epsilon_end - self.epsilon_start)

    def update(self, key: PRNGKeyArray, state: QState, episodes: Episode) -> tuple[QState, Metrics]:
        """Store the episodes; take gradient steps on replayed ones, once there are enough of them."""
        replay = add(state.replay, episodes)
        units = state.units and go_on_measuring(state.units, state.online.team.spec, episodes)
        enough = replay.size >= self.batch_size

        def one_step(carry: tuple[QFunction, optax.OptState], key: PRNGKeyArray) -> tuple[Any, Array]:
            online, optimiser = carry
            batch = sample(key, replay, self.batch_size)
            batch = batch if units is None else units(batch)
            loss, gradient = jax.value_and_grad(self.loss)(online, state.target, batch)
            change, optimiser = self._optimiser.update(gradient, optimiser, online)
            return (optax.apply_updates(online, change), optimiser), loss

        before = (state.online, state.optimiser)
        after, losses = jax.lax.scan(one_step, before, jax.random.split(key, self.gradient_steps))
        online, optimiser = jax.tree.map(lambda new, old: jnp.where(enough, new, old), after, before)
        updates = state.updates + 1
        due = updates % self.target_update_interval == 0
        target = jax.tree.map(lambda new, old: jnp.where(due, new, old), online, state.target)
        loss = jnp.where(enough, losses.mean(), 0.0)
        return QState(online, target, optimiser, replay, updates, units), {"loss": loss}

    def clear_replay(self, state: QState, spec: Spec) -> QState:
        """Empty the replay."""
        return state._replace(replay=empty_buffer(spec, self.buffer_size))

    def loss(self, online: QFunction, target: QFunction, batch: Episode) -> Float[Array, ""]:
        """The mean squared error against the targets, over the steps that were really taken."""
        before = previous_actions(batch)
        q = online.team.unroll(batch.observation, before)
        chosen = jnp.take_along_axis(q[:-1], batch.actions[..., None], axis=-1)[..., 0]
        predicted = online.mixer(chosen, batch.state[:-1])
        q_target = target.team.unroll(batch.observation, before)
        best = best_values(q if self.double else q_target, q_target, batch.available)
        bootstrap = target.mixer(best, batch.state)
        targets = jax.lax.stop_gradient(self.targets(batch, bootstrap))
        error = jnp.where(batch.mask[..., None], predicted - targets, 0.0)
        return jnp.sum(jnp.square(error)) / (jnp.sum(batch.mask) * error.shape[-1])

    def targets(self, batch: Episode, bootstrap: Float[Array, "timesteps B V"]) -> Float[Array, "T B V"]:
        """What the values should have been."""
        over = batch.terminated | batch.truncated
        return lambda_returns(batch.reward, over, batch.mask, bootstrap, self.gamma, self.td_lambda)

    @property
    def _optimiser(self) -> optax.GradientTransformation:
        rate: optax.ScalarOrSchedule = self.learning_rate
        if self.learning_rate_end is not None:
            steps = self.learning_rate_anneal_updates * self.gradient_steps
            rate = optax.linear_schedule(self.learning_rate, self.learning_rate_end, steps // 2, steps // 2)
        return make_optimiser(self.optimiser, rate, self.max_grad_norm)


def best_values(
    scores: Float[Array, "*batch A"], values: Float[Array, "*batch A"], available: Bool[Array, "*batch A"]
) -> Float[Array, "*batch"]:
    """The value of the action with the highest score: double Q-learning, if scores and values differ."""
    best = jnp.argmax(mask_scores(scores, available), axis=-1)
    return jnp.take_along_axis(values, best[..., None], axis=-1)[..., 0]


def lambda_returns(
    reward: Float[Array, "T B"],
    over: Bool[Array, "T B"],
    mask: Bool[Array, "T B"],
    bootstrap: Float[Array, "T+1 B V"],
    gamma: float,
    td_lambda: float,
) -> Float[Array, "T B V"]:
    """G_t = r_t + gamma ((1 - lambda) v_t+1 + lambda G_t+1), where nothing follows the end of an episode.

    An episode that was cut off before its end has no G after the cut: v alone stands there.
    """

    def backwards(following: Float[Array, "B V"], step: tuple[Array, ...]) -> tuple[Array, Array]:
        reward, over, taken, here, value = step
        mixed = (1.0 - td_lambda) * value + td_lambda * following
        result = reward[:, None] + gamma * jnp.where(over[:, None], 0.0, mixed)
        return jnp.where(taken[:, None], result, here), result

    steps = (reward, over, mask, bootstrap[:-1], bootstrap[1:])
    return jax.lax.scan(backwards, bootstrap[-1], steps, reverse=True, unroll=unrolled(reward.shape[0]))[1]
