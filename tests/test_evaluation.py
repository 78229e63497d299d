from fractions import Fraction
from itertools import product

import jax
import jax.numpy as jnp
import pytest

from helpers.zoo_toys import toy
from marco.environments.bridge import make_bridge as bridge
from marco.environments.delayed import Delayed
from marco.environments.experts import SwitchProtocol
from marco.environments.reference import Reference
from marco.environments.switch import Switch
from marco.evaluation import evaluate, exact_value, sampled_value
from marco.policies.base import EpsilonGreedy, Policy, RandomPolicy


class NeverTell(Policy):
    """Does nothing, ever."""

    def start(self):
        return ()

    def __call__(self, memory, timestep):
        return memory, jax.nn.one_hot(jnp.argmax(timestep.available, -1), timestep.available.shape[-1])


@pytest.mark.parametrize(("horizon", "value"), [(3, "2/9"), (4, "4/9"), (5, "50/81"), (6, "20/27")])
def test_the_protocol_is_worth_the_optimum(horizon, value):
    env = Switch(horizon=horizon)
    exact = exact_value(env, SwitchProtocol(env.spec))
    assert exact == pytest.approx(float(Fraction(value)), abs=1e-12)
    assert env.optimum == pytest.approx(exact, abs=1e-12)


@pytest.mark.parametrize("length", [2, 3])
def test_behind_a_bridge_the_protocol_is_worth_the_same(length):
    env = bridge(length=length, horizon=length + 6)
    assert exact_value(env, SwitchProtocol(env.spec)) == pytest.approx(20 / 27, abs=1e-12)
    assert env.optimum == pytest.approx(20 / 27, abs=1e-12)


def random_riddle_value(agents, horizon):
    """By hand: the visitor tells with probability 1/4; then all N have been there, or not."""
    value = Fraction(0)
    for t in range(horizon):
        sequences = list(product(range(agents), repeat=t + 1))
        complete = Fraction(sum(len(set(sequence)) == agents for sequence in sequences), len(sequences))
        value += Fraction(3, 4) ** t * Fraction(1, 4) * (2 * complete - 1)
    return float(value)


@pytest.mark.parametrize(("agents", "horizon"), [(3, 6), (2, 4), (4, 7)])
def test_a_random_team_is_worth_what_theory_says(agents, horizon):
    value = exact_value(Switch(agents, horizon), RandomPolicy())
    assert value == pytest.approx(random_riddle_value(agents, horizon), abs=1e-12)


def test_a_team_that_never_tells_is_worth_nothing():
    assert exact_value(Switch(), NeverTell()) == 0.0
    assert exact_value(bridge(), NeverTell()) == 0.0


def test_a_noisy_protocol_agrees_with_sampling():
    """Memory and randomness together; also the discount of none: the mean is the plain return."""
    env = Switch()
    noisy = EpsilonGreedy(SwitchProtocol(env.spec), jnp.float32(0.2))
    exact = exact_value(env, noisy)
    sampled = sampled_value(jax.random.key(0), env, noisy, 100_000)
    assert exact == pytest.approx(sampled.mean, abs=4 * sampled.standard_error)
    assert exact < 20 / 27


def test_the_exact_value_of_a_world_without_chance():
    """Delayed, random team of one: no countdown, light off; a first take costs 1/3 of the time."""
    assert exact_value(Delayed(agents=1, delay=3, horizon=1), RandomPolicy()) == pytest.approx(
        -1 / 3, abs=1e-7
    )


def test_too_many_histories_are_refused_with_the_cure():
    with pytest.raises(ValueError, match=r"over the limit of 10: use sampled_value"):
        exact_value(Switch(), RandomPolicy(), limit=10)


def test_an_estimate_needs_two_episodes():
    with pytest.raises(ValueError, match="episodes must be at least 2, got 1"):
        sampled_value(jax.random.key(0), Switch(), RandomPolicy(), 1)


def test_the_protocol_is_for_three():
    with pytest.raises(ValueError, match="three agents in switch or bridge, got 4 in switch"):
        SwitchProtocol(Switch(4).spec)


def test_evaluate_is_exact_where_that_is_cheap_and_else_samples():
    env = Switch()
    team = SwitchProtocol(env.spec)
    exact = evaluate(env, team)
    assert (exact.exact, exact.episodes, exact.steps) == (True, 0, 0)
    assert exact.mean == exact_value(env, team)
    assert exact.interval == (exact.mean, exact.mean)
    sampled = evaluate(Reference(horizon=3), RandomPolicy(), 50, 7)
    assert (sampled.exact, sampled.episodes, sampled.steps) == (False, 50, 150)
    assert sampled == sampled_value(jax.random.key(7), Reference(horizon=3), RandomPolicy(), 50)
    assert sampled == evaluate(Reference(horizon=3), RandomPolicy(), 50, jax.random.key(7))
    low, high = sampled.interval
    assert high - low == pytest.approx(2 * 1.96 * sampled.standard_error)


def test_evaluate_samples_beyond_the_limit_of_histories(monkeypatch):
    monkeypatch.setattr("marco.evaluation.EXACT_LIMIT", 10)
    assert not evaluate(Switch(), RandomPolicy(), 20).exact


def test_evaluate_plays_host_environments_one_episode_after_the_other():
    env = toy(reward="sum")
    estimate = evaluate(env, RandomPolicy(), 3)
    assert tuple(estimate) == (15.0, 0.0, 3, 15)  # five steps of 1 and 2
