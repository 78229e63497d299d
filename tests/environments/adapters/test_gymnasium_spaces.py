import re

import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from marco.environments.adapters.gymnasium_spaces import WorldError, actions, columns
from marco.types import ActionComponent, Categorical, Continuous, binary


def encode(space, value):
    return columns(space, "observation", "world").encode(value, "world, step 3, agent 'a'").tolist()


NESTED = spaces.Dict(
    {
        "inventory": spaces.Dict({"gold": spaces.Discrete(3), "keys": spaces.MultiBinary(2)}),
        "pair": spaces.Tuple([spaces.Discrete(2, start=5), spaces.Box(0, 1, (1, 2))]),
        "velocity": spaces.Box(-1, 1, (2,)),
    }
)
NESTED_VALUE = {
    "velocity": [0.5, -0.5],
    "pair": (6, [[0.25, 0.75]]),
    "inventory": {"keys": [1, 0], "gold": 2},
}


def test_nested_spaces_become_features_named_by_their_path_in_the_order_of_the_space():
    assert columns(NESTED, "observation", "world").features == (
        Categorical("inventory.gold", 3),
        binary("inventory.keys.0"),
        binary("inventory.keys.1"),
        Categorical("pair.0", 2, labels=("5", "6")),
        Continuous("pair.1 0", 2),
        Continuous("velocity", 2),
    )


def test_a_nested_value_fills_the_columns_of_its_features_in_that_order():
    shown = columns(NESTED, "observation", "world").encode(NESTED_VALUE, "world")
    assert shown.dtype == np.float32
    assert shown.tolist() == [0, 0, 1, 1, 0, 0, 1, 0.25, 0.75, 0.5, -0.5]


@pytest.mark.parametrize(
    ("space", "features"),
    [
        (spaces.Box(0, 1, (6,)), (Continuous("state", 6),)),  # nobody says which belong together
        (spaces.Box(0, 1, (2, 3)), (Continuous("state 0", 3), Continuous("state 1", 3))),
        (spaces.Box(0, 1, (2, 1, 3)), (Continuous("state 0", 3), Continuous("state 1", 3))),
        (spaces.Box(0, 1, (2,), bool), (binary("state 0"), binary("state 1"))),
        (spaces.Box(0, 1, (), bool), (binary("state"),)),
        (spaces.Box(0, 1, (84, 84, 3)), (Continuous("state", 84 * 84 * 3),)),  # a picture stays one
    ],
)
def test_a_space_without_parts_takes_the_name_of_the_root_and_its_rows_are_features(space, features):
    assert columns(space, "state", "world").features == features


@pytest.mark.parametrize(
    ("space", "value", "shown"),
    [
        (spaces.Box(0, 255, (2, 2), np.uint8), np.array([[0, 1], [2, 255]], np.uint8), [0, 1, 2, 255]),
        (spaces.Box(0, 1, (2,), bool), [True, False], [1, 0]),
        (spaces.Box(0, 1, (), np.float32), 0.5, [0.5]),
        (spaces.Box(0, 1, (0,), np.float32), [], []),
        (spaces.Discrete(3, start=-1), -1, [1, 0, 0]),
        (spaces.Discrete(3), np.int64(2), [0, 0, 1]),
        (spaces.MultiDiscrete([2, 3], start=[0, 4]), [1, 4], [0, 1, 1, 0, 0]),
        (spaces.MultiBinary([2, 2]), np.array([[True, False], [True, True]]), [1, 0, 1, 1]),
        (spaces.MultiBinary(2), [0.0, 1.0], [0, 1]),
    ],
)
def test_each_kind_of_space_is_shown_in_its_columns(space, value, shown):
    assert encode(space, value) == shown


def test_the_columns_are_those_that_the_features_themselves_would_show():
    space = spaces.MultiDiscrete([2, 4, 3])
    gold, keys, doors = columns(space, "o", "world").features
    assert [gold.width, keys.width, doors.width] == [2, 4, 3]
    by_hand = [*gold.encode(jnp.int32(1)), *keys.encode(jnp.int32(3)), *doors.encode(jnp.int32(0))]
    assert encode(space, [1, 3, 0]) == [float(column) for column in by_hand]


def test_float_rounding_at_the_bound_is_forgiven_and_more_is_not():
    space = spaces.Box(-1, 1, (2,))
    assert encode(space, [1.000001, 0.0])[0] == np.float32(1.000001)
    with pytest.raises(
        WorldError, match=re.escape("step 3, agent 'a', 'observation': got 1.001, outside Box")
    ):
        encode(space, np.array([1.001, 0.0]))


@pytest.mark.parametrize(
    ("space", "value", "message"),
    [
        (
            spaces.Box(-1, 1, (2,)),
            [0.0],
            "got the shape (1,), but Box(-1.0, 1.0, (2,), float32) demands (2,)",
        ),
        (spaces.Box(-1, 1, (2,)), [np.nan, 0], "NaN and infinity cannot be learned from"),
        (spaces.Box(-np.inf, np.inf, (1,)), [np.inf], "NaN and infinity cannot be learned from"),
        (spaces.Box(-1, 1, (2,)), "red", "'red' is no number or array of numbers"),
        (spaces.Box(-1, 1, (2,)), [[0.0], [0.0, 1.0]], "is no array of numbers"),
        (spaces.Box(-1, 1, (2,)), None, "None is no number"),
        (spaces.Discrete(3), 3, "got 3, outside Discrete(3)"),
        (spaces.Discrete(3, start=1), 0, "got 0, outside Discrete(3, start=1)"),
        (spaces.Discrete(3), 1.5, "got 1.5, but Discrete(3) holds whole numbers only"),
        (spaces.MultiDiscrete([2, 3]), [1, 3], "got 3, outside MultiDiscrete([2 3])"),
        (spaces.MultiBinary(2), [0, 2], "got 2, outside MultiBinary(2)"),
        (spaces.Dict({"gold": spaces.Discrete(2)}), {}, "the part 'gold' of its space is missing from {}"),
        (spaces.Tuple([spaces.Discrete(2)]), (), "the part '0' of its space is missing from ()"),
    ],
)
def test_a_value_outside_its_space_is_refused_with_the_place_and_the_value(space, value, message):
    with pytest.raises(WorldError, match=re.escape(message)) as caught:
        encode(space, value)
    assert str(caught.value).startswith("world, step 3, agent 'a'")


