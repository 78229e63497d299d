"""How things stand to each other, as columns, and changes of classes, as scores."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from helpers.toys import small
from marco.model.config import FitConfig
from marco.model.early_stopping import Examples, fit_ensemble
from marco.model.inputs import Inputs
from marco.model.likelihoods import Layout, Targets
from marco.model.predictors import create_predictor
from marco.model.relations import MANY_COLUMNS, MOST_COLUMNS, WIDTH, Habits, Relations, thing_and_attribute
from marco.types import ActionComponent, Agent, Categorical, Continuous, Spec, binary


@pytest.mark.parametrize(
    ("name", "thing", "attribute"),
    [
        ("agent 0 row", "agent 0", "row"),
        ("food_12_column", "food_12", "column"),
        ("goal 1", "1", "goal "),
        ("agent 1: food 0 row", "agent 1: food 0", "row"),
        ("food row", "food", "row"),
        ("position of Ann", "position of", "Ann"),
        ("door", "door", ""),
        ("7", "7", ""),
        ("", "", ""),
    ],
)
def test_numbers_in_names_tell_things_apart(name, thing, attribute):
    assert thing_and_attribute(name) == (thing, attribute)


def place(name, size=8):
    return (Categorical(f"{name} row", size), Categorical(f"{name} column", size))


def field(name, rows=8, columns=9):
    """Rows and columns differ in number, so that only like ones can be compared."""
    return (Categorical(f"{name} row", rows), Categorical(f"{name} column", columns))


def row(features, *classes):
    return Layout(features).join(Targets(jnp.array(classes, jnp.int32), jnp.zeros(0)))


def test_differences_and_offsets_by_hand():
    """Agent 0 in row 5, column 1, food in row 4, column 3: one below, and two to the left.

    Rows differ by 1 (the fourth of five columns), columns by -2 (the first). What is 6 away is just far.
    After the 25 offsets come those of them that are turned or mirrored into each other: (0, 0), (0, 1),
    (0, 2), (1, 1), (1, 2) and (2, 2).
    """
    features = (*field("agent 0"), *field("food 0"))
    relations = Relations(features)
    assert relations.pairs.tolist() == [[0, 2], [1, 3]]
    assert relations.offsets.tolist() == [[0, 1]]
    assert relations.width == 2 * 5 + 25 + 6
    columns = relations(row(features, 5, 1, 4, 3))
    assert np.flatnonzero(columns).tolist() == [3, 5 + 0, 10 + 3 * 5 + 0, 35 + 4]
    assert np.flatnonzero(relations(row(features, 3, 3, 4, 5))).tolist()[-1] == 35 + 4
    assert np.flatnonzero(relations(row(features, 4, 4, 4, 5))).tolist()[-1] == 35 + 1
    assert np.flatnonzero(relations(row(features, 5, 1, 4, 7))).tolist() == [3]
    both = jnp.stack([row(features, 5, 1, 4, 7), row(features, 0, 0, 0, 0)])
    assert np.flatnonzero(relations(both)[1]).tolist() == [2, 5 + 2, 10 + 2 * 5 + 2, 35]


def test_only_like_features_of_more_than_two_classes_are_compared():
    colours = ("red", "green", "blue")
    features = (
        Categorical("door of Ann", 3, labels=colours),
        Categorical("door of Bob", 3, labels=colours),
        Categorical("mood of Bob", 3, labels=("bad", "fair", "good")),
        binary("lit 0"),
        binary("lit 1"),
        Continuous("place 0", 2),
    )
    relations = Relations(features)
    assert relations.pairs.tolist() == [[0, 1]]
    assert relations.width == 5


def test_a_class_of_nothing_and_columns_of_other_values_are_read_as_well():
    """Class 0 with no column on, and columns that are 0.25 or 0.75."""
    features = (
        Categorical("word 0", 4, blank=True),
        Categorical("word 1", 4, blank=True, low=0.25, high=0.75),
    )
    relations = Relations(features)
    for one, other in ((0, 0), (3, 0), (0, 3), (1, 2), (2, 1)):
        found = np.flatnonzero(relations(row(features, one, other))).tolist()
        assert found == [2 + one - other] * (abs(one - other) <= 2)


def test_many_things_have_differences_only_and_very_many_none():
    """11 places have 110 differences and 55 offsets, which are 550 and 1,375 columns; 15 are too many."""
    eleven = Relations(tuple(f for i in range(11) for f in place(f"agent {i}")))
    assert (len(eleven.pairs), len(eleven.offsets), eleven.width) == (110, 0, 550)
    assert eleven.width <= MOST_COLUMNS
    fifteen = Relations(tuple(f for i in range(15) for f in place(f"agent {i}")))
    assert fifteen.width == 0
    state = row(fifteen.features, *[3] * 30)
    assert fifteen(state).shape == (0,)


def test_few_features_are_compared_whatever_they_are_called():
    """Four of eight classes have six pairs. Offsets are of like attributes alone: rows and columns."""
    relations = Relations((*place("agent 0"), *place("food")))
    assert relations.pairs.tolist() == [[0, 1], [0, 2], [0, 3], [1, 2], [1, 3], [2, 3]]
    assert relations.offsets.tolist() == [[1, 4]]


def test_where_pairs_are_many_those_of_one_attribute_are_compared_and_who_has_none_with_all():
    """Five places have 45 pairs, and 20 of like attributes; "home" is with each of the ten."""
    places = tuple(f for i in range(5) for f in place(f"agent {i}"))
    assert 45 * WIDTH > MANY_COLUMNS
    assert len(Relations(places).pairs) == 20
    assert len(Relations((*places, Categorical("home", 8))).pairs) == 30


def test_relations_are_inputs_of_every_component_if_asked_for():
    features = (*field("agent 0"), *field("food 0"))
    agent = Agent("0", (ActionComponent("move", 5),), (binary("seen"),))
    spec = Spec("field", (agent,), features, horizon=3)
    plain, related = Inputs(spec), Inputs(spec, relations=True)
    s, a = row(features, 5, 1, 4, 7), jnp.array([2], jnp.int32)
    assert related.state(s).shape == (34 + 41,)
    assert related.after_step(s, a, s).shape == (2 * 75 + 5 + 4,)
    for name in ("dynamics", "reward", "available"):
        extra = len(related.numeric(name)) - len(plain.numeric(name))
        assert extra == (2 * 41 + 4 if name == "reward" else 41)
        assert not any(related.numeric(name))


def test_which_classes_have_changed_is_an_input_of_reward_and_termination():
    """The food has gone: of four classes, rows and columns of an agent and a food, the last two changed."""
    features = (*place("agent 0"), *place("food 0"))
    spec = Spec("field", (Agent("0", (ActionComponent("eat", 2),), ()),), features, horizon=3)
    related, a = Inputs(spec, relations=True), jnp.array([1], jnp.int32)
    s, after = row(features, 5, 1, 4, 7), row(features, 5, 1, 0, 0)
    assert related.after_step(s, a, after)[-4:].tolist() == [0, 0, 1, 1]
    assert Inputs(spec).after_step(s, a, after).shape == (2 * 32 + 2,)


COUNTER = Categorical("hour", 12, blank=True)
SLOW = FitConfig(learning_rate=1e-2, max_epochs=60, patience=20)


def hours(rng, rows, starts):
    """A counter that goes on by one where asked to, and else stays."""
    now, go = rng.choice(starts, rows), rng.integers(0, 2, rows)
    x = jnp.concatenate([COUNTER.encode(jnp.asarray(now)), go[:, None]], axis=-1)
    following = jnp.asarray((now + go)[:, None], jnp.int32)
    return Examples(x, Targets(following, jnp.zeros((rows, 0))), jnp.arange(rows), jnp.int32(rows))


@pytest.mark.parametrize(("changes", "right"), [(True, True), (False, False)])
def test_a_change_is_learned_for_all_classes_at_once(changes, right):
    """From 8 of 11 hours a rule is learned for the others. A class that never came up cannot be drawn."""
    rng = np.random.default_rng(0)
    layout = Layout((COUNTER,), changes)
    known, new = [0, 1, 2, 4, 5, 7, 8, 10], [3, 6, 9]
    rows = hours(rng, 300, known)
    component, _ = fit_ensemble(jax.random.key(0), rows, layout, (False,) * 12, small(), SLOW)
    test = hours(rng, 100, new)
    said = jax.vmap(component.predict)(test.x, test.targets.classes)
    truth = np.exp(
        np.take_along_axis(
            np.asarray(said.log_probability), np.asarray(test.targets.classes)[:, None, :, None], -1
        )
    )
    assert (truth.mean() > 0.7) == right


def test_changes_are_drawn_as_they_are_predicted():
    """The scan that draws and the product that predicts score a class alike."""
    layout = Layout((*place("agent 0", 4), Continuous("speed", 1)), changes=True)
    fresh = create_predictor(small(), jax.random.key(0), 9 + 2, layout)
    rng = np.random.default_rng(1)
    network = jax.tree.map(lambda leaf: jnp.asarray(0.5 * rng.normal(size=leaf.shape), jnp.float32), fresh)
    x = jnp.concatenate([row(layout.features[:2], 1, 3), jnp.array([0.2, 1.0, 0.0])])
    u = jax.random.uniform(jax.random.key(2), (20_000, layout.num_draws))
    seen = jnp.asarray(layout.class_exists)
    drawn = np.asarray(jax.jit(jax.vmap(lambda one: network.draw(one, x, seen).classes))(u))
    said = [network.predict(x, jnp.array([first, 0], jnp.int32), seen) for first in range(4)]
    first = np.exp(said[0].log_probability[0])
    np.testing.assert_allclose(np.bincount(drawn[:, 0], minlength=4) / len(drawn), first, atol=0.015)
    for given in range(4):
        after = drawn[drawn[:, 0] == given, 1]
        expected = np.exp(said[given].log_probability[1])
        error = np.bincount(after, minlength=4) / len(after) - expected
        assert np.abs(error).max() < 4.0 * 0.5 / np.sqrt(len(after))  # four standard errors at most


def test_input_weights_without_use_vanish():
    """The hour depends on two of a hundred columns, and those of the others become exactly 0."""
    rng = np.random.default_rng(0)
    rows = hours(rng, 600, range(11))
    noise = jnp.asarray(rng.integers(0, 2, (600, 88)), jnp.float32)
    rows = rows._replace(x=jnp.concatenate([rows.x, noise], axis=-1))
    layout, share = Layout((COUNTER,), True), {}
    for sparsity in (0.0, 0.3):
        training = replace(SLOW, sparsity=sparsity, ema_decay=0.0)
        component, fit = fit_ensemble(jax.random.key(0), rows, layout, (False,) * 100, small(), training)
        weight = np.asarray(component.members.mlp.layers[0].weight)[..., 12:100, :]
        share[sparsity] = ((weight == 0.0).mean(), float(fit.loss.mean()))
    assert share[0.0][0] == 0.0
    assert share[0.3][0] > 0.8
    assert share[0.3][1] < share[0.0][1]


def corridor(rng, rows, cells=8):
    """Two on a line of cells step left, right or not at all; both stay, where they would meet."""
    now = rng.integers(0, cells, (rows, 2))
    while (same := now[:, 0] == now[:, 1]).any():
        now[same] = rng.integers(0, cells, (int(same.sum()), 2))
    act = rng.integers(0, 3, (rows, 2))
    wanted = np.clip(now + act - 1, 0, cells - 1)
    after = np.where(wanted[:, :1] == wanted[:, 1:], now, wanted)
    one_hot = [np.eye(cells)[now].reshape(rows, -1), np.eye(3)[act].reshape(rows, -1)]
    x = jnp.asarray(np.concatenate(one_hot, axis=-1), jnp.float32)
    targets = Targets(jnp.asarray(after, jnp.int32), jnp.zeros((rows, 0)))
    met = (wanted[:, 0] == wanted[:, 1]) & (act != 1).any(axis=1)
    return Examples(x, targets, jnp.arange(rows), jnp.int32(rows)), met


LINE = tuple(Categorical(f"agent {i} cell", 8) for i in range(2))


def test_habits_are_what_an_action_mostly_does():
    """Right is +1 and left -1, of who acts and of nobody else; padding is not looked at."""
    rows, _ = corridor(np.random.default_rng(0), 2_000)
    layout = Layout(LINE, changes=True, num_actions=6)
    habits = Habits.of(layout, rows.x, rows.targets.classes.at[1_900:].set(0), jnp.int32(1_900))
    # Each agent's own actions, and the others', which make up for the mean of the own ones.
    assert np.round(np.asarray(habits.change)[:3, 0] - np.asarray(habits.change)[1, 0]).tolist() == [-1, 0, 1]
    wider = habits.widen(layout, rows.x)
    assert wider.shape == (2_000, 16 + 6 + 5)
    one = np.argmax(np.asarray(rows.x)[:, :8], -1) + np.argmax(np.asarray(rows.x)[:, 16:19], -1) - 1
    other = np.argmax(np.asarray(rows.x)[:, 8:16], -1) + np.argmax(np.asarray(rows.x)[:, 19:22], -1) - 1
    meet = np.asarray(wider)[:, 22 + 2] == 1.0
    assert (meet == (one == other)).all()


def test_a_collision_is_learned_from_few_where_it_is_guessed():
    """Of 600 steps 70 are collisions or so: where they are guessed, hardly a fresh one is missed."""
    rows, _ = corridor(np.random.default_rng(1), 600)
    test, met = corridor(np.random.default_rng(2), 2_000)
    wrong = {}
    for guessed in (True, False):
        layout = Layout(LINE, changes=True, num_actions=6 if guessed else 0)
        component, _ = fit_ensemble(jax.random.key(0), rows, layout, (False,) * 22, small(), SLOW)
        said = jax.vmap(component.predict)(test.x, test.targets.classes).log_probability
        likeliest = np.exp(np.asarray(said)).mean(axis=1).argmax(-1)
        wrong[guessed] = (likeliest != np.asarray(test.targets.classes)).any(-1)[met].mean()
    assert wrong[True] < 0.05
    assert wrong[True] < 0.5 * wrong[False]
