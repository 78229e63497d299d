"""A run in its folder, by the command: Ctrl-C, a full disk, logged data, TensorBoard, what is shown."""

import errno
import io
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from helpers.tiny_run import KNOWN, WORLD, logged_episodes, settings
from marco.algorithm.events import Event
from marco.data.dataset import Dataset
from marco.data.offline import write_logged
from marco.environments.adapters.pettingzoo import PettingZooWorld
from marco.runs.progress import Progress
from marco.runs.run import Run
from marco.runs.tensorboard import TensorBoard
from marco.runs.time_left import TimeLeft

TRAIN = ("train", "switch", "--env.agents", "2", "--env.horizon", "3", "--seed", "3")


@pytest.fixture
def tiny_networks(monkeypatch):
    """The preset of these tests."""

    def preset(name, spec, changes):
        changes = {key: value for key, value in changes.items() if value is not None}
        return settings(**changes)

    monkeypatch.setattr("marco.algorithm.presets.make_config", preset)


@pytest.fixture
def tiny(tiny_networks, monkeypatch):
    """The tiny riddle, all known but its dynamics."""
    plainly = Run._algorithm

    def informed(self, *arguments):
        return replace(plainly(self, *arguments), known=KNOWN)

    monkeypatch.setattr(Run, "_algorithm", informed)


@pytest.fixture(scope="module")
def reference_team(tmp_path_factory):
    """Where the team of an uninterrupted run is kept, once there is one."""
    return tmp_path_factory.mktemp("teams") / "whole.npz"


def same_team(folder, reference_team):
    """Whether a run has ended with the same team as all others of its settings did."""
    team = (folder / "policy" / "seed-3.npz").read_bytes()
    if not reference_team.exists():
        reference_team.write_bytes(team)
    with np.load(reference_team) as one, np.load(folder / "policy" / "seed-3.npz") as other:
        return all(np.array_equal(one[name], other[name]) for name in one.files)


def rows_of(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_a_run_tells_each_phase_draws_its_figure_and_writes_for_tensorboard(
    tiny, run, tmp_path, reference_team
):
    folder = tmp_path / "run"
    out, err, status = run(*TRAIN, "--out", folder, "--tensorboard")
    assert status == 0, err
    assert same_team(folder, reference_team)
    assert "20 of 50 real samples, collect: real return" in out
    assert "then the final training" in out
    assert "its uncertainty" in out
    assert [row["phase"] for row in rows_of(folder)][-3:] == ["collect", "fit", "final"]
    assert (folder / "figures" / "run.png").stat().st_size > 10_000
    result = json.loads((folder / "result.json").read_text())
    assert (result["samples"], result["logged"]) == ([50], 0)
    (events,) = (folder / "tensorboard" / "seed-3").iterdir()
    assert b"collect/uncertainty" in events.read_bytes()
    assert b"real/return" in events.read_bytes()
    out, _, status = run("evaluate", folder, "--json")
    assert json.loads(out)["exact"] == pytest.approx(result["real"][0]["mean"])
    assert len(rows_of(folder)) == 11
    (folder / "metrics.jsonl").write_bytes(b"\xff\n")  # a log, on which nothing depends
    assert run("resume", folder)[2] == 0  # nothing is left to do; it is judged again
    assert (folder / "metrics.jsonl").read_bytes() == b"\xff\n"


def interrupt(patch, phase, share):
    """Ctrl-C as a phase stands there."""
    plainly = Progress.show

    def show_and_stop(self, event):
        plainly(self, event)
        if (event.phase, event.progress) == (phase, share):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.5)

    patch.setattr(Progress, "show", show_and_stop)


@pytest.mark.parametrize(("phase", "share"), [("collect", 1.0), ("explore", 0.5), ("final", 0.0)])
def test_the_first_ctrl_c_stops_soon_with_130_and_the_run_goes_on(
    tiny, run, tmp_path, monkeypatch, reference_team, phase, share
):
    folder, before = tmp_path / "run", signal.getsignal(signal.SIGINT)
    with monkeypatch.context() as patch:
        interrupt(patch, phase, share)
        out, _, status = run(*TRAIN, "--out", folder)
    assert status == 130
    assert "Ctrl-C again stops at once" in out
    assert f"Nothing is lost: marco resume {folder}" in out.replace("\n", "")
    assert signal.getsignal(signal.SIGINT) is before
    assert run("resume", folder)[2] == 0
    assert same_team(folder, reference_team)
    assert len(rows_of(folder)) == 11


