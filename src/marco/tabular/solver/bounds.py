"""Upper bounds on the value of a team from a step on: if it observed the state (Q_MDP), if it shared its
observations (Q_POMDP), and a bound in between that is quick to compute (the fast informed bound)."""

from itertools import pairwise
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from marco.tabular.problem import ENTRIES, Dynamics, gigabytes
from marco.tabular.solver.limits import Stop, go_on, never

EPSILON = 1e-12
"""Probabilities below it are taken as rounding errors."""
STEPS = 1_000
"""The longest horizon: the search recurses once per step, and the stack of a process is small."""
RETURN = 1e8
"""The largest return: beyond, rounding errors would exceed the accuracy that a proof of optimality claims."""


class Stages(NamedTuple):
    """A problem prepared for planning over a horizon.

    Settled states (see `settled_rewards`) pay all their rewards on entering and are removed from G, so R
    depends on the step.
    """

    G: Float[np.ndarray, "S JA M"]
    R: Float[np.ndarray, "T S JA"]
    d0: Float[np.ndarray, " S"]
    constant: float
    """The expected return from settled start states."""
    next_state: Int[np.ndarray, " M"]
    """The next state of each outcome."""
    group: Int[np.ndarray, " M"]
    """The group of each outcome. A group is a joint observation that occurs."""
    agent_observations: Int[np.ndarray, "G N"]
    """Each agent's observation in each group."""
    offsets: Int[np.ndarray, " B"]
    """The index of the first outcome of each group, and the number of outcomes."""
    mdp: Float[np.ndarray, "U S"]
    """The best value of a team that observes the state, from each step on."""
    future_bounds: tuple[tuple[Float[np.ndarray, "_ _"], ...], ...]
    """The fast informed bound: for each step and group, linear bounds on the value from then on. One row for
    each joint action, or for all with the same bound."""
    differs: tuple[Float[np.ndarray, "_ _ _"], ...]
    """For each agent, 0 where an earlier action has the same effect in a state, whatever the others do."""
    has_twins: tuple[bool, ...]
    """Whether an agent has two actions with the same effect in some state."""
    num_actions: tuple[int, ...]
    num_observations: tuple[int, ...]

    @property
    def horizon(self) -> int:
        return len(self.R)


def prepare(dynamics: Dynamics, horizon: int, stop: Stop = never) -> Stages:
    """Compute everything about a problem that does not depend on the policy."""
    check(dynamics, horizon)
    paid = settled_rewards(dynamics)
    alive = np.isnan(paid)
    keep = alive[dynamics.next_state]
    settled = np.where(alive, 0.0, np.nan_to_num(paid))
    enters = dynamics.G @ settled[dynamics.next_state] if settled.any() else np.zeros_like(dynamics.R)
    left = np.arange(horizon)[::-1]
    R = (dynamics.R + left[:, None, None] * enters) * alive[:, None]
    G = dynamics.G if alive.all() else dynamics.G[:, :, keep] * alive[:, None, None]
    observed = dynamics.joint_observation[keep]
    offsets = np.flatnonzero(np.diff(observed, prepend=-1, append=-1)) if observed.size else np.zeros(1, int)
    next_state = dynamics.next_state[keep]
    entries, twins = _entries(G), _twins(dynamics)
    return Stages(
        G=G,
        R=R,
        d0=dynamics.d0 * alive,
        constant=horizon * float(dynamics.d0 @ settled),
        next_state=next_state,
        group=np.repeat(np.arange(len(offsets) - 1), np.diff(offsets)),
        agent_observations=np.stack(np.unravel_index(observed[offsets[:-1]], dynamics.num_observations), -1),
        offsets=offsets,
        mdp=_mdp_values(entries, R, next_state, stop),
        future_bounds=_by_observation(
            _informed(entries, R, next_state, offsets, stop), next_state, offsets, stop
        ),
        differs=tuple(_differs(each) for each in twins),
        has_twins=tuple(bool((each.sum((1, 2)) > each.shape[1]).any()) for each in twins),
        num_actions=dynamics.num_actions,
        num_observations=dynamics.num_observations,
    )


