"""What teams are expected to earn: the random-effects model, worked by hand."""

import jax.numpy as jnp
import numpy as np
import pytest

from marco.algorithm.expectation import expected, expected_of_seed
from marco.learners.candidates import Imagined

NOTHING = np.zeros(0)


def test_without_real_episodes_the_models_word_is_all_there_is():
    found = expected(np.array([1.0, 0.5]), np.array([0.3, 0.1]), 1.0, [NOTHING, NOTHING])
    assert found.mean.tolist() == [1.0, 0.5]
    assert found.error == pytest.approx([0.3, 0.1])
    assert found.cautious == pytest.approx([0.7, 0.4])


def test_gaps_that_chance_explains_leave_the_models_word_as_it_is():
    """Four returns of deviation 1 have a mean of error 0.5: gaps of 0.3 and -0.1 are nothing."""
    earned = [np.full(4, 1.3), np.full(4, 0.4)]
    found = expected(np.array([1.0, 0.5]), np.zeros(2), 1.0, earned)
    assert found.mean == pytest.approx([1.0, 0.5])
    assert found.error == pytest.approx([0.0, 0.0], abs=1e-5)


def test_gaps_beyond_chance_are_weighed_by_the_method_of_moments():
    """Gaps -1 and 0.5, noise 1/4 each: Q = 4.5, tau^2 = (4.5 - 1) / 4 = 0.875; nothing is shared.

    So 2/9 of the model's word is left: 1 - 7/9, and 0 + 7/9 * 0.5.
    """
    earned = [np.full(4, 0.0), np.full(4, 0.5)]
    found = expected(np.array([1.0, 0.0]), np.zeros(2), 1.0, earned)
    assert found.mean == pytest.approx([2 / 9, 3.5 / 9])
    assert found.error == pytest.approx([(2 / 9 * 0.875) ** 0.5] * 2)
    assert found.mean.argmax() == 1


def test_who_was_lucky_in_a_few_episodes_is_not_chosen_for_it():
    """Gaps of 0.6 and -0.6 by means of error 0.5: Q = 2.88; 3.84 is chance once in twenty."""
    found = expected(np.array([0.0, 0.1]), np.zeros(2), 1.0, [np.full(4, 0.6), np.full(4, -0.5)])
    assert found.mean == pytest.approx([0.0, 0.1], abs=1e-6)


def test_what_all_gaps_share_is_the_models_optimism_and_leaves_the_order_to_the_model():
    """Both earn 10 less than imagined, by means of error 0.5: the shared error is 10 (1 - 0.125 / 100)."""
    earned = [np.full(4, -5.0), np.full(4, -6.0), NOTHING]
    found = expected(np.array([5.0, 4.0, 3.0]), np.zeros(3), 1.0, earned)
    shared = -10.0 * (1.0 - 0.125 / 100.0)
    assert found.mean == pytest.approx([5.0 + shared, 4.0 + shared, 3.0 + shared])
    assert found.error == pytest.approx([(0.125 * (1.0 - 0.00125)) ** 0.5] * 3)


def test_members_that_differ_believe_real_episodes_sooner():
    """The doubt of 1 is beside a noise of 1/4: a fifth of the model's word is left, and explains all."""
    found = expected(np.array([0.0, 0.0]), np.ones(2), 1.0, [np.full(4, 0.7), np.full(4, -0.7)])
    assert found.mean == pytest.approx([0.8 * 0.7, -0.8 * 0.7])
    assert found.error == pytest.approx([0.2**0.5] * 2)


def test_a_team_that_exploits_a_bad_model_loses_to_one_that_never_saw_it():
    """As measured once: imagined +3.9 and -38 for real, where random play has -28."""
    by_member = np.array([[3.0, 4.8], [-20.0, -22.0]])[:, None]
    imagined = Imagined(jnp.asarray(by_member), jnp.full((2, 1), 6.0))
    earned = [np.tile([-46.0, -30.0], 4), np.tile([-34.0, -18.0], 4)]
    found = expected_of_seed(imagined, 0, earned, -28.0)
    assert found.cautious.argmax() == 1
    low, high = found.mean[1] - 2 * found.error[1], found.mean[1] + 2 * found.error[1]
    assert low < -26.0 < high
    assert found.mean[0] < -30.0


