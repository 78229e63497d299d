"""A finite environment as a table: every state that can be reached gets a number."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Int

from marco.environments import enumeration
from marco.environments.base import FiniteEnvironment
from marco.environments.enumeration import joint_actions, outcomes, row_bytes, rows, starts
from marco.environments.render import in_words
from marco.tabular.problem import ENTRIES, DecPOMDP, canonical_actions
from marco.types import Spec

LEAST = 512
"""The smallest batch, so that mostly one size is compiled."""

each = partial(enumeration.each, least=LEAST)


class _Branches(NamedTuple):
    """The outcomes of joint actions, one row each; `after` is -1 where the episode ends."""

    state: Int[np.ndarray, " L"]
    action: Int[np.ndarray, " L"]
    after: Int[np.ndarray, " L"]
    probability: Float[np.ndarray, " L"]
    reward: Float[np.ndarray, " L"]


def from_environment(env: FiniteEnvironment, limit: int = 5_000) -> DecPOMDP:
    """The table of an environment, with two more states: a start, to show the first observation, and an end.

    The start state and the end are `given`: a learner knows d0 and when an episode is over. The horizon
    of the environment is no part of the table.
    """
    reached = _explore(env, limit)
    number, spec = reached.number, env.spec
    states, start = number + 2, number
    available = np.zeros((states, spec.num_agents, spec.num_actions), bool)
    available[:number] = each(env, "available", reached.states)
    available[number:, :, 0] = True
    P, R = _tables(reached, spec)
    shown, labels = _observations(each(env, "observe", reached.states), spec)
    central = each(env, "central", reached.states)
    canonical = canonical_actions(available, _sizes(spec)), np.arange(states)[:, None]
    return DecPOMDP(
        name=spec.name,
        agents=tuple(agent.name for agent in spec.agents),
        states=(*(_word(in_words(spec.state, row)) or "none" for row in central), "start", "end"),
        actions=tuple(
            tuple(agent.action_label(a).replace(" ", "-") for a in range(agent.num_actions))
            for agent in spec.agents
        ),
        observations=labels,
        P=P[canonical[1], canonical[0]],
        R=R[canonical[1], canonical[0]],
        O=np.broadcast_to(shown, (P.shape[1], *shown.shape)).copy(),
        d0=(np.arange(states) == start).astype(float),
        available=available,
        terminal=np.arange(states) == start + 1,
        given=np.arange(states) >= start,
        prologue=1,
    )


class _Reached(NamedTuple):
    """All reachable states as one batch, where episodes start, and what available joint actions lead to."""

    states: Any
    starts: Int[np.ndarray, " K"]
    start_probabilities: Float[np.ndarray, " K"]
    branches: list[_Branches]

    @property
    def number(self) -> int:
        return len(jax.tree.leaves(self.states)[0])


class _Numbering:
    """Numbers for states, in the order in which they are met."""

    def __init__(self) -> None:
        self.known: dict[bytes, int] = {}
        self.batches: list[Any] = []

    def __call__(self, batch: Any) -> Int[np.ndarray, " M"]:
        """The number of each row; rows not met before get the next ones."""
        before, keys = len(self.known), [key.tobytes() for key in row_bytes(batch)]
        numbers = np.array([self.known.setdefault(key, len(self.known)) for key in keys])
        _, first = np.unique(numbers, return_index=True)
        self.batches.append(rows(batch, first[numbers[first] >= before]))
        return numbers

    def states(self) -> Any:
        """All states, by their numbers."""
        return jax.tree.map(lambda *leaves: np.concatenate(leaves), *self.batches)


def _explore(env: FiniteEnvironment, limit: int) -> _Reached:
    number = _Numbering()
    start = starts(env)
    start_numbers = number(each(env, "start", start.outcome))
    branches: list[_Branches] = []
    done = 0
    while done < len(number.known):
        _check_size(env.spec, len(number.known), limit)
        first, done = done, len(number.known)
        branches.append(_expand(env, rows(number.states(), np.arange(first, done)), first, number))
    return _Reached(number.states(), start_numbers, start.probability, branches)


def _check_size(spec: Spec, states: int, limit: int) -> None:
    if states > limit:
        raise ValueError(
            f"{spec.name} has more than {limit} states: make a table of a smaller one, or raise the limit."
        )
    joint = int(np.prod(_sizes(spec)))
    if states**2 * joint > ENTRIES:
        raise ValueError(
            f"{spec.name} has {joint} joint actions and at least {states} states, so more than "
            f"{ENTRIES:,} transitions: make a table of a smaller one."
        )


def _expand(
    env: FiniteEnvironment, batch: Any, first: int, number: Callable[[Any], Int[np.ndarray, " M"]]
) -> _Branches:
    """What every available joint action leads to in a batch of states, which are numbered from `first`."""
    state, actions, _ = joint_actions(each(env, "available", batch))
    acting = rows(batch, state)
    row, outcome, probability = outcomes(env, acting, actions, LEAST)
    after = each(env, "successor", rows(acting, row), actions[row], outcome)
    goes_on = ~after.terminated
    following = np.full(len(row), -1)
    if goes_on.any():
        following[goes_on] = number(rows(after.world, goes_on))
    joint = np.ravel_multi_index(tuple(actions.T), _sizes(env.spec))
    return _Branches(state[row] + first, joint[row], following, probability, after.reward)


def _tables(reached: _Reached, spec: Spec) -> tuple[Float[np.ndarray, "S JA S"], Float[np.ndarray, "S JA"]]:
    """P and R, where the last two states are the start and the end."""
    start, end = reached.number, reached.number + 1
    joint = int(np.prod(_sizes(spec)))
    P, R = np.zeros((end + 1, joint, end + 1)), np.zeros((end + 1, joint))
    np.add.at(P[start, 0], reached.starts, reached.start_probabilities)
    P[end, 0, end] = 1.0
    for state, action, after, probability, reward in reached.branches:
        np.add.at(P, (state, action, np.where(after >= 0, after, end)), probability)
        np.add.at(R, (state, action), probability * reward.astype(float))
    return P, R


def _observations(
    shown: Float[np.ndarray, "W N O"], spec: Spec
) -> tuple[Float[np.ndarray, "S JO"], tuple[tuple[str, ...], ...]]:
    """The joint observation of each state, and a name for each agent's observations."""
    labels: list[tuple[str, ...]] = []
    indices: list[Int[np.ndarray, " _"]] = []
    for i, agent in enumerate(spec.agents):
        distinct, which = np.unique(shown[:, i], axis=0, return_inverse=True)
        words = [in_words(agent.observation, row[: agent.observation_width]) for row in distinct]
        labels.append(tuple(_word(word) or "nothing" for word in words))
        indices.append(which.ravel())
    sizes = tuple(len(each) for each in labels)
    joint = np.ravel_multi_index(tuple(indices), sizes)
    chance = np.zeros((len(shown) + 2, int(np.prod(sizes))))
    chance[np.arange(len(shown)), joint] = 1.0
    chance[len(shown) :, 0] = 1.0  # nobody enters the start, and after the end nobody acts
    return chance, tuple(labels)


def _sizes(spec: Spec) -> tuple[int, ...]:
    return tuple(agent.num_actions for agent in spec.agents)


def _word(words: str) -> str:
    return words.replace(" ", "-").replace(",", "")
