import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marco.types import ActionComponent, Agent, Categorical, Continuous, Spec, binary, blocks


def test_one_hot_binary_and_blank_show_their_classes():
    colour = Categorical("colour", 3, low=0.25, high=0.75)
    word = Categorical("word", 3, blank=True)
    np.testing.assert_allclose(colour.encode(jnp.int32(1)), [0.25, 0.75, 0.25])
    np.testing.assert_allclose(binary("light").encode(jnp.arange(2)), [[0.0], [1.0]])
    np.testing.assert_allclose(word.encode(jnp.arange(3)), [[0, 0], [1, 0], [0, 1]])


@settings(deadline=None, max_examples=25)
@given(st.integers(1, 9), st.booleans(), st.floats(-2, 2), st.floats(0.1, 3))
def test_decode_undoes_encode(size, blank, low, gap):
    feature = Categorical("f", size, blank=blank, low=low, high=low + gap)
    classes = jnp.arange(size)
    assert feature.encode(classes).shape == (size, feature.width)
    np.testing.assert_array_equal(feature.decode(feature.encode(classes)), classes)


def test_blocks_stand_one_after_the_other():
    features = (Continuous("p", 2), binary("b"), Categorical("c", 4))
    assert blocks(features) == [slice(0, 2), slice(2, 3), slice(3, 7)]


def test_composite_actions_run_fastest_over_the_first_component():
    agent = Agent(
        "a", (ActionComponent("move", 5, tuple("SLRDU")), ActionComponent("message", 10)), (binary("b"),)
    )
    assert agent.num_actions == 50
    assert agent.action_label(2 + 5 * 7) == "R, message 7"
    assert agent.components_of(2 + 5 * 7) == (2, 7)
    assert agent.action_of((2, 7)) == 2 + 5 * 7
    for kind in (np.arange(50), jnp.arange(50)):
        move, message = agent.components_of(kind)
        np.testing.assert_array_equal(move, np.tile(np.arange(5), 10))
        np.testing.assert_array_equal(message, np.repeat(np.arange(10), 5))
        np.testing.assert_array_equal(agent.action_of((move, message)), np.arange(50))


def test_unequal_agents_are_padded():
    small = Agent("small", (ActionComponent("a", 2),), (binary("x"),))
    large = Agent("large", (ActionComponent("a", 4),), (Continuous("x", 3),))
    spec = Spec("s", (small, large), (binary("x"),), 5)
    assert (spec.num_agents, spec.num_actions, spec.observation_width, spec.state_width) == (2, 4, 3, 1)
    np.testing.assert_array_equal(spec.actions_exist, [[1, 1, 0, 0], [1, 1, 1, 1]])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Categorical("c", 0), "'c' must have at least one class, got size=0"),
        (lambda: Categorical("c", 2, labels=("a",)), "2 classes but 1 labels"),
        (lambda: Categorical("c", 2, low=1.0, high=1.0), "needs low < high, got 1.0 and 1.0"),
        (lambda: Continuous("c", 0), "at least one column, got width=0"),
        (lambda: ActionComponent("move", 0), "'move' must have at least one value, got size=0"),
        (lambda: ActionComponent("move", 2, ("a",)), "2 values but 1 labels"),
        (lambda: Spec("s", (), (binary("x"),), 5), "'s' needs at least one agent"),
        (lambda: Spec("s", (Agent("a", (), ()),), (), 5), "at least one state feature"),
        (
            lambda: Spec("s", (Agent("a", (), ()),), (binary("x"),), 0),
            "horizon of at least 1, got 0",
        ),
    ],
)
def test_bad_shapes_are_refused_by_value(make, message):
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        make()
