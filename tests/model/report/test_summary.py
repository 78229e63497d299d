"""The model report: worked by hand on made-up predictions, and produced for learned ones."""

import json
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rich.console import Console

from helpers.small import SETTINGS, WORLD, learned, plan, played
from helpers.toys import fit_one, unbounded
from marco.environments.reference import HEARD, Reference, ReferenceState
from marco.environments.switch import Switch
from marco.model.components import Component, Scaling
from marco.model.early_stopping import ComponentFit, Examples
from marco.model.likelihoods import Layout, Prediction, Targets
from marco.model.predictors import Predictor
from marco.model.report.exact import reachable_pairs
from marco.model.report.held_out import calibration, out_of_bag
from marco.model.report.open_loop import open_loop_error
from marco.model.report.show import report_figure, report_table
from marco.model.report.summary import model_report, report_environment, true_nats
from marco.model.report.verdict import verdict
from marco.model.rows import gather
from marco.model.views import JointObservation
from marco.policies.base import RandomPolicy
from marco.rollout import rollouts
from marco.types import Continuous, binary


class Says(Predictor):
    """A member that always says the same."""

    yes: jax.Array
    mean: jax.Array
    layout: Layout = eqx.field(static=True)

    def predict(self, x, classes, seen):
        both = jnp.log(jnp.stack([1.0 - self.yes, self.yes]))[None, :]
        mean = jnp.broadcast_to(self.mean, self.layout.num_values)
        return Prediction(both[: self.layout.num_categorical], mean, jnp.zeros_like(mean))

    def draw(self, u, x, seen):
        raise NotImplementedError

    def losses(self, by_slot):
        raise NotImplementedError

    def choose(self, mine, other):
        raise NotImplementedError

    def shrink_inputs(self, by, varies):
        raise NotImplementedError

    def recalibrate_variance(self, by):
        raise NotImplementedError


def ensemble(layout, yes, mean, shift=0.0, scale=1.0):
    """Members that say yes with these probabilities, and numbers with these means and variance 1."""
    members = [Says(jnp.float32(y), jnp.float32(m), layout) for y, m in zip(yes, mean, strict=True)]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *members)
    values = Scaling(*(jnp.full(layout.num_values, value) for value in (shift, scale)))
    inputs = Scaling(jnp.zeros(1), jnp.ones(1))
    seen = jnp.ones((layout.num_categorical, layout.num_classes), bool)
    return Component(stacked, inputs, values, seen, unbounded(layout), layout)


def fit_with(held_out):
    """A fit of which only the rows held out matter."""
    return ComponentFit(
        jnp.zeros((len(held_out), 1)),
        jnp.ones((len(held_out), 1)),
        jnp.asarray(held_out),
        jnp.int32(1),
        jnp.int32(1),
    )


def test_calibration_error_is_the_mean_gap_of_the_bins():
    """0.5 * |1 - 0.95| + 0.25 * |0 - 0.55| + 0.25 * |1 - 0.65| = 0.25."""
    curve, error = calibration(np.array([0.95, 0.95, 0.55, 0.65]), np.array([True, True, False, True]))
    np.testing.assert_allclose(error, 0.25)
    assert [one.rows for one in curve] == [1, 1, 2]
    np.testing.assert_allclose([one.confidence for one in curve], [0.55, 0.65, 0.95])
    assert [one.accuracy for one in curve] == [0.0, 1.0, 1.0]


def test_a_confidence_of_one_is_in_the_last_bin():
    curve, error = calibration(np.array([1.0, 0.9]), np.array([True, True]))
    assert len(curve) == 1
    np.testing.assert_allclose(error, 0.05)


def test_only_members_that_held_a_row_out_are_asked():
    layout = Layout((binary("lit"), Continuous("height")))
    component = ensemble(layout, yes=(0.8, 0.4), mean=(1.0, 3.0))
    targets = Targets(jnp.ones((5, 1), jnp.int32), jnp.full((5, 1), 1.0))
    rows = Examples(jnp.zeros((5, 1)), targets, jnp.arange(5), jnp.int32(4))
    held_out = jnp.array([[True, False, True, False, True], [False, True, True, False, True]])
    said = out_of_bag(component, rows, held_out)
    np.testing.assert_array_equal(said.held_out, [True, True, True, False])
    np.testing.assert_allclose(said.probability[:3, 0, 1], [0.8, 0.4, 0.6], rtol=1e-5)
    np.testing.assert_allclose(said.mean[:3, 0], [1.0, 3.0, 2.0], rtol=1e-5)
    np.testing.assert_allclose(said.below[:3, 0], [0.5, 0.02275, 0.261375], rtol=1e-3)
    density = np.array([1.0, np.exp(-2.0), (1.0 + np.exp(-2.0)) / 2]) / np.sqrt(2 * np.pi)
    np.testing.assert_allclose(said.loss[:3, 0], -np.log(density), rtol=1e-5)


