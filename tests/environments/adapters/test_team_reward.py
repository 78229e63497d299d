"""One reward for the team, and agents that are none."""

import warnings

import jax
import numpy as np
import pytest

from helpers.zoo_toys import act, toy
from marco.environments.adapters.team_reward import TeamReward
from marco.environments.base import WorldWarning
from marco.policies.base import RandomPolicy
from marco.rollout import play


def play_on(world, episodes):
    for seed in range(episodes):
        play(jax.random.key(seed), world, RandomPolicy())


def paid(a, b):
    """The toy with other rewards: functions of the step."""

    def tamper(observations, rewards, *rest):
        time = round(10 * float(next(iter(observations.values()))[0]))
        return observations, {"a": a(time), "b": b(time)}, *rest

    return tamper


@pytest.mark.parametrize(("rule", "expected"), [("mean", 1.5), ("sum", 3.0), ("a", 1.0), ("b", 2.0)])
def test_the_reward_is_the_mean_the_sum_or_one_agents(rule, expected):
    world = toy(reward=rule)
    world.reset(0)
    assert float(world.step(act(0, 0)).reward) == expected


def test_an_agent_whose_reward_counts_earns_nothing_once_it_has_left():
    world = toy(reward="a", terminate={"a": 1})
    world.reset(0)
    assert [float(world.step(act(0, 0)).reward) for _ in range(2)] == [1.0, 0.0]


@pytest.mark.parametrize(
    ("a", "b", "words"),
    [
        (lambda t: 1.0, lambda t: -1.0, "their rewards never changed"),
        (
            lambda t: float(t),
            lambda t: -float(t),
            "correlation -1.00",
        ),
    ],
)
def test_agents_that_are_paid_with_opposite_signs_are_named_once_with_the_cure(a, b, words):
    world = toy(tamper=paid(a, b))
    with pytest.warns(WorldWarning, match=f"in 5 of 5 steps one gained as the other lost, {words}") as caught:
        play_on(world, 3)
    (said,) = [str(one.message) for one in caught if one.category is WorldWarning]
    assert "toy_v0: agents 'a' and 'b' seem to compete" in said
    assert "reward='a' (--reward a)" in said


def test_agents_that_are_paid_inversely_are_noticed_over_many_steps():
    world = toy(tamper=paid(lambda t: 9.0 + t, lambda t: 9.0 - t))
    with pytest.warns(WorldWarning, match="in 0 of 25 steps .*, correlation -1.00"):
        play_on(world, 6)


def test_two_that_walk_slowly_are_no_opponents():
    """In two episodes of 25 steps one came nearer to its goal as the other went away: that is chance."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        walkers = TeamReward("team", ("a", "b"), "mean")
        for _ in range(2):
            for step in range(25):
                walkers([-2.0 + 0.05 * step, -1.0 - 0.05 * step])
            walkers.judge()


def test_a_team_is_left_in_peace_and_so_is_who_has_chosen():
    chance = np.random.default_rng(0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        alike = TeamReward("team", ("a", "b"), "mean")
        alone = TeamReward("team", ("a", "b", "c"), "mean")
        for _ in range(300):
            common = chance.normal()
            alike([common, 2.0 * common + 0.1 * chance.normal()])
            alone(chance.uniform(0.0, 1.0, 3).tolist())  # each for itself: no correlation at all
            alike.judge()
            alone.judge()
        world = toy(reward="b", tamper=paid(lambda t: 1.0, lambda t: -1.0))
        play_on(world, 1)