def test_the_second_ctrl_c_stops_at_once_even_in_compiled_code():
    code = (
        "import jax, os, signal, threading, time\n"
        "from marco.runs.interrupt import stopping\n"
        "def twice():\n"
        "    for wait in (1, 1):\n"
        "        time.sleep(wait); os.kill(os.getpid(), signal.SIGINT)\n"
        "with stopping('Nothing is lost: marco resume here'):\n"
        "    threading.Thread(target=twice).start()\n"
        "    forever = jax.jit(lambda x: jax.lax.fori_loop(0, 2**31 - 1, lambda i, x: jax.numpy.sin(x), x))\n"
        "    forever(1.0).block_until_ready()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 130, done.stderr
    assert "Stopped. Nothing is lost: marco resume here" in done.stdout


@pytest.mark.parametrize("writes", [3, 12])
def test_a_full_disk_names_the_file_and_the_run_goes_on(
    tiny, run, tmp_path, monkeypatch, reference_team, writes
):
    folder, plainly = tmp_path / "run", os.fsync
    left = writes

    def full(descriptor):
        nonlocal left
        left -= 1
        if left < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        plainly(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        _, err, status = run(*TRAIN, "--out", folder)
    assert status == 2
    assert f"{folder}/" in err
    assert "could not be written: No space left on device" in err
    assert "make room, and resume" in err
    assert run("resume", folder)[2] == 0
    assert same_team(folder, reference_team)


def test_a_pettingzoo_world_from_end_to_end(tiny_networks, run, tmp_path, monkeypatch):
    folder = tmp_path / "run"
    world = ("mpe2.simple_spread_v3:parallel_env", "--env.N", "2", "--env.max_cycles", "3", "--samples", "14")
    changes = ("--first-chunk", "6", "--chunk", "8", "--episodes", "2")
    with monkeypatch.context() as patch:
        interrupt(patch, "collect", 0.5)  # between two of its episodes
        out, _, status = run("train", *world, *changes, "--out", folder)
    assert status == 130
    again = f"marco resume {folder} --world {world[0]}"
    assert f"Nothing is lost: {again}" in out.replace("\n", "")
    with monkeypatch.context() as patch:
        patch.setattr(PettingZooWorld, "_settle", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError) as caught:
            run(*again.split()[1:])
    assert caught.value.__notes__[2:] == ["This was episode 2 of the run.", f"Nothing is lost: {again}"]
    out, err, status = run(*again.split()[1:])
    assert status == 0, err
    assert "1 of the real episodes broke off, with 1 of the real samples" in " ".join(out.split())
    assert "more real steps were taken to evaluate the teams" in out
    result = json.loads((folder / "result.json").read_text())
    assert (result["samples"], result["broken_off"]) == ([14], {"episodes": 1, "steps": 1})
    assert [row["samples"] for row in rows_of(folder) if row["phase"] == "collect"] == [6, 14]
    found = json.loads(run("evaluate", folder, "--json", "--episodes", "3", "--trust")[0])
    assert (found["exact"], found["seeds"][0]["episodes"], found["seeds"][0]["steps"]) == (None, 3, 9)
    assert found["mean"] < 0.0
    assert (folder / "figures" / "run.png").exists()


@pytest.mark.parametrize(("samples", "flag"), [(50, "--data-counts"), (26, "--no-data-counts")])
def test_a_run_starts_from_logged_data(tiny, run, tmp_path, samples, flag):
    folder, log = tmp_path / "run", tmp_path / "log.npz"
    episodes = logged_episodes(24)
    write_logged(log, WORLD.spec, episodes)
    out, err, status = run(*TRAIN, "--out", folder, "--samples", samples, "--data", log, flag)
    assert status == 0, err
    assert "Of the real samples 24 were logged before this run" in out
    rows = [row["samples"] for row in rows_of(folder) if row["phase"] == "collect"]
    assert rows == [24, 40, 50]  # the log is more than the first chunk of 20: nothing is collected at random
    dataset = Dataset(folder / "data", WORLD.spec, 1)
    assert dataset.samples.tolist() == [50]
    for number, episode in enumerate(episodes):
        steps = len(episode.actions)
        np.testing.assert_array_equal(dataset.episodes(0).actions[:steps, number], episode.actions)
    config = json.loads((folder / "config.json").read_text())
    assert config["logged"] == {"files": [str(log)], "samples": 24, "counts": flag == "--data-counts"}
    log.unlink()
    assert run("resume", folder)[2] == 0  # the folder needs nothing else


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--lambda", "1"), "there is no option --lambda: do you mean --lam?"),
        (
            ("--team.learning-rat", "1"),
            "there is no option --team.learning-rat: do you mean --team.learning-rate?",
        ),
        (("--sample", "100"), "there is no option --sample: do you mean --samples?"),
        (("bridge",), "'bridge' belongs to no option: one environment comes first"),
        (("--lam", "-1"), "lam must not be negative, got -1"),
        (("--lam", "much"), "could not convert string to float: 'much'"),
        (("--collector", "nobody"), "invalid choice"),
        (("--view", "central"), "invalid choice"),
        (("--chunk", "2.5"), "invalid literal for int()"),
        (("--warm-explorer", "1"), "invalid choice"),
        (("--env.agent", "4"), "has no setting 'agent': it has agents, horizon. Do you mean 'agents'?"),
        (("--data", "nowhere"), "nowhere is no file and no folder with chunks"),
        (("--method", "model-free", "--restarts", "2"), "--restarts is for --method marco"),
    ],
)
def test_bad_runs_are_refused_before_anything_is_compiled(run, tmp_path, arguments, message):
    folder = tmp_path / "run"
    _, err, status = run(*TRAIN, "--out", folder, *arguments)
    assert status == 2
    assert message in err
    assert not folder.exists()