def test_classes_worked_by_hand():
    """Nothing ever terminates. One half is judged by a member that says so at 0.7, one by one at 0.4."""
    world, _ = learned("centralised")
    data = gather(WORLD.spec, played(0, 200))
    component = ensemble(Layout((binary("terminated"),)), yes=(0.3, 0.6), mean=(0.0, 0.0))
    first = np.arange(1600) < 800
    model = replace(world.model, termination=component)
    (part,) = model_report(model, {"termination": fit_with([first, ~first])}, data).components
    (found,) = part.categorical
    assert part.held_out == part.rows == 1600
    assert found.feature == "terminated"
    assert found.accuracy == 0.5
    np.testing.assert_allclose(found.loss, -(np.log(0.7) + np.log(0.4)) / 2, rtol=1e-5)
    np.testing.assert_allclose(found.calibration_error, (abs(1 - 0.7) + abs(0 - 0.6)) / 2, rtol=1e-5)
    assert part.loss == pytest.approx(found.loss)
    assert sum(one.rows for one in part.by_visits) == 1600
    assert [one.visits for one in part.by_visits] == ["0", "1-2", "3-10", "11-100", ">100"]


def test_visits_count_only_what_the_evaluating_member_trained_on():
    """A member that holds everything out has seen nothing; one that holds one row out has seen the rest."""
    world, _ = learned("centralised")
    data = gather(WORLD.spec, played(0, 200))
    model = replace(
        world.model, termination=ensemble(Layout((binary("terminated"),)), yes=(0.3,), mean=(0.0,))
    )
    everything = np.ones((1, 1600), bool)
    (blind,) = model_report(model, {"termination": fit_with(everything)}, data).components
    assert [one.rows for one in blind.by_visits] == [1600, 0, 0, 0, 0]
    assert blind.by_visits[1].loss is None
    one_row = np.arange(1600)[None] == 5
    (rest,) = model_report(model, {"termination": fit_with(one_row)}, data).components
    alike = (data.steps.state == data.steps.state[5]).all(-1) & (
        data.steps.actions == data.steps.actions[5]
    ).all(-1)
    seen = int(alike.sum()) - 1
    assert 11 <= seen <= 100
    assert [one.rows for one in rest.by_visits] == [0, 0, 0, 1, 0]


def test_numbers_worked_by_hand():
    """Errors of -2, -0.5, 0.5 and 1 standard deviations: 2 within the central 50% and 3 within 90%."""
    model, data, _ = _reference_with_known_parts()
    errors = np.array([-2.0, -0.5, 0.5, 1.0], np.float32)
    rows = jnp.asarray(np.resize(2.0 * errors - 1.0, len(data.steps.reward)))
    data = data._replace(steps=data.steps._replace(reward=rows))
    reward = ensemble(Layout((Continuous("reward"),)), yes=(0.5,), mean=(0.0,), shift=-1.0, scale=2.0)
    model = replace(model, reward=reward)
    everything = np.ones((1, len(rows)), bool)
    (part,) = model_report(model, {"reward": fit_with(everything)}, data).components
    (found,) = part.continuous
    np.testing.assert_allclose(found.normalised_rmse, np.sqrt(1.375), rtol=1e-5)
    np.testing.assert_allclose(found.rmse, 2.0 * np.sqrt(1.375), rtol=1e-5)
    np.testing.assert_allclose(found.loss, 0.5 * np.log(2 * np.pi) + 0.5 * 1.375, rtol=1e-5)
    assert (found.within_50, found.within_90) == (0.5, 0.75)
    assert part.by_visits == ()


@pytest.fixture(scope="module")
def report():
    return report_environment(*learned("centralised"), plan("centralised").gather(played(0, 200)), WORLD)


def test_a_learned_world_without_chance_is_known_almost_exactly(report):
    dynamics = report.components[0]
    assert [part.component for part in report.components] == ["dynamics", "reward"]
    assert 0.3 * 1600 < dynamics.held_out < 0.7 * 1600  # two members hold out 0.3 each: 1 - 0.7^2 = 0.51
    assert min(one.accuracy for one in dynamics.categorical) > 0.99
    assert report.exact.visited_total_variation < 0.05
    assert report.exact.pairs == sum(report.exact.histogram) == 4 * 9
    assert sum(one.pairs for one in report.exact.by_visits) == 36
    np.testing.assert_allclose(report.exact.impossible, report.exact.total_variation, atol=1e-6)
    assert dynamics.excess == pytest.approx(dynamics.loss)  # nothing in this environment is chance
    assert report.components[1].excess is None


def test_the_loss_of_the_truth_is_its_entropy_where_chance_is_uniform():
    """In `switch` one of three agents enters next, and all else is certain: every step costs ln 3."""
    world = Switch()
    data = gather(world.spec, rollouts(jax.random.key(0), world, RandomPolicy(), 20), capacity=200)
    found = true_nats(reachable_pairs(world), data)
    np.testing.assert_allclose(found, np.full(int(data.num_steps), np.log(3)), atol=1e-6)


def test_a_step_that_the_truth_cannot_take_has_no_loss():
    world = Switch()
    data = gather(world.spec, rollouts(jax.random.key(0), world, RandomPolicy(), 2))
    nowhere = data._replace(steps=data.steps._replace(next_state=jnp.zeros_like(data.steps.next_state)))
    assert np.isnan(true_nats(reachable_pairs(world), nowhere)).all()


