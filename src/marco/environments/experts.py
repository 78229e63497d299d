"""Hand-written teams, to compare learned ones with.

None of them cheats: each agent acts on its own observation alone.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from marco.environments import bridge, foraging, switch
from marco.environments.reference import HEARD, LANDMARKS, PARTNERS_GOAL, SILENCE, Reference
from marco.policies.base import Memory, Policy
from marco.types import Categorical, Spec, TimeStep, blocks

LOOK_AHEAD = 0.2
"""The share of its velocity that an agent counts as distance already covered. Without a push it would drift
on by 0.4 of it; counting half, and braking late, was the best of 0.15 to 0.4 on 16,000 episodes."""
CLOSE = 0.025
"""How small a miss is left alone: the best of 0.01 to 0.1 on the same episodes."""

HESITATE = 0.2
"""How often a forager waits instead of walking, the first one excepted: so nobody blocks another for long."""


class ProtocolMemory(NamedTuple):
    """Which agents have been in the room, each known to itself alone, and the riddle's step."""

    been: Bool[Array, " N"]
    time: Int[Array, ""]


class SwitchProtocol(Policy):
    """An optimal team for the three-agent riddle, and behind a bridge of any length.

    The first visitor turns the light on; a new visitor who sees it on turns it off; a new visitor who
    sees it off, and is not the first, tells; nobody else touches it. On a bridge everybody goes right.
    """

    spec: Spec = eqx.field(static=True)

    def __check_init__(self) -> None:
        if self.spec.name not in ("switch", "bridge") or self.spec.num_agents != 3:
            raise ValueError(
                f"the protocol is for three agents in switch or bridge, "
                f"got {self.spec.num_agents} in {self.spec.name}."
            )

    def start(self) -> Memory:
        return ProtocolMemory(jnp.zeros((3,), bool), jnp.int32(0))

    def __call__(self, memory: Memory, timestep: TimeStep) -> tuple[Memory, Float[Array, "N A"]]:
        in_room, light = timestep.observation[:, -2] > 0.5, timestep.observation[:, -1] > 0.5
        new = in_room & ~memory.been
        in_riddle = jnp.where(memory.time == 0, switch.ON, jnp.where(light, switch.OFF, switch.TELL))
        action = jnp.where(new, in_riddle, switch.NONE)
        riddle = timestep.available[:, switch.NONE].any()
        action = jnp.where(riddle, action, bridge.RIGHT)
        following = ProtocolMemory(memory.been | in_room, memory.time + riddle)
        return following, jax.nn.one_hot(action, self.spec.num_actions)


def riddle_expert(spec: Spec) -> Policy | None:
    """The hand-written team of `switch` and `bridge`, which there is for three agents only."""
    return SwitchProtocol(spec) if spec.num_agents == 3 else None


class StandStill(Policy):
    """Nobody moves; everybody keeps saying word 0."""

    def start(self) -> Memory:
        return ()

    def __call__(self, memory: Memory, timestep: TimeStep) -> tuple[Memory, Float[Array, "2 50"]]:
        nothing = jnp.zeros(timestep.observation.shape[:1], jnp.int32)
        return memory, _surely(nothing, nothing)


class GoToCentroid(Policy):
    """Each agent goes to the mean of the landmarks, where teams that never learn to speak end up."""

    def start(self) -> Memory:
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
        return ()

    def __call__(self, memory: Memory, timestep: TimeStep) -> tuple[Memory, Float[Array, "2 50"]]:
        """Say the partner's goal (at every step, so no memory is needed); steer to the own one."""
        velocity, offsets, partners_goal, heard = _read(timestep)
        own = jax.nn.one_hot(heard - 1, LANDMARKS)
        weights = jnp.where((heard == SILENCE)[:, None], 1.0 / LANDMARKS, own)
        move = steer(velocity, (weights[..., None] * offsets).sum(axis=1))
        return memory, _surely(move, partners_goal)


def steer(velocity: Float[Array, "N 2"], offset: Float[Array, "N 2"]) -> Int[Array, " N"]:
    """The move towards a place `offset` away: push along the axis on which most way is left."""
    miss = offset - LOOK_AHEAD * velocity
    axis = jnp.argmax(jnp.abs(miss), axis=-1)
    worst = jnp.take_along_axis(miss, axis[:, None], axis=-1)[:, 0]
    push = 1 + 2 * axis + (worst > 0)
    return jnp.where(jnp.abs(worst) > CLOSE, push, 0).astype(jnp.int32)


