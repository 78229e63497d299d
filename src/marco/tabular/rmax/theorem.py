"""The bounds of the theorem: visits that make a pair known, and how many episodes may be bad.

`printed` computes the paper's own conditions, `repaired` those of docs/theory.md: a finite horizon, and half
of epsilon and of delta for each of the two errors, so that together they stay within epsilon and delta.
"""

import math
from typing import NamedTuple

OUT_OF_REACH = 1e9
"""More real steps than this are not feasible for a table."""


class Guarantee(NamedTuple):
    """With probability 1 - delta, all but `episodes` episodes are within 2 epsilon of the best team."""

    m_reward: float
    """Visits to a pair that the reward estimate needs."""
    m_transition: float
    """Visits to a pair that the transition estimate needs."""
    m: int
    """The larger of the two, rounded up."""
    episodes: int
    """How many episodes may be worse."""
    value_max: float
    """The largest possible value of a team."""


def printed(states: int, joint_actions: int, epsilon: float, delta: float, gamma: float) -> Guarantee:
    """The paper's conditions, solved for m. The number of episodes takes the constant of its O(.) as 1."""
    _check(states, joint_actions, epsilon, delta)
    if not 0.0 <= gamma < 1.0:
        raise ValueError(f"the paper's conditions need gamma in [0, 1), got {gamma}.")
    pairs, value_max = states * joint_actions, 1.0 / (1.0 - gamma)
    m_reward = 2.0 * math.log(4.0 * pairs / delta) * value_max**2 / epsilon**2
    uniform = log_subsets(states) + math.log(2.0 * pairs / delta)
    m_transition = 2.0 * gamma**2 * value_max**4 * uniform / epsilon**2
    m = math.ceil(max(m_reward, m_transition, 1.0))
    episodes = math.ceil(m * pairs * value_max / epsilon * math.log(1.0 / delta))
    return Guarantee(m_reward, m_transition, m, episodes, value_max)


def repaired(
    states: int, joint_actions: int, horizon: int, epsilon: float, delta: float, joint_observations: int = 1
) -> Guarantee:
    """The repaired theorem. Give `joint_observations` if they are not a function of the next state."""
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
    return Guarantee(m_reward, m_transition, m, episodes, float(horizon))


def tosses(heads: int, chance: float, delta: float) -> int:
    """Tosses of a coin that give at least `heads` heads with probability 1 - delta (Chernoff's bound)."""
    log = math.log(1.0 / delta)
    return math.ceil((heads + log + math.sqrt(log**2 + 2.0 * heads * log)) / min(chance, 1.0))


def log_subsets(outcomes: int) -> float:
    """ln(2^n - 2), also where 2^n overflows a float; minus infinity for n = 1, which has no error."""
    if outcomes == 1:
        return -math.inf
    return outcomes * math.log(2.0) + math.log1p(-(2.0 ** (1 - outcomes)))


def simulation_bound(reward_error: float, transition_error: float, horizon: int) -> float:
    """The largest difference of a policy's values in two models with these errors (transitions in L1).

    Finite-horizon form of the simulation lemma, for rewards in [0, 1].
    """
    return horizon * reward_error + transition_error * horizon * (horizon - 1) / 4.0


def verdict(guarantee: Guarantee, epsilon: float, horizon: int) -> str:
    """Whether a guarantee is vacuous, in words."""
    if 2.0 * epsilon >= guarantee.value_max:
        return f"vacuous: no regret exceeds {guarantee.value_max:g}, and 2 epsilon is {2 * epsilon:g}"
    steps = guarantee.episodes * horizon
    if steps > OUT_OF_REACH:
        return f"vacuous in practice: up to {steps:.1e} steps may be bad; choose m by a sweep instead"
    return f"up to {steps:.1e} steps may be bad"


def _check(states: int, joint_actions: int, epsilon: float, delta: float) -> None:
    for name, number in (("states", states), ("joint_actions", joint_actions)):
        if number < 1:
            raise ValueError(f"{name} must be at least 1, got {number}.")
    if not 0.0 < epsilon < math.inf:
        raise ValueError(f"epsilon must be more than 0 and finite, got {epsilon}.")
    if not 0.0 < delta < 1.0:
        raise ValueError(f"delta must be between 0 and 1, got {delta}.")
