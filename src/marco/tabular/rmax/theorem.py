"""The numbers of the theorem: how often a pair must be seen, and how many episodes may be bad.

`printed` holds the paper's own conditions, `repaired` those of docs/theory.md: a finite horizon, and the two
errors and the two failure probabilities halved, so that together they keep within epsilon and delta.
"""

import math
from typing import NamedTuple

OUT_OF_REACH = 1e9
"""More real steps than this are out of reach for a table."""


class Promise(NamedTuple):
    """With probability 1 - delta, all but `episodes` episodes are within 2 epsilon of the best team."""

    m_reward: float
    """Samples of a pair that the reward needs."""
    m_transition: float
    """Samples of a pair that the transition needs."""
    m: int
    """The larger of the two, rounded up."""
    episodes: int
    value_max: float
    """The largest value there can be."""


def printed(states: int, joint_actions: int, epsilon: float, delta: float, gamma: float) -> Promise:
    """The paper's conditions, solved for m; the number of episodes with the constant of its O(.) set to 1."""
    _check(states, joint_actions, epsilon, delta)
    if not 0.0 <= gamma < 1.0:
        raise ValueError(f"the paper's conditions need gamma in [0, 1), got {gamma}.")
    pairs, value_max = states * joint_actions, 1.0 / (1.0 - gamma)
    m_reward = 2.0 * math.log(4.0 * pairs / delta) * value_max**2 / epsilon**2
    uniform = log_subsets(states) + math.log(2.0 * pairs / delta)
    m_transition = 2.0 * gamma**2 * value_max**4 * uniform / epsilon**2
    m = math.ceil(max(m_reward, m_transition, 1.0))
    episodes = math.ceil(m * pairs * value_max / epsilon * math.log(1.0 / delta))
    return Promise(m_reward, m_transition, m, episodes, value_max)


def repaired(
    states: int, joint_actions: int, horizon: int, epsilon: float, delta: float, joint_observations: int = 1
) -> Promise:
    """The repaired theorem. If observations are no function of s', say how many joint ones there are."""
    _check(states, joint_actions, epsilon, delta)
    if horizon < 1:
        raise ValueError(f"horizon must be at least 1, got {horizon}.")
    if joint_observations < 1:
        raise ValueError(f"joint_observations must be at least 1, got {joint_observations}.")
    pairs = states * joint_actions
    m_reward = 8.0 * horizon**2 * math.log(8.0 * pairs / delta) / epsilon**2
    uniform = log_subsets(states * joint_observations) + math.log(4.0 * pairs / delta)
    m_transition = 2.0 * horizon**2 * (horizon - 1) ** 2 * max(uniform, 0.0) / epsilon**2
    m = math.ceil(max(m_reward, m_transition, 1.0))
    episodes = tosses(m * pairs, epsilon / horizon, delta / 2.0)
    return Promise(m_reward, m_transition, m, episodes, float(horizon))


def tosses(heads: int, chance: float, delta: float) -> int:
    """So many tosses of a coin show so many heads with probability at least 1 - delta (Chernoff's bound)."""
    log = math.log(1.0 / delta)
    return math.ceil((heads + log + math.sqrt(log**2 + 2.0 * heads * log)) / min(chance, 1.0))


def log_subsets(outcomes: int) -> float:
    """ln(2^n - 2), also where 2^n is beyond a float; minus infinity for n = 1, where nothing can be wrong."""
    if outcomes == 1:
        return -math.inf
    return outcomes * math.log(2.0) + math.log1p(-(2.0 ** (1 - outcomes)))


def simulation_bound(reward_error: float, transition_error: float, horizon: int) -> float:
    """How far two models can value a policy apart whose rewards and transitions (in L1) differ by so much.

    Finite-horizon form of the simulation lemma, for rewards in [0, 1].
    """
    return horizon * reward_error + transition_error * horizon * (horizon - 1) / 4.0


def verdict(promise: Promise, epsilon: float, horizon: int) -> str:
    """Whether a promise says anything."""
    if 2.0 * epsilon >= promise.value_max:
        return f"vacuous: no team lacks more than {promise.value_max:g}, and 2 epsilon is {2 * epsilon:g}"
    steps = promise.episodes * horizon
    if steps > OUT_OF_REACH:
        return f"vacuous in practice: up to {steps:.1e} steps may be bad; choose m by a sweep instead"
    return f"up to {steps:.1e} steps may be bad"


def _check(states: int, joint_actions: int, epsilon: float, delta: float) -> None:
    for name, number in (("states", states), ("joint_actions", joint_actions)):
        if number < 1:
            raise ValueError(f"{name} must be at least 1, got {number}.")
    if not epsilon > 0.0:
        raise ValueError(f"epsilon must be more than 0, got {epsilon}.")
    if not 0.0 < delta < 1.0:
        raise ValueError(f"delta must be between 0 and 1, got {delta}.")
