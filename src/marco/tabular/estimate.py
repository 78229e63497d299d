"""A finite Dec-POMDP estimated from real episodes: counts of what occurred, smoothed by a learned model.

What was never tried is taken for bad: an untried pair (s, a) leads to a state that pays the lowest reward
seen at every later step. So a planner keeps to what the data bear out, where R-MAX would go and look.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from marco.tabular.problem import Dynamics, canonical_actions
from marco.types import Episode, Spec

ENTRIES = 20_000_000
"""The most numbers in the table of outcomes."""
VISITS = 10
"""Real steps per state, on average, below which counts say too little."""
WEIGHTS = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0)
"""How many visits the learned model may be worth."""
ROUNDS = 30
"""Rounds in which the weights that suit all pairs are found."""

GRID = 0.02
"""Estimated probabilities are rounded to multiples of it before planning."""


class Counts(NamedTuple):
    """The states, joint actions and outcomes that occurred, as numbers, and how often.

    An outcome is a pair of a joint observation and a next state, sorted. The number of states stands for the
    end of an episode, the one after it for the unknown; both show joint observation 0.
    """

    states: Float[np.ndarray, "S W"]
    """The columns of each state."""
    observations: tuple[Float[np.ndarray, "_ O"], ...]
    """For each agent, the columns of every observation that occurred."""
    actions: tuple[int, ...]
    """The number of actions of each agent."""
    canonical: Int[np.ndarray, "S JA"]
    """The joint action with the same effect and only available actions."""
    seen: Int[np.ndarray, " M"]
    """The joint observation of each outcome."""
    after: Int[np.ndarray, " M"]
    """The next state of each outcome."""
    n: Float[np.ndarray, "S JA M"]
    """How often each outcome followed; of canonical joint actions alone."""
    starts: Float[np.ndarray, " M"]
    """How often an episode began with each."""
    reward_sum: Float[np.ndarray, "S JA"]
    low: float
    """The lowest reward; at most 0 where episodes can end."""

    @property
    def end(self) -> int:
        """The number of the state after the end."""
        return len(self.states)

    @property
    def visits(self) -> Float[np.ndarray, "S JA"]:
        """How often each pair occurred."""
        return self.n.sum(-1)

    @property
    def num_observations(self) -> tuple[int, ...]:
        """How many different observations each agent made."""
        return tuple(len(rows) for rows in self.observations)


class Prior(NamedTuple):
    """What a learned model predicts of the pairs that were visited."""

    G: Float[np.ndarray, "S JA M"]
    R: Float[np.ndarray, "S JA"]


def count(spec: Spec, episodes: Episode) -> Counts | None:
    """Count what occurred in real episodes (axes T B); None if the states are too many for that."""
    mask = np.asarray(episodes.mask)
    shown = np.concatenate([np.ones_like(mask[:1]), mask])
    states, which = _distinct(np.asarray(episodes.state), shown)
    if len(states) * VISITS > mask.sum():
        return None
    end = len(states)
    observed = [_distinct(np.asarray(episodes.observation)[:, :, i], shown) for i in range(spec.num_agents)]
    joint = np.ravel_multi_index(
        tuple(number for _, number in observed), tuple(len(rows) for rows, _ in observed)
    )
    over = np.asarray(episodes.terminated) & mask
    after = np.where(over, end, which[1:])[mask]
    seen = np.where(over, 0, joint[1:])[mask]
    begun = np.stack([joint[0], which[0]])
    places = np.concatenate([begun, np.stack([seen, after]), [[0, 0], [end, end + 1]]], axis=1)
    outcomes, column = np.unique(places, axis=1, return_inverse=True)
    column, width = column.ravel(), outcomes.shape[1]
    actions = tuple(agent.num_actions for agent in spec.agents)
    if end * int(np.prod(actions)) * width > ENTRIES:
        return None
    canonical = canonical_actions(_available(episodes, which, shown, actions), actions)
    before = which[:-1][mask]
    taken = np.ravel_multi_index(tuple(np.moveaxis(np.asarray(episodes.actions)[mask], -1, 0)), actions)
    pair = before, canonical[before, taken]
    n, reward_sum = np.zeros((*canonical.shape, width)), np.zeros(canonical.shape)
    rewards = np.asarray(episodes.reward, float)[mask]
    np.add.at(n, (*pair, column[len(begun[0]) : -2]), 1.0)
    np.add.at(reward_sum, pair, rewards)
    return Counts(
        states=states,
        observations=tuple(rows for rows, _ in observed),
        actions=actions,
        canonical=canonical,
        seen=outcomes[0],
        after=outcomes[1],
        n=n,
        starts=np.bincount(column[: len(begun[0])], minlength=width).astype(float),
        reward_sum=reward_sum,
        low=float(min(rewards.min(), 0.0 if over.any() else np.inf)),
    )


def estimate(counts: Counts, prior: Prior | None = None) -> Dynamics:
    """The problem as the planner takes it.

    A start state is added, whose one step shows the first observation: the tables have one step more than an
    episode. With a prior, the counts and what it predicts are mixed as if it had seen some visits itself.
    """
    states, joint, width = counts.n.shape
    visits = counts.visits
    G, R = np.zeros((states + 3, joint, width)), np.zeros((states + 3, joint))
    total = np.maximum(visits, 1.0)
    G[:states], R[:states] = counts.n / total[..., None], counts.reward_sum / total
    if prior is not None:
        share = prior_share(counts, prior)
        G[:states] += share[..., None] * (prior.G - G[:states])
        R[:states] += share * (prior.R - R[:states])
    end, unknown = states, states + 1
    untried = np.zeros(R.shape, bool)
    untried[:states], untried[unknown] = visits == 0.0, True
    G[untried], R[untried] = (np.arange(width) == _column(counts, unknown)).astype(float), counts.low
    G[end], R[end] = (np.arange(width) == _column(counts, end)).astype(float), 0.0
    G[:states] = np.take_along_axis(G[:states], counts.canonical[..., None], 1)
    R[:states] = np.take_along_axis(R[:states], counts.canonical, 1)
    G[states + 2] = counts.starts / counts.starts.sum()
    return Dynamics(
        G=_rounded(G),
        R=R,
        d0=(np.arange(states + 3) == states + 2).astype(float),
        joint_observation=counts.seen,
        next_state=counts.after,
        num_actions=counts.actions,
        num_observations=counts.num_observations,
    )


def prior_share(counts: Counts, prior: Prior) -> Float[np.ndarray, "S JA"]:
    """The share of the prior in the estimate of each pair; 0 for those that were never tried.

    The prior is worth w visits of a pair. How likely each w is, is told by the real steps of the pair, each
    given all the others; and where these are few, by how often that w suits the other pairs. A network may be
    right about most pairs and wrong about a rare one: then counts are believed there alone.
    """
    visits = counts.visits
    tried = np.nonzero(visits)
    likely = _likely_weights(counts.n[tried], prior.G[tried])
    weights = np.asarray(WEIGHTS)
    share = np.zeros(visits.shape)
    share[tried] = np.sum(likely * weights / (visits[tried][:, None] + weights), axis=-1)
    return share


def _likely_weights(
    n: Float[np.ndarray, "pairs M"], said: Float[np.ndarray, "pairs M"]
) -> Float[np.ndarray, "pairs weights"]:
    """How probable each weight is for each pair, by expectation and maximisation over all of them."""
    log_likelihood = np.stack([_left_out(n, said, weight) for weight in WEIGHTS], axis=-1)
    often = np.full(len(WEIGHTS), 1.0 / len(WEIGHTS))
    for _ in range(ROUNDS):
        score = log_likelihood + np.log(often)
        likely = np.exp(score - score.max(-1, keepdims=True))
        likely /= likely.sum(-1, keepdims=True)
        often = np.maximum(likely.mean(0), 1e-6)
    return likely


def _left_out(
    n: Float[np.ndarray, "pairs M"], said: Float[np.ndarray, "pairs M"], weight: float
) -> Float[np.ndarray, " pairs"]:
    """The log-likelihood of every real step of a pair given its others, and a prior worth `weight` visits."""
    others = np.maximum(n.sum(-1, keepdims=True) - 1.0 + weight, 1e-3)
    chance = np.clip((n - 1.0 + weight * said) / others, 1e-6, 1.0)
    return np.sum(n * np.log(np.where(n > 0.0, chance, 1.0)), axis=-1)


def _rounded(G: Float[np.ndarray, "S JA M"]) -> Float[np.ndarray, "S JA M"]:
    """Probabilities to the nearest fiftieth, as far as that leaves any: thirds become equal thirds again.

    A planner treats histories alike only if they tell exactly the same of the state: where three estimates of
    1/3 differ by a thousandth, it has to tell many more apart.
    """
    near = np.round(G / GRID) * GRID
    chance = np.where(near.sum(-1, keepdims=True) > 0.0, near, G)
    return chance / chance.sum(-1, keepdims=True)


def _column(counts: Counts, state: int) -> int:
    """The outcome that shows nothing and leads to the end, or to the unknown."""
    return int(np.flatnonzero((counts.after == state) & (counts.seen == 0))[0])


def _distinct(
    rows: Float[np.ndarray, "T1 B W"], shown: Bool[np.ndarray, "T1 B"]
) -> tuple[Float[np.ndarray, "M W"], Int[np.ndarray, "T1 B"]]:
    """The distinct rows, and the number of each; 0 where nothing was shown."""
    distinct, which = np.unique(rows[shown] + 0.0, axis=0, return_inverse=True)  # -0.0 is 0.0
    numbers = np.zeros(shown.shape, int)
    numbers[shown] = which.ravel()
    return distinct, numbers


def _available(
    episodes: Episode,
    which: Int[np.ndarray, "T1 B"],
    shown: Bool[np.ndarray, "T1 B"],
    actions: tuple[int, ...],
) -> Bool[np.ndarray, "S N A"]:
    """What was available in each state whenever it was met; all actions that exist where that is nothing."""
    masks = np.asarray(episodes.available)
    found = np.ones((int(which.max()) + 1, *masks.shape[2:]), bool)
    np.logical_and.at(found, which[shown], masks[shown])
    exists = np.arange(masks.shape[-1]) < np.asarray(actions)[:, None]
    return np.where(found.any(-1, keepdims=True), found, exists)
