"""r-tilde by hand for two members; nothing where they agree; high where nothing was seen."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from helpers.toys import CAPACITY, JOINT, STATES, fit_one, noisy_model, one_step_episodes, table
from marco.model.components import Known
from marco.model.likelihoods import Prediction
from marco.model.rows import gather
from marco.model.uncertainty import disagreement, uncertainty

KINDS = ["variance", "standard-deviation", "mutual-information"]


def coins(*probabilities):
    """One member per probability of yes, about one feature of two classes."""
    chance = jnp.array([[[1 - p, p]] for p in probabilities])
    nothing = jnp.zeros((len(probabilities), 0))
    return Prediction(jnp.log(chance), nothing, nothing)


def gaussians(means, variances):
    return Prediction(jnp.zeros((len(means), 0, 1)), jnp.array(means), jnp.log(jnp.array(variances)))


def entropy(p):
    return -p * np.log(p) - (1 - p) * np.log(1 - p)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("variance", 2 * 0.2**2),  # both classes, each 0.2 off the mean 0.6 or 0.4
        ("standard-deviation", 2 * 0.2),
        ("mutual-information", entropy(0.6) - (entropy(0.8) + entropy(0.4)) / 2),
    ],
)
def test_two_members_that_say_8_and_4_of_10(kind, expected):
    found = disagreement(kind, coins(0.8, 0.4), jnp.zeros(0, bool))
    assert float(found) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("variance", 1.0),  # means 1 and 3
        ("standard-deviation", 1.0),
        ("mutual-information", 0.5 * (np.log((0.5 + 2.0) / 2 + 1.0) - (np.log(0.5) + np.log(2.0)) / 2)),
    ],
)
def test_two_members_that_say_1_and_3_with_variances_of_one_half_and_2(kind, expected):
    found = disagreement(kind, gaussians([[1.0], [3.0]], [[0.5], [2.0]]), jnp.array([True]))
    assert float(found) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_a_number_that_never_varies_adds_nothing(kind):
    said = gaussians([[1.0, 5.0], [3.0, -5.0]], [[1.0, 1.0], [1.0, 1.0]])
    only = gaussians([[1.0], [3.0]], [[1.0], [1.0]])
    found = disagreement(kind, said, jnp.array([True, False]))
    assert float(found) == float(disagreement(kind, only, jnp.array([True]))) > 0.0


def test_certain_members_that_contradict_each_other_give_ln_2_of_information():
    """Probabilities of 0 and 1: the mutual information between member and outcome is one bit."""
    found = disagreement("mutual-information", coins(1.0, 0.0), jnp.zeros(0, bool))
    assert float(found) == pytest.approx(np.log(2), rel=1e-6)


@jax.jit
def along_a_step(model):
    """All three kinds for one step of the table."""
    a = jnp.array([1, 2], jnp.int32)
    observation = jnp.array([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]])
    return [uncertainty(model, kind, jnp.eye(3)[0], a, jnp.eye(3)[1], observation) for kind in KINDS]


def test_members_that_agree_give_exactly_0_and_others_do_not():
    model = noisy_model(0, table().spec, np.eye(3, dtype=np.float32), noise=0.5)
    parts = ("dynamics", "reward", "observation", "termination", "available")
    members = [getattr(model, name).members for name in parts]
    alike = jax.tree.map(lambda leaf: jnp.stack([leaf[0], leaf[0]]), members)
    agreeing = eqx.tree_at(lambda m: [getattr(m, name).members for name in parts], model, alike)
    assert [float(found) for found in along_a_step(agreeing)] == [0.0, 0.0, 0.0]
    assert all(found > 0.0 for found in along_a_step(model))


def test_known_components_add_nothing():
    known = dict.fromkeys(("dynamics", "reward", "observation", "termination", "available"), Known(abs))
    model = noisy_model(0, table().spec, np.eye(3, dtype=np.float32), **known)
    assert [float(found) for found in along_a_step(model)] == [0.0, 0.0, 0.0]


@jax.jit
def expected_variance(model, P, O):  # noqa: E741
    """r-tilde of every pair, the expectation over s' and what is seen; axes s, joint action."""

    def one(s, joint, following, seen):
        a = jnp.stack(jnp.unravel_index(joint, (2, 3))).astype(jnp.int32)
        both = jnp.stack(jnp.unravel_index(seen, (3, 2)))
        found = uncertainty(
            model, "variance", jnp.eye(3)[s], a, jnp.eye(3)[following], jax.nn.one_hot(both, 3)
        )
        return found * P[s, joint, following] * O[joint, following, seen]

    axes = jnp.meshgrid(*(jnp.arange(n) for n in (STATES, JOINT, STATES, 6)), indexing="ij")
    every = jax.vmap(one)(*(axis.ravel() for axis in axes))
    return every.reshape(STATES, JOINT, -1).sum(-1)


@pytest.mark.usefixtures("fitted")  # which compiles the fit
def test_uncertainty_falls_with_visits_and_is_high_where_nothing_was_seen():
    """Of the six actions in state 0 two are never taken, two 8 times, two 200 times; which, takes turns.

    Over the three turns every action is in every class once, and each class has its mean over them. The
    variance of a share falls as 1/n, so that 8 visits leave 25 times that of 200; 5 times is asked for. Never
    and 8 times are not told apart: where nothing was seen the members only differ by their random weights.
    """
    env = table()
    found = {0: [], 8: [], 200: []}
    for turn in range(3):
        visits = np.roll([0, 0, 8, 8, 200, 200], 2 * turn)
        pairs = [(0, joint) for joint, count in enumerate(visits) for _ in range(count)]
        data = gather(env.spec, one_step_episodes(env, pairs, seed=turn), CAPACITY)
        model = fit_one(jax.random.key(turn), env.spec, data)[0]
        by_action = np.asarray(expected_variance(model, env.P, env.O))[0]
        for count in found:
            found[count] += by_action[visits == count].tolist()
    never, few, many = (np.mean(found[count]) for count in (0, 8, 200))
    assert few > 5 * many
    assert never > 5 * many
