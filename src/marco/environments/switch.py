"""The riddle of the hundred prisoners and the switch, small: `switch` in the paper."""

from functools import lru_cache
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from marco.environments.base import FiniteEnvironment, Transition
from marco.types import ActionComponent, Agent, Categorical, Feature, Spec, binary

NONE, TELL, ON, OFF = range(4)
ACTIONS = ("None", "Tell", "On", "Off")


class SwitchWorld(NamedTuple):
    """Who is in the room, the light, and who has been in the room."""

    visitor: Int[Array, ""]
    light: Bool[Array, ""]
    visited: Bool[Array, " N"]


class Switch(FiniteEnvironment):
    """Each step one agent, drawn uniformly, stands in the room with the light.

    There it may switch the light or Tell that all have been in the room, which ends the episode: +1 if
    it is so, else -1. It alone sees the light; the others can do nothing.
    """

    agents: int = eqx.field(static=True, default=3)
    horizon: int = eqx.field(static=True, default=6)

    def __check_init__(self) -> None:
        if self.agents < 2:
            raise ValueError(f"the riddle needs at least 2 agents, got agents={self.agents}.")

    @property
    def spec(self) -> Spec:
        """The shape of the riddle."""
        return _spec(self.agents, self.horizon)

    def start_probabilities(self) -> Float[Array, " K"]:
        """Who comes first: everybody with the same probability."""
        return jnp.full((self.agents,), 1.0 / self.agents)

    def start(self, outcome: Int[Array, ""]) -> SwitchWorld:
        """The first visitor counts as having been in the room; the light is off."""
        return SwitchWorld(outcome, jnp.bool_(False), jnp.arange(self.agents) == outcome)

    def outcome_probabilities(self, world: SwitchWorld, actions: Int[Array, " N"]) -> Float[Array, " K"]:
        """Who comes next: everybody with the same probability, whatever was done."""
        return jnp.full((self.agents,), 1.0 / self.agents)

    def successor(self, world: SwitchWorld, actions: Int[Array, " N"], outcome: Int[Array, ""]) -> Transition:
        """Only the visitor's action counts."""
        present = jnp.arange(self.agents) == world.visitor
        action = jnp.sum(jnp.where(present, actions, 0))
        told = action == TELL
        verdict = jnp.where(world.visited.all(), 1.0, -1.0)
        light = jnp.where(action == ON, True, jnp.where(action == OFF, False, world.light))
        visited = world.visited | (jnp.arange(self.agents) == outcome)
        return Transition(SwitchWorld(outcome, light, visited), jnp.where(told, verdict, 0.0), told)

    def observe(self, world: SwitchWorld) -> Float[Array, "N O"]:
        """Am I in the room; and the light, if I am."""
        in_room = jnp.arange(self.agents) == world.visitor
        return jnp.stack([in_room, in_room & world.light], axis=-1).astype(jnp.float32)

    def available(self, world: SwitchWorld) -> Bool[Array, "N A"]:
        """Everything in the room, None elsewhere."""
        in_room = jnp.arange(self.agents) == world.visitor
        return in_room[:, None] | (jnp.arange(len(ACTIONS)) == NONE)

    def central(self, world: SwitchWorld) -> Float[Array, " S"]:
        """Who is in the room, the light, who has been there."""
        in_room = jnp.arange(self.agents) == world.visitor
        return jnp.concatenate([in_room, world.light[None], world.visited]).astype(jnp.float32)


@lru_cache
def _spec(agents: int, horizon: int) -> Spec:
    names = tuple(str(i) for i in range(agents))
    seen = (binary("in room"), binary("light on"))
    state: tuple[Feature, ...] = (
        Categorical("in room", agents, labels=names),
        binary("light on"),
        *(binary(f"been {name}") for name in names),
    )
    action = (ActionComponent("action", len(ACTIONS), ACTIONS),)
    return Spec("switch", tuple(Agent(name, action, seen) for name in names), state, horizon)