@pytest.mark.parametrize(
    "space", [spaces.Text(5), spaces.Sequence(spaces.Discrete(2)), spaces.Graph(spaces.Discrete(2), None)]
)
def test_what_has_no_fixed_columns_is_refused_by_name(space):
    nested = spaces.Dict({"words": space})
    message = f"world: the space {space} of 'words' is not supported, only Box, Discrete,"
    with pytest.raises(ValueError, match=re.escape(message)):
        columns(nested, "observation", "world")


def test_a_feature_of_too_many_classes_is_refused_with_their_number():
    with pytest.raises(ValueError, match=r"'observation' .* has 100,001 classes, more than 100,000"):
        columns(spaces.Discrete(100_001), "observation", "world")


def test_a_mask_beside_the_observation_is_no_part_of_what_is_seen():
    space = spaces.Dict({"action_mask": spaces.MultiBinary(3), "observation": spaces.Box(0, 1, (2,))})
    seen = columns(space, "observation", "world")
    assert seen.mask_key
    assert seen.features == (Continuous("observation", 2),)
    assert seen.encode({"action_mask": [1, 0, 1], "observation": [0.25, 0.5]}, "world").tolist() == [
        0.25,
        0.5,
    ]


def test_discrete_actions_are_counted_from_zero_and_sent_from_their_start():
    space = spaces.Discrete(3, start=4)
    described = actions(space, "world")
    assert described.actions == (ActionComponent("action", 3, ("4", "5", "6")),)
    sent = [described.native(index) for index in range(3)]
    assert sent == [4, 5, 6]
    assert all(type(action) is int for action in sent)
    assert actions(spaces.Discrete(1), "world").actions == (ActionComponent("action", 1),)


def test_the_index_of_a_composite_action_runs_fastest_over_the_first_component():
    space = spaces.MultiDiscrete([2, 3], start=[0, 10])
    described = actions(space, "world")
    assert described.actions == (
        ActionComponent("action.0", 2),
        ActionComponent("action.1", 3, ("10", "11", "12")),
    )
    sent = [described.native(index) for index in range(6)]
    assert [action.tolist() for action in sent] == [[0, 10], [1, 10], [0, 11], [1, 11], [0, 12], [1, 12]]
    assert all(space.contains(action) for action in sent)


def test_a_composite_action_of_two_dimensions_keeps_its_shape():
    space = spaces.MultiDiscrete([[2, 2], [2, 3]])
    assert actions(space, "world").native(23).tolist() == [[1, 1], [1, 2]]
    assert actions(space, "world").native(8).tolist() == [[0, 0], [0, 1]]


def test_masks_of_the_components_combine_in_the_order_of_the_index():
    described = actions(spaces.MultiDiscrete([2, 3]), "world")
    by_component = (np.array([0, 1], np.int8), np.array([1, 0, 1], np.int8))
    # Only value 1 of the first component, with 0 or 2 of the second: the indices 1 + 2 * 0 and 1 + 2 * 2.
    assert np.flatnonzero(described.mask(by_component, "world")).tolist() == [1, 5]
    assert np.flatnonzero(described.mask(list(by_component), "world")).tolist() == [1, 5]
    assert np.flatnonzero(described.mask(np.array([0, 1, 0, 0, 0, 1]), "world")).tolist() == [1, 5]
    assert np.flatnonzero(described.mask([0, 1, 0, 0, 0, 1], "world")).tolist() == [1, 5]


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (np.ones(5), "the action mask has the shape (5,), but there are 6 actions. Give 6 zeros and ones"),
        ((np.ones(2), np.ones(4)), "the action mask has the shape (4,), but there are 3 actions"),
        (np.full(6, -np.inf), "but only 0 and 1 have a meaning in it"),
    ],
)
def test_a_mask_that_does_not_fit_the_actions_is_refused(raw, message):
    with pytest.raises(WorldError, match=re.escape(message)):
        actions(spaces.MultiDiscrete([2, 3]), "world").mask(raw, "world")


@pytest.mark.parametrize("space", [spaces.Box(-1, 1, (2,)), spaces.MultiBinary(2), spaces.Text(3)])
def test_actions_without_a_number_are_refused_with_the_cure(space):
    message = f"world, agent 'a': the action space {space} is not supported, only Discrete and MultiDiscrete"
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        actions(space, "world, agent 'a'")
    assert "continuous_actions=False" in str(caught.value)


def test_too_many_joint_actions_are_refused_with_their_number():
    assert len(actions(spaces.MultiDiscrete([10] * 5), "world").actions) == 5
    with pytest.raises(ValueError, match="has 1,000,000 joint actions, more than 100,000"):
        actions(spaces.MultiDiscrete([10] * 6), "world")
    # More than 64 bits can hold must not wrap around to a small number.
    with pytest.raises(ValueError, match="has 18,446,744,073,709,551,616 joint actions"):
        actions(spaces.MultiDiscrete([2**16] * 4), "world")