def test_a_run_begins_from_the_settings_of_another(tiny, run, tmp_path, monkeypatch):
    """`--config` has all settings; what is given beside it changes them, in any order."""
    begun = []
    monkeypatch.setattr("marco.cli.train.follow", lambda one: begun.append(one.config))
    run(*TRAIN, "--out", tmp_path / "a", "--lam", "0.5", "--seeds", "2")
    assert run("train", "--config", tmp_path / "a", "--out", tmp_path / "b")[2] == 0
    given = ("--samples", "10", "--first-chunk", "10", "--team.learning-rate", "0.5", "--seed", "7")
    assert run("train", "--config", tmp_path / "a", *given, "--out", tmp_path / "c")[2] == 0
    first, same, changed = begun
    assert same == first
    assert (first.algorithm.lam, first.seeds) == (0.5, (3, 4))
    assert (changed.algorithm.samples, changed.algorithm.first_chunk, changed.seeds) == (10, 10, (7, 8))
    assert {one.learning_rate for one in changed.algorithm.candidates} == {0.5}
    _, err, status = run("train", "--config", tmp_path / "a", "--preset", "paper", "--out", tmp_path / "d")
    assert (status, "--preset makes settings, which --config has" in err) == (2, True)
    _, err, status = run("train", "--lam", "0", "switch")
    assert (status, "name an environment first" in err) == (2, True)


