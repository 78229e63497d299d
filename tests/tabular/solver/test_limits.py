"""What ends a search early, and that its bounds hold then."""

import itertools
import math
import time
from importlib import import_module
from itertools import count

import numpy as np
import pytest

from marco.tabular.library import load
from marco.tabular.policies import idle_team, value
from marco.tabular.rmax import methods
from marco.tabular.solver import search as solver
from marco.tabular.solver.best_response import TooManyBeliefsError, best_response, jesp
from marco.tabular.solver.bounds import prepare
from marco.tabular.solver.limits import Limits, process_bytes
from marco.tabular.solver.search import solve

responses = import_module("marco.tabular.solver.best_response")  # the package has a function of this name


def test_out_of_time_bounds_still_hold():
    """The optimum of Dec-Tiger at horizon 6 is 10.381625; a twentieth of a second is not enough."""
    found = solve(load("dectiger").dynamics, 6, Limits(seconds=0.05))
    assert not found.optimal
    assert found.lower <= 10.381625 <= found.upper
    assert value(load("dectiger").dynamics, found.team) == pytest.approx(found.lower)


def racing():
    """A clock that advances by a second at every reading, and the count of its readings."""
    ticks = itertools.count()
    return lambda: float(next(ticks)), ticks


def test_the_limit_is_that_of_the_given_clock():
    """With a clock that stands still a search never ends early; with one that races it stops at once."""
    tiger = load("dectiger").dynamics
    assert solve(tiger, 3, Limits(seconds=1e-9, clock=lambda: 0.0)).optimal
    clock, ticks = racing()
    assert not solve(tiger, 6, Limits(seconds=3.0, clock=clock)).optimal
    assert next(ticks) < 1_000


@pytest.mark.parametrize("horizon", [20, 40])
def test_the_time_is_kept_at_long_horizons(horizon):
    """Of the processor, so that it does not matter what else runs. Best responses alone once took 20 s."""
    tiger = load("dectiger").dynamics
    found = solve(tiger, horizon, Limits(seconds=0.5, clock=time.thread_time))
    assert found.seconds < 1.5
    assert value(tiger, found.team) == pytest.approx(found.lower)


def test_bounds_hold_if_the_time_is_up_before_the_search():
    tiger = load("dectiger").dynamics
    found = solve(tiger, 100, Limits(seconds=3.0, clock=racing()[0]))
    assert found.lower == pytest.approx(-200.0)
    assert (found.upper, found.nodes, found.mdp) == (2_000.0, 0, math.inf)
    assert solve(tiger, 3).mdp == pytest.approx(60.0)


def test_bounds_hold_if_the_memory_is_used_up(monkeypatch):
    """The optimum of Dec-Tiger at horizon 6 is 10.381625."""
    assert process_bytes() > 1_000_000
    tiger = load("dectiger").dynamics
    monkeypatch.setattr(solver, "process_bytes", count(0, 10_000_000).__next__)  # at every look more
    assert solve(tiger, 3).optimal  # that much is allowed
    found = solve(tiger, 6, Limits(memory=1e7))
    assert found.full
    assert not found.optimal
    assert found.lower <= 10.381625 <= found.upper


def test_bounds_hold_where_occupancy_states_are_too_large_to_be_expanded(monkeypatch):
    """Also if the search is interrupted: here at the first look at the clock, at the second, and so on."""
    tiger, optimum = load("dectiger").dynamics, 5.1908125
    monkeypatch.setattr(solver, "PAIRS", 4)
    found = solve(tiger, 3)
    assert not found.optimal
    assert found.lower - 1e-9 <= optimum <= found.upper
    for moment in range(1, 40):
        looks = itertools.count(1)

        def interrupt(lower, upper, seconds, moment=moment, looks=looks):
            if next(looks) == moment:
                raise KeyboardInterrupt

        cut = solve(tiger, 3, Limits(interruptible=True, clock=racing()[0]), report=interrupt)
        assert cut.lower - 1e-9 <= optimum <= cut.upper


def test_a_learner_plans_by_the_time_of_the_processor(monkeypatch):
    """How busy a machine is must not decide what a run learns."""
    tiger = load("dectiger").dynamics
    assert methods.best_team(tiger, 4, None, 60.0).optimal
    monkeypatch.setattr(time, "thread_time", racing()[0])
    assert not methods.best_team(tiger, 4, None, 60.0).optimal


def test_an_interrupted_search_returns_its_bounds():
    def interrupt(lower, upper, seconds):
        raise KeyboardInterrupt

    dynamics = load("dectiger").dynamics
    found = solve(dynamics, 7, Limits(interruptible=True), report=interrupt)
    assert found.seconds < 10.0
    assert not found.optimal
    assert found.lower <= found.upper
    with pytest.raises(KeyboardInterrupt):
        solve(dynamics, 7, report=interrupt)


def test_a_known_ceiling_ends_the_search():
    dynamics = load("dectiger").dynamics
    best = solve(dynamics, 4)
    again = solve(dynamics, 4, Limits(ceiling=best.lower), team=best.team)
    assert again.optimal
    assert again.nodes == 0


def test_planning_that_takes_too_much_memory_is_refused(monkeypatch):
    monkeypatch.setattr("marco.tabular.solver.bounds.ENTRIES", 720)
    tiger = load("dectiger").dynamics
    assert solve(tiger, 10, Limits(seconds=0.01)).lower <= 15.2
    with pytest.raises(ValueError, match=r"over 11 steps takes tables of 0.0 GB, .*: use at most 10 steps"):
        solve(tiger, 11)


def test_best_responses_look_at_the_clock_and_at_the_size_of_their_tables(monkeypatch):
    stages = prepare(load("dectiger").dynamics, 5)
    team = idle_team((2, 2), 5)
    assert responses.improve(stages, team, stop=lambda: True) == (-math.inf, team)
    monkeypatch.setattr(responses, "NUMBERS", 100)
    with pytest.raises(TooManyBeliefsError, match=r"takes [0-9]+ numbers, over the limit of 100"):
        best_response(stages, team, 0)


def test_best_responses_give_up_beyond_their_limit():
    stages = prepare(load("dectiger").dynamics, 5)
    with pytest.raises(TooManyBeliefsError, match="meets more than 10 beliefs"):
        jesp(np.random.default_rng(0), stages, 1, limit=10)
    assert math.isfinite(stages.mdp[0, 0])
