"""A random table is recovered to within sampling error; stopping, splitting, and data with little in them."""

from dataclasses import replace

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from helpers.toys import CAPACITY, JOINT, SETTINGS, STATES, TRAINING, fit_one, one_step_episodes, small, table
from marco.algorithm.fit import fit_warnings
from marco.algorithm.presets import default_model
from marco.environments.reference import Reference
from marco.environments.switch import Switch
from marco.model.components import Known, layouts
from marco.model.config import FitConfig, ModelConfig
from marco.model.early_stopping import ComponentFit, Examples, _Training, fit_ensemble
from marco.model.fit import ModelPlan, examples
from marco.model.likelihoods import Layout, Targets, negative_log_likelihood
from marco.model.predictors import create_predictor
from marco.model.report.exact import dynamics_error, reachable_pairs
from marco.model.rows import REWARD_VALUES, gather, reward_values
from marco.model.views import Centralised
from marco.types import Categorical, Continuous, binary

RISK = 1e-3
"""How likely a bound on sampling error may fail if the estimate were the empirical table of the rows."""


def sampling_bound(visits, outcomes):
    """A bound on the mean over pairs of the total variation of empirical distributions, that fails with RISK.

    Its expectation is at most sqrt((K - 1) / n) / 2 (Jensen, Cauchy-Schwarz); one row of a pair changes the
    mean over P pairs by at most 1 / (P n), so that McDiarmid's inequality bounds what lies above it.
    """
    visits = np.asarray(visits, float)
    expected = np.mean(0.5 * np.sqrt((outcomes - 1) / visits))
    return expected + np.sqrt(np.log(1 / RISK) / 2 * np.sum(1 / visits)) / len(visits)


def training_visits(fitted, component, names):
    """How often each name is among the rows that a member trained on: the least of the members."""
    held_out = np.asarray(fitted.reports[component].held_out)[:, : len(names)]
    return np.min([np.bincount(names[~held]) for held in held_out], axis=0)


def joint_actions(actions):
    return np.ravel_multi_index(tuple(np.asarray(actions).T), (2, 3))


def test_dynamics_are_recovered_to_within_sampling_error(fitted):
    """Over the 8 pairs that come up; to know nothing would miss the bound by far."""
    pairs = reachable_pairs(fitted.env)
    error = dynamics_error(fitted.model, pairs, fitted.data)
    assert error.seen.sum() == int(fitted.data.num_steps)
    count = int(fitted.data.num_steps)
    steps = fitted.data.steps
    names = np.asarray(steps.state[:count]).argmax(-1) * JOINT + joint_actions(steps.actions[:count])
    visits = training_visits(fitted, "dynamics", names)
    bound = sampling_bound(visits[visits > 0], STATES)
    state, joint = pairs.state.argmax(-1), joint_actions(pairs.actions)
    ignorance = 0.5 * np.abs(np.asarray(fitted.env.P)[state, joint] - 1 / STATES).sum(-1).mean()
    assert len(error.total_variation) == (visits > 0).sum() == 8
    assert error.total_variation.mean() < bound < ignorance


