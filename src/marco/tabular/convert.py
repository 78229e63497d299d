"""A world whose chance can be enumerated, as a table: every state that can be reached gets a number."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Int

from marco.environments.base import FiniteEnvironment
from marco.environments.render import in_words
from marco.tabular.problem import DecPOMDP, canonical_actions
from marco.types import Spec

CHUNK = 512
"""Rows per compiled call, so that one size is compiled."""
ENTRIES = 100_000_000
"""Transitions that a table may have: they take 8 bytes each, and planners copy them."""


class _Branch(NamedTuple):
    """One outcome of a joint action in a world; `after` is -1 at an end."""

    world: int
    action: int
    after: int
    chance: float
    reward: float


def from_environment(env: FiniteEnvironment, limit: int = 5_000) -> DecPOMDP:
    """The table of a world, with a start state put first, which shows the first observation, and an end.

    The start state and the end are `given`: a learner is told d0 and when an episode is over. The horizon
    of the world is no part of the table.
    """
    worlds, start_rows, branches = _explore(env, limit)
    number, spec = len(jax.tree.leaves(worlds)[0]), env.spec
    start, end, states = number, number + 1, number + 2
    actions = tuple(agent.num_actions for agent in spec.agents)
    joint = int(np.prod(actions))
    available = np.zeros((states, len(actions), spec.num_actions), bool)
    available[:number] = _chunked(_available, env, worlds)
    available[number:, :, 0] = True
    P, R = np.zeros((states, joint, states)), np.zeros((states, joint))
    for s, chance in start_rows:
        P[start, 0, s] += chance
    P[end, 0, end] = 1.0
    for branch in branches:
        P[branch.world, branch.action, branch.after if branch.after >= 0 else end] += branch.chance
        R[branch.world, branch.action] += branch.chance * branch.reward
    canonical = canonical_actions(available, actions), np.arange(states)[:, None]
    shown, labels = _observations(_chunked(_observe, env, worlds), spec)
    central = _chunked(_central, env, worlds)
    names = [in_words(spec.state, row).replace(" ", "-").replace(",", "") or "none" for row in central]
    return DecPOMDP(
        name=spec.name,
        agents=tuple(agent.name for agent in spec.agents),
        states=(*names, "start", "end"),
        actions=tuple(
            tuple(agent.action_label(a).replace(" ", "-") for a in range(agent.num_actions))
            for agent in spec.agents
        ),
        observations=labels,
        P=P[canonical[1], canonical[0]],
        R=R[canonical[1], canonical[0]],
        O=np.broadcast_to(shown, (joint, *shown.shape)).copy(),
        d0=(np.arange(states) == start).astype(float),
        available=available,
        terminal=np.arange(states) == end,
        given=np.arange(states) >= start,
        prologue=1,
    )


def _explore(env: FiniteEnvironment, limit: int) -> tuple[Any, list[tuple[int, float]], list[_Branch]]:
    """All reachable worlds as one batch, where episodes start, and what available joint actions do."""
    chance = _exact(env.start_probabilities())
    (outcomes,) = np.nonzero(chance)
    found: dict[bytes, int] = {}
    kept: list[Any] = []

    def number(batch: Any) -> list[int]:
        """Give worlds not seen before a number; the number of each row."""
        rows = _split(batch)
        for row in rows:
            key = _key(row)
            if key not in found:
                found[key] = len(found)
                kept.append(row)
        return [found[_key(row)] for row in rows]

    starts = _chunked(_start, env, outcomes.astype(np.int32))
    start_rows = list(zip(number(starts), chance[outcomes].tolist(), strict=True))
    branches: list[_Branch] = []
    done = 0
    while done < len(kept):
        if len(kept) > limit:
            raise ValueError(
                f"{env.spec.name} has more than {limit} states: make a table of a smaller one, "
                "or raise the limit."
            )
        joint = int(np.prod([agent.num_actions for agent in env.spec.agents]))
        if len(kept) ** 2 * joint > ENTRIES:
            raise ValueError(
                f"{env.spec.name} has {joint} joint actions and at least {len(kept)} states, so more than "
                f"{ENTRIES:,} transitions: make a table of a smaller one."
            )
        fresh, done = range(done, len(kept)), len(kept)
        branches += _expand(env, _joined([kept[i] for i in fresh]), fresh.start, number)
    return _joined(kept), start_rows, branches


def _expand(
    env: FiniteEnvironment, batch: Any, first: int, number: Callable[[Any], list[int]]
) -> list[_Branch]:
    """What every available joint action does in a batch of worlds, the first of which has a number."""
    actions = tuple(agent.num_actions for agent in env.spec.agents)
    available = _chunked(_available, env, batch)
    canonical = canonical_actions(available, actions)
    world, action = np.nonzero(canonical == np.arange(canonical.shape[1]))
    parts = np.stack(np.unravel_index(action, actions), -1).astype(np.int32)
    acting = jax.tree.map(lambda leaf: leaf[world], batch)
    chance = _exact(_chunked(_chance, env, acting, parts))
    row, outcome = np.nonzero(chance)
    after = _chunked(
        _successor,
        env,
        jax.tree.map(lambda leaf: leaf[row], acting),
        parts[row],
        outcome.astype(np.int32),
    )
    goes_on = ~after.terminated
    following = np.full(len(row), -1)
    if goes_on.any():
        following[goes_on] = number(jax.tree.map(lambda leaf: leaf[goes_on], after.world))
    columns = (world[row] + first, action[row], following, chance[row, outcome], after.reward)
    return [
        _Branch(int(w), int(a), int(f), float(c), float(r)) for w, a, f, c, r in zip(*columns, strict=True)
    ]


def _observations(
    shown: Float[np.ndarray, "W N O"], spec: Spec
) -> tuple[Float[np.ndarray, "S JO"], tuple[tuple[str, ...], ...]]:
    """Which joint observation each state shows, and a name for each agent's observations."""
    labels: list[tuple[str, ...]] = []
    indices: list[Int[np.ndarray, " _"]] = []
    for i, agent in enumerate(spec.agents):
        distinct, which = np.unique(shown[:, i], axis=0, return_inverse=True)
        words = [in_words(agent.observation, row[: agent.observation_width]) for row in distinct]
        labels.append(tuple(word.replace(" ", "-").replace(",", "") or "nothing" for word in words))
        indices.append(which.ravel())
    sizes = tuple(len(each) for each in labels)
    joint = np.ravel_multi_index(tuple(indices), sizes)
    chance = np.zeros((len(shown) + 2, int(np.prod(sizes))))
    chance[np.arange(len(shown)), joint] = 1.0
    chance[len(shown) :, 0] = 1.0  # nobody enters the start, and after the end nobody acts
    return chance, tuple(labels)


