"""Planned teams: what the planner is told of the model, and a run in which it takes part."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from helpers.tiny_run import MODEL, SEEDS, WORLD, begin, phases, settings
from marco.algorithm import planning
from marco.algorithm.evidence import Evidence
from marco.algorithm.planning import (
    HASTE,
    NODES,
    Plan,
    PlansAhead,
    can_plan,
    no_plan,
    pays,
    plan,
    planned_on_the_way,
    predictions,
)
from marco.data.dataset import Dataset
from marco.environments.switch import Switch
from marco.evaluation import exact_value
from marco.model.environment import LearnedState
from marco.model.fit import ModelPlan, fit_model
from marco.model.views import Centralised
from marco.policies.base import RandomPolicy
from marco.policies.controller import ControllerPolicy
from marco.rollout import rollouts
from marco.tabular.convert import from_environment
from marco.tabular.estimate import count
from marco.tabular.solver import solve
from marco.types import TimeStep, previous_actions


@pytest.fixture(scope="module")
def learned():
    """A model of the tiny riddle from some 500 real steps, and these."""
    own = ModelPlan(view=Centralised(), config=MODEL, spec=WORLD.spec)
    episodes = jax.tree.map(np.asarray, rollouts(jax.random.key(0), WORLD, RandomPolicy(), 250))
    env, _ = fit_model(jax.random.key(1), own, own.gather(episodes))
    return env, episodes


def test_predictions_are_the_frequencies_of_what_the_model_draws(learned):
    env, episodes = learned
    counts = count(WORLD.spec, episodes)
    prior = predictions(env.model, counts)
    state, action = (int(axis[0]) for axis in np.nonzero(counts.visits))
    joint = np.array(np.unravel_index(action, counts.actions), np.int32)

    def draw(key):
        world = LearnedState(
            jnp.asarray(counts.states[state]), jnp.zeros((2, 2)), jnp.ones((2, 4), bool), jnp.float32(0)
        )
        after = env.transition(key, world, jnp.asarray(joint))
        return after.world.central, after.world.observation, after.terminated, after.reward

    drawn = jax.vmap(draw)(jax.random.split(jax.random.key(2), 4_000))
    central, observation, over, reward = jax.tree.map(np.asarray, drawn)
    met = (np.abs(central[:, None] - counts.states) < 0.5).all(-1)
    predicted = prior.G[state, action]
    assert predicted.sum() == pytest.approx(1.0)
    assert prior.R[state, action] == pytest.approx(reward[met.any(-1)].mean(), abs=0.03)
    assert predicted[counts.after == counts.end].sum() == pytest.approx((over & met.any(-1)).mean(), abs=0.03)
    each = np.stack(np.unravel_index(counts.seen, counts.num_observations), -1)
    for column in np.flatnonzero(counts.after < counts.end):
        rows = [known[number] for known, number in zip(counts.observations, each[column], strict=True)]
        shown = (np.abs(observation - np.stack(rows)) < 0.5).all((1, 2))
        same = met[:, counts.after[column]] & shown & ~over
        assert predicted[column] == pytest.approx(same.mean(), abs=0.03)


def test_the_plan_for_the_small_riddle_is_optimal(learned):
    env, episodes = learned
    found = plan(env.model, episodes, 20_000)
    best = solve(from_environment(WORLD).dynamics, WORLD.horizon + 1)
    assert best.optimal
    assert exact_value(WORLD, found.policy) == pytest.approx(best.lower)


def test_the_same_plan_every_time(learned):
    env, episodes = learned
    first, again = (plan(env.model, episodes, 300) for _ in range(2))
    assert first.value == again.value
    assert jax.tree.all(jax.tree.map(np.array_equal, first.policy, again.policy))


def test_large_problems_are_not_planned():
    assert can_plan(WORLD.spec)
    assert not can_plan(Switch(agents=6).spec)
    assert no_plan(WORLD.spec).actions.shape == (2, 3, NODES)


def test_a_run_with_a_planner_keeps_its_team_and_goes_on_from_its_checkpoint(tmp_path):
    plan = settings(planning=2_000, samples=200, first_chunk=150)
    *_, (event, _), (_, state) = phases(begin(tmp_path, plan))
    assert [value is not None for value in event.metrics["planned_return"]] == [True] * len(SEEDS)
    again = begin(tmp_path, plan).restore()
    assert jax.tree.all(jax.tree.map(np.array_equal, state.best, again.best))
    for index in range(len(SEEDS)):
        best = max(float(one.value[index]) for one in state.best)
        assert isinstance(state.policy(plan, index), ControllerPolicy) == (
            float(state.best[-1].value[index]) == best
        )


HALF = {"samples": 210, "first_chunk": 150, "chunk": 60, "epsilon": 0.0, "team_share": 0.5}


def test_without_a_plan_the_trained_team_is_tried(tmp_path):
    """A tenth of a chunk, or more by promise; what it earned is told. Beside a planner none is trained."""
    config = settings(team_steps=40, **HALF | {"chunk": 60})
    found = {event.phase: (event, state) for event, state in phases(begin(tmp_path / "a", config))}
    (event, state), run = found["collect"], begin(tmp_path / "a", config)
    assert run.team_until(1, np.full(len(SEEDS), -np.inf)).tolist() == [156] * len(SEEDS)
    until = run.team_until(1, np.asarray(state.promised))
    for index, own in enumerate(run.episodes(210, since=150)):
        learner = jax.tree.map(lambda leaf, index=index: leaf[index], state.team.learner)
        first = np.cumsum(np.asarray(own.mask).sum(0)) <= until[index] - 150
        each = [jax.tree.map(lambda leaf, b=b: leaf[:, b], own) for b in np.flatnonzero(first)]
        assert len(each) >= 2
        assert all(follows(config.team.greedy(learner), one) for one in each)
        whole = [one for one in each if (one.terminated | one.truncated).any()]
        expected = np.mean([float(one.undiscounted_return) for one in whole])
        np.testing.assert_allclose(event.metrics["team_return"][index], expected, rtol=1e-6)
    planned = phases(begin(tmp_path / "b", settings(team_steps=40, planning=2_000, **HALF)))
    assert all("model_steps" not in event.metrics for event, _ in planned if event.phase == "team")


@pytest.mark.parametrize(
    ("earned", "promised", "until"),
    [(1.0, -np.inf, 240), (0.0, -np.inf, 216), (0.0, 0.5, 240), (0.0, 0.0, 216)],
)
def test_a_team_gets_its_share_of_the_next_chunk_if_it_earns_more_or_is_to(earned, promised, until):
    """Half of 60 samples instead of a tenth. The first 6 of the last chunk were the team's: two episodes."""
    config = settings(team_steps=40, samples=270, first_chunk=150, chunk=60, team_share=0.5)
    dataset = Dataset(None, WORLD.spec, 1)
    for number, reward in ((50, 0.0), (2, earned), (18, 0.0)):
        dataset.append(whole_episodes(number, reward))
    found = Evidence(WORLD, config, (3,), dataset).team_until(2, np.array([promised]))
    assert found.tolist() == [until]


