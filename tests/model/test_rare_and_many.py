"""What is rare is learned, and what is much is borne: rewards, columns, steps."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np

from helpers.toys import SETTINGS, fit_one, small
from marco.algorithm.presets import default_model
from marco.environments.switch import Switch
from marco.environments.tabular import from_tables
from marco.model.config import FitConfig, PredictorConfig
from marco.model.early_stopping import Examples, _lesson, fit_ensemble
from marco.model.environment import LearnedEnvironment
from marco.model.likelihoods import Layout, Targets
from marco.model.rows import REWARD_VALUES, gather, reward_values
from marco.policies.base import RandomPolicy
from marco.rollout import rollouts
from marco.types import ActionComponent, Agent, Categorical, Continuous, Spec, binary


def test_a_prize_won_eight_times_is_learned_among_rewards_of_very_many_values():
    """Twenty prices, paid all the time, and eight prizes of 1 in 10,000 steps: numbers, not classes."""
    rng, steps = np.random.default_rng(3), 10_000
    price, won = rng.integers(0, 20, steps), np.zeros(steps, bool)
    won[rng.choice(steps, 8, replace=False)] = True
    columns = [np.eye(20)[price], won[:, None], rng.random((steps, 3)) < 0.3]
    x = np.concatenate(columns, axis=-1).astype(np.float32)
    rewards = (price / 20 + won).astype(np.float32)
    assert len(np.unique(rewards)) > REWARD_VALUES
    assert reward_values(rewards).size == 0
    targets = Targets(jnp.zeros((steps, 0), jnp.int32), jnp.asarray(rewards[:, None]))
    rows = Examples(jnp.asarray(x), targets, jnp.arange(steps), jnp.int32(steps))
    reward, layout = default_model(Switch().spec).reward, Layout((Continuous("reward"),))
    component, _ = fit_ensemble(jax.random.key(0), rows, layout, (False,) * 24, reward, reward.training)
    said = jax.vmap(lambda x: component.predict(x, jnp.zeros(0, jnp.int32)).mean)(rows.x)
    expected = np.asarray(component.values.denormalise(said)).mean(axis=1)[:, 0]
    assert np.median((expected - price / 20)[won]) > 0.8
    assert np.abs(expected - rewards)[~won].mean() < 0.01


def meetings(rows, key=5):
    """Two walkers on 25 places, a treasure, three actions each: only who both take it beside it get it.

    Three times, in the first thousand rows; later rows are of other meetings, for the test.
    """
    rng = np.random.default_rng(key)
    where, act = rng.integers(0, 25, (rows, 3)), rng.integers(0, 3, (rows, 2))
    got = np.zeros(rows, bool)
    met = np.array([10, 400, 800])
    where[met, 0], where[met, 1], act[met] = where[met, 2], where[met, 2], 2
    got[met] = True
    got |= (where[:, 0] == where[:, 2]) & (where[:, 1] == where[:, 2]) & (act == 2).all(-1)
    keep = ~got
    keep[met] = True
    columns = [np.eye(25)[where].reshape(rows, -1), np.eye(3)[act].reshape(rows, -1)]
    return np.concatenate(columns, -1)[keep].astype(np.float32), got[keep]


def test_three_events_in_three_thousand_rows_are_fitted_by_the_default_and_not_without_its_care():
    """To be sure where nothing happens costs much on the held-out events, and so nothing is learned.

    What is learned nevertheless, without care, is what sparse networks find.
    """
    x, got = meetings(3_000)
    targets = Targets(jnp.asarray(got[:, None], jnp.int32), jnp.zeros((len(x), 0)))
    rows = Examples(jnp.asarray(x), targets, jnp.arange(len(x)), jnp.int32(len(x)))
    assert got.sum() == 3
    layout, networks = Layout((binary("treasure is gone"),)), PredictorConfig(members=5)
    careful = default_model(Switch().spec).training
    sparse = replace(careful, surprises=0.0, most_nats=None, trained=0.0)
    plain = replace(sparse, sparsity=0.0)
    known = {}
    for training in (careful, sparse, plain):
        component, fit = fit_ensemble(jax.random.key(0), rows, layout, (False,) * 81, networks, training)
        said = jax.vmap(component.predict)(rows.x, targets.classes).log_probability
        sure = np.exp(np.asarray(said)[:, :, 0, 1].T)  # members, rows
        trained_on = ~np.asarray(fit.held_out) & got
        known[training] = sure[trained_on].mean()
        assert sure[:, ~got].mean() < 0.002
    assert known[careful] > 0.3
    assert known[sparse] < 0.5 * known[careful]
    assert known[plain] < 0.05


def test_a_lesson_weighs_what_is_drawn_so_that_means_are_those_of_all_rows():
    """Seven rows among ten places, one of which was badly missed: in nearly half the draws, for 1 in 7."""
    number, surprise = 7, jnp.array([1.0, 1.0, 50.0, 1.0, 1.0, 1.0, 1.0, 9.0, 9.0, 9.0])
    values, means, hard = jnp.arange(10.0) ** 2, [], []
    for seed in range(200):
        lesson = _lesson(jax.random.key(seed), surprise, jnp.int32(number), 0.5)
        places, weights = (np.asarray(leaf)[:number] for leaf in lesson)
        assert places.max() < number
        means.append((weights * np.asarray(values)[places]).mean())
        hard.append((places == 2).mean())
    # 1/14 of the even half, and 50/56 of the other one.
    np.testing.assert_allclose(np.mean(hard), 0.5 / 7 + 0.5 * 50 / 56, atol=0.02)
    error = np.std(means) / np.sqrt(len(means))
    np.testing.assert_allclose(np.mean(means), values[:number].mean(), atol=4 * error)


def test_what_is_hard_to_learn_is_learned_beside_many_copies():
    """Twenty numbers are observed as they are, and with them whether the first two have the same sign.

    By their likelihood alone the copies, which are soon exact, leave it at 1.27 times its variance.
    """
    rng, rows = np.random.default_rng(0), 1_000
    x = rng.uniform(-1.0, 1.0, (2 * rows, 20)).astype(np.float32)
    hard = (x[:, :1] * x[:, 1:2] > 0.0).astype(np.float32)
    values = np.concatenate([x, hard], axis=-1)
    targets = Targets(jnp.zeros((rows, 0), jnp.int32), jnp.asarray(values[:rows]))
    examples = Examples(jnp.asarray(x[:rows]), targets, jnp.arange(rows), jnp.int32(rows))
    layout = Layout((Continuous("copies", 20), Continuous("same sign")))
    learned = default_model(Switch().spec).observation.training
    left = {}
    for beta in (0.0, learned.beta):
        training, networks = replace(learned, beta=beta), PredictorConfig(members=1)
        component, _ = fit_ensemble(jax.random.key(0), examples, layout, (True,) * 20, networks, training)
        said = jax.vmap(lambda x: component.predict(x, jnp.zeros(0, jnp.int32)).mean)(x[rows:])  # noqa: B023
        error = np.square(np.asarray(component.values.denormalise(said))[:, 0] - values[rows:])
        left[beta] = error.mean(0) / values[rows:].var(0)
    assert left[0.0][-1] > 1.0
    assert left[0.5][-1] < 0.5
    assert left[0.5][:-1].max() < 0.001


def lamps(count):
    """A state of many lamps, and an action that says whether all are to be as they are or dark."""
    agent = Agent("0", (ActionComponent("press", 2),), (binary("seen"),))
    return Spec("lamps", (agent,), tuple(binary(f"lamp {i}") for i in range(count)), horizon=5)


def test_a_state_of_five_hundred_columns_has_one_network_for_all_and_is_learned():
    """A network for each of 500 lamps, told the 499 others before and after, is 2,000 times as large."""
    wide, narrow = default_model(lamps(500)), default_model(lamps(20))
    assert (wide.dynamics.kind, narrow.dynamics.kind) == ("factored", "chain")
    rng, rows, layout = np.random.default_rng(0), 400, Layout(lamps(500).state, changes=True)
    now, press = rng.integers(0, 2, (rows, 500)), rng.integers(0, 2, (rows, 1))
    x = jnp.asarray(np.concatenate([now, 1 - press, press], axis=-1), jnp.float32)
    targets = Targets(jnp.asarray(now * (1 - press), jnp.int32), jnp.zeros((rows, 0)))
    examples = Examples(x, targets, jnp.arange(rows), jnp.int32(rows))
    predictor = PredictorConfig("factored", (32,), members=1)
    training = FitConfig(learning_rate=1e-2, max_epochs=40)
    component, _ = fit_ensemble(jax.random.key(0), examples, layout, (False,) * 502, predictor, training)
    said = jax.vmap(component.predict)(x[:50], targets.classes[:50]).log_probability
    assert (
        np.asarray(said[:, 0]).argmax(-1) == np.asarray(targets.classes[:50])
    ).mean() > 0.95  # to say that each stays as it is, or that all are dark, is 0.75


def test_what_never_varies_is_not_trained():
    """One class, and one value: right before the first epoch."""
    layout, rows = Layout((binary("terminated"), Continuous("height"))), 30
    targets = Targets(jnp.zeros((rows, 1), jnp.int32), jnp.full((rows, 1), 3.0))
    examples = Examples(jnp.ones((rows, 2)), targets, jnp.arange(rows), jnp.int32(rows))
    training = FitConfig(patience=20)
    _, fit = fit_ensemble(jax.random.key(0), examples, layout, (False, False), small(), training)
    assert int(fit.epochs) == 0
    assert (fit.loss == 0.0).all()


def test_an_episode_of_four_hundred_steps_is_learned_from_and_imagined():
    """A walk on a ring of five places: after 400 imagined steps it is still on it, and as often anywhere."""
    places = np.arange(5)
    P = np.zeros((5, 2, 5))
    P[places, 0, places], P[places, 1, (places + 1) % 5] = 1.0, 1.0
    env = from_tables(
        P=P,
        R=np.zeros((5, 2)),
        O=np.ones((2, 5, 1)),
        d0=np.eye(5)[0],
        actions=(2,),
        observations=(1,),
        horizon=400,
    )
    episodes = rollouts(jax.random.key(0), env, RandomPolicy(), 4)
    settings = replace(SETTINGS, changes=True, relations=True)
    model, _ = fit_one(jax.random.key(1), env.spec, gather(env.spec, episodes), settings)
    imagined = rollouts(jax.random.key(2), LearnedEnvironment(model), RandomPolicy(), 50)
    assert imagined.mask.all()
    share = np.asarray(imagined.state).mean(axis=(0, 1))
    np.testing.assert_allclose(share, 0.2, atol=0.02)


def test_a_class_that_was_never_met_is_no_error_and_is_not_predicted():
    """A place that no episode has reached: the model can be asked about it, and does not lead there."""
    layout = Layout((Categorical("place", 4),), changes=True)
    rng, rows = np.random.default_rng(0), 200
    now = rng.integers(0, 3, rows)
    x = jnp.asarray(np.eye(4)[now], jnp.float32)
    targets = Targets(jnp.asarray(np.minimum(now + 1, 2)[:, None], jnp.int32), jnp.zeros((rows, 0)))
    examples = Examples(x, targets, jnp.arange(rows), jnp.int32(rows))
    training = FitConfig(max_epochs=5, sparsity=0.2)
    component, _ = fit_ensemble(jax.random.key(0), examples, layout, (False,) * 4, small(), training)
    said = component.predict(jnp.eye(4)[3], jnp.zeros(1, jnp.int32)).log_probability
    assert np.isfinite(said).all()
    assert (np.exp(said[:, 0, 3]) == 0.0).all()
    # What was never met keeps its weights, by which members disagree on what is new.
    first = np.asarray(component.members.mlp.layers[0].weight)
    assert (first[:, 0, 3] != 0.0).all()
