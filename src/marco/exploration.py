"""The exploration policy: the world it is trained in, how it plays, how it leads a team through a model."""

from functools import lru_cache
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from marco.environments.environment import Environment, Transition, draw
from marco.model.rivals import uncertainty_of
from marco.model.uncertainty import BonusName
from marco.rollout import Memory, Policy
from marco.types import NO_ACTION, Agent, Spec, TimeStep


def explore_reward(r: Float[Array, ""], r_tilde: Float[Array, ""], lam: Float[Array, ""]) -> Float[Array, ""]:
    """Equation 1, second line: r_explore = R + lambda r-tilde."""
    return r + lam * r_tilde


class ExplorationEnvironment(Environment[Any]):
    """A learned world with the central state as every agent's observation, and the reward of Equation 1."""

    inner: Environment[Any]
    lam: Float[Array, ""]
    bonus: BonusName = eqx.field(static=True, default="variance")

    @property
    def spec(self) -> Spec:
        """As the model's, but every agent sees the state."""
        return exploration_spec(self.inner.spec)

    def initial(self, key: PRNGKeyArray) -> Any:
        """As in the model."""
        return self.inner.initial(key)

    def transition(self, key: PRNGKeyArray, world: Any, actions: Int[Array, " N"]) -> Transition:
        """As in the model; what the ensemble disagrees on is paid for."""
        after = self.inner.transition(key, world, actions)
        r_tilde = uncertainty_of(self.inner, self.bonus, world, actions, after.world)
        return after._replace(reward=explore_reward(after.reward, r_tilde, self.lam))

    def observe(self, world: Any) -> Float[Array, "N O"]:
        """The state, for everybody."""
        return _for_everybody(self.inner.central(world), self.spec.num_agents)

    def available(self, world: Any) -> Bool[Array, "N A"]:
        """As in the model."""
        return self.inner.available(world)

    def central(self, world: Any) -> Float[Array, " S"]:
        """As in the model."""
        return self.inner.central(world)


class SeesState(Policy):
    """The exploration policy at work in the true world: everybody is shown the state."""

    inner: Policy

    def start(self) -> Memory:
        """The inner policy's memory."""
        return self.inner.start()

    def __call__(self, memory: Memory, timestep: TimeStep) -> tuple[Memory, Float[Array, "N A"]]:
        """Show the state instead of the observations, and ask."""
        state = _for_everybody(timestep.state, timestep.observation.shape[0])
        return self.inner(memory, timestep._replace(observation=state))


class GuidedWorld(NamedTuple):
    """A moment of the inner world, and who decides there."""

    inner: Any
    memory: Memory
    """What the guide remembers."""
    available: Bool[Array, "N A"]
    led: Int[Array, ""]
    """For how many more steps the guide decides."""


class GuidedEnvironment(Environment[GuidedWorld]):
    """A world in which a guide leads some episodes for a while: as long as it does, only its action is there.

    A team that would have to be very lucky to get somewhere is brought there, remembers what it saw on the
    way as if it had come by itself, and learns from there on; and the way as well, since the steps it is led
    are its own. For how long it is led is drawn uniformly, up to the whole episode.

    A guide that sees the state must leave in time: what it does tells of what the team cannot see, and where
    it has led, a light that is on means something else than where the team has come by itself.
    """

    inner: Environment[Any]
    guide: Policy
    share: Float[Array, "*R"]
    """Of the episodes, that are led."""

    @property
    def spec(self) -> Spec:
        """As the inner world's."""
        return self.inner.spec

    def initial(self, key: PRNGKeyArray) -> GuidedWorld:
        """As in the inner world; who decides is drawn too."""
        key_inner, key_led, key_long, key_guide = jax.random.split(key, 4)
        long = jax.random.randint(key_long, (), 1, self.spec.horizon + 1)
        led = jnp.where(jax.random.uniform(key_led) < self.share, long, 0)
        nobody = jnp.full(self.spec.num_agents, NO_ACTION, jnp.int32)
        return self._moment(key_guide, self.inner.initial(key_inner), self.guide.start(), led, nobody)

    def transition(self, key: PRNGKeyArray, world: GuidedWorld, actions: Int[Array, " N"]) -> Transition:
        """As in the inner world."""
        key_inner, key_guide = jax.random.split(key)
        after = self.inner.transition(key_inner, world.inner, actions)
        led = jnp.maximum(world.led - 1, 0)
        return after._replace(world=self._moment(key_guide, after.world, world.memory, led, actions))

    def observe(self, world: GuidedWorld) -> Float[Array, "N O"]:
        """As in the inner world."""
        return self.inner.observe(world.inner)

    def available(self, world: GuidedWorld) -> Bool[Array, "N A"]:
        """What the guide chose, as long as it leads."""
        return world.available

    def central(self, world: GuidedWorld) -> Float[Array, " S"]:
        """As in the inner world."""
        return self.inner.central(world.inner)

    def _moment(
        self,
        key: PRNGKeyArray,
        inner: Any,
        memory: Memory,
        led: Int[Array, ""],
        previous: Int[Array, " N"],
    ) -> GuidedWorld:
        free = self.inner.available(inner)
        shown = TimeStep(
            observation=self.inner.observe(inner),
            state=self.inner.central(inner),
            available=free,
            previous_actions=previous,
            reward=jnp.float32(0.0),
            terminated=jnp.bool_(False),
            truncated=jnp.bool_(False),
        )
        memory, probabilities = self.guide(memory, shown)
        chosen = draw(key, probabilities)[:, None] == jnp.arange(free.shape[-1])
        return GuidedWorld(inner, memory, jnp.where(led > 0, chosen, free), led)


@lru_cache
def exploration_spec(spec: Spec) -> Spec:
    """The shape of a world in which every agent sees the state."""
    team = tuple(Agent(agent.name, agent.factors, spec.state) for agent in spec.agents)
    return Spec(f"{spec.name}-exploration", team, spec.state, spec.horizon)


def _for_everybody(state: Float[Array, " S"], agents: int) -> Float[Array, "N S"]:
    return jnp.broadcast_to(state, (agents, *state.shape))
