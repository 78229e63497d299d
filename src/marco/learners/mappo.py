"""MAPPO: recurrent actors on what the agents see, a critic on the central state."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from marco.checks import check_between, check_fields, check_not_negative, check_positive
from marco.learners.base import Metrics
from marco.learners.optimiser import OptimiserName, make_optimiser
from marco.networks import MLP, TeamNetwork, mask_scores
from marco.policies.base import Policy, RecurrentPolicy
from marco.types import Episode, Spec, previous_actions
from marco.units import Units, UnitsName, go_on_measuring, unmeasured


class ActorCritic(eqx.Module):
    """What is learned: the agents' network and the team's critic."""

    actor: TeamNetwork
    critic: MLP

    def value(self, state: Float[Array, "T B S"]) -> Float[Array, "T B"]:
        """The critic's values; it is given the time, since the horizon is finite."""
        timesteps = state.shape[0]
        clock = jnp.broadcast_to(jnp.linspace(0.0, 1.0, timesteps)[:, None, None], (*state.shape[:-1], 1))
        return self.critic(jnp.concatenate([state, clock], axis=-1))[..., 0]


class MAPPOState(NamedTuple):
    """The state of MAPPO."""

    online: ActorCritic
    optimiser: optax.OptState
    units: Units | None
    """None, if numbers are taken as they are."""


class PPOTargets(NamedTuple):
    """The targets of a batch of episodes, computed once before the epochs."""

    log_probability: Float[Array, "T B N"]
    advantage: Float[Array, "T B"]
    value: Float[Array, "T B"]
    """The returns that the critic is regressed on."""


@dataclass(frozen=True)
class MAPPO:
    """Clipped policy gradients on whole episodes, with one team advantage for all agents."""

    hidden: int = 64
    critic_hidden: int = 128
    share_parameters: bool = True
    """One network for all agents, or one each."""
    factored: bool = True
    """One head per component of a composite action: the components are then drawn independently."""
    gamma: float = 0.99
    gae_lambda: float = 0.95
    """The lambda of generalised advantage estimation."""
    clip_ratio: float = 0.2
    ent_coef: float = 0.01
    vf_coef: float = 0.5
    optimiser: OptimiserName = "adam"
    learning_rate: float = 1e-3
    max_grad_norm: float = 10.0
    """The largest norm of a gradient."""
    episodes_per_update: int = 256
    epochs: int = 4
    """Passes over each batch of episodes."""
    minibatches: int = 1
    """Parts into which a batch is divided anew in every pass; each is one gradient step."""
    units: UnitsName = "scaled"
    """Whether rewards and columns are scaled by what the data show, or taken as they are."""

    def __post_init__(self) -> None:
        check_fields(self)
        counts = (
            "hidden",
            "critic_hidden",
            "episodes_per_update",
            "epochs",
            "minibatches",
            "learning_rate",
            "max_grad_norm",
        )
        check_positive("MAPPO", **{name: getattr(self, name) for name in (*counts, "clip_ratio")})
        check_not_negative("MAPPO", ent_coef=self.ent_coef, vf_coef=self.vf_coef)
        check_between("MAPPO", 0.0, 1.0, gamma=self.gamma, gae_lambda=self.gae_lambda)
        if self.episodes_per_update % self.minibatches:
            raise ValueError(
                f"MAPPO: episodes_per_update={self.episodes_per_update} must be a multiple of "
                f"minibatches={self.minibatches}."
            )

    def init(self, key: PRNGKeyArray, spec: Spec) -> MAPPOState:
        """Draw the networks."""
        key_actor, key_critic = jax.random.split(key)
        actor = TeamNetwork.create(key_actor, spec, self.hidden, self.share_parameters, self.factored)
        critic = MLP.create(key_critic, spec.state_width + 1, self.critic_hidden, self.critic_hidden, 1)
        online = ActorCritic(actor, critic)
        units = unmeasured(spec) if self.units == "scaled" else None
        return MAPPOState(online, self._optimiser.init(online), units)

    def with_units(self, state: MAPPOState, units: Units) -> MAPPOState:
        """Train on in these units, which were measured in real data."""
        return state if state.units is None else state._replace(units=units)

    def act(self, state: MAPPOState, samples: Int[Array, ""]) -> Policy:
        """Draw from the actors' probabilities."""
        return self._policy(state, stochastic=True)

    def greedy(self, state: MAPPOState) -> RecurrentPolicy:
        """Each agent takes its most probable action."""
        return self._policy(state, stochastic=False)

    def update(self, key: PRNGKeyArray, state: MAPPOState, episodes: Episode) -> tuple[MAPPOState, Metrics]:
        """A few gradient steps on the new episodes."""
        units = state.units and go_on_measuring(state.units, state.online.actor.spec, episodes)
        episodes = episodes if units is None else units(episodes)
        targets = self.targets(state.online, episodes)

        def one_step(state: MAPPOState, part: Any) -> tuple[MAPPOState, Array]:
            loss, gradient = jax.value_and_grad(self.loss)(state.online, *part)
            change, optimiser = self._optimiser.update(gradient, state.optimiser, state.online)
            return MAPPOState(optax.apply_updates(state.online, change), optimiser, units), loss

        def one_epoch(state: MAPPOState, key: PRNGKeyArray) -> tuple[MAPPOState, Array]:
            return jax.lax.scan(one_step, state, self._parts(key, (episodes, targets)))

        state = state._replace(units=units)
        state, losses = jax.lax.scan(one_epoch, state, jax.random.split(key, self.epochs))
        return state, {"loss": losses.mean()}

    def clear_replay(self, state: MAPPOState, spec: Spec) -> MAPPOState:
        """There is no replay."""
        return state

    def targets(self, online: ActorCritic, episodes: Episode) -> PPOTargets:
        """Advantages and returns of the episodes as the networks saw them when they were played."""
        logs, _ = _log_probability(online.actor, episodes)
        value = online.value(episodes.state)
        advantage = advantages(episodes, value, self.gamma, self.gae_lambda)
        return PPOTargets(logs, _normalised(advantage, episodes.mask), advantage + value[:-1])

    def loss(self, online: ActorCritic, episodes: Episode, targets: PPOTargets) -> Float[Array, ""]:
        """The clipped surrogate, less the entropy, plus the critic's error."""
        logs, entropy = _log_probability(online.actor, episodes)
        ratio = jnp.exp(logs - targets.log_probability)
        gain = surrogate(ratio, targets.advantage[..., None], self.clip_ratio).mean(-1)
        error = jnp.square(online.value(episodes.state)[:-1] - targets.value)
        loss = -gain - self.ent_coef * entropy.mean(-1) + self.vf_coef * error
        return jnp.sum(jnp.where(episodes.mask, loss, 0.0)) / jnp.sum(episodes.mask)

    def _policy(self, state: MAPPOState, stochastic: bool) -> RecurrentPolicy:
        columns = state.units and state.units.observation.columns
        return RecurrentPolicy(state.online.actor, stochastic, columns)

    def _parts(self, key: PRNGKeyArray, batch: Any) -> Any:
        """The minibatches of a batch (axes T B): axes (minibatch T B). Episodes stay whole."""
        if self.minibatches == 1:
            return jax.tree.map(lambda leaf: leaf[None], batch)
        order = jnp.argsort(jax.random.bits(key, (self.episodes_per_update,)))
        order = order.reshape(self.minibatches, -1)
        return jax.tree.map(lambda leaf: jnp.moveaxis(leaf[:, order], 1, 0), batch)

    @property
    def _optimiser(self) -> optax.GradientTransformation:
        return make_optimiser(self.optimiser, self.learning_rate, self.max_grad_norm)


