"""Hand-written teams for simple reference: what a learned team is measured against.

None of them cheats: each agent acts on its own observation alone.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from marco.environments.reference import HEARD, LANDMARKS, MOVES, PARTNERS_GOAL, SILENCE, WORDS
from marco.rollout import Memory, Policy
from marco.types import TimeStep

COASTING = 0.4
"""How far an agent drifts on once it stops pushing, per unit of velocity: the time step over the damping."""
REACH = 0.2
"""How much farther one push carries an agent in the end: COASTING times the velocity that it adds."""


class StandStill(Policy):
    """Nobody moves; everybody keeps saying word 0."""

    def start(self) -> Memory:
        """Nothing is remembered."""
        return ()

    def __call__(self, memory: Memory, timestep: TimeStep) -> tuple[Memory, Float[Array, "2 50"]]:
        """Stay."""
        nothing = jnp.zeros(timestep.observation.shape[:1], jnp.int32)
        return memory, _surely(nothing, nothing)


class GoToCentroid(Policy):
    """Each agent goes to the middle of the landmarks: the best it can do without a word."""

    def start(self) -> Memory:
        """Nothing is remembered."""
        return ()

    def __call__(self, memory: Memory, timestep: TimeStep) -> tuple[Memory, Float[Array, "2 50"]]:
        """Steer to the centroid, always saying word 0."""
        velocity, offsets, _, _ = _read(timestep)
        move = steer(velocity, offsets.mean(axis=1))
        return memory, _surely(move, jnp.zeros_like(move))


class TellAndGo(Policy):
    """Each agent names its partner's landmark by its number and goes to the one it hears named.

    Nothing has been said at the first step yet, so there it makes for the centroid.
    """

    def start(self) -> Memory:
        """Nothing is remembered: the word is repeated at every step."""
        return ()

    def __call__(self, memory: Memory, timestep: TimeStep) -> tuple[Memory, Float[Array, "2 50"]]:
        """Say the partner's goal; steer to the own one."""
        velocity, offsets, partners_goal, heard = _read(timestep)
        own = jax.nn.one_hot(heard - 1, LANDMARKS)
        weights = jnp.where((heard == SILENCE)[:, None], 1.0 / LANDMARKS, own)
        move = steer(velocity, (weights[..., None] * offsets).sum(axis=1))
        return memory, _surely(move, partners_goal)


def steer(velocity: Float[Array, "N 2"], offset: Float[Array, "N 2"]) -> Int[Array, " N"]:
    """The move towards a place `offset` away: push along the axis on which coasting would miss it most."""
    miss = offset - COASTING * velocity
    axis = jnp.argmax(jnp.abs(miss), axis=-1)
    worst = jnp.take_along_axis(miss, axis[:, None], axis=-1)[:, 0]
    push = 1 + 2 * axis + (worst > 0)
    return jnp.where(jnp.abs(worst) > REACH / 2, push, 0).astype(jnp.int32)


def _read(
    timestep: TimeStep,
) -> tuple[Float[Array, "N 2"], Float[Array, "N 3 2"], Int[Array, " N"], Int[Array, " N"]]:
    ends = [2, 2 + 2 * LANDMARKS, 2 + 2 * LANDMARKS + PARTNERS_GOAL.width]
    velocity, offsets, goal, word = jnp.split(timestep.observation, ends, axis=-1)
    return velocity, offsets.reshape(-1, LANDMARKS, 2), PARTNERS_GOAL.decode(goal), HEARD.decode(word)


def _surely(move: Int[Array, " N"], word: Int[Array, " N"]) -> Float[Array, "N A"]:
    return jax.nn.one_hot(move + len(MOVES) * word, len(MOVES) * WORDS)