def whole_episodes(count, reward):
    """Of three steps each, of which the last is rewarded; one seed."""
    played = rollouts(jax.random.key(0), WORLD, RandomPolicy(), count)
    played = jax.tree.map(lambda leaf: np.array(leaf)[None], played)
    last = np.broadcast_to((np.arange(3) == 2)[None, :, None], played.mask.shape)
    return played._replace(
        mask=np.ones_like(last),
        terminated=np.zeros_like(last),
        truncated=last,
        reward=np.where(last, np.float32(reward), np.float32(0.0)),
    )


def test_the_planned_team_collects_the_first_half_of_a_chunk(tmp_path):
    """Acting as planned with the data before it; the exploration policy collects the rest."""
    run = begin(tmp_path, settings(planning=20_000, **HALF))
    chunks = (state for event, state in phases(run) if event.phase == "collect" and event.iteration)
    state = next(chunks)
    for index, own in enumerate(run.episodes(210, since=150)):
        model = jax.tree.map(lambda leaf, index=index: leaf[index], state.model).model
        team = plan(model, run.episodes(150)[index], 20_000 // HASTE).policy
        steps = np.asarray(own.mask).sum(0)
        first = np.cumsum(steps) <= 30
        assert 8 <= first.sum() < len(steps)  # at most three steps each
        agrees = [follows(team, jax.tree.map(lambda leaf, b=b: leaf[:, b], own)) for b in range(len(steps))]
        assert np.all(np.array(agrees)[first])
        assert not np.all(agrees)


def test_a_team_that_is_not_proved_to_be_the_best_does_not_collect(learned):
    env, episodes = learned
    envs = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], env)
    (best,) = planned_on_the_way(envs, [episodes], 2_000 * HASTE)
    assert best.optimal
    assert planned_on_the_way(envs, [episodes], HASTE) == [None]
    assert plan(env.model, episodes, 1) is not None


