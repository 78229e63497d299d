import numpy as np
import pytest

from marco.tabular.library import load
from marco.tabular.policies import idle_team, random_team, value
from marco.tabular.rmax.comparators import (
    Centralised,
    EpsilonGreedyExploration,
    ExplorationBonus,
    PosteriorSampling,
    RandomExploration,
    state_escape,
    state_policy,
)
from marco.tabular.rmax.known_model import Counts, known_model, make_task
from marco.tabular.rmax.loop import LearningRun, PlanPhase, learn
from marco.tabular.rmax.rmax import RMax
from marco.tabular.rmax.simulator import Simulator
from marco.tabular.solver.search import solve


def run(name, horizon, method, seed=0, episodes=20_000):
    problem = load(name)
    steps = problem.steps(horizon)
    best = solve(problem.dynamics, steps).lower
    task = make_task(problem)
    return learn(np.random.default_rng(seed), task, steps, method, episodes, best), task


@pytest.mark.parametrize(("unknown", "regret"), [("self-loop", 4.2 - 4.06), ("absorbing", 0.0)])
def test_self_loops_get_stuck_where_absorption_does_not(unknown, regret):
    """In every run at m = 20 the printed algorithm ends for good at 4.06, the repaired one at 4.2."""
    for seed in range(15):
        learned, task = run("counterexample", 5, RMax(20, unknown), seed)
        assert learned.final
        assert learned.regret == pytest.approx(regret, abs=1e-9)
        assert learned.phases[-1].escape == 0.0
        assert sum(phase.escapes for phase in learned.phases) <= 20 * task.pairs.sum()


@pytest.mark.parametrize(
    ("name", "horizon", "m"), [("recycling", 3, 3), ("gridsmall", 2, 2), ("switch", 3, 1)]
)
def test_no_more_escapes_than_m_for_each_pair(name, horizon, m):
    learned, task = run(name, horizon, RMax(m))
    escapes = sum(phase.escapes for phase in learned.phases)
    assert learned.final
    assert 0 < escapes <= m * task.pairs.sum()
    assert all(phase.certified for phase in learned.phases)
    # A plan is made at the start and whenever a pair became known, never more often.
    assert len(learned.phases) <= 1 + task.pairs.sum()
    assert all(0.0 < phase.escape <= 1.0 + 1e-9 for phase in learned.phases[:-1])


def test_enough_samples_find_the_best_team():
    learned, _ = run("recycling", 2, RMax(80))
    assert learned.final
    assert learned.regret == pytest.approx(0.0, abs=1e-9)
    assert learned.samples_until(0.05) <= learned.samples


def test_scaling_keeps_the_order_of_teams():
    """Ends pay the image of 0: the scaled value is (J - H low) / scale, early ends included."""
    problem = load("switch")
    task, rng = make_task(problem), np.random.default_rng(0)
    assert (task.low, task.high) == (-1.0, 1.0)
    scaled = problem.dynamics._replace(R=task.scaled)
    for _ in range(5):
        team = random_team(rng, (4,) * 3, (3,) * 3, 5)
        expected = (value(problem.dynamics, team) - 5 * task.low) / task.scale
        assert value(scaled, team) == pytest.approx(expected, abs=1e-12)


def test_an_end_that_pays_nothing_after_scaling_would_change_the_best_team():
    """Living pays 1/2 a step in scaled rewards: with ends at 0, two prisoners would tell as late as they can.

    At horizon 3 the best team tells at once when it may (value 3/4, early or late); if ends pay 0, telling
    one step early costs 1/2, and telling wrongly at the last step costs as much as it does in truth.
    """
    problem = load("switch", agents=2)
    task, steps = make_task(problem), problem.steps(3)
    R = task.scaled.copy()
    R[problem.terminal] = 0.0
    spoiled = problem.dynamics._replace(R=R)
    best = solve(problem.dynamics, steps)
    # Tell at the second visitor's turn if it is the other one: right with certainty, but it ends early.
    early = solve(problem.dynamics, problem.steps(2)).team
    lengthened = tuple(
        policy._replace(
            actions=(*policy.actions, np.zeros(1, int)),
            successors=(*policy.successors, np.full((policy.actions[-1].size, 3), -1)),
        )
        for policy in early
    )
    assert best.lower == pytest.approx(3 / 4)
    assert value(problem.dynamics, lengthened) == pytest.approx(1 / 2)
    # Without ends that pay 1/2, the team that tells early has a lower value than one that never tells.
    never = idle_team(problem.num_observations, steps)
    assert value(spoiled, lengthened) < value(spoiled, never) + 1e-12
    assert value(problem.dynamics._replace(R=task.scaled), lengthened) > value(
        problem.dynamics._replace(R=task.scaled), never
    )


