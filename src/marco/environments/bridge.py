"""The riddle behind a bridge that all must cross first: `switch with bridge` in the paper."""

from functools import lru_cache
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from marco.environments import switch
from marco.environments.base import FiniteEnvironment, Transition
from marco.environments.switch import Switch, SwitchWorld
from marco.types import ActionComponent, Agent, Categorical, Feature, Spec, binary

LEFT, RIGHT, END = range(len(switch.ACTIONS), len(switch.ACTIONS) + 3)
ACTIONS = (*switch.ACTIONS, "Left", "Right", "End")


class BridgeWorld(NamedTuple):
    """Where each agent stands, and the riddle, in which nobody (visitor N) is in the room until it starts."""

    positions: Int[Array, " N"]
    riddle: SwitchWorld


class Bridge(FiniteEnvironment):
    """All agents start at the left end; the riddle starts at the very step at which all are at the right.

    Until then each sees its position and may go Left, Right, or End the episode with nothing. In the
    riddle the agent in the room may also End, and may go Left or Right to no effect.
    """

    inner: Switch = Switch()
    length: int = eqx.field(static=True, default=3)
    horizon: int = eqx.field(static=True, default=9)

    def __check_init__(self) -> None:
        if self.length < 1:
            raise ValueError(f"the bridge must be at least 1 long, got length={self.length}.")

    @property
    def spec(self) -> Spec:
        """The shape of the bridge and the riddle behind it."""
        return _spec(self.inner.agents, self.length, self.horizon)

    def start_probabilities(self) -> Float[Array, " K"]:
        """There is but one start."""
        return jnp.ones((1,))

    def start(self, outcome: Int[Array, ""]) -> BridgeWorld:
        """Everybody on the left, nobody in the room."""
        agents = self.inner.agents
        nobody = SwitchWorld(jnp.int32(agents), jnp.bool_(False), jnp.zeros((agents,), bool))
        return BridgeWorld(jnp.zeros((agents,), jnp.int32), nobody)

    def outcome_probabilities(self, world: BridgeWorld, actions: Int[Array, " N"]) -> Float[Array, " K"]:
        """Who would enter the room next."""
        return self.inner.outcome_probabilities(world.riddle, actions)

    def successor(self, world: BridgeWorld, actions: Int[Array, " N"], outcome: Int[Array, ""]) -> Transition:
        """Cross, or play the riddle."""
        crossed = self._crossed(world)
        riddle = self.inner.successor(world.riddle, actions, outcome)
        moves = jnp.where(actions == RIGHT, 1, jnp.where(actions == LEFT, -1, 0))
        positions = jnp.where(crossed, world.positions, jnp.clip(world.positions + moves, 0, self.length))
        begun = self.inner.start(outcome)
        arrived = jnp.all(positions == self.length)
        following = SwitchWorld(
            visitor=jnp.where(arrived, outcome, world.riddle.visitor),
            light=jnp.where(crossed, riddle.world.light, begun.light),
            visited=jnp.where(crossed, riddle.world.visited, begun.visited & arrived),
        )
        # Only those in the room or on the bridge can End: the mask gives the others None alone.
        may_end = self.available(world)[:, END]
        ended = jnp.any(may_end & (actions == END))
        return Transition(
            BridgeWorld(positions, following),
            jnp.where(crossed, riddle.reward, 0.0),
            ended | (crossed & riddle.terminated),
        )

    def observe(self, world: BridgeWorld) -> Float[Array, "N O"]:
        """My position until the riddle starts; then what the riddle shows."""
        crossed = self._crossed(world)
        here = world.positions[:, None] == jnp.arange(self.length + 1)
        return jnp.concatenate([here & ~crossed, self.inner.observe(world.riddle)], axis=-1)

    def available(self, world: BridgeWorld) -> Bool[Array, "N A"]:
        """Left, Right, End on the bridge; everything in the room; None elsewhere."""
        crossing = jnp.arange(len(ACTIONS)) >= LEFT
        in_room = jnp.arange(self.inner.agents) == world.riddle.visitor
        in_riddle = in_room[:, None] | (jnp.arange(len(ACTIONS)) == switch.NONE)
        return jnp.where(self._crossed(world), in_riddle, crossing)

    def central(self, world: BridgeWorld) -> Float[Array, " S"]:
        """Positions, who is in the room if anyone, the light, who has been there."""
        here = world.positions[:, None] == jnp.arange(self.length + 1)
        return jnp.concatenate([here.ravel(), self.inner.central(world.riddle)])

    def _crossed(self, world: BridgeWorld) -> Bool[Array, ""]:
        return jnp.all(world.positions == self.length)


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