def check(dynamics: Dynamics, horizon: int) -> None:
    """Refuse what would take too much memory, or could not be computed exactly."""
    if not 1 <= horizon <= STEPS:
        raise ValueError(f"planning needs a horizon of at least 1, got {horizon}; the most is {STEPS:,}.")
    entries = horizon * max(dynamics.R.size, dynamics.G[0].size)
    if entries > ENTRIES:
        raise ValueError(
            f"planning over {horizon:,} steps takes tables of {gigabytes(entries)}, over the limit of "
            f"{gigabytes(ENTRIES)}: use at most {ENTRIES * horizon // entries:,} steps."
        )
    largest = float(np.abs(dynamics.R).max())
    if not horizon * largest <= RETURN:
        raise ValueError(
            f"rewards of up to {largest:g} over {horizon} steps make returns beyond {RETURN:g}, which are "
            "not exact: scale the rewards down."
        )


def settled_rewards(dynamics: Dynamics) -> Float[np.ndarray, " S"]:
    """The reward that a settled state pays at every step from now on, whatever the actions; nan elsewhere.

    Terminal and other absorbing states are settled. Paying their return on entering, and removing them, is
    exact and leaves fewer histories to distinguish.
    """
    paid = np.where(np.ptp(dynamics.R, axis=1) == 0.0, dynamics.R[:, 0], np.nan)
    if np.isnan(paid).all():
        return paid
    leads = np.zeros((paid.size, paid.size), bool)
    state, outcome = np.nonzero((dynamics.G > 0.0).any(1))
    leads[state, dynamics.next_state[outcome]] = True
    while True:
        same = np.all(~leads | (paid[None, :] == paid[:, None]), axis=1)
        kept = np.where(same, paid, np.nan)
        if np.array_equal(kept, paid, equal_nan=True):
            return kept
        paid = kept


class _Entries(NamedTuple):
    """The nonzero entries of G, which are few in large problems, with their rows s * JA + a."""

    row: Int[np.ndarray, " E"]
    outcome: Int[np.ndarray, " E"]
    chance: Float[np.ndarray, " E"]
    rows: int


def _entries(G: Float[np.ndarray, "S JA M"]) -> _Entries:
    flat = G.reshape(G.shape[0] * G.shape[1], G.shape[2])
    row, outcome = np.nonzero(flat)
    return _Entries(row, outcome, flat[row, outcome], len(flat))


def _mdp_values(
    entries: _Entries, R: Float[np.ndarray, "T S JA"], next_state: Int[np.ndarray, " M"], stop: Stop
) -> Float[np.ndarray, "U S"]:
    """The best value of a team that observes the state, from each step on."""
    values = np.zeros((len(R) + 1, R.shape[1]))
    for t in reversed(range(len(R))):
        go_on(stop)
        later = entries.chance * values[t + 1][next_state[entries.outcome]]
        expected = np.bincount(entries.row, later, entries.rows).reshape(R.shape[1:])
        values[t] = (R[t] + expected).max(1)
    return values


def _informed(
    entries: _Entries,
    R: Float[np.ndarray, "T S JA"],
    next_state: Int[np.ndarray, " M"],
    offsets: Int[np.ndarray, " B"],
    stop: Stop,
) -> Float[np.ndarray, "T JA S"]:
    """The fast informed bound (Hauskrecht 2000): s is known now, later only the joint observations."""
    _, states, joint = R.shape
    vectors = np.zeros((len(R), joint, states))
    vectors[-1] = R[-1].T
    if not entries.row.size:
        vectors[:] = R.transpose(0, 2, 1)
        return vectors
    number = np.searchsorted(offsets, entries.outcome, "right") - 1
    begins = np.flatnonzero(np.diff(entries.row * len(offsets) + number, prepend=-1))
    for t in reversed(range(len(R) - 1)):
        go_on(stop)
        each = vectors[t + 1].T[next_state[entries.outcome]] * entries.chance[:, None]
        best = np.add.reduceat(each, begins, axis=0).max(1)
        expected = np.bincount(entries.row[begins], best, entries.rows).reshape(states, joint)
        vectors[t] = (R[t] + expected).T
    return vectors


def _by_observation(
    informed: Float[np.ndarray, "T JA S"],
    next_state: Int[np.ndarray, " M"],
    offsets: Int[np.ndarray, " B"],
    stop: Stop,
) -> tuple[tuple[Float[np.ndarray, "_ _"], ...], ...]:
    """The bounds that differ in the states that are possible after a joint observation."""
    tables = []
    for now in informed:
        go_on(stop)
        columns = now[:, next_state]
        parts = [columns[:, begin:end] for begin, end in pairwise(offsets)]
        tables.append(tuple(part.max(0)[None] if part.shape[1] == 1 else _distinct(part) for part in parts))
    return tuple(tables)


