import itertools
import math
from importlib import import_module

import numpy as np
import pytest

from helpers.random_tables import benchmark_problem, random_dynamics, turn_taking
from marco.tabular.library import load
from marco.tabular.policies import (
    FiniteStateController,
    all_policies,
    brute_force,
    number_of_policies,
    random_team,
    repeated,
    value,
)
from marco.tabular.problem import Dynamics
from marco.tabular.solver import options
from marco.tabular.solver import search as solver
from marco.tabular.solver.best_response import TooManyBeliefsError, best_response, jesp
from marco.tabular.solver.bounds import mdp_bound, pomdp_bound, prepare
from marco.tabular.solver.limits import Limits, never
from marco.tabular.solver.occupancy import OccupancyState
from marco.tabular.solver.search import solve
from marco.tabular.solver.short_teams import short_teams
from marco.tabular.solver.two_steps import two_steps

responses = import_module("marco.tabular.solver.best_response")  # the package has a function of this name

PUBLISHED = [
    *(("dectiger", h, v) for h, v in ((2, -4.0), (3, 5.190812), (4, 4.802755), (5, 7.026451))),
    *(("broadcast-channel", h, v) for h, v in ((2, 2.0), (3, 2.99), (4, 3.89), (5, 4.79), (10, 9.29))),
    *(("broadcast-channel", h, v) for h, v in ((20, 18.313228), (30, 27.421850))),
    *(("recycling", h, v) for h, v in ((2, 7.0), (3, 10.660125), (4, 13.38), (5, 16.486), (6, 19.5542))),
    ("recycling", 10, 31.863889),
    *(("gridsmall", h, v) for h, v in ((1, 0.37), (2, 0.91), (3, 1.550444), (4, 2.241577))),
]
IN_FILES = [
    *(("Grid3x3corners", h, v) for h, v in ((2, 0.0), (3, 0.1332), (4, 0.4329), (5, 0.895656))),
    *(("Mars", h, v) for h, v in ((2, 5.8), (3, 9.38), (4, 10.1808))),
    ("mabc", 5, 4.79),
    ("recycling", 5, 16.486),
]


@pytest.mark.parametrize(("name", "horizon", "published"), PUBLISHED)
def test_published_optima(name, horizon, published):
    found = solve(load(name).dynamics, horizon)
    assert found.optimal
    assert found.lower == pytest.approx(published, abs=6e-7)


@pytest.mark.parametrize(("name", "horizon", "published"), IN_FILES)
def test_published_optima_of_files_that_others_wrote(name, horizon, published):
    found = solve(benchmark_problem(name).dynamics, horizon)
    assert found.optimal
    assert found.lower == pytest.approx(published, abs=6e-7)


# 200 problems: two agents, agents that differ, three agents, three steps.
SHAPES = [
    *[((2, 2), (2, 2), 2, seed) for seed in range(100)],
    *[((3, 2), (1, 2), 2, seed) for seed in range(50)],
    *[((2, 2, 2), (1, 2, 1), 2, seed) for seed in range(10)],
    *[((2, 2), (1, 1), 3, seed) for seed in range(37)],
    *[((2, 2), (1, 2), 3, seed) for seed in range(3)],
]


@pytest.mark.parametrize("part", range(8))
def test_the_solver_finds_what_brute_force_finds(part):
    for actions, observations, horizon, seed in SHAPES[part::8]:
        rng = np.random.default_rng(seed)
        dynamics = random_dynamics(rng, int(rng.integers(2, 5)), actions, observations)
        best, _ = brute_force(dynamics, horizon)
        found = solve(dynamics, horizon)
        assert found.optimal
        assert found.lower == pytest.approx(best, abs=1e-9)
        assert value(dynamics, found.team) == pytest.approx(best, abs=1e-9)


@pytest.mark.parametrize("seed", range(20))
def test_where_agents_take_turns_the_solver_finds_what_brute_force_finds(seed):
    dynamics = turn_taking(np.random.default_rng(seed))
    found = solve(dynamics, 2)
    assert found.optimal
    assert found.lower == pytest.approx(brute_force(dynamics, 2)[0], abs=1e-9)


