"""Places in flat rows: found by what moves together, with ways between them that never contradict."""

from itertools import combinations, product

import jax.numpy as jnp
import mpe2.simple_reference_v3
import mpe2.simple_speaker_listener_v4
import mpe2.simple_spread_v3
import numpy as np
import pytest

from marco.environments.adapters.pettingzoo import PettingZooWorld
from marco.model.describe import Rows, describe_row
from marco.model.description import Description, Row
from marco.model.description_file import as_json, from_json
from marco.model.inputs import Inputs
from marco.model.parts import Part
from marco.types import ActionComponent, Agent, Categorical, Continuous, Spec

EPISODES, STEPS = 40, 25


class Plane:
    """Agents that push themselves about, and landmarks that stay. Axes: thing, episode, time, axis."""

    def __init__(self, agents, landmarks, size, seed=0):
        draws = np.random.default_rng(seed)
        self.actions = draws.integers(0, 1 + 2 * size, (EPISODES, STEPS, agents))
        axis, way = (self.actions - 1) // 2, 2 * (self.actions % 2) - 1.0
        push = np.where(self.actions > 0, way, 0.0)[..., None] * (axis[..., None] == np.arange(size))
        place, velocity = draws.uniform(-1, 1, (EPISODES, agents, size)), np.zeros((EPISODES, agents, size))
        places, velocities = [], []
        for t in range(STEPS):
            places.append(place)
            velocities.append(velocity)
            place, velocity = place + 0.1 * velocity, 0.75 * velocity + 0.5 * push[:, t]
        self.p, self.v = (np.stack(part, 1).transpose(2, 0, 1, 3) for part in (places, velocities))
        still = draws.uniform(-1, 1, (landmarks, EPISODES, 1, size))
        self.l = np.broadcast_to(still, (landmarks, EPISODES, STEPS, size))

    def rows(self, *parts):
        raw = np.concatenate(parts, -1).reshape(EPISODES * STEPS, -1).astype(np.float32)
        episode, time = np.meshgrid(np.arange(EPISODES), np.arange(STEPS), indexing="ij")
        acted = self.actions.reshape(EPISODES * STEPS, -1)
        return Rows(raw, episode.ravel(), time.ravel(), acted)

    def seen(self):
        """What all agents see: the own velocity, and the ways to the landmarks and to the others."""
        each = range(len(self.p))
        return self.rows(
            *(
                part
                for i in each
                for part in (
                    self.v[i],
                    *(mark - self.p[i] for mark in self.l),
                    *(self.p[j] - self.p[i] for j in each if j != i),
                )
            )
        )


def flat(rows):
    """The description of one flat Box; nothing may be lost but the rounding of sums."""
    row = describe_row((Continuous("box", rows.raw.shape[1]),), rows)
    assert row.fits(rows.raw)
    np.testing.assert_allclose(row.decode(row.encode(rows.raw)), rows.raw, atol=1e-5)
    return row


def shown(row):
    return [feature.width for feature in row.features]


def distances(row, rows):
    """The distances and lengths that the networks see of these rows."""
    agent = Agent("a", (ActionComponent("act", 2),), ())
    inputs = Inputs(Spec("box", (agent,), row.features, 5))
    z = row.encode(rows.raw)
    return np.asarray(inputs.state(jnp.asarray(z)))[:, z.shape[1] :]


@pytest.mark.parametrize(("agents", "landmarks", "size"), [(2, 3, 2), (3, 2, 2), (1, 4, 2), (2, 2, 3)])
def test_ways_to_landmarks_become_places_and_every_true_distance_is_an_input(agents, landmarks, size):
    plane = Plane(agents, landmarks, size)
    rows = plane.seen()
    row = flat(rows)
    # As many places as there are things, but for the one that all others are seen from; and the velocities.
    assert shown(row) == [size] * (agents + landmarks - 1 + agents)
    seen = distances(row, rows)
    things = [*plane.p, *plane.l]
    pairs = [(i, j) for i, j in combinations(range(len(things)), 2) if i < agents]
    for i, j in pairs:
        true = np.linalg.norm(things[i] - things[j], axis=-1).reshape(-1, 1)
        assert np.abs(seen - true).max(0).min() < 1e-4, (i, j)


def test_imagined_rows_never_contradict_themselves():
    row = flat(Plane(2, 3, 2).seen())
    imagined = np.random.default_rng(1).normal(size=(50, sum(shown(row)))).astype(np.float32)
    way = row.decode(imagined).reshape(50, 2, 5, 2)  # agents; velocity, three landmarks, the other
    own, other = way[:, 0], way[:, 1]
    np.testing.assert_allclose(own[:, 1:4] - own[:, 4:], other[:, 1:4], atol=1e-5)
    np.testing.assert_allclose(own[:, 4], -other[:, 4], atol=1e-5)


def test_agents_that_share_nothing_are_told_apart_by_who_moves_them():
    plane = Plane(2, 2, 2)
    row = flat(plane.rows(*plane.p, *plane.v, *plane.l))
    assert [part.columns for part in row.parts] == [(i, i + 1) for i in range(0, 12, 2)]
    assert shown(row) == [2] * 6