def _chunked(function: Callable[..., Any], env: FiniteEnvironment, *batched: Any) -> Any:
    """A compiled function of a world and a batch, called on chunks of one size."""
    rows = len(jax.tree.leaves(batched)[0])
    parts = []
    for begin in range(0, rows, CHUNK):
        index = np.minimum(np.arange(begin, begin + CHUNK), rows - 1)
        chunk = jax.tree.map(lambda leaf, index=index: np.asarray(leaf)[index], batched)
        parts.append(jax.tree.map(np.asarray, function(env, *chunk)))
    return jax.tree.map(lambda *leaves: np.concatenate(leaves)[:rows], *parts)


@jax.jit
def _start(env: FiniteEnvironment, outcomes: Any) -> Any:
    return jax.vmap(env.start)(outcomes)


@jax.jit
def _available(env: FiniteEnvironment, worlds: Any) -> Any:
    return jax.vmap(env.available)(worlds)


@jax.jit
def _observe(env: FiniteEnvironment, worlds: Any) -> Any:
    return jax.vmap(env.observe)(worlds)


@jax.jit
def _central(env: FiniteEnvironment, worlds: Any) -> Any:
    return jax.vmap(env.central)(worlds)


@jax.jit
def _chance(env: FiniteEnvironment, worlds: Any, actions: Any) -> Any:
    return jax.vmap(env.outcome_probabilities)(worlds, actions)


@jax.jit
def _successor(env: FiniteEnvironment, worlds: Any, actions: Any, outcomes: Any) -> Any:
    return jax.vmap(env.successor)(worlds, actions, outcomes)


def _split(batch: Any) -> list[Any]:
    rows = len(jax.tree.leaves(batch)[0])
    return [jax.tree.map(lambda leaf, i=i: np.asarray(leaf)[i], batch) for i in range(rows)]


def _joined(rows: list[Any]) -> Any:
    return jax.tree.map(lambda *leaves: np.stack(leaves), *rows)


def _key(row: Any) -> bytes:
    return b"|".join(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(row))


def _exact(probabilities: Any) -> Float[np.ndarray, "..."]:
    """In double precision: thirds that were rounded become thirds again."""
    exact = np.asarray(probabilities, np.float64)
    return exact / exact.sum(-1, keepdims=True)
