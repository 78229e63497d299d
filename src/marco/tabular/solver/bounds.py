"""Upper bounds on what a team can earn from here on: if it saw the state (Q_MDP), if it shared what it sees
(Q_POMDP), and a quick bound in between (the fast informed bound)."""

from itertools import pairwise
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from marco.tabular.problem import Dynamics

EPSILON = 1e-12
"""Probabilities below it are rounding errors."""


class Stages(NamedTuple):
    """A problem prepared for planning over a horizon.

    Settled states (see `settled_rewards`) are paid for on entering and taken out of G, so R depends on the
    step.
    """

    G: Float[np.ndarray, "S JA M"]
    R: Float[np.ndarray, "T S JA"]
    d0: Float[np.ndarray, " S"]
    constant: float
    """What settled start states earn."""
    following: Int[np.ndarray, " M"]
    group: Int[np.ndarray, " M"]
    """The number of an outcome's joint observation, among those that occur."""
    shown: Int[np.ndarray, "G N"]
    """What each agent sees in such a joint observation."""
    groups: Int[np.ndarray, " B"]
    """Where the outcomes of each joint observation begin, and where the last end."""
    mdp: Float[np.ndarray, "U S"]
    later: tuple[tuple[Float[np.ndarray, "_ _"], ...], ...]
    """For each step and joint observation, the linear bounds (the fast informed bound) on what can be earned
    from then on; one row for each joint action, or for all that have the same bound."""
    differs: tuple[Float[np.ndarray, "_ _ _"], ...]
    """Whether an action of an agent does in a state something else than an earlier one, given the others'."""
    has_twins: tuple[bool, ...]
    actions: tuple[int, ...]
    observations: tuple[int, ...]

    @property
    def horizon(self) -> int:
        """T."""
        return len(self.R)


def prepare(dynamics: Dynamics, horizon: int) -> Stages:
    """Everything about a problem that does not depend on the policy."""
    if horizon < 1:
        raise ValueError(f"planning needs a horizon of at least 1, got {horizon}.")
    paid = settled_rewards(dynamics)
    alive = np.isnan(paid)
    keep = alive[dynamics.following]
    worth = np.where(alive, 0.0, np.nan_to_num(paid))
    enters = dynamics.G @ worth[dynamics.following] if worth.any() else np.zeros_like(dynamics.R)
    left = np.arange(horizon)[::-1]
    R = (dynamics.R + left[:, None, None] * enters) * alive[:, None]
    G = dynamics.G if alive.all() else dynamics.G[:, :, keep] * alive[:, None, None]
    seen = dynamics.seen[keep]
    groups = np.flatnonzero(np.diff(seen, prepend=-1, append=-1)) if seen.size else np.zeros(1, int)
    following = dynamics.following[keep]
    entries, twins = _entries(G), _twins(dynamics)
    return Stages(
        G=G,
        R=R,
        d0=dynamics.d0 * alive,
        constant=horizon * float(dynamics.d0 @ worth),
        following=following,
        group=np.repeat(np.arange(len(groups) - 1), np.diff(groups)),
        shown=np.stack(np.unravel_index(seen[groups[:-1]], dynamics.observations), -1),
        groups=groups,
        mdp=_mdp_values(entries, R, following),
        later=_by_observation(_informed(entries, R, following, groups), following, groups),
        differs=tuple(_differs(each) for each in twins),
        has_twins=tuple(bool((each.sum((1, 2)) > each.shape[1]).any()) for each in twins),
        actions=dynamics.actions,
        observations=dynamics.observations,
    )


def settled_rewards(dynamics: Dynamics) -> Float[np.ndarray, " S"]:
    """What a state pays at every step from now on, whatever is done; nan where that is not settled.

    Ends and other sinks are settled. To pay their worth on entering, and to forget them, is exact and
    leaves fewer histories to tell apart.
    """
    paid = np.where(np.ptp(dynamics.R, axis=1) == 0.0, dynamics.R[:, 0], np.nan)
    if np.isnan(paid).all():
        return paid
    leads = np.zeros((paid.size, paid.size), bool)
    state, outcome = np.nonzero((dynamics.G > 0.0).any(1))
    leads[state, dynamics.following[outcome]] = True
    while True:
        same = np.all(~leads | (paid[None, :] == paid[:, None]), axis=1)
        kept = np.where(same, paid, np.nan)
        if np.array_equal(kept, paid, equal_nan=True):
            return kept
        paid = kept


class _Entries(NamedTuple):
    """The entries of G that are not 0, which are few in large problems, with their rows s * JA + a."""

    row: Int[np.ndarray, " E"]
    outcome: Int[np.ndarray, " E"]
    chance: Float[np.ndarray, " E"]
    rows: int


def _entries(G: Float[np.ndarray, "S JA M"]) -> _Entries:
    flat = G.reshape(G.shape[0] * G.shape[1], G.shape[2])
    row, outcome = np.nonzero(flat)
    return _Entries(row, outcome, flat[row, outcome], len(flat))