def _distinct(rows: Float[np.ndarray, "A M"]) -> Float[np.ndarray, "_ M"]:
    return np.array(list(dict.fromkeys(map(tuple, rows.tolist()))))


def best_later(
    outcomes: Float[np.ndarray, "*X M"],
    future_bounds: tuple[Float[np.ndarray, "_ _"], ...],
    offsets: Int[np.ndarray, " B"],
) -> Float[np.ndarray, "*X"]:
    """The sum over joint observations of the best linear bound on the value after them."""
    if len(offsets) - 1 == outcomes.shape[-1]:  # the joint observation reveals the state
        return outcomes @ np.array([bound[0, 0] for bound in future_bounds])
    total = np.zeros(outcomes.shape[:-1])
    for bounds, (begin, end) in zip(future_bounds, pairwise(offsets), strict=True):
        total += (outcomes[..., begin:end] @ bounds.T).max(-1)
    return total


def _twins(dynamics: Dynamics) -> tuple[Bool[np.ndarray, "_ _ _"], ...]:
    """For each agent, which actions have the same effect in a state, compared by random projections of G."""
    states, actions = dynamics.d0.size, dynamics.num_actions
    weights = np.random.default_rng(0).normal(size=(dynamics.joint_observation.size, 3))
    marks = np.concatenate([dynamics.G @ weights, dynamics.R[..., None]], -1).reshape(states, *actions, 4)
    twins = []
    for agent, size in enumerate(actions):
        each = np.moveaxis(marks, 1 + agent, 1).reshape(states, size, -1)
        twins.append(np.abs(each[:, :, None] - each[:, None]).max(-1) < EPSILON)
    return tuple(twins)


def _differs(twins: Bool[np.ndarray, "S A A"]) -> Float[np.ndarray, "S A A"]:
    """1 unless action b is earlier than action a and has the same effect."""
    earlier = np.tri(twins.shape[1], k=-1, dtype=bool)
    return (~(twins & earlier)).astype(float)


def mdp_bound(dynamics: Dynamics, horizon: int) -> float:
    """Q_MDP: the best value of a team that observes the state."""
    stages = prepare(dynamics, horizon)
    return stages.constant + float(stages.d0 @ stages.mdp[0])


def pomdp_bound(dynamics: Dynamics, horizon: int, limit: int = 100_000) -> float:
    """Q_POMDP: the exact best value of a team that shares its observations, by a search over its beliefs."""
    stages = prepare(dynamics, horizon)
    return stages.constant + SharedTeam(stages, limit).value(stages.d0, 0)


class SharedTeam:
    """A team that shares its observations, hence has one belief. Values are cached by belief."""

    def __init__(self, stages: Stages, limit: int) -> None:
        self.stages, self.limit = stages, limit
        self.found: dict[tuple[int, bytes], float] = {}

    def value(self, belief: Float[np.ndarray, " S"], t: int) -> float:
        """The best value from step t on, for an unnormalised belief."""
        mass = belief.sum()
        if mass <= EPSILON or t == self.stages.horizon:
            return 0.0
        key = t, np.round(belief / mass, 10).tobytes()
        if key not in self.found:
            if len(self.found) >= self.limit:
                raise ValueError(f"Q_POMDP meets more than {self.limit} beliefs: use a shorter horizon.")
            self.found[key] = float(self.action_values(belief / mass, t).max())
        return mass * self.found[key]

    def action_values(self, belief: Float[np.ndarray, " S"], t: int) -> Float[np.ndarray, " JA"]:
        """The values of the joint actions, if the team acts optimally afterwards."""
        stages = self.stages
        values = belief @ stages.R[t]
        if t + 1 == stages.horizon:
            return values
        outcomes = np.einsum("s,sam->am", belief, stages.G)
        for action in range(outcomes.shape[0]):
            for begin, end in pairwise(stages.offsets):
                next_belief = np.zeros(belief.size)
                next_belief[stages.next_state[begin:end]] = outcomes[action, begin:end]
                values[action] += self.value(next_belief, t + 1)
        return values