@pytest.mark.parametrize(("agents", "actions", "horizon"), [(2, 3, 3), (3, 2, 3), (2, 2, 4), (3, 2, 4)])
def test_two_steps_at_once_change_no_optimum(agents, actions, horizon, monkeypatch):
    cases = [turn_taking(np.random.default_rng(seed), agents, 6, actions) for seed in range(5)]
    found = [solve(dynamics, horizon) for dynamics in cases]
    for module in (solver, options):
        monkeypatch.setattr(module, "lone_choices_of", lambda stages, occupancy, allowed: None)
    plain = [solve(dynamics, horizon) for dynamics in cases]
    assert all(one.optimal for one in found + plain)
    assert [one.lower for one in found] == pytest.approx([one.lower for one in plain], abs=1e-8)


def test_where_nothing_follows_or_too_much_two_steps_are_not_planned(monkeypatch):
    """Every outcome may be over, or too unlikely to be followed; or tables would be too large."""
    dynamics = turn_taking(np.random.default_rng(3), 2, 6)
    stages = prepare(dynamics, 3)
    search = solver.Search(stages, None, elapsed=lambda: 0.0)
    start = OccupancyState(np.array([[0, 0], [0, 1]]), np.stack([dynamics.d0 * 0.5] * 2), (1, 2))
    choices = options.Options(stages, start, 0, search.revealed, search.time_is_up)
    none = np.zeros_like(choices.outcomes)
    assert two_steps(stages, 0, start, choices.rewards, choices.outcomes, choices.lone) is not None
    assert two_steps(stages, 0, start, choices.rewards, none, choices.lone) is None
    monkeypatch.setattr("marco.tabular.solver.two_steps.NUMBERS", 10)
    assert two_steps(stages, 0, start, choices.rewards, choices.outcomes, choices.lone) is None


def test_two_steps_at_once_are_bounded_from_above():
    """The bound of every rule of the last step but one is the value of the rule, and no rule is left out."""
    dynamics = turn_taking(np.random.default_rng(3), 2, 6)
    stages = prepare(dynamics, 2)
    search = solver.Search(stages, None, elapsed=lambda: 0.0)
    start = OccupancyState(np.array([[0, 0], [0, 1]]), np.stack([dynamics.d0 * 0.5] * 2), (1, 2))
    choices = options.Options(stages, start, 0, search.revealed, search.time_is_up)
    earned = []
    for rule in choices.rules(lambda: -math.inf):
        reward, moved = choices.follow(rule)
        exact = reward + search.visit(moved.occupancy, 1, -math.inf).lower
        assert rule.bound == pytest.approx(exact, abs=1e-9)
        earned.append(exact)
    assert len(earned) == math.prod(len(actions) for actions in choices.lone.options)


def test_the_number_of_policies():
    """Dec-Tiger at horizon 3: a tree of 1 + 2 + 4 nodes with 3 actions each."""
    assert number_of_policies(3, 2, 3) == 3**7 == 2187
    assert len(list(all_policies(2, 2, 2))) == number_of_policies(2, 2, 2) == 8


@pytest.mark.parametrize("seed", range(10))
def test_bounds_enclose_the_optimum(seed):
    dynamics = random_dynamics(np.random.default_rng(seed))
    found = solve(dynamics, 3)
    shared, central = pomdp_bound(dynamics, 3), mdp_bound(dynamics, 3)
    low, _ = jesp(np.random.default_rng(seed), prepare(dynamics, 3), 3)
    assert low - 1e-9 <= found.lower <= shared + 1e-9 <= central + 2e-9


def test_shared_observations_of_the_tiger_have_the_published_value():
    """Q_POMDP of Dec-Tiger at horizon 3 and Q_MDP, by hand: 20 at every step."""
    dynamics = load("dectiger").dynamics
    assert mdp_bound(dynamics, 3) == pytest.approx(60.0)
    # Two pairs of equal ears: the belief after listening twice, then the better of opening and listening.
    right, wrong = 0.85**2, 0.15**2
    assert pomdp_bound(dynamics, 1) == pytest.approx(-2.0)
    agree = right / (right + wrong)
    once = (right + wrong) * max(20 * agree - 50 * (1 - agree), -2.0) + (1 - right - wrong) * -2.0
    assert pomdp_bound(dynamics, 2) == pytest.approx(-2.0 + once)
    with pytest.raises(ValueError, match="Q_POMDP meets more than 3 beliefs"):
        pomdp_bound(dynamics, 4, limit=3)


