"""Workers in a run: from Python, on the command line, in config.json, and on Ray."""

import json

import jax
import numpy as np
import pytest

import marco
from helpers.collected import TOTAL, chunks, collect
from helpers.simulated import NAME
from helpers.tiny_run import KNOWN, QUICK
from marco.environments.base import WorldWarning
from marco.runs.config import read_config
from marco.simulators.config import Workers


def test_learning_with_workers_gives_the_same_team_and_counts_what_was_played_again(tmp_path):
    def learn(faults=None, **options):
        env = marco.make(NAME, faults=faults)
        quiet = {"config": QUICK, "known": dict(KNOWN), "progress": False, "test_episodes": 4}
        return marco.learn(env, seed=3, **quiet, **options)

    alone = learn()
    (tmp_path / "kill-0").touch()
    with pytest.warns(WorldWarning, match="was killed by SIGKILL"):
        found = learn(str(tmp_path), workers=2, step_timeout=30.0)
    for one, other in zip(jax.tree.leaves(found.team), jax.tree.leaves(alone.team), strict=True):
        np.testing.assert_array_equal(one, other)
    for one, other in zip(found.episodes, alone.episodes, strict=True):
        np.testing.assert_array_equal(one, other)
    assert (found.samples, found.broken_off, found.played_again.episodes) == (50, (0, 0), 1)
    assert found.value == alone.value


def test_the_command_keeps_the_workers_and_another_run_may_have_others(run, tmp_path, monkeypatch):
    begun = []
    for command in ("train", "resume"):
        monkeypatch.setattr(f"marco.cli.{command}.follow", lambda one: begun.append(one.config.workers))
    folder = tmp_path / "run"
    options = ("--workers", "3", "--step-timeout", "2.5", "--samples", "50", "--out", folder)
    _, err, status = run("train", NAME, *options)
    assert status == 0, err
    assert json.loads((folder / "config.json").read_text())["workers"] == {
        "count": 3,
        "ray": None,
        "step_timeout": 2.5,
        "attempts": 3,
    }
    assert read_config(folder).workers == Workers(3, step_timeout=2.5)
    for words in ((), ("--workers", "2", "--attempts", "5"), ("--ray", "--workers", "4"), ("--workers", "0")):
        _, err, status = run("resume", folder, "--world", NAME, *words)
        assert status == 0, err
    text = (folder / "config.json").read_text()
    (folder / "config.json").write_text(text.replace('"ray": null', '"ray": "10.0.0.1:6379"'))
    _, err, status = run("resume", folder, "--world", NAME)  # a folder may be anyone's
    assert status == 2
    assert "name that (--ray 10.0.0.1:6379), trust it (--trust), or use none (--workers 0)" in err
    assert begun == [
        Workers(3, step_timeout=2.5),
        Workers(3, step_timeout=2.5),
        Workers(2, step_timeout=2.5, attempts=5),
        Workers(4, ray="auto", step_timeout=2.5),
        None,
    ]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("switch", "--workers", "2"),
            "switch is compiled, and plays its episodes side by side without workers",
        ),
        ((NAME, "--ray"), "--ray is for workers: say how many, as in --workers 8"),
        ((NAME, "--workers", "-1"), "workers must be from 1 to 10,000, got -1"),
        ((NAME, "--workers", "2", "--method", "model-free"), "workers are for MARCO"),
    ],
)
def test_workers_that_cannot_be_are_refused_in_one_line(run, tmp_path, words, message):
    _, err, status = run("train", *words, "--samples", "50", "--out", tmp_path / "run")
    assert (status, err.count("\n")) == (2, 1)
    assert message in err
    assert not (tmp_path / "run").exists()


def test_actors_of_a_ray_cluster_give_the_same_data_and_are_replaced_when_they_are_killed(tmp_path):
    ray = pytest.importorskip("ray")
    whole = chunks(collect(tmp_path / "whole", None).folder)
    faults = tmp_path / "faults"
    faults.mkdir()
    for kind in ("kill-0", "raise-0", "hang-0"):
        (faults / kind).touch()
    try:
        workers = Workers(2, ray="local", step_timeout=5.0, attempts=6)
        with pytest.warns(WorldWarning, match="It is played again from its start") as told:
            dataset = collect(tmp_path / "ray", workers, faults=str(faults), log=str(tmp_path / "log"))
        assert chunks(tmp_path / "ray") == whole
        assert (dataset.samples.tolist(), dataset.played_again.episodes, len(told)) == ([TOTAL], 3, 3)
        assert dataset.played_again.steps == (tmp_path / "log").stat().st_size - TOTAL
    finally:
        ray.shutdown()