def _read(
    timestep: TimeStep,
) -> tuple[Float[Array, "N 2"], Float[Array, "N 3 2"], Int[Array, " N"], Int[Array, " N"]]:
    ends = [2, 2 + 2 * LANDMARKS, 2 + 2 * LANDMARKS + PARTNERS_GOAL.width]
    velocity, offsets, goal, word = jnp.split(timestep.observation, ends, axis=-1)
    return velocity, offsets.reshape(-1, LANDMARKS, 2), PARTNERS_GOAL.decode(goal), HEARD.decode(word)


def _surely(move: Int[Array, " N"], word: Int[Array, " N"]) -> Float[Array, "N A"]:
    agent = Reference().spec.agents[0]
    return jax.nn.one_hot(agent.action_of((move, word)), agent.num_actions)


class LoadInTurn(Policy):
    """All go to the first food that is left, each to a side of its own, and load it together; then the next.

    For `foraging` with the whole grid in view. Agents walk the shortest way around foods and each other; who
    has arrived loads at every step. Agents beyond four have no side, and wait at a distance.
    """

    spec: Spec = eqx.field(static=True)
    rows: int = eqx.field(static=True)
    columns: int = eqx.field(static=True)

    def start(self) -> Memory:
        return ()

    def __call__(self, memory: Memory, timestep: TimeStep) -> tuple[Memory, Float[Array, "N A"]]:
        """Load at one's own side, or take a step towards it."""
        number = jnp.arange(self.spec.num_agents)
        own = jax.vmap(self._choose)(timestep.observation, number)
        # Two who want to enter one cell at the same time would wait for each other for ever.
        surely = ((own == foraging.LOAD) | (number == 0))[:, None]
        walk = jax.nn.one_hot(own, self.spec.num_actions)
        wait = jax.nn.one_hot(jnp.full_like(own, foraging.NONE), self.spec.num_actions)
        return memory, jnp.where(surely, walk, (1.0 - HESITATE) * walk + HESITATE * wait)

    def _choose(self, observation: Float[Array, " O"], number: Int[Array, ""]) -> Int[Array, ""]:
        features = self.spec.agents[0].observation
        classes = [
            feature.decode(observation[block])
            for feature, block in zip(features, blocks(features), strict=True)
            if isinstance(feature, Categorical)
        ]
        things = jnp.stack(classes).reshape(-1, 3)[:, :2] - 1
        first = len(things) - self.spec.num_agents
        food, here = things[0], things[first]
        target = food + jnp.asarray(foraging.MOVES)[1 + number % 4]
        others = jnp.arange(len(things)) != first
        distance = self._distances(target, jnp.where(others[:, None], things, -1))
        around = here + jnp.asarray(foraging.MOVES)[1:5]
        # A border of its own makes what is outside far away.
        steps = jnp.pad(distance, 1, constant_values=jnp.inf)[around[:, 0] + 1, around[:, 1] + 1]
        walk = jnp.where(jnp.isfinite(steps.min()), 1 + jnp.argmin(steps), foraging.NONE)
        idle = (food[0] == foraging.NOWHERE) | (number >= 4)
        arrived = (here == target).all()
        return jnp.where(idle, foraging.NONE, jnp.where(arrived, foraging.LOAD, walk)).astype(jnp.int32)

    def _distances(
        self, target: Int[Array, " 2"], obstacles: Int[Array, "things 2"]
    ) -> Float[Array, "rows columns"]:
        """Steps from every cell to the target, around what stands in the way; unseen things have no cell."""
        rows, columns = jnp.mgrid[: self.rows, : self.columns]
        blocked = ((rows[..., None] == obstacles[:, 0]) & (columns[..., None] == obstacles[:, 1])).any(-1)
        there = (rows == target[0]) & (columns == target[1])

        def nearer(_: Int[Array, ""], distance: Float[Array, "rows columns"]) -> Float[Array, "rows columns"]:
            wide = jnp.pad(distance, 1, constant_values=jnp.inf)
            around = jnp.stack([wide[:-2, 1:-1], wide[2:, 1:-1], wide[1:-1, :-2], wide[1:-1, 2:]])
            return jnp.where(there, 0.0, jnp.where(blocked, jnp.inf, 1.0 + around.min(axis=0)))

        far = jnp.full((self.rows, self.columns), jnp.inf)
        return jax.lax.fori_loop(0, 2 * (self.rows + self.columns), nearer, far)