def test_a_candidate_that_is_none_is_never_chosen():
    by_member = jnp.array([[[0.1, 0.3]], [[-jnp.inf, -jnp.inf]]])
    found = expected_of_seed(Imagined(by_member, jnp.full((2, 1), 0.0)), 0, [NOTHING, NOTHING], 0.2)
    assert found.cautious == pytest.approx([0.2 - 0.02**0.5, -np.inf])


def test_members_differ_by_chance_too():
    """Five members play 819 episodes each: means of deviation 0.7 spread by 0.0245 where all are the same."""
    rng = np.random.default_rng(0)
    by_member = rng.normal(0.7, 0.7 * (5 / 4_096) ** 0.5, (400, 1, 5))
    alike = Imagined(jnp.asarray(by_member), jnp.full((400, 1), 0.7))
    assert np.mean(alike.doubt**2) < 0.4 * (0.7**2 * 5 / 4_096)
    assert (alike.doubt == 0.0).mean() > 0.4
    apart = Imagined(jnp.asarray([[[0.5, 0.7, 0.9]]]), jnp.full((1, 1), 0.7))
    assert apart.doubt[0, 0] == pytest.approx((0.04 - 0.49 * 3 / 4_096) ** 0.5, rel=1e-4)
    assert Imagined(jnp.ones((1, 1, 1)), jnp.ones((1, 1))).cautious.tolist() == [[1.0]]


def test_few_returns_that_are_all_alike_are_not_certain():
    """Two episodes of 0 each, where a return deviates by 0.7: a shared gap of 0.45 with a variance of 0.1225.

    Of that 0.08 / 0.2025 is taken for the model's optimism, and the order stays.
    """
    imagined = Imagined(jnp.array([[[0.5, 0.5]], [[0.4, 0.4]]]), jnp.full((2, 1), 0.7))
    found = expected_of_seed(imagined, 0, [np.zeros(2), np.zeros(2)], 0.5)
    shared = -0.45 * 0.08 / 0.2025
    assert found.mean == pytest.approx([0.5 + shared, 0.4 + shared], rel=1e-3)
    assert found.error == pytest.approx([(0.1225 * 0.08 / 0.2025) ** 0.5] * 2, rel=1e-2)


def test_what_is_expected_is_never_surer_than_the_imagined_episodes_allow():
    """4,096 episodes of deviation 0.7, in members that agree to the last digit."""
    imagined = Imagined(jnp.full((1, 1, 2), 0.73), jnp.full((1, 1), 0.7))
    assert expected_of_seed(imagined, 0, [NOTHING], 0.73).error == pytest.approx([0.7 / 64.0])


def test_more_episodes_leave_less_to_chance():
    """A deviation of 0.64 over 4,096 episodes is an error of 0.01, over four times as many of 0.005."""
    for episodes, error in ((4_096, 0.01), (16_384, 0.005)):
        imagined = Imagined(jnp.full((1, 1, 2), 0.7), jnp.full((1, 1), 0.64), episodes)
        assert imagined.standard_error.tolist() == [[pytest.approx(error)]]
    # Two members of 2,048 episodes each, 0.04 apart: a variance of 0.0008, of which 0.0002 is chance.
    apart = Imagined(jnp.array([[[0.68, 0.72]]]), jnp.full((1, 1), 0.64), 4_096)
    assert apart.doubt.tolist() == [[pytest.approx((0.0008 - 0.64**2 / 2_048) ** 0.5)]]


def test_models_err_about_all_teams_alike_by_more_than_their_members_know():
    """A twentieth of what the best team gains over random play: 0.05 * (0.7 + 0.5) = 0.06."""
    imagined = Imagined(jnp.array([[[0.7, 0.7]], [[0.6, 0.6]]]), jnp.zeros((2, 1)))
    found = expected_of_seed(imagined, 0, [NOTHING, NOTHING], -0.5)
    assert found.mean == pytest.approx([0.7, 0.6])
    assert found.error == pytest.approx([0.06, 0.06])
