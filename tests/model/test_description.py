"""Descriptions: what raw columns mean, found in data, and back to raw columns without loss."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from marco.environments.base import Guessed
from marco.environments.switch import Switch
from marco.model.describe import Rows, describe, describe_row, fits
from marco.model.description import Description, Part, Row
from marco.model.description_file import as_json, from_json, given_as_json, read_description
from marco.model.views import Centralised, Described
from marco.policies.base import RandomPolicy
from marco.rollout import rollouts
from marco.types import Categorical, Continuous, binary

RNG = np.random.default_rng(0)
EPISODES, STEPS = 40, 25


def rows(*columns):
    """Rows of columns with the axes episodes, steps."""
    shown = [np.broadcast_to(column, (EPISODES, STEPS)).ravel() for column in columns]
    episode, time = np.meshgrid(np.arange(EPISODES), np.arange(STEPS), indexing="ij")
    acted = RNG.integers(0, 5, (EPISODES * STEPS, 2))
    return Rows(np.stack(shown, -1).astype(np.float32), episode.ravel(), time.ravel(), acted)


def anew(*shape):
    return RNG.uniform(-1, 1, shape or (EPISODES, STEPS))


def choice(values, *shape):
    return RNG.choice(values, shape or (EPISODES, STEPS))


def found(features, *columns):
    """What was found, and a check that nothing is lost on the way to described columns and back."""
    raw = rows(*columns)
    row = describe_row(features, raw)
    np.testing.assert_array_equal(row.decode(row.encode(raw.raw)), raw.raw)
    np.testing.assert_array_equal(row.decode(jnp.asarray(row.encode(raw.raw))), raw.raw)
    return row


def hot(classes, size, low=0.0, high=1.0):
    """One-hot columns; class 0 is blank if there are `size` + 1 classes."""
    return [np.where(classes == index, high, low) for index in range(size)]


# --- What is found -----------------------------------------------------------------------------------------


def test_a_column_of_few_values_is_a_class_and_its_values_need_not_be_0_1_2():
    row = found((Continuous("code"),), choice([0.0, 3.0, 70.0]))
    assert row.features == (Categorical("code", 3, blank=True, labels=("0", "3", "70")),)
    assert row.encode(np.array([[70.0], [0.0]], np.float32)).tolist() == [[0, 1], [0, 0]]


def test_a_landmark_that_stands_still_within_an_episode_stays_a_number():
    place = anew(EPISODES, 1)  # 40 values, each 25 times; with 20 episodes they are fewer than 32
    raw = rows(place)
    few = Rows(*(leaf[: 20 * STEPS] for leaf in raw))
    assert len(np.unique(few.raw)) == 20
    assert describe_row((Continuous("x"),), few).features == (Continuous("x"),)


def test_a_goal_drawn_once_per_episode_is_a_class():
    assert found((Continuous("goal"),), choice([1, 2, 3], EPISODES, 1)).features[0].size == 3


def test_from_three_episodes_nothing_is_concluded():
    raw = rows(choice([0, 1]))
    short = Rows(*(leaf[: 3 * STEPS] for leaf in raw))
    assert describe_row((Continuous("x"),), short) == Row.of((Continuous("x"),))


def test_a_flat_box_is_taken_apart_into_one_hot_blocks_classes_constants_and_numbers():
    colour, word = choice([0, 1, 2]), choice(range(11))
    columns = [anew(), anew(), *hot(colour, 3, 0.25, 0.75), *hot(word - 1, 10), choice([0, 1]), 7.0]
    row = found((Continuous("observation", 17),), *columns)
    assert {(part.feature, part.columns, len(part.values)) for part in row.parts} == {
        ("observation.0-1", (0, 1), 0),
        ("observation.2-4", (2, 3, 4), 3),
        ("observation.5-14", tuple(range(5, 15)), 11),  # a word, or silence
        ("observation.15", (15,), 2),
        ("observation.16", (16,), 1),
    }


def test_two_switches_that_are_sometimes_on_together_are_no_one_hot_block():
    row = found((Continuous("lights", 2),), choice([0, 1]), choice([0, 1]))
    assert row.features == (
        Categorical("lights.0", 2, blank=True),
        Categorical("lights.1", 2, blank=True),
    )


def test_rare_switches_that_were_never_on_together_by_chance_are_no_one_hot_block():
    on = np.zeros((2, EPISODES, STEPS))
    on[0, ::5, 3], on[1, ::4, 7] = 1, 1  # 8 and 10 of 1,000 rows: together 0.08 are expected
    assert len(found((Continuous("alarms", 2),), *on).features) == 2


def test_places_stay_whole_and_those_that_never_move_are_left_out():
    still, moving = np.zeros((EPISODES, STEPS)), choice([0, 1])
    features = tuple(Continuous(f"velocity {i}", 2) for i in range(3))
    row = found(features, anew(), anew(), anew(), moving, still, still)
    assert row.features == (Continuous("velocity 0", 2), Continuous("velocity 1", 2))


def test_like_columns_of_whole_numbers_share_their_classes():
    features = tuple(Continuous(f"x {i}") for i in range(2))
    row = found(features, choice(range(8)), choice([1, 2, 3, 6]))
    assert [feature.size for feature in row.features] == [8, 8]


def test_a_repeated_column_is_learned_once():
    x = anew()
    row = found(
        (Continuous("a", 2), binary("light"), Continuous("b", 2)), x, anew(), choice([0, 1]), x, anew()
    )
    assert row.features[0] == Continuous("a", 2)
    twice = found((Continuous("a"), binary("light"), Continuous("b")), x, choice([0, 1]), x)
    assert twice.features == (Continuous("a"), binary("light"))


def test_a_unit_that_dies_has_a_feature_that_says_whether_it_is_there():
    alive = np.arange(STEPS) < RNG.integers(5, 30, (EPISODES, 1))
    features = tuple(Continuous(f"unit {i}", 2) for i in range(2))
    row = found(features, alive * anew(), alive * anew(), anew(), anew())
    assert row.features == (binary("unit 0 is there"), Continuous("unit 0", 2), Continuous("unit 1", 2))
    imagined = np.array([0, 0.3, -0.2, 0.1, 0.1], np.float32)
    assert row.decode(imagined).tolist()[:2] == [0, 0]  # the dead are exactly nowhere


def test_features_that_a_space_has_named_are_kept():
    door = Categorical("door", 3)
    row = found((door, Continuous("x")), *hot(choice([0, 1]), 3), anew())
    assert row.features == (door, Continuous("x"))


def test_too_many_classes_for_one_model_stay_numbers():
    names = tuple(Continuous(f"x {i}") for i in range(40))
    assert found(names, *(choice(range(3)) for _ in names)).features == names
    assert all(
        isinstance(f, Categorical) for f in found(names[:32], *(choice(range(3)) for _ in range(32))).features
    )


# --- Values that were never seen, and environments ---------------------------------------------------------


def test_a_value_never_seen_before_counts_as_the_nearest_and_does_not_fit():
    row = Row(1, (Part("goal", (0,), ((0.0,), (1.0,), (5.0,))),))
    new = np.array([[4.0]], np.float32)
    assert row.decode(row.encode(new)).tolist() == [[5.0]]
    assert not row.fits(new)


def test_an_environment_whose_spec_is_its_own_word_is_described_as_it_is():
    env = Switch()
    played = jax.tree.map(np.asarray, rollouts(jax.random.key(0), env, RandomPolicy(), 20))
    told = describe(env.spec, [played], Guessed())
    assert told.spec(env.spec) == env.spec
    guessed = describe(env.spec, [played], Guessed(True, True))
    assert fits(guessed, env.spec, [played])
    view = Described(Centralised(), guessed)
    assert view.spec(env.spec).agents == env.spec.agents
    (seen,) = view.episodes(env.spec, played)
    np.testing.assert_array_equal(
        guessed.decode_observation(jnp.asarray(seen.observation)), played.observation
    )
    np.testing.assert_array_equal(guessed.state.decode(seen.state), played.state)


def test_known_functions_are_still_of_the_raw_state():
    state = Row(2, (Part("code", (0,), ((0.0,), (70.0,))), Part("height", (1,), ((7.0,),))))
    seen = Row(1, (Part("code", (0,), ((0.0,), (70.0,))),))
    view = Described(Centralised(), Description(state, (seen, seen)))
    s = jnp.asarray(state.encode(np.array([70.0, 7.0], np.float32)))
    assert s.tolist() == [1.0]
    spec = Switch(agents=2).spec
    given = {
        "reward": lambda s, a, next_s: s[0] + next_s[1],
        "observation": lambda key, s, previous: jnp.stack([s[:1], jnp.zeros(1)]),
        "dynamics": lambda key, s, a: s.at[0].set(0.0),
    }
    known = view.known(spec, given)
    key = jax.random.key(0)
    assert known["reward"](s, None, s) == 77.0
    assert known["observation"](key, s, None).tolist() == [[1.0], [0.0]]
    assert known["dynamics"](key, s, None).tolist() == [0.0]
    assert known == view.known(spec, given)  # equal ones compile nothing anew


# --- Files -------------------------------------------------------------------------------------------------

TOML = """
[[state]]
feature = "who"
columns = [0, 1, 2]
values = [[1, 0, 0], [0, 1, 0], [0, 0, 1]]
[[state]]
feature = "light"
columns = [3]
values = [0, 1]
[[state]]
feature = "rest"
columns = [4, 5, 6]
"""


def test_a_description_is_read_from_toml_and_returns_from_json_as_it_was(tmp_path):
    (tmp_path / "mine.toml").write_text(TOML)
    given, spec = read_description(tmp_path / "mine.toml"), Switch().spec
    whole = given.over(Description.of(spec), spec)
    assert whole.state.features[1:] == (Categorical("light", 2, blank=True), Continuous("rest", 3))
    assert whole.agents == Description.of(spec).agents
    assert from_json(given_as_json(given)) == given
    assert from_json(as_json(whole, spec)).over(Description.of(spec), spec) == whole


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("columns = [4, 5, 6]", "columns = [4, 5]"), "column 6 is not described"),
        (("columns = [4, 5, 6]", "columns = [4, 5, 6, 7]"), "there is no column 7"),
        (("columns = [3]", "columns = [4]"), "column 4 is described twice"),
        (('"light"', '"who"'), "two features are called 'who'"),
        (("values = [0, 1]", "values = [0, 0]"), "same values for two classes"),
        (("values = [0, 1]", 'values = ["off", "on"]'), "must be numbers"),
        (("[0, 0, 1]]", "[0, 0]]"), "as many numbers for each class"),
        (("values = [0, 1]", "classes = 2"), "a feature has no 'classes'"),
        (("[[state]]", "[[states]]"), "`state` or `agents`"),
        (("columns = [3]", "columns = 3"), "a feature needs a name"),
        (("[[state]]", "[[state"), "is no TOML"),
    ],
)
def test_a_description_that_does_not_fit_is_refused_by_name(tmp_path, change, message):
    (tmp_path / "mine.toml").write_text(TOML.replace(*change))
    spec = Switch().spec
    with pytest.raises(ValueError, match=message):
        read_description(tmp_path / "mine.toml").over(Description.of(spec), spec)


def test_a_missing_file_and_an_unknown_agent_are_refused(tmp_path):
    with pytest.raises(ValueError, match="cannot be read"):
        read_description(tmp_path / "none.json")
    spec = Switch().spec
    with pytest.raises(ValueError, match="names agent 'nobody'"):
        from_json({"agents": {"nobody": []}}).over(Description.of(spec), spec)