def test_counts_give_the_known_model():
    """One step seen twice, with two outcomes: half each; what is unknown leads to the state that pays 1."""
    task = make_task(load("recycling"))
    counts = Counts(task)
    counts.add(0, 4, 0)
    counts.add(0, 4, 3)
    G, R = counts.estimate()
    assert G[0, 4].tolist() == [0.5, 0.0, 0.0, 0.5]
    assert R[0, 4] == pytest.approx((4.0 + 3.88) / 8.88)
    known = counts.known(2)
    assert known.sum() == counts.number_known(2) == 1
    assert not counts.known(3).any()
    model = known_model(task, G, R, known)
    assert model.G[0, 4].tolist() == [0.0, 0.5, 0.0, 0.0, 0.5]
    assert model.G[0, 5].tolist() == [1.0, 0.0, 0.0, 0.0, 0.0]
    assert model.next_state[0] == 4
    assert model.R[0, 5] == model.R[4, 0] == 1.0
    loops = known_model(task, G, R, known, "self-loop")
    np.testing.assert_allclose(loops.P[2, 5], [0, 0, 1, 0])
    np.testing.assert_allclose(loops.G.sum(-1), 1.0)


def test_unavailable_actions_count_as_what_they_amount_to():
    """Outside the room everything is None: 24 states with four joint actions are all there is to learn."""
    task = make_task(load("switch"))
    assert task.pairs.sum() == 24 * 4
    counts = Counts(task)
    room = 0  # agent 0 is in the room: its action counts, the others' do not
    assert task.problem.states[room].startswith("in-room-0")
    counts.add(room, 16 * 2 + 4 * 1 + 3, 0)
    assert counts.visits[room, 16 * 2] == 1
    assert counts.known(1)[room, 32:48].all()
    assert not counts.known(1)[room, :32].any()


@pytest.mark.parametrize(
    "method",
    [
        RandomExploration(),
        EpsilonGreedyExploration(),
        ExplorationBonus(),
        PosteriorSampling(),
        Centralised(20),
    ],
    ids=lambda method: type(method).__name__,
)
def test_every_way_to_explore_finds_a_good_team(method):
    learned, _ = run("recycling", 2, method, episodes=800)
    assert learned.regret <= 0.05
    assert learned.samples <= 2 * 800
    assert all(phase.certified for phase in learned.phases)


def test_posterior_draws_concentrate_on_what_was_seen():
    task = make_task(load("recycling"))
    counts = Counts(task)
    for _ in range(10_000):
        counts.add(1, 4, 2)
    drawn = PosteriorSampling().draw(np.random.default_rng(0), counts)
    assert drawn.G[1, 4, 2] > 0.999
    np.testing.assert_allclose(drawn.G.sum(-1), 1.0)


def test_policies_on_states_are_those_of_the_mdp():
    dynamics = load("recycling").dynamics
    actions = state_policy(dynamics, 4)
    everything, nothing = np.ones((4, 9), bool), np.zeros((4, 9), bool)
    assert actions.shape == (4, 4)
    assert actions[3, 0] == 8  # both search for the big one at the last step, batteries high
    assert state_escape(dynamics, actions, everything) == 0.0
    assert state_escape(dynamics, actions, nothing) == pytest.approx(1.0)


def test_episodes_follow_the_tables():
    """Outcomes of one pair, drawn 20,000 times."""
    task = make_task(load("broadcast-channel"))
    simulator, rng = Simulator(task, 1), np.random.default_rng(0)
    drawn = np.bincount([simulator.step(rng, 3, 1) for _ in range(20_000)], minlength=16) / 20_000
    np.testing.assert_allclose(drawn, task.problem.dynamics.G[3, 1], atol=4 * np.sqrt(0.25 / 20_000))


def test_properties_of_a_run():
    phases = [
        PlanPhase(10, 40, 1.0, 0.5, 1, 5, True),
        PlanPhase(5, 20, 0.0, 0.5, 2, 5, True),
        PlanPhase(7, 28, 0.3, 0.5, 3, 2, True),
        PlanPhase(9, 36, 0.1, 0.0, 4, 0, True),
    ]
    learned = LearningRun(phases, True)
    assert learned.worse_than(0.2) == 17
    assert learned.samples_until(0.2) == 88
    assert learned.samples_until(0.05) is None
    assert learned.samples_until(2.0) == 0
    assert learned.samples == 124


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RMax(0), "m must be at least 1, got 0"),
        (lambda: Centralised(0), "m must be at least 1, got 0"),
        (
            lambda: EpsilonGreedyExploration(0.0),
            r"epsilon must be in \(0, 1\] for anything new to be seen, got 0.0",
        ),
        (lambda: PosteriorSampling(0.0), "prior must be more than 0, got 0.0"),
        (lambda: ExplorationBonus(-1.0), "beta must not be negative, got -1.0"),
    ],
)
def test_impossible_settings(make, message):
    with pytest.raises(ValueError, match=message):
        make()
