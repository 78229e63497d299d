"""A light that turns on long after its switch was pressed: the paper's case against observation models."""

from functools import lru_cache
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from marco.checks import check_columns, is_of
from marco.environments.base import FiniteEnvironment, Transition
from marco.types import ActionComponent, Agent, Categorical, Spec, binary

NONE, PRESS, TAKE = range(3)
ACTIONS = ("None", "Press", "Take")


class DelayedState(NamedTuple):
    """Steps until the light turns on (0: none is due), and the light."""

    countdown: Int[Array, ""]
    light: Bool[Array, ""]


class Delayed(FiniteEnvironment):
    """Everybody sees the light and nobody the countdown that runs `delay` steps from a press.

    A press counts only in the dark with no countdown running. Take turns a light that is on off and pays
    +1; in the dark it costs 1. So the best team takes once every `delay` + 1 steps.
    """

    agents: int = eqx.field(static=True, default=2)
    delay: int = eqx.field(static=True, default=10)
    horizon: int = eqx.field(static=True, default=25)

    def __check_init__(self) -> None:
        if not is_of(self.agents, int) or self.agents < 1:
            raise ValueError(f"the delayed light needs at least 1 agent, got agents={self.agents!r}.")
        if not is_of(self.delay, int) or self.delay < 1:
            raise ValueError(f"the light must take at least 1 step, got delay={self.delay!r}.")
        check_columns(f"delayed with agents={self.agents}, delay={self.delay}", self.agents + self.delay)

    @property
    def spec(self) -> Spec:
        return _spec(self.agents, self.delay, self.horizon)

    @property
    def optimum(self) -> float | None:
        return float(self.horizon // (self.delay + 1))

    def start_probabilities(self) -> Float[Array, " K"]:
        """There is only one start."""
        return jnp.ones((1,))

    def start(self, outcome: Int[Array, ""]) -> DelayedState:
        """Dark, and nothing pressed."""
        return DelayedState(jnp.int32(0), jnp.bool_(False))

    def outcome_probabilities(self, world: DelayedState, actions: Int[Array, " N"]) -> Float[Array, " K"]:
        """Nothing is random."""
        return jnp.ones((1,))

    def successor(
        self, world: DelayedState, actions: Int[Array, " N"], outcome: Int[Array, ""]
    ) -> Transition:
        taken = jnp.any(actions == TAKE)
        started = jnp.any(actions == PRESS) & ~world.light & (world.countdown == 0)
        running = jnp.where(started, self.delay, world.countdown)
        turns_on = running == 1
        light = turns_on | (world.light & ~taken)
        reward = jnp.where(taken, jnp.where(world.light, 1.0, -1.0), 0.0)
        return Transition(DelayedState(jnp.maximum(running - 1, 0), light), reward, jnp.bool_(False))

    def observe(self, world: DelayedState) -> Float[Array, "N O"]:
        """The light, and nothing else."""
        return jnp.full((self.agents, 1), world.light, jnp.float32)

    def available(self, world: DelayedState) -> Bool[Array, "N A"]:
        """Everything, always."""
        return jnp.ones((self.agents, len(ACTIONS)), bool)

    def central(self, world: DelayedState) -> Float[Array, " S"]:
        """The countdown and the light."""
        countdown = self.spec.state[0]
        assert isinstance(countdown, Categorical)
        return jnp.concatenate([countdown.encode(world.countdown), world.light[None].astype(jnp.float32)])


@lru_cache
def _spec(agents: int, delay: int, horizon: int) -> Spec:
    light = binary("light on")
    action = (ActionComponent("action", len(ACTIONS), ACTIONS),)
    team = tuple(Agent(str(i), action, (light,)) for i in range(agents))
    # The countdown is the number of steps left after this one, so its largest value is delay - 1.
    return Spec("delayed", team, (Categorical("countdown", delay, blank=True), light), horizon)
