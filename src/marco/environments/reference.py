"""Simple reference: two agents, three landmarks; each agent knows only where its partner has to go.

The environment of MPE (particle environments), step by step as the maintained package `mpe2` has it in
`simple_reference_v3`. Conventions differ between libraries; here the team's reward is the mean over agents of
minus the Euclidean distance to the agent's own landmark, after the step.
"""

from functools import cache
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from marco.environments.base import Environment, Transition
from marco.policies.base import Policy
from marco.types import ActionComponent, Agent, Categorical, Continuous, Episode, Feature, Spec

AGENTS = 2
LANDMARKS = 3
MOVES = ("stay", "left", "right", "down", "up")
WORDS = 10
SILENCE = 0

TIME_STEP = 0.1
DAMPING = 0.25
THRUST = 5.0
"""What a move adds to an agent's acceleration, mpe2's sensitivity; an agent's mass is 1."""

VELOCITY = Continuous("velocity", 2)
OFFSETS = tuple(Continuous(f"landmark {i}", 2) for i in range(LANDMARKS))
PARTNERS_GOAL = Categorical("partner's goal", LANDMARKS, low=0.25, high=0.75)
"""Shown as the landmark's colour: red, green or blue at 0.75, the others at 0.25."""
HEARD = Categorical("heard", 1 + WORDS, blank=True, labels=("silence", *(f"word {i}" for i in range(WORDS))))


class ReferenceState(NamedTuple):
    """Where everything stands, who has to go where, and what was said last."""

    positions: Float[Array, "2 2"]
    velocities: Float[Array, "2 2"]
    landmarks: Float[Array, "3 2"]
    goals: Int[Array, " 2"]
    """Each agent's own landmark: its partner sees it, the agent does not."""
    messages: Int[Array, " 2"]
    """What each agent said last: 0 is silence, word w is w + 1."""


class Reference(Environment):
    """MPE's simple reference. It never ends by itself: the horizon truncates it.

    An action is a move and a word at once: move = action mod 5, word = action div 5.
    """

    horizon: int = eqx.field(static=True, default=25)

    def __check_init__(self) -> None:
        # Building the Spec validates the horizon now rather than when something is first compiled.
        _ = self.spec

    @property
    def spec(self) -> Spec:
        """Two agents with 50 actions and 21 columns each; a state of 40 columns."""
        return _spec(self.horizon)

    def expert(self) -> Policy | None:
        from marco.environments.experts import TellAndGo

        return TellAndGo()

    def draw_timestep(self, axes: Any, episode: Episode, t: int) -> None:
        from marco.environments.pictures import draw_reference

        draw_reference(self.spec, axes, episode, t)

    def initial(self, key: PRNGKeyArray) -> ReferenceState:
        """Agents at rest and landmarks, uniform in the square from -1 to 1; independent uniform goals."""
        # One draw for everything: random bits are what a reset costs.
        uniform = jax.random.uniform(key, (AGENTS + LANDMARKS + 1, 2))
        places = 2.0 * uniform[:-1] - 1.0
        return ReferenceState(
            positions=places[:AGENTS],
            velocities=jnp.zeros((AGENTS, 2)),
            landmarks=places[AGENTS:],
            goals=jnp.floor(LANDMARKS * uniform[-1]).astype(jnp.int32),
            messages=jnp.full((AGENTS,), SILENCE, jnp.int32),
        )

    def transition(self, key: PRNGKeyArray, world: ReferenceState, actions: Int[Array, " 2"]) -> Transition:
        """Move and speak; the reward is minus the distance that is left. Nothing here is random."""
        move, word = self.spec.agents[0].components_of(actions)
        # The order is mpe2's: a position follows the velocity from before the move.
        moved = world._replace(
            positions=world.positions + TIME_STEP * world.velocities,
            velocities=(1.0 - DAMPING) * world.velocities + TIME_STEP * THRUST * _direction(move),
            messages=word + 1,
        )
        return Transition(moved, -_distances(moved).mean(), jnp.bool_(False))

    def observe(self, world: ReferenceState) -> Float[Array, "2 21"]:
        """Own velocity, the way to each landmark, the partner's goal and the partner's last word."""
        offsets = world.landmarks - world.positions[:, None]
        return jnp.concatenate(
            [
                world.velocities,
                offsets.reshape(AGENTS, -1),
                PARTNERS_GOAL.encode(world.goals[::-1]),
                HEARD.encode(world.messages[::-1]),
            ],
            axis=-1,
        )

    def available(self, world: ReferenceState) -> Bool[Array, "2 50"]:
        """Every action, always."""
        return jnp.ones((AGENTS, len(MOVES) * WORDS), bool)

    def central(self, world: ReferenceState) -> Float[Array, " 40"]:
        """Positions and velocities, landmarks, goals and last words."""
        body = jnp.concatenate([world.positions, world.velocities], axis=-1)
        goals = jax.nn.one_hot(world.goals, LANDMARKS)
        words = HEARD.encode(world.messages)
        return jnp.concatenate([part.ravel() for part in (body, world.landmarks, goals, words)])


def _direction(move: Int[Array, " 2"]) -> Float[Array, "2 2"]:
    left, right, down, up = (move == MOVES.index(way) for way in MOVES[1:])
    sideways = right.astype(jnp.float32) - left
    upwards = up.astype(jnp.float32) - down
    return jnp.stack([sideways, upwards], axis=-1)


def _distances(world: ReferenceState) -> Float[Array, " 2"]:
    offsets = world.landmarks[world.goals] - world.positions
    return jnp.sqrt(jnp.square(offsets).sum(axis=-1))


@cache
def _spec(horizon: int) -> Spec:
    components = (ActionComponent("move", len(MOVES), MOVES), ActionComponent("message", WORDS))
    sight: tuple[Feature, ...] = (VELOCITY, *OFFSETS, PARTNERS_GOAL, HEARD)
    bodies = (Continuous(f"{part} {i}", 2) for i in range(AGENTS) for part in ("position", "velocity"))
    goals = (Categorical(f"goal {i}", LANDMARKS) for i in range(AGENTS))
    messages = (Categorical(f"message {i}", HEARD.size, True, labels=HEARD.labels) for i in range(AGENTS))
    return Spec(
        name="reference",
        agents=tuple(Agent(f"agent {i}", components, sight) for i in range(AGENTS)),
        state=(*bodies, *OFFSETS, *goals, *messages),
        horizon=horizon,
    )