@pytest.mark.parametrize(
    ("value", "collects"), [(0.0, False), (0.4, False), (0.79, False), (0.80, True), (1.0, True)]
)
def test_a_plan_that_earns_no_more_than_was_earned_does_not_collect(value, collects):
    """Nine episodes, of which four earned 1: 0.444 in the mean, and 0.796 with two standard errors."""
    dataset = Dataset(None, WORLD.spec, 1)
    dataset.append(whole_episodes(4, 1.0))
    dataset.append(whole_episodes(5, 0.0))
    real = dataset.episodes(0, 27)
    assert pays(Plan(no_plan(WORLD.spec), value, optimal=True), real) == collects
    assert not pays(None, real)


def test_a_plan_worth_nothing_does_not_collect_where_nothing_was_earned():
    dataset = Dataset(None, WORLD.spec, 1)
    dataset.append(whole_episodes(9, 0.0))
    real = dataset.episodes(0, 27)
    assert not pays(Plan(no_plan(WORLD.spec), 0.0, optimal=True), real)
    assert pays(Plan(no_plan(WORLD.spec), 0.1, optimal=True), real)


def follows(policy, episode):
    """Whether a team without chance would have acted as was acted."""
    memory, before = policy.start(), previous_actions(episode)
    for t in range(int(np.asarray(episode.mask).sum())):
        shown = {
            name: jnp.asarray(getattr(episode, name)[t]) for name in ("state", "observation", "available")
        }
        nothing = dict.fromkeys(TimeStep._fields)
        shown = TimeStep(**(nothing | shown | {"previous_actions": jnp.asarray(before[t])}))
        memory, chance = policy(memory, shown)
        if not np.array_equal(np.argmax(chance, -1), episode.actions[t]):
            return False
    return True


def test_plans_for_the_next_chunk_are_begun_after_the_fit_and_are_the_same(learned, monkeypatch):
    """And a run that goes on after the fit, where none were begun, makes them then."""
    env, episodes = learned
    envs = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], env)
    ahead, asked = PlansAhead(), (envs, [episodes], 2_000 * HASTE)
    ahead.begin(750, *asked)
    (begun,) = ahead.get(750, *asked)
    made = []
    monkeypatch.setattr(
        planning, "planned_on_the_way", lambda *given: made.append(given) or planned_on_the_way(*given)
    )
    assert ahead.get(750, *asked)[0] is begun
    assert not made
    (now,) = ahead.get(800, *asked)
    assert len(made) == 1
    assert now.value == begun.value
    assert jax.tree.all(jax.tree.map(np.array_equal, now.policy, begun.policy))
