"""The riddle behind a bridge that all must cross first: `switch with bridge` in the paper."""

from functools import lru_cache
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from marco.checks import check_columns, is_of
from marco.environments import switch
from marco.environments.base import FiniteEnvironment, Transition
from marco.environments.switch import Switch, SwitchState, riddle_optimum
from marco.policies.base import Policy
from marco.types import ActionComponent, Agent, Categorical, Episode, Feature, Spec, binary

LEFT, RIGHT, END = range(len(switch.ACTIONS), len(switch.ACTIONS) + 3)
ACTIONS = (*switch.ACTIONS, "Left", "Right", "End")


class BridgeState(NamedTuple):
    """Where each agent stands, and the riddle, in which nobody (visitor N) is in the room until it starts."""

    positions: Int[Array, " N"]
    riddle: SwitchState


class Bridge(FiniteEnvironment):
    """All agents start at the left end; the riddle starts at the very step at which all are at the right.

    Until then each sees its position and may go Left, Right, or End the episode with nothing. In the
    riddle the agent in the room may also End, and may go Left or Right to no effect.
    """

    inner: Switch = Switch()
    length: int = eqx.field(static=True, default=3)
    horizon: int = eqx.field(static=True, default=9)

    def __check_init__(self) -> None:
        if not is_of(self.length, int) or self.length < 1:
            raise ValueError(f"the bridge must be at least 1 long, got length={self.length!r}.")
        agents = self.inner.agents
        check_columns(f"bridge with agents={agents}, length={self.length}", agents * (self.length + 3) + 1)

    @property
    def spec(self) -> Spec:
        return _spec(self.inner.agents, self.length, self.horizon)

    @property
    def optimum(self) -> float | None:
        return riddle_optimum(self.inner.agents, self.horizon - self.length)

    def expert(self) -> Policy | None:
        from marco.environments.experts import riddle_expert

        return riddle_expert(self.spec)

    def draw_timestep(self, axes: Any, episode: Episode, t: int) -> None:
        from marco.environments.pictures import draw_riddle

        draw_riddle(self.spec, axes, episode, t)

    def start_probabilities(self) -> Float[Array, " K"]:
        """There is only one start."""
        return jnp.ones((1,))

    def start(self, outcome: Int[Array, ""]) -> BridgeState:
        """Everybody on the left, nobody in the room."""
        agents = self.inner.agents
        nobody = SwitchState(jnp.int32(agents), jnp.bool_(False), jnp.zeros((agents,), bool))
        return BridgeState(jnp.zeros((agents,), jnp.int32), nobody)

    def outcome_probabilities(self, world: BridgeState, actions: Int[Array, " N"]) -> Float[Array, " K"]:
        """Who would enter the room next."""
        return self.inner.outcome_probabilities(world.riddle, actions)

    def successor(self, world: BridgeState, actions: Int[Array, " N"], outcome: Int[Array, ""]) -> Transition:
        """Cross, or play the riddle."""
        crossed = self._crossed(world)
        riddle = self.inner.successor(world.riddle, actions, outcome)
        moves = jnp.where(actions == RIGHT, 1, jnp.where(actions == LEFT, -1, 0))
        positions = jnp.where(crossed, world.positions, jnp.clip(world.positions + moves, 0, self.length))
        begun = self.inner.start(outcome)
        arrived = jnp.all(positions == self.length)
        following = SwitchState(
            visitor=jnp.where(arrived, outcome, world.riddle.visitor),
            light=jnp.where(crossed, riddle.world.light, begun.light),
            visited=jnp.where(crossed, riddle.world.visited, begun.visited & arrived),
        )
        # Only those in the room or on the bridge can End: the mask gives the others None alone.
        may_end = self.available(world)[:, END]
        ended = jnp.any(may_end & (actions == END))
        return Transition(
            BridgeState(positions, following),
            jnp.where(crossed, riddle.reward, 0.0),
            ended | (crossed & riddle.terminated),
        )

    def observe(self, world: BridgeState) -> Float[Array, "N O"]:
        """The agent's position until the riddle starts; then the riddle's observation."""
        crossed = self._crossed(world)
        here = world.positions[:, None] == jnp.arange(self.length + 1)
        return jnp.concatenate([here & ~crossed, self.inner.observe(world.riddle)], axis=-1)

    def available(self, world: BridgeState) -> Bool[Array, "N A"]:
        """Left, Right, End on the bridge; everything in the room; None elsewhere."""
        crossing = jnp.arange(len(ACTIONS)) >= LEFT
        in_room = jnp.arange(self.inner.agents) == world.riddle.visitor
        in_riddle = in_room[:, None] | (jnp.arange(len(ACTIONS)) == switch.NONE)
        return jnp.where(self._crossed(world), in_riddle, crossing)

    def central(self, world: BridgeState) -> Float[Array, " S"]:
        """Positions, who is in the room if anyone, the light, who has been there."""
        here = world.positions[:, None] == jnp.arange(self.length + 1)
        return jnp.concatenate([here.ravel(), self.inner.central(world.riddle)])

    def _crossed(self, world: BridgeState) -> Bool[Array, ""]:
        return jnp.all(world.positions == self.length)


def make_bridge(agents: int = 3, length: int = 3, horizon: int = 9) -> Bridge:
    """The riddle of so many agents behind a bridge."""
    return Bridge(Switch(agents), length, horizon)


@lru_cache
def _spec(agents: int, length: int, horizon: int) -> Spec:
    names = tuple(str(i) for i in range(agents))
    places = tuple(str(place) for place in range(length + 1))
    seen: tuple[Feature, ...] = (
        Categorical("position", length + 2, blank=True, labels=("crossed", *places)),
        binary("in room"),
        binary("light on"),
    )
    state: tuple[Feature, ...] = (
        *(Categorical(f"position of {name}", length + 1, labels=places) for name in names),
        Categorical("in room", agents + 1, blank=True, labels=("nobody", *names)),
        binary("light on"),
        *(binary(f"been {name}") for name in names),
    )
    action = (ActionComponent("action", len(ACTIONS), ACTIONS),)
    return Spec("bridge", tuple(Agent(name, action, seen) for name in names), state, horizon)