def test_observations_are_recovered_to_within_sampling_error(fitted):
    """The 6 joint observations after each joint action and state, where 20 rows or more tell of them.

    With fewer the bound says less than to know nothing.
    """
    observation = fitted.model.observation
    count = int(fitted.data.num_timesteps)
    timesteps = fitted.data.timesteps
    after = np.asarray(timesteps.previous_actions[:count, 0]) >= 0
    state = np.asarray(timesteps.state[:count]).argmax(-1)
    names = np.where(
        after, 1 + joint_actions(np.maximum(timesteps.previous_actions[:count], 0)) * STATES + state, 0
    )
    visits = training_visits(fitted, "observation", names)[1:]
    (pairs,) = np.nonzero(visits >= 20)
    actions = jnp.stack(jnp.unravel_index(pairs // STATES, (2, 3)), -1).astype(jnp.int32)
    x = jax.vmap(fitted.model.inputs.before_step)(jnp.eye(STATES)[pairs % STATES], actions)
    outcomes = jnp.stack(jnp.unravel_index(jnp.arange(6), (3, 2)), -1).astype(jnp.int32) + 1  # 0 is the blank
    said = jax.jit(jax.vmap(lambda x: jax.vmap(lambda seen: observation.predict(x, seen))(outcomes)))(x)
    chosen = np.take_along_axis(
        np.asarray(said.log_probability), np.asarray(outcomes)[None, :, None, :, None], -1
    )[..., 0]
    mixture = np.exp(chosen.sum(-1)).mean(-1)
    true = np.asarray(fitted.env.O)[pairs // STATES, pairs % STATES]
    error = 0.5 * (np.abs(mixture - true).sum(-1) + np.clip(1 - mixture.sum(-1), 0, 1))
    assert error.mean() < sampling_bound(visits[pairs], 6) < 0.5 * np.abs(true - 1 / 6).sum(-1).mean()


def test_rewards_are_recovered_to_within_a_tenth_of_their_range_on_average(fitted):
    """They are certain, so that only the training can err; to say the mean of all would err by far more."""
    pairs = reachable_pairs(fitted.env)
    true = np.asarray(fitted.env.R)[pairs.state.argmax(-1), joint_actions(pairs.actions)]
    say = jax.jit(jax.vmap(fitted.model.expected_reward, (None, 0, 0, 0)))
    following = jnp.asarray(pairs.state)  # the reward of this world does not hang on s'
    said = [
        say(jnp.float32(m), jnp.asarray(pairs.state), jnp.asarray(pairs.actions), following) for m in (0, 0.9)
    ]
    error = np.abs(np.mean(said, axis=0) - true).mean()
    assert error < 0.1 * (2.0 - -1.0) < np.abs(true.mean() - true).mean()


def test_masks_are_recovered_exactly(fitted):
    learned = jax.jit(jax.vmap(fitted.model.available_actions))(jnp.eye(STATES))
    np.testing.assert_array_equal(learned, fitted.env.mask)


@pytest.mark.parametrize("name", ["dynamics", "termination"])
def test_what_is_kept_is_what_was_best_on_the_rows_held_out(fitted, name):
    """The reported loss of every unit is the mean over held-out rows of the component that came back."""
    component, report = getattr(fitted.model, name), fitted.reports[name]
    rows = examples(fitted.model.inputs, name, component.layout, fitted.data)
    said = jax.jit(jax.vmap(component.predict))(rows.x, rows.targets.classes)
    for member in range(2):
        own = jax.tree.map(lambda leaf, member=member: leaf[:, member], said)
        nats = np.asarray(negative_log_likelihood(own, rows.targets, jnp.zeros(0, bool)))
        held_out = np.asarray(report.held_out[member])
        np.testing.assert_allclose(nats[held_out].mean(0), report.loss[member], rtol=1e-3, atol=1e-6)


def test_whole_episodes_are_held_out_by_each_member_others(fitted):
    """About 30 % of a thousand episodes: within four standard deviations."""
    held = np.asarray(fitted.reports["dynamics"].held_out)
    count, episode = int(fitted.data.num_steps), np.asarray(fitted.data.steps.episode)
    assert not held[:, count:].any()
    of_episode = np.zeros((2, 1000), bool)
    for member in range(2):
        of_episode[member, episode[:count][held[member, :count]]] = True
        np.testing.assert_array_equal(of_episode[member][episode[:count]], held[member, :count])
        assert abs(of_episode[member].mean() - 0.3) < 4 * np.sqrt(0.3 * 0.7 / 1000)
    differ = (of_episode[0] != of_episode[1]).mean()
    assert abs(differ - 2 * 0.3 * 0.7) < 4 * np.sqrt(0.42 * 0.58 / 1000)


@pytest.mark.parametrize(("episodes", "rows"), [(1, 5), (2, 5), (3, 5)])
def test_some_episode_is_trained_on_and_some_held_out_whatever_the_draw(episodes, rows):
    """Over a thousand keys: no episode is both, but for a single one, which must be."""
    targets = Targets(jnp.zeros((8, 1), jnp.int32), jnp.zeros((8, 0)))
    episode = jnp.where(jnp.arange(8) < rows, jnp.arange(8) % episodes, 0).astype(jnp.int32)
    rows_ = Examples(jnp.zeros((8, 1)), targets, episode, jnp.int32(rows))
    layout = Layout((binary("b"),))
    training = _Training(rows_, jnp.ones((1, 2), bool), jnp.zeros(0, bool), small(), layout, TRAINING)
    train, held = jax.jit(jax.vmap(training._split))(jax.random.split(jax.random.key(0), 1000))
    assert train.any(-1).all()
    assert held.any(-1).all()
    assert not (train | held)[:, rows:].any()
    assert (train | held)[:, :rows].all()
    assert (train & held).any() == (episodes == 1)


def test_the_same_key_gives_the_same_model_bit_for_bit_and_another_key_another(fitted):
    spec = fitted.env.spec
    chex.assert_trees_all_equal(fit_one(jax.random.key(1), spec, fitted.data)[0], fitted.model)
    other = fit_one(jax.random.key(2), spec, fitted.data)[0]
    same = jax.tree.map(
        lambda a, b: bool((a == b).all()), other.dynamics.members, fitted.model.dynamics.members
    )
    assert not any(jax.tree.leaves(same))


def test_more_data_of_the_same_capacity_are_not_compiled_again(fitted):
    compiled = fit_ensemble._cache_size()
    for episodes in (3, 400):
        some = jax.tree.map(lambda leaf, episodes=episodes: leaf[:, :episodes], fitted.episodes)
        fit_one(jax.random.key(0), fitted.env.spec, gather(fitted.env.spec, some, CAPACITY))
    assert fit_ensemble._cache_size() == compiled


def all_pairs(repeats):
    """Every available pair of the table, as often as told."""
    return [(0, joint) for joint in range(6)] * repeats + [(1, 0), (1, 3)] * repeats


def fit_few(fitted, pairs, **changed):
    episodes = one_step_episodes(fitted.env, pairs)._replace(**changed)
    data = gather(fitted.env.spec, episodes, CAPACITY)
    return fit_one(jax.random.key(0), fitted.env.spec, data)


def test_overfitting_is_stopped_early(fitted):
    """Eight pairs, eight rows each, and what follows is pure chance: a table of them would overfit.

    Training ends before half of its 60 epochs, with a held-out loss no worse than ln 3, that of chance.
    """
    chance = table(P=np.full((STATES, JOINT, STATES), 1 / STATES))
    data = gather(chance.spec, one_step_episodes(chance, all_pairs(8)), CAPACITY)
    report = fit_one(jax.random.key(0), chance.spec, data)[1]["dynamics"]
    assert int(report.epochs) <= TRAINING.max_epochs / 2
    assert int(report.steps) == int(report.epochs) * TRAINING.min_steps_per_epoch
    assert (report.loss <= np.log(STATES) + 1e-6).all()


@pytest.mark.parametrize("name", ["reward", "dynamics"])
def test_a_prize_won_seven_times_in_six_thousand_steps_is_learned(name):
    """It takes a try, seldom made, and three things at once.

    A few members miss it, by what they hold out: the median of five is asked.
    """
    rng, steps = np.random.default_rng(0), 6_000
    x = (rng.random((steps, 8)) < 0.4).astype(np.float32)
    x[:, 0] = tried = rng.random(steps) < 0.03
    won = tried & (x[:, 1:4].sum(-1) == 3)
    assert (tried.sum(), won.sum()) == (169, 7)
    reward = jnp.asarray(np.where(won, 2, tried)[:, None], jnp.int32)
    targets = Targets(reward, jnp.zeros((steps, 0)))
    rows = Examples(jnp.asarray(x), targets, jnp.arange(steps), jnp.int32(steps))
    settings, layout = default_model(Switch().spec), Layout((Categorical("reward", 3),))
    training, five = settings.training_of(name), replace(settings.reward, members=5)
    component, _ = fit_ensemble(jax.random.key(0), rows, layout, (False,) * 8, five, training)
    said = jax.vmap(lambda x: component.predict(x, jnp.zeros(1, jnp.int32)))(rows.x[tried])
    prize = np.exp(said.log_probability[:, :, 0, 2])
    assert np.median(prize[won[tried]].mean(axis=0)) > 0.8
    assert prize[~won[tried]].mean() < 0.05


@pytest.mark.parametrize("own", [None, replace(TRAINING, patience=30)])
def test_a_component_may_be_trained_in_its_own_way(fitted, monkeypatch, own):
    """Which settings reach the training of each component; what was learned before stands for its result."""
    reached = {}

    def spied(key, rows, layout, numeric, predictor, training):
        name = list(fitted.reports)[len(reached)]
        reached[name] = training
        return getattr(fitted.model, name), fitted.reports[name]

    monkeypatch.setattr("marco.model.fit.fit_ensemble", spied)
    patient = replace(small(), training=own)
    settings = replace(SETTINGS, reward=patient, termination=patient)
    fit_one(jax.random.key(0), fitted.env.spec, fitted.data, settings)
    expected = own or TRAINING
    assert reached == dict.fromkeys(fitted.reports, TRAINING) | {"reward": expected, "termination": expected}


def check_finite(model):
    for leaf in jax.tree.leaves(model):
        assert np.isfinite(np.asarray(leaf, float)).all()


def test_one_sample_is_enough_to_train_on_and_is_then_all_there_is(fitted):
    """Whatever is asked, what happened follows: with one class ever seen, its probability is 1."""
    episodes = one_step_episodes(fitted.env, [(0, 4)])
    model, _ = fit_few(fitted, [(0, 4)])
    check_finite(model)
    nothing = jnp.zeros(2, jnp.int32)
    _, (noise,) = model.noise(jax.random.key(0), "dynamics")
    following = model.draw_next_state(noise, jnp.float32(0), jnp.eye(3)[1], nothing)
    np.testing.assert_array_equal(following, episodes.state[1, 0])
    reward = model.expected_reward(jnp.float32(0), jnp.eye(3)[1], nothing, following)
    assert float(reward) == float(episodes.reward[0, 0])
    np.testing.assert_array_equal(model.draw_start(jax.random.key(3)), episodes.state[0, 0])


def test_an_action_never_taken_is_trained_around(fitted):
    model, reports = fit_few(fitted, [(0, 0)] * 20 + [(0, 2)] * 20)
    check_finite(model)
    assert all(np.isfinite(report.loss).all() for report in reports.values())
    never = jnp.array([1, 1], jnp.int32)
    reward = model.expected_reward(jnp.float32(0), jnp.eye(3)[0], never, jnp.eye(3)[1])
    seen = np.asarray(fitted.env.R)[0, [0, 2]]
    assert seen.min() - 1e-6 <= float(reward) <= seen.max() + 1e-6


def test_a_reward_that_never_changes_is_said_exactly_everywhere(fitted):
    reward = np.full((1, 80), 0.1, np.float32)
    model, reports = fit_few(fitted, all_pairs(10), reward=reward)
    said = model.expected_reward(jnp.float32(0.9), jnp.eye(3)[2], jnp.array([1, 2], jnp.int32), jnp.eye(3)[0])
    assert said == reward[0, 0]
    assert (reports["reward"].loss == 0.0).all()


@pytest.fixture(scope="module")
def line():
    """y = 2 x + noise of variance 1/4, beside an input and a number that never vary; 2 rows per episode."""
    rng = np.random.default_rng(0)
    x = np.stack([rng.normal(5.0, 2.0, 200), np.full(200, 3.0)], -1)
    y = np.stack([2 * x[:, 0] + rng.normal(0.0, 0.5, 200), np.full(200, 0.7)], -1)
    targets = Targets(jnp.zeros((200, 0), jnp.int32), jnp.asarray(y, jnp.float32))
    episode = jnp.asarray(np.arange(200) // 2, jnp.int32)
    rows = Examples(jnp.asarray(x, jnp.float32), targets, episode, jnp.int32(200))
    layout = Layout((Continuous("y", 2),))
    return rows, *fit_ensemble(jax.random.key(0), rows, layout, (True, True), small(), TRAINING)


def test_a_number_that_never_varies_is_drawn_exactly_as_it_always_was(line):
    """Also from an input that was never seen to vary, and now does."""
    rows, component, _ = line
    check_finite(component)
    draw = jax.jit(jax.vmap(component.draw, (0, None, None)))
    for member, x in ((0.0, [5.0, 3.0]), (0.9, [-50.0, 4.0])):
        noise = jax.random.uniform(jax.random.key(0), (50, component.layout.num_draws))
        drawn = draw(noise, jnp.float32(member), jnp.array(x)).values
        assert (drawn[:, 1] == rows.targets.values[0, 1]).all()
        assert np.isfinite(drawn).all()


def test_numbers_go_half_as_far_again_as_those_seen_and_no_further(line):
    """A line asked about x = -1,000 and 1,000; within the data its noise is drawn as it is."""
    rows, component, _ = line
    seen = np.asarray(rows.targets.values[:, 0])
    beyond = 0.5 * (seen.max() - seen.min())
    draw = jax.jit(jax.vmap(component.draw, (0, None, None)))
    noise = jax.random.uniform(jax.random.key(1), (50, component.layout.num_draws))
    ends = {-1_000.0: seen.min() - beyond, 1_000.0: seen.max() + beyond}
    for x, end in ends.items():
        drawn = draw(noise, jnp.float32(0.0), jnp.array([x, 3.0])).values
        np.testing.assert_allclose(drawn[:, 0], end, rtol=1e-4)
        said = component.predict(jnp.array([x, 3.0]), jnp.zeros(0, jnp.int32)).mean
        np.testing.assert_allclose(component.values.denormalise(said)[:, 0], end, rtol=1e-4)
    assert draw(noise, jnp.float32(0.0), jnp.array([5.0, 3.0])).values[:, 0].std() > 0.3


def test_numbers_are_predicted_to_within_their_noise_and_its_size_is_said_right(line):
    """On n held-out rows the mean squared error is below 1/4 (1 + 4 sqrt(2 / n)): four standard errors.

    The variance is set so that the squared error over it is 1 on average over the rows held out.
    """
    rows, component, report = line
    said = jax.jit(jax.vmap(component.predict))(rows.x, rows.targets.classes)
    spread = float(component.values.scale[0])
    true = np.asarray(component.values.normalise(rows.targets.values))[:, 0]
    for member in range(2):
        held_out = np.asarray(report.held_out[member])
        squared = np.square(true - np.asarray(said.mean)[:, member, 0])[held_out]
        variance = np.exp(np.asarray(said.log_variance)[:, member, 0])[held_out]
        assert spread**2 * squared.mean() < 0.25 * (1 + 4 * np.sqrt(2 / held_out.sum()))
        assert np.mean(squared / variance) == pytest.approx(1.0, rel=1e-2)


@pytest.mark.parametrize("name", ["state", "observation", "reward"])
def test_what_is_not_finite_is_refused_by_name_and_place(fitted, name):
    episodes = one_step_episodes(fitted.env, all_pairs(1))
    values = np.array(getattr(episodes, name))
    values[(0, 5) + (0,) * (values.ndim - 2)] = np.nan
    with pytest.raises(ValueError, match=f"{name} is nan at step 0 of episode 5: .*finite numbers only"):
        gather(fitted.env.spec, episodes._replace(**{name: values}))


@pytest.mark.parametrize(("taken", "capacity", "got"), [(0, 8, 0), (8, 7, 8)])
def test_no_data_and_more_than_the_capacity_are_refused(fitted, taken, capacity, got):
    episodes = one_step_episodes(fitted.env, all_pairs(1))
    episodes = episodes._replace(mask=np.full((1, 8), bool(taken)))
    with pytest.raises(ValueError, match=f"needs from 1 to capacity={capacity} real steps, got {got}"):
        gather(fitted.env.spec, episodes, capacity)


def test_rows_are_the_real_steps_in_order_and_one_timestep_more_per_episode(fitted):
    episodes, data = fitted.episodes, fitted.data
    mask = np.asarray(episodes.mask)
    assert int(data.num_steps) == mask.sum()
    assert int(data.num_timesteps) == mask.sum() + 1000
    assert int(data.num_starts) == 1000
    real = np.asarray(data.steps.reward)[: mask.sum()]
    np.testing.assert_array_equal(real, np.asarray(episodes.reward)[mask])
    first = np.asarray(data.timesteps.previous_actions[: mask.sum() + 1000]) == -1
    assert first.all(-1).sum() == 1000  # nobody has acted before the first timestep of each


def test_few_rewards_are_classes_and_many_are_numbers():
    few = reward_values(np.array([2.0, -1.0, 2.0, 0.0], np.float32))
    assert few.tolist() == [-1.0, 0.0] + [2.0] * 14
    assert reward_values(np.arange(REWARD_VALUES, dtype=np.float32)).size == REWARD_VALUES
    assert reward_values(np.arange(REWARD_VALUES + 1, dtype=np.float32)).size == 0


KNOWN = {
    "dynamics": lambda key, s, a: jnp.array([0.0, 0.0, 1.0]),
    "reward": lambda s, a, following: 7.0,
    "observation": lambda key, s, previous: jnp.ones((2, 3)),
    "termination": lambda s, a, following: True,
    "available": lambda s: jnp.array([[True, False, False], [False, True, False]]),
    "start": lambda key: jnp.array([0.0, 1.0, 0.0]),
}


@pytest.mark.parametrize("name", KNOWN)
def test_a_component_given_as_known_is_used_as_is_and_not_trained(fitted, name):
    """All others are given too, but for the one beside it: nothing new is compiled."""
    data = gather(fitted.env.spec, one_step_episodes(fitted.env, all_pairs(1)), CAPACITY)
    beside = "termination" if name == "available" else "available"
    known = {each: function for each, function in KNOWN.items() if each != beside}
    model, reports = fit_one(jax.random.key(0), fitted.env.spec, data, SETTINGS, known)
    assert set(reports) == {beside}
    part = model.known_start if name == "start" else getattr(model, name)
    assert isinstance(part, Known)
    assert part.function is KNOWN[name]


def test_the_noise_of_a_step_is_drawn_at_once_and_known_functions_get_keys(fitted):
    known = {name: function for name, function in KNOWN.items() if name != "termination"}
    model, _ = fit_one(jax.random.key(0), fitted.env.spec, fitted.data, SETTINGS, known)
    member, (moved, ended) = model.noise(jax.random.key(0), "dynamics", "termination")
    assert moved.u.shape == (0,)
    assert ended.u.shape == (1,)
    assert 0.0 <= float(member) < 1.0
    assert float(member) != float(ended.u[0])
    assert not (jax.random.key_data(moved.key) == jax.random.key_data(jax.random.key(0))).all()
    _, (learned,) = fitted.model.noise(jax.random.key(0), "dynamics")
    assert learned.u.shape == (fitted.model.dynamics.layout.num_draws,)
    assert learned.key is None


def test_known_functions_decide(fitted):
    model, reports = fit_one(jax.random.key(0), fitted.env.spec, fitted.data, SETTINGS, KNOWN)
    key, a = jax.random.key(0), jnp.zeros(2, jnp.int32)
    member, (moved, ended, seen) = model.noise(key, "dynamics", "termination", "observation")
    s = model.draw_start(key)
    following = model.draw_next_state(moved, member, s, a)
    assert reports == {}
    assert s.tolist() == [0, 1, 0]
    assert following.tolist() == [0, 0, 1]
    assert float(model.expected_reward(member, s, a, following)) == 7.0
    assert bool(model.draw_termination(ended, member, s, a, following))
    assert (model.draw_observation(seen, member, s, a) == 1.0).all()
    assert model.available_actions(s).tolist() == [[1, 0, 0], [0, 1, 0]]


def test_an_unknown_component_is_refused(fitted):
    """Set past the type checks of the tests, which would refuse the name as well."""
    plan = ModelPlan(Centralised(), SETTINGS, fitted.env.spec)
    object.__setattr__(plan, "known", (("weather", abs),))
    with pytest.raises(ValueError, match="no such component: weather; there are dynamics, reward"):
        plan.components()


def test_recurrent_dynamics_of_numbers_are_refused():
    spec = Reference().spec
    with pytest.raises(ValueError, match="for categorical features only"):
        create_predictor(small("recurrent"), jax.random.key(0), 2, layouts(spec, True)["dynamics"])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"holdout": 0.0}, "holdout=0 leaves nothing to stop by"),
        ({"holdout": 1.0}, "holdout must be at least 0 and below 1, got 1.0"),
        ({"ema_decay": 1.0}, "ema_decay must be at least 0 and below 1, got 1.0"),
        ({"batch_size": 0}, "batch_size must be positive, got 0"),
        ({"max_epochs": 0}, "max_epochs must be positive, got 0"),
        ({"patience": 0}, "patience must be positive, got 0"),
        ({"learning_rate": -1.0}, "learning_rate must be positive, got -1.0"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        FitConfig(**settings)


@pytest.mark.parametrize("kind", ["chain", "recurrent"])
def test_masks_must_be_factored(kind):
    with pytest.raises(ValueError, match=f"available must be factored, got '{kind}'"):
        ModelConfig(*[small()] * 4, small(kind), TRAINING)


RARE = 40


@pytest.fixture(scope="module")
def rare():
    """y = 2 x, beside 40 numbers that change by chance in two of a thousand rows."""
    rng, count = np.random.default_rng(0), 600
    x = rng.normal(size=(count, 1))
    y = np.concatenate([2.0 * x, rng.random((count, RARE)) < 0.002], -1)
    targets = Targets(jnp.zeros((count, 0), jnp.int32), jnp.asarray(y, jnp.float32))
    rows = Examples(jnp.asarray(x, jnp.float32), targets, jnp.arange(count), jnp.int32(count))
    layout = Layout((Continuous("y", 1 + RARE),))
    return rows, *fit_ensemble(jax.random.key(0), rows, layout, (True,), small(), TRAINING)


def test_what_hardly_ever_changes_does_not_keep_the_rest_from_being_learned(rare):
    """Where held-out rows show no such change, "never" is right to the last digit, and proves nothing."""
    rows, component, report = rare
    said = jax.jit(jax.vmap(component.predict))(rows.x, rows.targets.classes)
    error = (
        np.asarray(said.mean)[:, :, 0] - np.asarray(component.values.normalise(rows.targets.values))[:, :1]
    )
    assert (np.sqrt(np.square(error).mean(0)) < 0.1).all()
    assert not report.learned_nothing()
    assert (report.floor - report.loss > 1.0).all()


def test_the_floor_is_that_of_means_over_the_values_that_held_out_rows_can_judge(rare):
    rows, component, report = rare
    values = np.asarray(component.values.normalise(rows.targets.values))
    for member in range(2):
        held = values[np.asarray(report.held_out[member])]
        judged = (held.var(0) >= 0.01) & (values.std(0) > 0.0)
        assert 1 < judged.sum() < 1 + RARE
        expected = 0.5 * np.log(np.square(held).mean(0)[judged]).sum()
        np.testing.assert_allclose(report.floor[member].sum(), expected, rtol=1e-4)


def test_where_held_out_rows_can_judge_nothing_that_is_said():
    """One change in 600 rows: nearly every member holds out rows without it, and learns nothing."""
    values = jnp.zeros((600, 1)).at[17].set(1.0)
    targets = Targets(jnp.zeros((600, 0), jnp.int32), values)
    rows = Examples(jnp.zeros((600, 1)), targets, jnp.arange(600), jnp.int32(600))
    layout = Layout((Continuous("y", 1),))
    training = _Training(rows, jnp.zeros((0, 1), bool), jnp.ones(1, bool), small(), layout, TRAINING)
    held = jnp.arange(600) >= 400
    assert training._judged(held).tolist() == [True]
    frequency = training._frequency(~held)
    assert float(training._floor(frequency, held, training._judged(held))[0]) != 0.0


def test_the_floor_of_classes_is_that_of_their_frequencies():
    """Three of four training rows are of class 1; each class met counts half a row more."""
    classes = jnp.array([[1], [1], [1], [0], [0], [1]], jnp.int32)
    rows = Examples(jnp.zeros((6, 1)), Targets(classes, jnp.zeros((6, 0))), jnp.arange(6), jnp.int32(6))
    seen = jnp.array([[True, True, False]])
    layout = Layout((Categorical("c", 3),))
    training = _Training(rows, seen, jnp.zeros(0, bool), small(), layout, TRAINING)
    held = jnp.arange(6) >= 4
    floor = training._floor(training._frequency(~held), held, jnp.zeros(0, bool))
    np.testing.assert_allclose(floor, [-0.5 * np.log(1.5 / 5.0) - 0.5 * np.log(3.5 / 5.0)], rtol=1e-6)


@pytest.mark.parametrize(
    ("loss", "floor", "nothing"),
    [
        ([[0.5, 0.2], [0.5, 0.2]], [[0.5, 0.2], [0.4, 0.2]], True),
        ([[0.5, 0.2], [0.5, 0.2]], [[0.5, 0.2], [0.9, 0.2]], False),
        ([[0.0], [0.0]], [[0.0], [0.0]], False),  # one class, ever: known, and nothing to be learned
    ],
)
def test_a_component_no_better_than_its_floor_has_learned_nothing(loss, floor, nothing):
    fit = ComponentFit(jnp.array(loss), jnp.array(floor), jnp.zeros((2, 0), bool), jnp.int32(1), jnp.int32(1))
    assert fit.learned_nothing() == nothing
    stacked = jax.tree.map(lambda leaf: leaf[None], fit)
    lines = fit_warnings(({"dynamics": stacked},), seeds=(7,))
    assert len(lines) == nothing
    assert all(line.startswith("the model's dynamics (seed 7) predicts held-out") for line in lines)
