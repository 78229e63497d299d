"""The public API: MARCO in five lines, in memory and in a folder."""

import dataclasses
import subprocess
import sys

import jax
import numpy as np
import pytest

import marco
from helpers.tiny_run import KNOWN, QUICK, TINY, WORLD, settings
from marco.evaluation import exact_value
from marco.model.environment import ModelEnvironment

ALL_KNOWN = dict(KNOWN)


@pytest.fixture(scope="module")
def result():
    """The tiny riddle, learned in memory."""
    events = []
    found = marco.learn(
        WORLD, seed=3, config=settings(), known=ALL_KNOWN, on_event=events.append, progress=False
    )
    return found, events


def test_learning_in_memory_gives_team_model_episodes_and_metrics(result):
    found, events = result
    assert found.samples == 50 == int(found.episodes.mask.sum())
    assert found.broken_off == (0, 0)
    assert isinstance(found.model, ModelEnvironment)
    assert marco.rollouts(jax.random.key(0), found.model, found.team, 4).reward.shape == (3, 4)
    assert found.value.exact
    assert found.value.mean == exact_value(WORLD, found.team)
    assert found.imagined == pytest.approx(found.value.mean, abs=1.0)
    ended = [event.phase for event in found.metrics]
    one = ["collect", "fit", "team", "explore"]
    assert ended == [*one, *one, "collect", "fit", "final"]
    assert [event.phase for event in events if event.over] == [*ended, "done"]


def test_a_result_is_printed_as_a_line_and_evaluates_nothing(result):
    found = dataclasses.replace(result[0])
    assert repr(found).startswith("Result(2 agents in switch, 50 real samples, imagined return ")
    assert "not evaluated yet" in repr(found)
    assert f"real return {found.value.mean:.4g}" in repr(found)


def test_a_team_is_saved_loaded_and_evaluated(result, tmp_path):
    found, _ = result
    found.team.save(tmp_path / "team.npz")
    team = marco.load(tmp_path / "team.npz")
    assert len(team.act(np.zeros((2, 2)))) == 2
    assert marco.evaluate(WORLD, team).mean == found.value.mean
    with pytest.raises(ValueError, match=r"trained in 'switch' with \(2, 4, 2\) .*; switch has \(2, 4, 3\)"):
        marco.evaluate(marco.make("switch"), team)


def test_in_a_folder_the_same_call_goes_on_and_another_is_refused(result, tmp_path):
    found, _ = result
    folder = tmp_path / "run"
    given = {"seed": 3, "config": settings(), "known": ALL_KNOWN, "progress": False, "out": folder}

    def stop(event):
        if event.phase == "explore" and event.over:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        marco.learn(WORLD, on_event=stop, **given)
    again = marco.learn(WORLD, **given)
    jax.tree.map(np.testing.assert_array_equal, again.team, found.team)
    assert marco.load(folder).facts["world"] == "switch"
    finished = marco.learn(WORLD, **given)  # nothing is left to do
    assert (finished.samples, finished.imagined) == (50, again.imagined)
    assert [event.phase for event in finished.metrics] == [event.phase for event in found.metrics]
    assert finished.value == again.value == found.value
    with pytest.raises(ValueError, match="holds a run with another algorithm"):
        marco.learn(WORLD, **given | {"config": settings(lam=1.0)})
    with pytest.raises(ValueError, match="holds a run with another known"):
        marco.learn(WORLD, **given | {"known": None})


def test_seeds_are_learned_together():
    results = marco.learn_seeds(WORLD, (3, 4), config=QUICK, known=ALL_KNOWN, progress=False)
    assert [one.samples for one in results] == [50, 50]
    assert not np.array_equal(results[0].episodes.actions[:, :8], results[1].episodes.actions[:, :8])


def test_a_team_that_cannot_be_saved_is_refused_before_training(tmp_path):
    with pytest.raises(ValueError, match="the team of Drifter is a Leaning, which cannot be saved"):
        marco.learn(WORLD, config=QUICK, out=tmp_path / "run", progress=False)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"samples": 20}, "samples=20 and config.samples=50 differ: give it to the preset"),
        ({"seed": -1}, r"seeds must be different whole numbers from 0 to 4294967295, got \[-1\]"),
        ({"env": "swich"}, "unknown environment 'swich': do you mean 'switch'?"),
    ],
)
def test_mistakes_are_refused_before_anything_is_compiled(changes, message):
    given = {"env": WORLD, "config": settings(), "progress": False} | changes
    with pytest.raises(ValueError, match=message.replace("?", r"\?")):
        marco.learn(**given)


def test_a_run_begun_in_python_is_named_by_make(tmp_path):
    """`make` remembers how it named an environment, so that the commands find it again."""
    from marco.environments.registry import name_of

    env = marco.make("switch", agents=2, horizon=3)
    assert name_of(env) == ("switch", {"agents": 2, "horizon": 3})
    assert name_of(WORLD) == (None, {})


def test_the_public_names_are_few_and_all_there():
    assert len(marco.__all__) <= 25
    for name in marco.__all__:
        assert getattr(marco, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'lern'"):
        marco.lern  # noqa: B018
    for room in ("environments", "learners", "model", "tabular"):
        module = getattr(marco, room)
        assert all(getattr(module, name) is not None for name in module.__all__)


def test_importing_marco_starts_nothing():
    code = (
        "import sys, marco; print(marco.__version__ != '', 'jax' in sys.modules, 'numpy' in sys.modules)\n"
        "print(marco.environments.problem('dectiger').name)\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ran.stdout.split() == ["True", "False", "False", "dectiger"], ran.stderr


def test_programs_are_kept_for_the_next_process():
    """From Python as from the command line."""
    code = (
        "import os\n"
        "os.environ.pop('JAX_COMPILATION_CACHE_DIR', None)\n"
        "import jax\n"
        "from marco.compilation import keep_compiled\n"
        "keep_compiled()\n"
        "print(jax.config.jax_compilation_cache_dir)\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ran.stdout.strip().endswith("marco/jax"), ran.stderr
    assert TINY.mixer == "vdn"
