"""Every file of a run, damaged in every way: it is named with a cure, or it is a log and stops nothing."""

import errno
import json
import os
import random
import shutil
import warnings
from unittest.mock import MagicMock

import jax
import numpy as np
import pytest
from rich.console import Console

from helpers.damage import damaged
from helpers.tiny_run import WORLD, settings
from marco.algorithm.events import Event
from marco.data.dataset import Dataset
from marco.data.offline import LoggedEpisode, read_logged, write_logged
from marco.data.storage import write_atomically
from marco.networks import TeamNetwork
from marco.policies.base import RecurrentPolicy
from marco.policies.deploy import load
from marco.policies.export import load_policy
from marco.runs.checkpoint import DamagedWarning, RunJournal, read_events, read_metrics
from marco.runs.config import RunConfig, config_text
from marco.runs.figures import run_figure
from marco.runs.progress import Progress
from marco.runs.run import Run

VARIANTS = 200 if "MARCO_CRASH" in os.environ else 9
"""Of each kind of file."""

SETTINGS = {"agents": 2, "horizon": 3}
LEARNED = {"weights": np.arange(6.0), "empty": np.zeros(3)}
ROWS = (
    Event("collect", 0, 6, {"return": [0.5]}),
    Event("fit", 0, 6, {"dynamics": [0.5], "reward": [0.25]}, warnings=("reward: no better",)),
    Event("team", 0, 6, {}),
    Event("collect", 1, 12, {"return": [None], "uncertainty": [0.5]}),
)
RESULT = {"samples": [12], "logged": 0, "optimum": None, "imagined": [0.5]}
RESULT |= {"real": [{"mean": 0.5, "standard_error": 0.0}]}


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """A folder with every file of a run, written by hand: nothing is compiled."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    (folder / "data").mkdir(parents=True)
    (folder / "policy").mkdir()
    write_atomically(
        folder / "config.json", config_text(RunConfig("switch", "marco", settings(), (3,), 20, SETTINGS))
    )
    episode = LoggedEpisode(np.zeros((4, 2, 2)), np.zeros((4, 5)), np.zeros((3, 2), int), np.ones(3), False)
    for number in range(2):
        write_logged(folder / "data" / f"chunk-00000{number}.npz", WORLD.spec, [episode] * 2)
    journal = RunJournal(folder)
    for step, event in enumerate(ROWS, 1):
        journal.keep(step, LEARNED, event)
    RecurrentPolicy(TeamNetwork.create(jax.random.key(0), WORLD.spec, 4)).save(
        folder / "policy" / "seed-3.npz"
    )
    (folder / "result.json").write_text(json.dumps(RESULT))
    return folder


@pytest.fixture
def folder(sound, tmp_path):
    """A copy to damage."""
    shutil.copytree(sound, tmp_path / "run")
    return tmp_path / "run"


def read_config_of(folder):
    run = Run.open(folder)
    assert run.phases
    if run.config.world == "switch" and run.config.world_settings == SETTINGS:
        assert run.env.spec


def read_data(folder):
    assert Dataset(folder / "data", WORLD.spec, 1).chunks == 2


def read_checkpoint(folder):
    RunJournal(folder).restore(LEARNED)


def play_team(folder):
    load(folder).act([[0.0, 0.0]] * 2)
    load_policy(folder, WORLD.spec)


READERS = {
    "config.json": (
        "json",
        (read_config_of, lambda folder: read_logged([folder], "switch", SETTINGS, WORLD.spec)),
    ),
    "result.json": ("json", (lambda folder: Run.open(folder).result,)),
    "checkpoint.npz": ("npz", (read_checkpoint,)),
    "data/chunk-000001.npz": (
        "npz",
        (read_data, lambda folder: read_logged([folder], "switch", SETTINGS, WORLD.spec)),
    ),
    "policy/seed-3.npz": ("npz", (play_team,)),
}


CURES = (
    *("Correct it there", "Mend it", "Evaluate the teams again", "Delete", "Put it back", "Copy it again"),
    *("use the version", "leave these episodes out", "give data of the same environment"),
)


@pytest.mark.parametrize("name", READERS)
def test_a_damaged_file_is_refused_by_name_in_one_line_with_a_cure(folder, name):
    kind, readers = READERS[name]
    file, content = folder / name, (folder / name).read_bytes()
    for reader in readers:
        reader(folder)
    luck, refused = random.Random(name), 0
    for _ in range(VARIANTS):
        file.write_bytes(damaged(content, luck, kind))
        for reader in readers:
            error = refusal(reader, folder)
            refused += error is not None
            message = f"{error or file}"
            assert message.startswith(f"{file}")
            assert message.isprintable()
            assert error is None or any(cure in message for cure in CURES), message
    assert refused > VARIANTS / 10


def refusal(reader, folder):
    """The error of a reader, if it refuses; any other than a ValueError is a failure."""
    try:
        reader(folder)
    except ValueError as error:
        return error


AGAIN = ("train", "--out", "new", "--config")
LOGGED = ("train", "switch", "--env.agents", "2", "--env.horizon", "3", "--out", "new", "--data")


@pytest.mark.parametrize(
    ("command", "name"),
    [
        *(
            (command, "config.json")
            for command in (("evaluate",), ("resume",), ("model",), ("play",), AGAIN, LOGGED)
        ),
        *((command, "policy/seed-3.npz") for command in (("evaluate",), ("play",))),
        *((command, "checkpoint.npz") for command in (("resume",), ("model",))),
        *((command, "data/chunk-000001.npz") for command in (("resume",), ("model",), LOGGED)),
    ],
    ids=lambda part: part if isinstance(part, str) else part[-1],
)
def test_every_command_says_it_in_one_line(run, folder, monkeypatch, command, name):
    monkeypatch.chdir(folder.parent)
    content = (folder / name).read_bytes()
    for torn in (b"", content[: len(content) // 2]):
        (folder / name).write_bytes(torn)
        _, err, status = run(*command, folder)
        assert status == 2
        assert err.startswith(f"marco: {folder / name} is ")
        assert len(err.splitlines()) == 1
        assert any(cure in err for cure in CURES)
    assert not (folder.parent / "new").exists()


def test_what_is_no_folder_of_a_run_is_answered_by_the_one_meant(run, folder, tmp_path):
    for command in ("evaluate", "resume", "model", "play"):
        for name in ("config.json", "policy/seed-3.npz"):
            _, err, status = run(command, folder / name)
            assert (status, err) == (
                2,
                f"marco: {folder / name} is a file: give the folder of a run. Do you mean {folder}?\n",
            )
        _, err, status = run(command, tmp_path / "nothing")
        assert (status, err) == (2, f"marco: {tmp_path}/nothing does not exist: give the folder of a run.\n")
        _, err, status = run(command, tmp_path)
        assert (status, f"{tmp_path} is no run: it has no config.json" in err) == (2, True)
    _, err, status = run("train", "--config", tmp_path / "nothing")
    assert (status, "nothing. Give the folder of a run, or its config.json." in err) == (2, True)


def test_a_folder_that_cannot_be_made_is_named(run, folder):
    below = folder / "config.json" / "run"
    _, err, status = run("train", "switch", "--out", below)
    assert (status, err) == (
        2,
        f"marco: the folder {below} cannot be made: Not a directory. Choose another (--out).\n",
    )


def test_no_folder_is_left_half_made(tmp_path, monkeypatch):
    """A corrected command is not to be refused with 'exists already'."""
    bad = Run(tmp_path / "run", RunConfig("switch", "marco", settings(), (3,), 20, {"agents": {1, 2}}), WORLD)
    with pytest.raises(ValueError, match=r"cannot be written to config\.json"):
        bad.create()
    good = Run(tmp_path / "run", RunConfig("switch", "marco", settings(), (3,), 20, SETTINGS), WORLD)
    monkeypatch.setattr(os, "fsync", MagicMock(side_effect=OSError(errno.ENOSPC, "No space left on device")))
    with pytest.raises(OSError, match="No space left on device"):
        good.create()
    assert not (tmp_path / "run").exists()


def test_a_damaged_log_stops_nothing(folder, monkeypatch):
    """Its lines are left out with a warning, a resumed run goes on with the rest, and the figure is drawn."""
    panels = np.empty((2, 3), object)
    panels.fill(MagicMock())
    pictures = MagicMock(return_value=(MagicMock(), panels))
    monkeypatch.setattr("matplotlib.pyplot.subplots", pictures)
    monkeypatch.setattr("matplotlib.pyplot.close", MagicMock())
    file, content, luck = folder / "metrics.jsonl", (folder / "metrics.jsonl").read_bytes(), random.Random(1)
    for _ in range(VARIANTS):
        file.write_bytes(damaged(content, luck, "lines"))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            rows = read_metrics(folder)
            read_events(folder)
            Progress(
                Console(quiet=True), [(0, "final")], 50, [(row["phase"], row["seconds"]) for row in rows]
            )
            run_figure(Run.open(folder))
            RunJournal(folder).note(5, Event("fit", 1, 12, {"dynamics": [0.5]}))
        assert read_metrics(folder)[-1]["step"] == 5
    assert pictures.call_count == VARIANTS
    file.write_bytes(content.replace(b'"fit"', b'"fid"') + b'{"step": 5, "ph')
    with pytest.warns(
        DamagedWarning, match=r"metrics\.jsonl is damaged: 1 of its lines .* the first is line 2"
    ):
        assert [row["phase"] for row in read_metrics(folder)] == ["collect", "team", "collect"]
    file.write_bytes(content + b'{"step": 5, "ph')  # torn by a crash, as may be
    assert len(read_metrics(folder)) == 4


@pytest.mark.parametrize(
    "change",
    [
        *({"metrics": {"return": values}} for values in ("x", 3, None, ["x"], [10**400], [1e999], [[0.5]])),
        *({"seconds": seconds} for seconds in (-1.0, float("nan"), "1")),
        *({"phase": "fid"}, {"samples": -1}, {"step": "1"}, {"warnings": "x"}, {"warnings": ["\x1b[31m"]}),
    ],
)
def test_a_line_of_the_log_that_would_stop_something_is_left_out(folder, change):
    file = folder / "metrics.jsonl"
    lines = file.read_text().splitlines(keepends=True)
    lines[0] = json.dumps(json.loads(lines[0]) | change) + "\n"
    file.write_text("".join(lines))
    with pytest.warns(DamagedWarning, match="1 of its lines are left out, the first is line 1"):
        assert len(read_metrics(folder)) == len(ROWS) - 1
