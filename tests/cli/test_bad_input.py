"""Bad input on the command line: one line that names it, status 2, at once, and nothing left behind."""

import json
import subprocess
import sys

import pytest

from marco.runs.config import read_config
from marco.runs.run import Run

CODE = """
from marco.environments import Switch

def make(agents: int = 3, shape=(2, 2), x=None):
    assert isinstance(shape, tuple)
    return Switch(agents)

def host():
    from mpe2.simple_spread_v3 import parallel_env
    return parallel_env(N=2, max_cycles=5)
"""
BOUND = ("bound", "--states", "2", "--joint-actions", "9", "--horizon", "3", "--delta", "0.1", "--epsilon")


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """The user's own folder; no run is followed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("jaxtyping.config.jaxtyping_disable", True)
    monkeypatch.setattr("marco.cli.train.follow", lambda run: None)
    (tmp_path / "my_env.py").write_text(CODE)
    short = {"state": [{"feature": "all", "columns": [0, 1]}]}
    (tmp_path / "short.json").write_text(json.dumps(short))
    return tmp_path


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("switch --seeds 1000000000", "1,000,000,000 seeds need about"),
        ("switch --method model-free --seeds 1000000000", "1,000,000,000 seeds need about"),
        ("my_env.py:host --seeds 1000000", "--seeds 1000000: each seed of simple_spread_v3 is a process of"),
        ("my_env.py:host --seeds 2 --samples 3", "samples=3 is too few for simple_spread_v3"),
        ("switch --describe none.json", "the description none.json cannot be read: No such file"),
        ("switch --describe short.json", "does not fit its 7 columns: column 2 is not described"),
        ("switch --describe my_env.py", "the description my_env.py is no JSON"),
        ("switch --method model-free --describe short.json", "--describe is for --method marco."),
        ("switch --seed -1", "--seed must be a whole number from 0"),
        ("switch --seed 4294967296", "--seed must be a whole number from 0 to 4294967295"),
        ("reference --episodes 1", "--episodes must be at least 2, got 1."),
        ("switch --episodes 0", "--episodes must be at least 2, got 0."),
        ("switch --episodes 2000000000", "--episodes must be at most 1,000,000"),
        (
            "switch --samples 3",
            "samples=3 is too few for switch, whose episodes take up to 6 steps: a model learns",
        ),
        ("switch --samples 6", "samples=6 is too few for switch, whose episodes take up to 6 steps"),
        ("switch --seeds 100000000000000000000", "--seeds must be at most 4294967296, got 1000000000000"),
        ("switch --env.horizon 1" + 400 * "0", "would take about more than all memory there is"),
        ("switch --samples 0", "--samples must be at least 1, got 0."),
        ("switch --samples -5", "--samples must be at least 1, got -5."),
        ("switch --method model-free --samples -5", "--samples must be at least 1, got -5."),
        ("switch --samples 2000000000", "samples=2000000000 would take about"),
        ("switch --chunk 2000000000", "chunk=2000000000 would take about"),
        ("switch --env.horizon 10000000000", "with horizon=10000000000 would take about"),
        ("switch --restarts 1000000000", "--restarts must be at most 1,000, got 1000000000."),
        ("switch --lam 1e999", "lam must be a finite number, got inf."),
        ("switch --team.learning-rate nan", "team.learning_rate must be a finite number, got nan."),
        ("switch --model.training.min-delta -1", "model.training: FitConfig: min_delta must not be negative"),
        ("switch --model.dynamics.members 1000000000", "model.dynamics would take about"),
        ("switch --team.hidden 100000000", "one seed needs about"),
        ("switch --method model-free --learner.learning-rate inf", "learning_rate must be a finite number"),
        ("switch --env.agents=", "--env.agents needs a value."),
        ("switch extra", "'extra' belongs to no option"),
        ("switch --tensorboard yes", "'yes' belongs to no option"),
        ("my_env.py:make --env.x {1,2}", "the setting x of the environment cannot be written to config.json"),
    ],
)
def test_training_is_refused_at_once_and_leaves_nothing(run, place, words, message):
    _, err, status = run("train", *words.split(), "--out", "run")
    assert status == 2
    assert message in err
    assert (err.startswith("marco: "), len(err.splitlines())) == (True, 1)
    assert not (place / "run").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("play", "switch", "--seed", "-1"), "--seed must be a whole number from 0"),
        (
            ("play", "switch", "--episodes", "1000000000"),
            "--episodes must be at most 10,000, got 1000000000.",
        ),
        (("evaluate", "run", "--episodes", "-1"), "--episodes must be at least 2, got -1."),
        (("evaluate", "run", "--seed", "-1"), "--seed must be a whole number from 0"),
        (("play", "~nobody_of_this_name"), "unknown environment '~nobody_of_this_name'"),
        (("solve", "dectiger", "--memory", "-1"), "--memory must be more than 0, got -1."),
        (("solve", "dectiger", "--time", "0"), "--time must be more than 0, got 0."),
        (("solve", "nothing"), "unknown environment 'nothing'"),
        (("solve", "dectiger", "--env.horizon", "x"), "dectiger: horizon must be a whole number, got 'x'."),
        (("rmax", "dectiger", "--epsilon", "nan"), "--epsilon must be a number from 0 on, got nan."),
        (("rmax", "dectiger", "--seed", "-1"), "--seed must be a whole number from 0"),
        ((*BOUND, "inf"), "epsilon must be more than 0 and finite, got inf."),
        ((*BOUND, "1e-300"), "the bounds are too large to be computed"),
    ],
)
def test_other_commands_refuse_by_name(run, words, message):
    _, err, status = run(*words)
    assert status == 2
    assert message in err
    assert (err.startswith("marco: "), len(err.splitlines())) == (True, 1)


def test_a_run_is_opened_from_another_folder_with_the_same_environment(run, place, monkeypatch):
    """A file by its whole path, a tuple as a tuple: what is resumed is what was begun."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert run("train", "./my_env.py:make", "--env.shape", "(3,3)", "--out", "run")[2] == 0
    monkeypatch.chdir("/")
    config = read_config(place / "run")
    assert (config.world, config.world_settings) == (f"{place / 'my_env.py'}:make", {"shape": (3, 3)})
    assert Run.open(place / "run", trust=True).env.spec.name == "switch"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (("switch",), ("switch", "--env.horizon", "6")),
        (("dectiger", "--env.horizon", "4"), ("dectiger",)),
        (("my_env.py:make", "--env.shape", "(3,3)"), ("./my_env.py:make", "--env.shape", "(3,3)")),
        (("my_env.py:make",), ("moved/my_env.py:make",)),
    ],
)
def test_data_of_the_same_environment_is_accepted_however_it_was_named(run, place, first, second):
    assert run("train", *first, "--out", "first")[2] == 0
    (place / "moved").mkdir()
    (place / "moved" / "my_env.py").write_text(CODE)
    (place / "first" / "data").mkdir(exist_ok=True)
    (place / "first" / "data" / "chunk-000000.npz").write_bytes(b"no arrays")
    _, err, status = run("train", *second, "--data", "first", "--out", "second")
    assert (status, "chunk-000000.npz" in err, "same environment" in err) == (2, True, False)
    _, err, status = run("train", *second, "--env.agents=4", "--data", "first", "--out", "second")
    assert (status, "give data of the same environment" in err) == (2, first[0] != "dectiger")


def test_the_corrected_command_works_after_a_refused_one(run, place):
    assert run("train", "my_env.py:make", "--env.x", "{1,2}")[2] == 2
    assert run("train", "my_env.py:make", "--env.x", "(1,2)")[2] == 0
    (made,) = (place / "runs").iterdir()
    assert json.loads((made / "config.json").read_text())["world_settings"] == {"x": {"tuple": [1, 2]}}


def test_who_reads_no_further_ends_the_command_quietly():
    """As in `marco --help | head -3`."""
    command = [sys.executable, "-m", "marco.cli", "--help"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 1