@pytest.mark.parametrize("agent", [0, 1])
def test_a_best_response_is_the_best_of_all_policies(agent):
    for seed in range(3):
        rng = np.random.default_rng(seed)
        dynamics = random_dynamics(rng)
        team = random_team(rng, (2, 2), (2, 2), 3)
        earned, response = best_response(prepare(dynamics, 3), team, agent)
        teams = [team[:agent] + (policy,) + team[agent + 1 :] for policy in all_policies(2, 2, 3)]
        assert earned == pytest.approx(max(value(dynamics, each) for each in teams), abs=1e-9)
        assert value(dynamics, team[:agent] + (response,) + team[agent + 1 :]) == pytest.approx(
            earned, abs=1e-9
        )


def test_best_responses_certify_the_riddle():
    """50/81 is the value of a team that observes the state, and of the decentralised team found."""
    problem = load("switch")
    stages = prepare(problem.dynamics, problem.steps(5))
    ceiling = mdp_bound(problem.dynamics, problem.steps(5))
    earned, team = jesp(np.random.default_rng(0), stages, 300, target=ceiling)
    assert earned == pytest.approx(50 / 81, abs=1e-9)
    assert ceiling == pytest.approx(50 / 81, abs=1e-9)
    assert value(problem.dynamics, team) == pytest.approx(50 / 81, abs=1e-9)


def test_settled_states_are_paid_on_entering():
    """From s0 the team goes to a state that pays 2 for ever: 1 + 2 * 4 over five steps."""
    G = np.array([[[1.0]], [[1.0]]])
    dynamics = Dynamics(
        G, np.array([[1.0], [2.0]]), np.array([1.0, 0.0]), np.zeros(1, int), np.ones(1, int), (1,), (1,)
    )
    found = solve(dynamics, 5)
    assert found.lower == found.upper == pytest.approx(9.0)
    assert found.nodes <= 1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda d: solve(d, 0), "horizon of at least 1, got 0"),
        (lambda d: solve(d, 10**9), "horizon of at least 1, got 1000000000; the most is 1,000"),
        (
            lambda d: solve(d._replace(R=1e12 * d.R), 3),
            r"rewards of up to 1.01e\+14 over 3 steps make returns",
        ),
        (lambda d: solve(d, 2, Limits(memory=0.0)), "memory must be more than 0 bytes, got 0.0"),
        (lambda d: solve(d, 2, Limits(seconds=0.0)), "more than 0 seconds, got 0.0"),
        (lambda d: brute_force(d, 4), "policies, over the limit of 200000: use the solver"),
        (lambda d: jesp(np.random.default_rng(0), prepare(d, 2), 0), "restarts must be at least 1, got 0"),
    ],
)
def test_mistakes(call, message):
    with pytest.raises(ValueError, match=message):
        call(load("dectiger").dynamics)


def test_a_repeated_team_knows_what_to_do_whatever_it_observes():
    """What cannot be observed at the start may be after a new one: a node of -1 would be nowhere."""
    short = tuple(
        FiniteStateController((np.zeros(1, int), np.zeros(1, int)), (np.array([[0, -1]]),)) for _ in range(2)
    )
    for agent in repeated(short, (2, 2), 5):
        assert all((leads >= 0).all() for leads in agent.successors)


def test_a_team_of_three_steps_repeated_three_times():
    """Its value is three times 5.190812, since the tiger's place is as uncertain as at first."""
    tiger = load("dectiger").dynamics
    short = solve(tiger, 3).team
    assert value(tiger, repeated(short, (2, 2), 9)) == pytest.approx(3 * 5.190812, abs=1e-5)
    assert value(tiger, repeated(short, (2, 2), 10)) == pytest.approx(3 * 5.190812 - 2.0, abs=1e-5)
    found = list(itertools.islice(short_teams(np.random.default_rng(0), tiger, 30, never), 3))
    assert found[2][0] == pytest.approx(10 * 5.190812, abs=1e-5)
    assert all(earned == pytest.approx(value(tiger, team)) for earned, team in found)


def test_best_responses_start_from_a_team_and_keep_the_best(monkeypatch):
    tiger = load("dectiger").dynamics
    best, stages = solve(tiger, 3), prepare(tiger, 3)
    earned, _ = jesp(np.random.default_rng(0), stages, 1, team=best.team)
    assert earned == pytest.approx(best.lower)
    results = iter([(1.0, best.team), TooManyBeliefsError("too many"), (0.0, best.team)])

    def improve(*_):
        if isinstance(result := next(results), Exception):
            raise result
        return result

    monkeypatch.setattr(responses, "improve", improve)
    assert jesp(np.random.default_rng(0), stages, 3)[0] == 1.0