def test_classes_between_vectors_stay_classes():
    plane = Plane(2, 1, 2)
    goal = np.random.default_rng(3).integers(0, 3, (EPISODES, 1, 1)) * np.ones((1, STEPS, 1))
    parts = [plane.v[0], plane.l[0] - plane.p[0], goal, plane.v[1], plane.l[0] - plane.p[1]]
    row = flat(plane.rows(*parts))
    assert [part.columns for part in row.parts if part.values] == [(4,)]
    assert {part.columns for part in row.parts} == {(0, 1), (2, 3), (4,), (5, 6), (7, 8)}
    assert row.features[0] == Categorical("box.4", 3, blank=True)


# --- No harm -----------------------------------------------------------------------------------------------


def unrelated(seed, columns):
    draws = np.random.default_rng(seed)
    fresh = draws.normal(size=(EPISODES, STEPS, columns)) * draws.uniform(0.1, 10.0, columns)
    walks = draws.normal(size=(EPISODES, STEPS, columns)).cumsum(1)
    still = draws.normal(size=(EPISODES, 1, columns)) * np.ones((1, STEPS, 1))
    return {
        "fresh": fresh,
        "walks": walks,
        "still": still,
        "mixed": np.where(draws.integers(0, 2, columns), walks, still),
    }


@pytest.mark.parametrize(("seed", "kind"), list(product(range(3), ("fresh", "walks", "still", "mixed"))))
def test_numbers_that_have_nothing_to_do_with_each_other_stay_one_box(seed, kind):
    rows = Plane(2, 1, 2, seed).rows(unrelated(seed, 12)[kind])
    assert flat(rows).features == (Continuous("box", 12),)


def test_many_joints_of_one_body_are_no_places():
    """Eight angles and their velocities, all moved by one agent: eight axes, which nothing has."""
    body = Plane(1, 0, 8)
    assert flat(body.rows(body.p[0], body.v[0])).features == (Continuous("box", 16),)


def test_tanks_that_fill_at_a_constant_rate_are_no_places():
    plane, time = Plane(1, 1, 2), np.arange(STEPS)[None, :, None] * np.ones((EPISODES, 1, 4))
    level = np.random.default_rng(0).uniform(0, 9, (EPISODES, 1, 4)) + time * [1.0, 0.3, -0.2, 0.1]
    assert flat(plane.rows(level)).features == (Continuous("box", 4),)


# --- Environments ------------------------------------------------------------------------------------------


def played(module, episodes=20):
    """Rows of the state of an mpe2 environment in random play."""
    world, draws = PettingZooWorld(module.parallel_env()), np.random.default_rng(0)
    raw, episode, time, acted = [], [], [], []
    for seed in range(episodes):
        timestep = world.reset(seed)
        for t in range(world.spec.horizon + 1):
            actions = np.array([draws.integers(agent.num_actions) for agent in world.spec.agents])
            raw.append(timestep.state)
            episode.append(seed)
            time.append(t)
            acted.append(actions)
            if timestep.last:
                break
            timestep = world.step(actions)
    return world.spec, Rows(np.stack(raw), np.array(episode), np.array(time), np.stack(acted))


@pytest.mark.parametrize(
    ("module", "vectors", "classes", "derived"),
    [
        (mpe2.simple_reference_v3, 2 + 4, [3, 3, 11, 11], 4),  # velocities, and all but one of five places
        (mpe2.simple_spread_v3, 3 + 6, [], 24),  # the own place is seen, so that there are six
        (mpe2.simple_speaker_listener_v4, 1 + 3, [3, 4], 0),
    ],
)
def test_the_flat_state_of_particle_environments_is_taken_for_what_it_is(module, vectors, classes, derived):
    spec, rows = played(module)
    row = describe_row(spec.state, rows)
    assert row.fits(rows.raw)
    assert [f.width for f in row.features if isinstance(f, Continuous)] == [2] * vectors
    assert sorted(f.size for f in row.features if isinstance(f, Categorical)) == classes
    assert sum(len(part.columns) for part in row.parts if part.derived) == derived


# --- Files -------------------------------------------------------------------------------------------------


def test_places_return_from_a_file_as_they_were():
    rows = Plane(2, 3, 2).seen()
    row = flat(rows)
    agent = Agent("a", (ActionComponent("act", 2),), ())
    spec = Spec("box", (agent,), (Continuous("box", row.width),), 5)
    whole = Description(row, (Row(0, ()),))
    assert from_json(as_json(whole, spec)).over(Description.of(spec), spec) == whole


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([("a", (0, 1)), ("b", (2, 3), (0,))], "2 columns of each place"),
        ([("a", (0, 1), (2, 3)), ("b", (2, 3), (0, 1))], "no places"),
        ([("a", (0, 1), (0, 1), (2, 3)), ("b", (2, 3), (2, 3), (0, 1))], "depend on each other"),
    ],
)
def test_sums_that_cannot_be_computed_are_refused(parts, message):
    with pytest.raises(ValueError, match=message):
        Row(
            4,
            tuple(
                Part(name, columns, plus=sum(rest[:1], ()), minus=sum(rest[1:], ()))
                for name, columns, *rest in parts
            ),
        )
