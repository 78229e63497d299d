"""The riddle of the hundred prisoners and the switch, small: `switch` in the paper."""

from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from marco.checks import check_columns, is_of
from marco.environments.base import FiniteEnvironment, Transition
from marco.policies.base import Policy
from marco.types import ActionComponent, Agent, Categorical, Episode, Feature, Spec, binary

NONE, TELL, ON, OFF = range(4)
ACTIONS = ("None", "Tell", "On", "Off")

OPTIMA = {3: Fraction(2, 9), 4: Fraction(4, 9), 5: Fraction(50, 81), 6: Fraction(20, 27)}
"""The optimum for three agents by horizon, certified: it equals the bound with full information."""


class SwitchState(NamedTuple):
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
        if not is_of(self.agents, int) or self.agents < 2:
            raise ValueError(f"the riddle needs at least 2 agents, got agents={self.agents!r}.")
        check_columns(f"switch with agents={self.agents}", 2 * self.agents + 1)

    @property
    def spec(self) -> Spec:
        return _spec(self.agents, self.horizon)

    @property
    def optimum(self) -> float | None:
        return riddle_optimum(self.agents, self.horizon)

    def expert(self) -> Policy | None:
        from marco.environments.experts import riddle_expert

        return riddle_expert(self.spec)

    def draw_timestep(self, axes: Any, episode: Episode, t: int) -> None:
        from marco.environments.pictures import draw_riddle

        draw_riddle(self.spec, axes, episode, t)

    def start_probabilities(self) -> Float[Array, " K"]:
        """The first visitor is drawn uniformly."""
        return jnp.full((self.agents,), 1.0 / self.agents)

    def start(self, outcome: Int[Array, ""]) -> SwitchState:
        """The first visitor counts as having been in the room; the light is off."""
        return SwitchState(outcome, jnp.bool_(False), jnp.arange(self.agents) == outcome)

    def outcome_probabilities(self, world: SwitchState, actions: Int[Array, " N"]) -> Float[Array, " K"]:
        """The next visitor is drawn uniformly, whatever the actions."""
        return jnp.full((self.agents,), 1.0 / self.agents)

    def successor(self, world: SwitchState, actions: Int[Array, " N"], outcome: Int[Array, ""]) -> Transition:
        """Only the visitor's action counts."""
        present = jnp.arange(self.agents) == world.visitor
        action = jnp.sum(jnp.where(present, actions, 0))
        told = action == TELL
        verdict = jnp.where(world.visited.all(), 1.0, -1.0)
        light = jnp.where(action == ON, True, jnp.where(action == OFF, False, world.light))
        visited = world.visited | (jnp.arange(self.agents) == outcome)
        return Transition(SwitchState(outcome, light, visited), jnp.where(told, verdict, 0.0), told)

    def observe(self, world: SwitchState) -> Float[Array, "N O"]:
        """Whether the agent is in the room; and the light, if it is."""
        in_room = jnp.arange(self.agents) == world.visitor
        return jnp.stack([in_room, in_room & world.light], axis=-1).astype(jnp.float32)

    def available(self, world: SwitchState) -> Bool[Array, "N A"]:
        """Everything in the room, None elsewhere."""
        in_room = jnp.arange(self.agents) == world.visitor
        return in_room[:, None] | (jnp.arange(len(ACTIONS)) == NONE)

    def central(self, world: SwitchState) -> Float[Array, " S"]:
        """Who is in the room, the light, who has been there."""
        in_room = jnp.arange(self.agents) == world.visitor
        return jnp.concatenate([in_room, world.light[None], world.visited]).astype(jnp.float32)


def riddle_optimum(agents: int, steps: int) -> float | None:
    """The value of the best team in a riddle of so many agents and steps, where it is known."""
    return float(OPTIMA[steps]) if agents == 3 and steps in OPTIMA else None


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