def test_models_of_baselines_are_reported_on_their_held_out_rows_alone():
    found = report_environment(*learned("decentralised"), plan("decentralised").gather(played(0, 200)), WORLD)
    assert found.environment == "delayed, agent 0 alone"
    assert (found.exact, found.open_loop) == (None, None)
    assert found.components[0].excess is None
    assert "an unknown share is chance; rewards right in" in verdict(found)


def test_the_verdict_is_a_sentence_with_the_strongest_evidence(report):
    exact = report.exact._replace(visited_total_variation=0.0123)
    reward = report.components[1]
    certain = reward._replace(categorical=(reward.categorical[0]._replace(accuracy=0.987),))
    found = report._replace(exact=exact, components=(report.components[0], certain))
    assert verdict(found) == (
        "The model of delayed, from 1,600 real steps: good dynamics (total variation from the true ones "
        "0.0123, mean over the data); rewards right in 98.7% of held-out rows."
    )


def test_the_report_is_shown_as_tables_figure_and_json(report, tmp_path):
    found = report._replace(open_loop=_open_loop(_reference_with_known_parts()[0]))
    assert json.loads(json.dumps(found.as_dict()))["exact"]["pairs"] == 36
    console = Console(record=True, width=140)
    console.print(report_table(found))
    text = console.export_text()
    for word in ("dynamics: countdown", "reward: reward", ">100", "position 0", "real steps counted apart"):
        assert word in text
    assert text.startswith("The model of delayed, from 1,600 real steps: ")
    narrow = Console(record=True, width=80)
    narrow.print(report_table(found))
    assert "…" not in narrow.export_text()
    report_figure(found, tmp_path / "model.png")
    assert (tmp_path / "model.png").stat().st_size > 10_000


def test_true_dynamics_have_no_open_loop_error():
    found = _open_loop(_reference_with_known_parts()[0])
    assert found.features[:2] == ("position 0", "velocity 0")
    assert len(found.features) == 7
    assert np.shape(found.error) == (7, 10)
    assert np.max(found.error) < 1e-6
    assert found.real_steps == 16 * 25


def test_open_loop_error_of_a_model_that_stands_still_is_the_distance_gone():
    found = _open_loop(_reference_with_known_parts(dynamics=_stands_still)[0])
    by_name = dict(zip(found.features, found.error, strict=True))
    # A position follows the velocity from before the move: after one step it has not changed yet.
    assert by_name["position 0"][0] == 0.0
    assert 0.3 < by_name["velocity 0"][0] < 0.5  # 4 of 5 moves add 0.5
    assert by_name["position 0"][9] > by_name["position 0"][2] > 0.0
    assert by_name["landmark 0"] == (0.0,) * 10


def test_a_joint_observation_model_is_compared_with_what_is_seen():
    world = Reference()
    view, episodes = JointObservation(), rollouts(jax.random.key(0), world, RandomPolicy(), 4)
    spec, (viewed,) = view.spec(world.spec), view.episodes(world.spec, episodes)
    known = _known(_stands_still) | JointObservation().known(spec, {})
    model, _ = fit_one(jax.random.key(0), spec, gather(spec, viewed), SETTINGS, known)
    found = _open_loop(model)
    assert found.features[0] == "agent 0: velocity"
    assert len(found.features) == 2 * 4


def test_open_loop_error_refuses_what_it_cannot_do():
    world, _ = learned("centralised")
    with pytest.raises(ValueError, match="the state of delayed has no continuous features"):
        open_loop_error(jax.random.key(0), world.model, WORLD, RandomPolicy(), 2, 2)
    with pytest.raises(ValueError, match="from 1 to 25 steps"):
        open_loop_error(
            jax.random.key(0), _reference_with_known_parts()[0], Reference(), RandomPolicy(), 2, 26
        )


def _open_loop(model):
    return open_loop_error(jax.random.key(3), model, Reference(), RandomPolicy(), episodes=16, steps=10)


def _reference_with_known_parts(dynamics=None):
    """A model of `reference` in which nothing is learned."""
    world = Reference()
    data = gather(world.spec, rollouts(jax.random.key(0), world, RandomPolicy(), 4))
    return (
        *fit_one(jax.random.key(0), world.spec, data, SETTINGS, _known(dynamics or _true_dynamics))[:1],
        data,
        world,
    )


def _known(dynamics):
    def nothing(*given):
        raise NotImplementedError

    parts = dict.fromkeys(("reward", "observation", "termination", "available"), nothing)
    return {"dynamics": dynamics, **parts}


def _stands_still(key, s, a):
    return s


def _true_dynamics(key, s, a):
    body = s[:8].reshape(2, 2, 2)
    world = ReferenceState(
        positions=body[:, 0],
        velocities=body[:, 1],
        landmarks=s[8:14].reshape(3, 2),
        goals=s[14:20].reshape(2, 3).argmax(-1).astype(jnp.int32),
        messages=HEARD.decode(s[20:40].reshape(2, 10)),
    )
    return Reference().central(Reference().transition(key, world, a).world)