def _mdp_values(
    entries: _Entries, R: Float[np.ndarray, "T S JA"], following: Int[np.ndarray, " M"]
) -> Float[np.ndarray, "U S"]:
    """The best that a team which sees the state can earn from each step on."""
    values = np.zeros((len(R) + 1, R.shape[1]))
    for t in reversed(range(len(R))):
        later = entries.chance * values[t + 1][following[entries.outcome]]
        expected = np.bincount(entries.row, later, entries.rows).reshape(R.shape[1:])
        values[t] = (R[t] + expected).max(1)
    return values


def _informed(
    entries: _Entries,
    R: Float[np.ndarray, "T S JA"],
    following: Int[np.ndarray, " M"],
    groups: Int[np.ndarray, " B"],
) -> Float[np.ndarray, "T JA S"]:
    """The fast informed bound (Hauskrecht 2000): one that knows s now, and later only what all have seen."""
    _, states, joint = R.shape
    vectors = np.zeros((len(R), joint, states))
    vectors[-1] = R[-1].T
    if not entries.row.size:
        vectors[:] = R.transpose(0, 2, 1)
        return vectors
    number = np.searchsorted(groups, entries.outcome, "right") - 1
    begins = np.flatnonzero(np.diff(entries.row * len(groups) + number, prepend=-1))
    for t in reversed(range(len(R) - 1)):
        each = vectors[t + 1].T[following[entries.outcome]] * entries.chance[:, None]
        best = np.add.reduceat(each, begins, axis=0).max(1)
        expected = np.bincount(entries.row[begins], best, entries.rows).reshape(states, joint)
        vectors[t] = (R[t] + expected).T
    return vectors


def _by_observation(
    informed: Float[np.ndarray, "T JA S"], following: Int[np.ndarray, " M"], groups: Int[np.ndarray, " B"]
) -> tuple[tuple[Float[np.ndarray, "_ _"], ...], ...]:
    """The bounds that differ at all in the states that a joint observation leaves possible."""
    tables = []
    for now in informed:
        columns = now[:, following]
        parts = [columns[:, begin:end] for begin, end in pairwise(groups)]
        tables.append(tuple(part.max(0)[None] if part.shape[1] == 1 else _distinct(part) for part in parts))
    return tuple(tables)


def _distinct(rows: Float[np.ndarray, "A M"]) -> Float[np.ndarray, "_ M"]:
    return np.array(list(dict.fromkeys(map(tuple, rows.tolist()))))


def best_later(
    outcomes: Float[np.ndarray, "*X M"],
    later: tuple[Float[np.ndarray, "_ _"], ...],
    groups: Int[np.ndarray, " B"],
) -> Float[np.ndarray, "*X"]:
    """The sum over joint observations of the best linear bound on what follows them."""
    if len(groups) - 1 == outcomes.shape[-1]:  # the team's observations show the state
        return outcomes @ np.array([bound[0, 0] for bound in later])
    total = np.zeros(outcomes.shape[:-1])
    for bounds, (begin, end) in zip(later, pairwise(groups), strict=True):
        total += (outcomes[..., begin:end] @ bounds.T).max(-1)
    return total


def _twins(dynamics: Dynamics) -> tuple[Bool[np.ndarray, "_ _ _"], ...]:
    """Told by random projections of what follows."""
    states, actions = dynamics.d0.size, dynamics.actions
    weights = np.random.default_rng(0).normal(size=(dynamics.seen.size, 3))
    marks = np.concatenate([dynamics.G @ weights, dynamics.R[..., None]], -1).reshape(states, *actions, 4)
    twins = []
    for agent, size in enumerate(actions):
        each = np.moveaxis(marks, 1 + agent, 1).reshape(states, size, -1)
        twins.append(np.abs(each[:, :, None] - each[:, None]).max(-1) < EPSILON)
    return tuple(twins)


def _differs(twins: Bool[np.ndarray, "S A A"]) -> Float[np.ndarray, "S A A"]:
    """1 where action a is worth trying beside action b: b is not an earlier twin."""
    earlier = np.tri(twins.shape[1], k=-1, dtype=bool)
    return (~(twins & earlier)).astype(float)


def mdp_bound(dynamics: Dynamics, horizon: int) -> float:
    """Q_MDP: what a team that sees the state can earn."""
    stages = prepare(dynamics, horizon)
    return stages.constant + float(stages.d0 @ stages.mdp[0])


def pomdp_bound(dynamics: Dynamics, horizon: int, limit: int = 100_000) -> float:
    """Q_POMDP: what a team that shares all it sees can earn, exactly, by a search over its beliefs."""
    stages = prepare(dynamics, horizon)
    return stages.constant + SharedTeam(stages, limit).value(stages.d0, 0)


class SharedTeam:
    """A team that shares all it sees has one belief: its value, remembered for every belief met."""

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
        """The values of the joint actions, if the team does its best afterwards."""
        stages = self.stages
        values = belief @ stages.R[t]
        if t + 1 == stages.horizon:
            return values
        outcomes = np.einsum("s,sam->am", belief, stages.G)
        for action in range(outcomes.shape[0]):
            for begin, end in pairwise(stages.groups):
                following = np.zeros(belief.size)
                following[stages.following[begin:end]] = outcomes[action, begin:end]
                values[action] += self.value(following, t + 1)
        return values