def surrogate(
    ratio: Float[Array, "*batch N"], advantage: Float[Array, "*batch 1"], clip: float
) -> Float[Array, "*batch N"]:
    """PPO's clipped objective: the lesser of the plain gain and the gain with the ratio clipped."""
    return jnp.minimum(ratio * advantage, jnp.clip(ratio, 1.0 - clip, 1.0 + clip) * advantage)


def advantages(
    episodes: Episode, value: Float[Array, "timesteps B"], gamma: float, gae_lambda: float
) -> Float[Array, "T B"]:
    """Generalised advantages; nothing follows the end of an episode."""
    goes_on = ~(episodes.terminated | episodes.truncated)
    td_error = episodes.reward + gamma * jnp.where(goes_on, value[1:], 0.0) - value[:-1]

    def backwards(following: Float[Array, " B"], step: tuple[Array, ...]) -> tuple[Array, Array]:
        td_error, goes_on, taken = step
        advantage = jnp.where(taken, td_error + gamma * gae_lambda * jnp.where(goes_on, following, 0.0), 0.0)
        return advantage, advantage

    steps = (td_error, goes_on, episodes.mask)
    return jax.lax.scan(backwards, jnp.zeros(value.shape[1]), steps, reverse=True)[1]


def _log_probability(
    actor: TeamNetwork, episodes: Episode
) -> tuple[Float[Array, "T B N"], Float[Array, "T B N"]]:
    """The log-probabilities of the actions taken, and the entropies of the choices."""
    scores = actor.unroll(episodes.observation[:-1], previous_actions(episodes)[:-1])
    available = episodes.available[:-1]
    logs = jax.nn.log_softmax(mask_scores(scores, available))
    taken = jnp.take_along_axis(logs, episodes.actions[..., None], axis=-1)[..., 0]
    # Steps after the end hold arbitrary actions: they may be unavailable, and must not give -inf.
    taken = jnp.where(episodes.mask[..., None], taken, 0.0)
    return taken, -jnp.sum(_or_zero(jnp.exp(logs) * _or_zero(logs, available), available), axis=-1)


def _or_zero(values: Float[Array, "*batch A"], where: Bool[Array, "*batch A"]) -> Float[Array, "*batch A"]:
    return jnp.where(where, values, 0.0)


def _normalised(advantage: Float[Array, "T B"], mask: Bool[Array, "T B"]) -> Float[Array, "T B"]:
    mean = jnp.mean(advantage, where=mask)
    spread = jnp.std(advantage, where=mask)
    return (advantage - mean) / (spread + 1e-8)
