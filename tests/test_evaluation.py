from fractions import Fraction
from itertools import product

import jax
import jax.numpy as jnp
import pytest

from marco.environments.delayed import Delayed
from marco.environments.experts import SwitchProtocol
from marco.environments.registry import bridge, make, optimum
from marco.environments.switch import Switch
from marco.evaluation import exact_value, sampled_value
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
    assert optimum(env) == pytest.approx(exact, abs=1e-12)


@pytest.mark.parametrize("length", [2, 3])
def test_behind_a_bridge_the_protocol_is_worth_the_same(length):
    env = bridge(length=length, horizon=length + 6)
    assert exact_value(env, SwitchProtocol(env.spec)) == pytest.approx(20 / 27, abs=1e-12)
    assert optimum(env) == pytest.approx(20 / 27, abs=1e-12)


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
    with pytest.raises(ValueError, match="at least 2 episodes, got 1"):
        sampled_value(jax.random.key(0), Switch(), RandomPolicy(), 1)


def test_the_protocol_is_for_three():
    with pytest.raises(ValueError, match="three agents in switch or bridge, got 4 in switch"):
        SwitchProtocol(Switch(4).spec)


def test_worlds_are_made_by_name_with_their_settings():
    assert make("switch", agents=4, horizon=8) == Switch(4, 8)
    assert make("bridge", length=2).spec.agents[0].observation_width == 3 + 2
    assert optimum(make("switch", agents=4)) is None
    assert optimum(make("reference")) is None


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("swich", {}, "unknown world 'swich': the built-in ones are switch, bridge, reference, delayed"),
        ("switch", {"lenght": 3}, "switch has no setting 'lenght': it has agents, horizon"),
        ("switch", {"horizon": 0}, "horizon of at least 1, got 0"),
    ],
)
def test_unknown_worlds_and_settings_are_refused(name, settings, message):
    with pytest.raises(ValueError, match=message):
        make(name, **settings)
