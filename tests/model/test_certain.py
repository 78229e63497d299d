"""What is copied from the state, and what there is nothing to learn of."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np

from helpers.small import SETTINGS
from helpers.toys import small
from marco.environments.foraging import Foraging
from marco.model.certain import LEAST_OTHERS, LEAST_ROWS, Certain, certain
from marco.model.config import FitConfig
from marco.model.early_stopping import Examples, fit_ensemble
from marco.model.fit import ModelPlan, fit_model
from marco.model.likelihoods import Layout, Targets
from marco.model.predictors import create_predictor
from marco.model.relations import Copies
from marco.model.views import Centralised
from marco.policies.base import RandomPolicy
from marco.rollout import rollouts
from marco.types import Categorical

STATE = (Categorical("here", 9), Categorical("there", 9), Categorical("dark", 2))
SEEN = (Categorical("what is there", 9), Categorical("what is here", 9))


def lamp(rng, rows):
    """One sees what is there unless it is dark, then nothing, which is class 0; and always what is here."""
    here, there, dark = (rng.integers(low, high, rows) for low, high in ((1, 9), (1, 9), (0, 2)))
    state = jnp.asarray(np.stack([here, there, dark], -1), jnp.int32)
    shown = jnp.asarray(np.stack([np.where(dark, 0, there), here], -1), jnp.int32)
    x = Layout(STATE).join(Targets(state, jnp.zeros((rows, 0))))
    return Examples(x, Targets(shown, jnp.zeros((rows, 0))), jnp.arange(rows), jnp.int32(rows))


def test_each_observed_class_is_traced_to_its_source():
    """Padding, in which all is the same, is not looked at."""
    rows, layout = lamp(np.random.default_rng(0), 200), Layout(SEEN, copied=STATE)
    x, classes = rows.x.at[150:].set(rows.x[0]), rows.targets.classes.at[150:].set(0)
    copies = Copies.of(layout, x, classes, jnp.int32(150))
    assert copies.source.tolist() == [1, 0]
    wider = copies.widen(layout, x[:1])
    here, there = (float(n) for n in Layout(STATE).class_numbers(x[0])[:2])
    np.testing.assert_allclose(wider[0, -2:], np.array([there, here]) / 9.0, rtol=1e-6)


def test_what_never_varied_is_a_copy_of_what_was_always_the_same():
    """No agreement of a constant is beyond chance; one of class 4 is no copy of a feature that is never 4."""
    here = jnp.arange(100) % 3
    state = jnp.stack([here, jnp.full(100, 4), jnp.zeros(100, int)], -1).astype(jnp.int32)
    x = Layout(STATE).join(Targets(state, jnp.zeros((100, 0))))
    shown = jnp.stack([jnp.full(100, 4), here], -1).astype(jnp.int32)
    assert Copies.of(Layout(SEEN, copied=STATE), x, shown, jnp.int32(100)).source.tolist() == [1, 0]


def test_a_copy_is_learned_from_few_rows():
    """Of 8 classes 150 rows show each 19 times, half of them in the dark: too few for one by one."""
    rng = np.random.default_rng(0)
    rows, test, nats = lamp(rng, 150), lamp(rng, 1_000), {}
    for copied in (STATE, ()):
        layout = Layout(SEEN, copied=copied)
        training = FitConfig(batch_size=64, max_epochs=60, patience=10, min_steps_per_epoch=30)
        component, _ = fit_ensemble(jax.random.key(0), rows, layout, (False,) * 20, small(), training)
        said = jax.vmap(component.predict)(test.x, test.targets.classes).log_probability[:, 0]
        right = np.take_along_axis(np.asarray(said), np.asarray(test.targets.classes)[..., None], -1)
        nats[copied] = -right.sum(1).mean()
    assert nats[STATE] < 0.1
    assert nats[STATE] < 0.25 * nats[()]


def test_what_is_certain_is_drawn_and_predicted_as_guessed():
    """There is no network for it, and what is learned of the others is drawn as it is predicted."""
    features = (Categorical("a", 4), Categorical("b", 3), Categorical("c", 4))
    layout = Layout(features, changes=True, certain=(1,))
    assert layout.learned.tolist() == [0, 2]
    for kind in (small(), replace(small(), kind="factored")):
        fresh = create_predictor(kind, jax.random.key(0), 11, layout)
        rng = np.random.default_rng(1)
        network = jax.tree.map(lambda leaf: jnp.asarray(rng.normal(size=leaf.shape), jnp.float32), fresh)  # noqa: B023
        x = Layout(features).join(Targets(jnp.array([1, 2, 0], jnp.int32), jnp.zeros(0)))
        seen = jnp.asarray(layout.class_exists)
        u = jax.random.uniform(jax.random.key(2), (10_000, 3))
        drawn = np.asarray(jax.vmap(lambda one: network.draw(one, x, seen).classes)(u))  # noqa: B023
        assert (drawn[:, 1] == 2).all()
        said = network.predict(x, jnp.array([3, 0, 0], jnp.int32), seen)
        assert np.exp(said.log_probability[1]).tolist() == [0.0, 0.0, 1.0, 0.0]
        after = np.bincount(drawn[drawn[:, 0] == 3, 2], minlength=4)
        expected = np.exp(np.asarray(said.log_probability[2]))
        error = np.abs(after / after.sum() - expected).max()
        assert after.sum() > 100
        assert error < 4.0 * 0.5 / np.sqrt(after.sum())  # four standard errors at most


def episodes(env, count=8):
    return jax.tree.map(np.asarray, rollouts(jax.random.key(0), env, RandomPolicy(), count))


def test_nobody_need_learn_that_foods_stay_and_that_agents_see():
    """On a large grid nothing is eaten: levels and foods stay, and all that is seen is in the state."""
    env = Foraging(rows=8, columns=8, agents=2, foods=2, force_coop=True)
    settings = replace(SETTINGS, changes=True, relations=True)
    plan = ModelPlan(Centralised(), settings, env.spec)
    rows = plan.gather(episodes(env))
    assert int(rows[0].num_steps) > LEAST_ROWS
    plan = plan.with_certain([rows])
    assert plan.certain == (Certain((2, *range(5, 12)), tuple(range(24))),)
    model, _ = fit_model(jax.random.key(0), plan, rows)
    state = env.reset(jax.random.key(5))[0]
    seen = model.models[0].draw_observation(
        *_noise(model.models[0]), env.central(state.world), jnp.zeros(2, jnp.int32)
    )
    np.testing.assert_array_equal(seen, env.observe(state.world))


def _noise(model):
    member, (noise,) = model.noise(jax.random.key(0), "observation")
    return noise, member


def test_one_exception_is_enough():
    """Of any seed; and from few rows nothing is certain."""
    env = Foraging(rows=8, columns=8, agents=2, foods=2, force_coop=True)
    plan = ModelPlan(Centralised(), SETTINGS, env.spec)
    (data,) = plan.gather(episodes(env))
    food, last = slice(36, 44), int(data.num_steps) - 1
    eaten = data.steps._replace(next_state=data.steps.next_state.at[last, food].set(0.0))
    assert 6 in certain(env.spec, [data]).dynamics
    assert 6 not in certain(env.spec, [data, data._replace(steps=eaten)]).dynamics
    few = data._replace(num_steps=jnp.int32(LEAST_ROWS - 1))
    assert certain(env.spec, [few]) == Certain()


def test_what_hardly_varied_is_not_certain():
    """A food that was in the same place in all rows but nineteen may well be eaten yet."""
    env = Foraging(rows=8, columns=8, agents=2, foods=2, force_coop=True)
    (data,) = ModelPlan(Centralised(), SETTINGS, env.spec).gather(episodes(env))
    food, rows = slice(36, 44), jnp.arange(len(data.steps.state))[:, None]
    for others in (LEAST_OTHERS - 1, LEAST_OTHERS):
        there = jnp.where(rows < others, jnp.eye(8)[1], jnp.eye(8)[0])
        state, after = (own.at[:, food].set(there) for own in (data.steps.state, data.steps.next_state))
        steps = data.steps._replace(state=state, next_state=after)
        assert (6 in certain(env.spec, [data._replace(steps=steps)]).dynamics) == (others == LEAST_OTHERS)


def test_nothing_is_certain_where_classes_are_not_guessed():
    """As in the paper's model."""
    env = Foraging(rows=8, columns=8, agents=2, foods=2, force_coop=True)
    plan = ModelPlan(Centralised(), SETTINGS, env.spec)
    assert plan.with_certain([plan.gather(episodes(env))]) == plan