def test_tensorboard_that_is_not_installed_is_asked_for(run, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    _, err, status = run(*TRAIN, "--out", tmp_path / "run", "--tensorboard")
    assert status == 2
    assert "pip install 'marco-marl[tensorboard]'" in err
    assert not (tmp_path / "run").exists()


def test_tensorboard_has_a_folder_per_seed_and_goes_on(tmp_path):
    for samples in (20, 36):
        board = TensorBoard(tmp_path, (3, 4))
        board.add(Event("collect", 0, samples, {"return": [0.5, None]}))
        board.close()
        time.sleep(1.1)  # files are named by the second
    names = {path.name: len(list(path.iterdir())) for path in (tmp_path / "tensorboard").iterdir()}
    assert names == {"seed-3": 2, "seed-4": 2}


PHASES = [
    *((0, phase) for phase in ("collect", "fit", "team", "explore")),
    *((1, phase) for phase in ("collect", "fit", "team", "explore")),
    *((2, phase) for phase in ("collect", "fit", "final")),
]


def test_time_left_is_what_phases_took_and_says_what_it_does_not_know():
    left = TimeLeft(PHASES)
    left.see(Event("collect", 0, 0, {}, 0.0), 0.0)
    assert left.estimate(0.0) == "time left not known yet"
    assert left.see(Event("collect", 0, 20, {}), 1.0) == 1.0
    left.see(Event("fit", 0, 20, {}), 31.0)  # compiled on the way
    left.see(Event("team", 0, 20, {}), 31.0)
    left.see(Event("explore", 0, 20, {}), 41.0)
    # Twice collect and fit, once team and explore, and a last training that was never seen.
    assert left.estimate(41.0) == "at most 1:12 left, then the final training"
    for phase, seconds in (("collect", 42.0), ("fit", 47.0), ("team", 47.0), ("explore", 51.0)):
        left.see(Event(phase, 1, 36, {}), seconds)
    assert left.estimate(51.0) == "about 0:06 left, then the final training"
    left.see(Event("collect", 2, 50, {}), 52.0)
    left.see(Event("fit", 2, 50, {}), 57.0)
    for share, seconds in ((0.0, 57.0), (0.1, 80.0), (0.2, 82.0), (0.3, 84.0)):
        left.see(Event("final", 2, 50, {}, share), seconds)
    assert left.estimate(84.0) == "about 0:14 left"  # two seconds a tenth, the first apart
    assert left.estimate(85.0) == "about 0:13 left"


def test_time_left_remembers_an_earlier_process():
    left = TimeLeft(
        PHASES[:4] + [(1, "collect"), (1, "fit"), (1, "final")],
        before=[("collect", 1.0), ("fit", 9.0), ("team", 0.0), ("explore", 5.0)],
    )
    left.see(Event("collect", 1, 50, {}, 0.0), 100.0)
    assert left.estimate(100.0) == "at most 0:10 left, then the final training"


def test_a_terminal_shows_phase_samples_steps_returns_loss_and_time():
    console = Console(file=io.StringIO(), force_terminal=True, width=100)
    progress = Progress(console, PHASES, 50)
    numbers = {"return": [0.25], "uncertainty": [0.125]}
    progress.show(Event("collect", 1, 36, numbers))
    progress.show(Event("fit", 1, 36, {"dynamics": [0.5], "reward": [0.25]}))
    progress.show(Event("explore", 1, 36, {"exploration_return": [1.5], "model_steps": [4_000]}, 0.5))
    with console.capture() as shown:
        console.print(progress._board())
    for words in (
        "round 2 of 3: training the exploration policy in the model",
        "36 of 50 real samples",
        "model steps 4,000",
        "real return 0.2500",
        "its uncertainty 0.1250",
        "held-out loss 0.7500",
        "imagined return with bonus 1.5000",
        "time left not known yet",
    ):
        assert words in " ".join(shown.get().split())


def test_without_a_terminal_a_long_phase_is_told_of_once_a_minute(monkeypatch):
    console, seconds = Console(file=io.StringIO(), width=200), iter(range(0, 1_000, 25))
    monkeypatch.setattr("marco.runs.progress.time.perf_counter", lambda: float(next(seconds)))
    progress = Progress(console, [(0, "final")], 50)  # at 0 s; then one event every 25 s
    for tenths in range(1, 6):
        numbers = {"imagined_return": [0.5], "model_steps": [tenths]}
        progress.show(Event("final", 0, 50, numbers, tenths / 10))
    lines = console.file.getvalue().splitlines()
    assert [line.split(":")[0] for line in lines] == ["50 of 50 real samples, final 30%"]
    progress.show(Event("final", 0, 50, numbers))
    assert "final: imagined return 0.5000" in console.file.getvalue().splitlines()[-1]
