"""The contract of every environment: a Dec-POMDP as a pytree, with no hidden state and no auto-reset."""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from marco.policies.base import Policy
from marco.sampling import draw
from marco.types import NO_ACTION, Episode, Spec, TimeStep, split_observations

InnerState = Any
"""The full state of an environment (a pytree), with what its agents now see."""


class EnvironmentState(NamedTuple):
    """The state of an episode: the environment's inner state, and the clock."""

    world: InnerState
    time: Int[Array, ""]
    previous_actions: Int[Array, " N"]
    terminated: Bool[Array, ""]

    def over(self, horizon: int) -> Bool[Array, ""]:
        """Whether the episode has ended, by itself or by the clock."""
        return self.terminated | (self.time >= horizon)


class Transition(NamedTuple):
    """What one joint action leads to."""

    world: InnerState
    reward: Float[Array, ""]
    terminated: Bool[Array, ""]


class ByMember(NamedTuple):
    """An environment that plays an ensemble, as one environment per member: those are all of one shape."""

    members: int
    apart: "Environment"
    """What differs between members, members first; None where nothing does."""
    shared: "Environment"
    """What all members share; None where `apart` has it."""
    resample: bool
    """Whether an episode goes on with another member at every step."""

    def within(self, outer: "Environment", where: Callable[[Any], Any]) -> "ByMember":
        """The same of an environment that plays this one as its field `where`."""
        nothing = jax.tree.map(lambda _: None, outer)

        def put(whole: "Environment", part: "Environment") -> "Environment":
            return eqx.tree_at(where, whole, part, is_leaf=lambda leaf: leaf is None)

        return self._replace(apart=put(nothing, self.apart), shared=put(outer, self.shared))

    def each(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Apply `function(env, *arguments)` to arguments with the axes (members, episodes)."""

        def of_one(apart: "Environment", *arguments: Any) -> Any:
            env = eqx.combine(apart, self.shared)
            return jax.vmap(lambda *one: function(env, *one))(*arguments)

        return lambda *arguments: jax.vmap(of_one)(self.apart, *arguments)


class Environment(eqx.Module):
    """A Dec-POMDP. A subclass writes the six abstract parts; `reset` and `step` are the same for all.

    A true environment holds static fields only, a learned one its weights as leaves. It is passed to
    compiled functions as an argument, never closed over, so that another one of the same shape costs no new
    compilation. A subclass may add its optimum, an expert team and a drawing.
    """

    @property
    @abstractmethod
    def spec(self) -> Spec:
        """The shape of the environment."""

    @abstractmethod
    def initial(self, key: PRNGKeyArray) -> InnerState:
        """Draw the start of an episode."""

    @abstractmethod
    def transition(self, key: PRNGKeyArray, world: InnerState, actions: Int[Array, " N"]) -> Transition:
        """Draw what the joint action does: the next state, the team's reward, whether that is the end."""

    @abstractmethod
    def observe(self, world: InnerState) -> Float[Array, "N O"]:
        """What each agent sees now."""

    @abstractmethod
    def available(self, world: InnerState) -> Bool[Array, "N A"]:
        """The actions that each agent may take now."""

    @abstractmethod
    def central(self, world: InnerState) -> Float[Array, " S"]:
        """The central state, Markov, as the columns that `spec.state` describes."""

    @property
    def optimum(self) -> float | None:
        """The value of the best decentralised team, where it is known."""
        return None

    def expert(self) -> Policy | None:
        """A hand-written team, where there is one."""
        return None

    def draw_timestep(self, axes: Any, episode: Episode, t: int) -> None:
        """Draw timestep `t` of an episode into matplotlib's axes; as text, unless a subclass knows better."""
        from marco.environments.pictures import draw_as_text

        draw_as_text(self.spec, axes, episode, t)

    def reset(self, key: PRNGKeyArray) -> tuple[EnvironmentState, TimeStep]:
        """Begin an episode."""
        return self.begin(self.initial(key))

    def step(
        self, key: PRNGKeyArray, state: EnvironmentState, actions: Int[Array, " N"]
    ) -> tuple[EnvironmentState, TimeStep]:
        """Take one step. The terminal state is the true one; after the end nothing changes any more."""
        if actions.shape != (self.spec.num_agents,):
            raise ValueError(
                f"{self.spec.name} takes one action for each of its {self.spec.num_agents} agents, "
                f"got actions of the shape {actions.shape}."
            )
        return self.advance(state, actions, self.transition(key, state.world, actions))

    def by_member(self) -> "ByMember | None":
        """The environment taken apart by the members of its ensemble; None if it has no ensemble."""
        return None

    def begin(self, world: InnerState) -> tuple[EnvironmentState, TimeStep]:
        """The first timestep of an episode, from a drawn start."""
        nobody_acted = jnp.full((self.spec.num_agents,), NO_ACTION, jnp.int32)
        state = EnvironmentState(world, jnp.int32(0), nobody_acted, jnp.bool_(False))
        return state, self._timestep(state, jnp.float32(0.0))

    def advance(
        self, state: EnvironmentState, actions: Int[Array, " N"], transition: Transition
    ) -> tuple[EnvironmentState, TimeStep]:
        """Apply a drawn transition: the clock, the two ends, and no change after them."""
        moved = EnvironmentState(transition.world, state.time + 1, actions, transition.terminated)
        over = state.over(self.spec.horizon)
        after = jax.tree.map(lambda old, new: jnp.where(over, old, new), state, moved)
        return after, self._timestep(after, jnp.where(over, 0.0, transition.reward).astype(jnp.float32))

    def _timestep(self, state: EnvironmentState, reward: Float[Array, ""]) -> TimeStep:
        return TimeStep(
            observation=self.observe(state.world),
            state=self.central(state.world),
            available=self.available(state.world),
            previous_actions=state.previous_actions,
            reward=reward,
            terminated=state.terminated,
            truncated=~state.terminated & (state.time >= self.spec.horizon),
        )


class FiniteEnvironment(Environment):
    """An environment that draws one of finitely many outcomes at every step, so that they can be enumerated.

    That makes exact values, exact model errors and tables possible. What the agents see is a function of
    the outcome, so an observation drawn at random is part of it.
    """

    @abstractmethod
    def start_probabilities(self) -> Float[Array, " K"]:
        """The probabilities of the outcomes at the start."""

    @abstractmethod
    def start(self, outcome: Int[Array, ""]) -> InnerState:
        """The inner state in which an outcome of the start begins."""

    @abstractmethod
    def outcome_probabilities(self, world: InnerState, actions: Int[Array, " N"]) -> Float[Array, " K"]:
        """The probabilities of the outcomes of a joint action."""

    @abstractmethod
    def successor(self, world: InnerState, actions: Int[Array, " N"], outcome: Int[Array, ""]) -> Transition:
        """What an outcome of a joint action leads to."""

    def initial(self, key: PRNGKeyArray) -> InnerState:
        return self.start(draw(key, self.start_probabilities()))

    def transition(self, key: PRNGKeyArray, world: InnerState, actions: Int[Array, " N"]) -> Transition:
        return self.successor(world, actions, draw(key, self.outcome_probabilities(world, actions)))


class WorldError(RuntimeError):
    """An environment outside MARCO did what its own description rules out."""


class WorldWarning(UserWarning):
    """An environment outside MARCO can be learned in, but perhaps not as its author thinks."""


@runtime_checkable
class HostWorld(Protocol):
    """An environment outside JAX: PettingZoo, a simulator, a robot. It keeps its own state.

    It may also have an `optimum`, an `expert` and a `draw_timestep`, as `Environment` has, and `known`: the
    components of its model that need not be learned, as functions by name. `joint_state = True` says that its
    state is no more than what the agents observe: then a model may remember the last steps.
    """

    @property
    def spec(self) -> Spec:
        """The shape of the environment."""

    def reset(self, seed: int) -> TimeStep:
        """Begin an episode. Arrays are numpy's."""

    def step(self, actions: Int[np.ndarray, " N"]) -> TimeStep:
        """Take one real step."""


def check_shown(spec: Spec, timestep: Any) -> TimeStep:
    """What a host environment showed, or a WorldError if nothing of this shape can be learned from it."""
    if not isinstance(timestep, TimeStep):
        raise WorldError(f"{spec.name} returned {timestep!r}: return a marco.types.TimeStep.")
    team = spec.num_agents
    shapes = {
        "observation": (team, spec.observation_width),
        "state": (spec.state_width,),
        "available": (team, spec.num_actions),
        "reward": (),
        "terminated": (),
        "truncated": (),
    }
    for name, shape in shapes.items():
        value = np.asarray(getattr(timestep, name))
        if value.shape != shape:
            raise WorldError(
                f"{spec.name} showed {name} of the shape {value.shape}, its spec says {shape}: correct one."
            )
        with np.errstate(over="ignore"):  # of 64 bits, as it is kept
            kept = value.astype(np.float32) if value.dtype.kind in "biuf" else np.float32(np.nan)
        if not np.isfinite(kept).all():
            raise WorldError(
                f"{spec.name} showed {name} {value.tolist()}: only finite numbers can be learned from. "
                "Correct the environment."
            )
    available = np.asarray(timestep.available).astype(bool)
    if (available & ~spec.actions_exist).any() or not (timestep.last or available.any(-1).all()):
        raise WorldError(
            f"{spec.name} showed the available actions {available.astype(int).tolist()}: every agent needs "
            "one or more of its own, and none beyond them. Correct the masks."
        )
    return timestep


def optimum_of(env: Environment | HostWorld) -> float | None:
    """The value of the best decentralised team, where the environment knows it."""
    return getattr(env, "optimum", None)


def known_of(env: Environment | HostWorld) -> dict[Any, Any]:
    """The components of its model that the environment itself gives, by name."""
    known = getattr(env, "known", None)
    return dict(known) if isinstance(known, dict) else {}


def has_joint_state(env: Environment | HostWorld) -> bool:
    """Whether the state is no more than what all agents observe now, and so perhaps not Markov."""
    return getattr(env, "joint_state", False) is True


class Guessed(NamedTuple):
    """What of an environment's spec was read off shapes alone: real data may describe it better."""

    state: bool = False
    observation: bool = False


def guessed_of(env: Environment | HostWorld) -> Guessed:
    """What of a spec is a guess. A spec that was written for the environment is none."""
    guessed = getattr(env, "guessed", None)
    return guessed if isinstance(guessed, Guessed) else Guessed()


@dataclass(frozen=True)
class ObservationFromState:
    """The observation function where the state shows what all agents observe: take it apart."""

    # A class and no closure: two of them are equal if their fields are, and nothing is compiled again.
    spec: Spec
    columns: tuple[int, ...]
    """Which of the state's columns are the observations, agent by agent."""

    def __call__(
        self, key: PRNGKeyArray, s: Float[Array, " S"], previous: Int[Array, " N"]
    ) -> Float[Array, "N O"]:
        """What each agent observes in state s."""
        return split_observations(self.spec, s[np.asarray(self.columns)])


def expert_of(env: Environment | HostWorld) -> Policy | None:
    """The hand-written team of an environment, where there is one."""
    expert: Callable[[], Policy | None] | None = getattr(env, "expert", None)
    return expert() if expert is not None else None
