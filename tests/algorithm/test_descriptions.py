"""Descriptions in the course of a run: found in its data, kept, resumed, made anew where data ask for it."""

import json
from dataclasses import replace
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

from helpers.tiny_run import TINY, settings
from marco.algorithm.descriptions import Descriptions
from marco.algorithm.loop import Marco
from marco.data.dataset import Dataset
from marco.environments.base import Environment, Guessed, Transition
from marco.model.description_file import from_json
from marco.policies.base import RandomPolicy
from marco.rollout import rollouts
from marco.runs.checkpoint import RunJournal
from marco.types import ActionComponent, Agent, Categorical, Continuous, Spec

CODES = jnp.array([0.0, 3.0, 70.0])
TEAM = replace(TINY, mixer="qmix")


class Hidden(NamedTuple):
    code: Array
    place: Array


class Coded(Environment):
    """One of two agents sees a code; what the columns are, nobody says."""

    told: bool = eqx.field(static=True, default=False)

    @property
    def guessed(self):
        return Guessed(not self.told, not self.told)

    @property
    def spec(self):
        agent = Agent("a", (ActionComponent("call", 3),), (Continuous("seen", 2),))
        return Spec("coded", (agent, replace(agent, name="b")), (Continuous("state", 3),), 3)

    def initial(self, key):
        code, place = jax.random.split(key)
        return Hidden(jax.random.randint(code, (), 0, 3), jax.random.uniform(place))

    def transition(self, key, world, actions):
        moved = Hidden((world.code + 1) % 3, world.place)
        return Transition(moved, (actions == world.code).mean(), jnp.bool_(False))

    def observe(self, world):
        seen = jnp.stack([CODES[world.code], jnp.float32(7.0)])
        return jnp.stack([seen, jnp.array([0.0, 7.0])])

    def available(self, world):
        return jnp.ones((2, 3), bool)

    def central(self, world):
        return jnp.stack([CODES[world.code], world.place, jnp.float32(1.0)])


PLAN = settings(team=TEAM, samples=60, first_chunk=30, chunk=15, candidates=(TEAM,))


def begin(folder, env=None, given=None):
    env = env or Coded()
    file = None if folder is None else folder / "description.json"
    dataset = Dataset(None if folder is None else folder / "data", env.spec, 1)
    journal = {} if folder is None else {"journal": RunJournal(folder)}
    return Marco(env, PLAN, (3,), dataset, descriptions=Descriptions(file, given), **journal)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    run = begin(folder)
    run.check()
    *_, (_, state) = run.run()
    return folder, run, state


def test_the_model_learns_classes_and_its_agents_see_raw_columns(finished):
    _, run, state = finished
    spec = run.spec(60)
    assert spec.state == (
        Categorical("state.0", 3, blank=True, labels=("0", "3", "70")),
        Continuous("state.1"),
    )
    assert spec.agents == run.env.spec.agents
    model = jax.tree.map(lambda leaf: leaf[0], state.model)
    assert model.models[0].spec.agents[1].observation == ()  # it sees nothing that varies
    played = rollouts(jax.random.key(0), model, RandomPolicy(), 50)
    assert played.observation.shape == (4, 50, 2, 2)
    assert set(np.unique(played.observation[..., 0, 0])) <= {0.0, 3.0, 70.0}
    assert (played.observation[..., 1] == 7.0).all()
    assert (played.observation[..., 1, 0] == 0.0).all()


def test_real_samples_are_kept_as_the_environment_gave_them(finished):
    _, run, _ = finished
    real = run.dataset.episodes(0)
    assert set(np.unique(real.state[..., 0])) == {0.0, 3.0, 70.0}
    assert (real.state[..., 2] == 1.0).all()


def test_a_run_that_is_resumed_has_the_same_description_and_ends_the_same(finished, tmp_path):
    folder, _, whole = finished
    events = begin(tmp_path).run()
    for event, _ in events:
        if event.over and event.phase == "fit" and event.iteration == 1:
            break
    *_, (_, state) = begin(tmp_path).run()
    same = jax.tree.map(lambda a, b: np.array_equal(a, b), state.best, whole.best)
    assert all(jax.tree.leaves(same))
    assert (tmp_path / "description.json").read_text() == (folder / "description.json").read_text()
    assert list(json.loads((folder / "description.json").read_text())["after"]) == ["30", "45", "60"]


def test_a_damaged_description_of_a_run_is_refused_with_the_cure(finished, tmp_path):
    _, run, _ = finished
    (tmp_path / "description.json").write_text('{"format": 1, "after": {"30": {"state": [], "agents": {}}}}')
    broken = replace(run, descriptions=Descriptions(tmp_path / "description.json"))
    with pytest.raises(ValueError, match=r"column 0 is not described.*Delete it"):
        broken.view(30)


def test_a_spec_that_is_the_environments_own_word_is_left_alone():
    run = begin(None, Coded(told=True))
    assert run.spec(0) == run.env.spec
    assert run.view(60) == run.view(0)
    assert run.descriptions.found == {}


def test_what_the_user_says_is_used_and_the_rest_is_found_out(finished):
    _, run, _ = finished
    given = from_json({"state": [{"feature": "all", "columns": [0, 1, 2]}]})
    told = replace(run, descriptions=Descriptions(given=given))
    assert told.spec(60).state == (Continuous("all", 3),)
    assert [f.name for f in told.plan(60).view.model_specs(run.env.spec)[0].agents[0].observation] == [
        "seen.0"
    ]
    wrong = from_json({"state": [{"feature": "all", "columns": [0, 1]}]})
    with pytest.raises(ValueError, match="column 2 is not described"):
        begin(None, given=wrong).check()


def test_a_description_is_made_anew_when_a_constant_varies_and_kept_otherwise():
    env = Coded()
    played = jax.tree.map(np.asarray, rollouts(jax.random.key(0), env, RandomPolicy(), 60))
    state = played.state.copy()
    state[:, 40:, 2] = np.arange(20) // 2 % 2  # from episode 40 on, in odd and even ones
    played = played._replace(state=state)

    def episodes(samples):
        return [jax.tree.map(lambda leaf: leaf[:, : samples // 3], played)]

    kept = Descriptions()
    first = kept.at(env, [60], episodes)
    assert kept.at(env, [60, 120], episodes) is first
    later = kept.at(env, [60, 120, 180], episodes)
    assert later.state.features[-2:] == (Categorical("state.2", 2, blank=True), Continuous("state.1"))
    assert [len(one.state.features) for one in (first, later)] == [2, 3]
