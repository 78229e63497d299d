import sys

import pytest

from marco.cli.common import parse_settings
from marco.cli.each_seed import run_together


def test_worlds_lists_sizes_and_optima(run):
    out, _, status = run("worlds")
    assert status == 0
    rows = {line.split("│")[1].strip(): line for line in out.splitlines() if line.startswith("│")}
    assert "20/27" not in out
    for name, cells in {"switch": "3 4 2 7 6 0.740741", "reference": "2 50 21 40 25 unknown"}.items():
        assert rows[name].replace("│", " ").split()[1:] == cells.split()


def test_play_shows_an_episode_and_the_exact_value(run):
    out, _, status = run("play", "switch", "--policy", "expert", "--episodes", "2", "--seed", "3")
    assert status == 0
    assert "episode 2" in out
    assert "Exact value of the expert team: 0.740741; the best team's is 0.740741." in out
    assert run("play", "switch", "--policy", "expert", "--episodes", "2", "--seed", "3")[0] == out


def test_play_passes_settings_on(run):
    out, _, _ = run("play", "switch", "--set", "agents=4", "horizon=2")
    assert "agent 3" in out
    assert "best team" not in out


def test_play_draws_reference(run, tmp_path):
    path = tmp_path / "out.gif"
    _, _, status = run("play", "reference", "--set", "horizon=3", "--gif", str(path))
    assert status == 0
    assert path.read_bytes()[:4] == b"GIF8"


def test_play_runs_a_pettingzoo_world(run):
    out, _, status = run("play", "mpe2.simple_spread_v3:parallel_env", "--set", "max_cycles=3", "N=2")
    assert status == 0
    assert "stopped by the clock after 3 steps" in out


def test_a_world_beside_the_user_is_found(run, tmp_path, monkeypatch):
    (tmp_path / "my_world.py").write_text("from mpe2.simple_spread_v3 import parallel_env as make\n")
    monkeypatch.chdir(tmp_path)
    assert run("play", "my_world:make", "--set", "max_cycles=2")[2] == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("swich",), "unknown world 'swich': the built-in ones are switch, bridge"),
        (("switch", "--episodes", "0"), "--episodes must be at least 1, got 0"),
        (("switch", "--set", "agents"), "--set takes name=value, got 'agents'"),
        (("switch", "--set", "agent=4"), "switch has no setting 'agent': it has agents, horizon"),
        (("switch", "--gif", "a.gif"), "only reference can be drawn, got switch"),
        (("reference", "--gif", "a.png"), "--gif writes a .gif file, got 'a.png'"),
        (("reference", "--gif", "no/such/a.gif"), "there is no folder"),
        (("delayed", "--policy", "expert"), "there is no expert for delayed"),
        (("no_such_module:make",), "no module"),
        (("mpe2.simple_spread_v3:parallel_env", "--set", "continuous_actions=True"), "not supported"),
    ],
)
def test_mistakes_give_one_line_and_status_2(run, arguments, message):
    _, err, status = run("play", *arguments)
    assert status == 2
    assert message in err
    assert err.startswith("marco: ")
    assert len(err.splitlines()) == 1


def test_settings_are_literals_or_strings():
    assert parse_settings(("a=1", "b=0.5", "c=True", "d=mean")) == {"a": 1, "b": 0.5, "c": True, "d": "mean"}


def test_importing_marco_needs_no_optional_package():
    import subprocess

    code = (
        "import sys\n"
        "for name in ('pettingzoo', 'gymnasium', 'mpe2', 'jaxmarl', 'ray', 'tensorboard', 'tyro'):\n"
        "    sys.modules[name] = None\n"
        "import marco, marco.environments.adapters.pettingzoo, marco.environments.adapters.jaxmarl\n"
        "try:\n"
        "    marco.make('mpe2.simple_spread_v3:parallel_env')\n"
        "except (ImportError, ValueError) as error:\n"
        "    print(error)\n"
        "try:\n"
        "    marco.PettingZooWorld(lambda: None)\n"
        "except ImportError as error:\n"
        "    print(error)\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert "pip install 'marco-marl[pettingzoo]'" in ran.stdout


def test_train_evaluate_and_load(run, tmp_path):
    import json

    import marco

    folder = tmp_path / "run"
    options = (
        "--samples",
        "120",
        "--seeds",
        "2",
        "--seed",
        "4",
        "--evaluate-every",
        "60",
        "--out",
        str(folder),
    )
    out, err, status = run(
        "train", "switch", "--method", "model-free", "--preset", "paper", "--set", "horizon=3", *options
    )
    assert status == 0, err
    assert "exact return" in out
    config = json.loads((folder / "config.json").read_text())
    assert (config["world"], config["settings"], config["seeds"]) == ("switch", {"horizon": 3}, [4, 5])
    assert config["learner"]["mixer"] == "iql"
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert len(lines) == 2
    assert max(lines[-1]["samples"]) <= 120
    out, _, status = run("evaluate", str(folder), "--json")
    result = json.loads(out)
    assert result["optimum"] == pytest.approx(2 / 9)
    assert [row["exact"] for row in result["seeds"]] == pytest.approx(lines[-1]["returns"])
    assert result["exact"] == pytest.approx(sum(lines[-1]["returns"]) / 2)
    team = marco.load(folder, seed=5)
    assert len(team.act([[1, 0], [0, 0], [0, 0]], [[1, 1, 1, 1], [1, 0, 0, 0], [1, 0, 0, 0]])) == 3
    assert "0.2222" in run("evaluate", str(folder))[0]
    _, err, status = run("train", "switch", "--method", "model-free", "--preset", "paper", *options)
    assert status == 2
    assert "exists already: choose another --out, or remove it" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("switch", "--samples", "100"), "samples=100 is less than one update may take"),
        (("switch", "--seeds", "0"), "--seeds must be at least 1, got 0"),
        (("reference", "--seeds", "100000"), "seeds need about"),
        (("switch", "--preset", "paper", "--learner", "mappo"), "the paper gives no numbers for mappo"),
    ],
)
def test_bad_trainings_are_refused_and_leave_nothing_behind(run, arguments, message, tmp_path):
    folder = tmp_path / "run"
    _, err, status = run("train", *arguments, "--method", "model-free", "--out", str(folder))
    assert status == 2
    assert message in err
    assert not folder.exists()


def test_seeds_of_a_host_world_get_a_process_and_a_folder_each(run, tmp_path, monkeypatch):
    """Every seed's command is taken as it is given: the options that come last count."""
    asked = {}
    monkeypatch.setattr("marco.cli.train.run_together", lambda named: asked.update(named) or 0)
    options = ("--samples", "500", "--set", "N=2", "--seed", "5", "--seeds", "2", "--out", tmp_path / "runs")
    assert run("train", "mpe2.simple_spread_v3:parallel_env", *options)[2] == 0
    assert list(asked) == ["seed 5", "seed 6"]
    monkeypatch.undo()
    begun = []
    monkeypatch.setattr("marco.cli.train.follow", lambda one: begun.append((one.seeds, one.out)))
    for _, _, _, *arguments in asked.values():  # after python -m marco.cli
        assert run(*arguments)[2] == 0
    assert begun == [((seed,), tmp_path / "runs" / f"seed-{seed}") for seed in (5, 6)]


def test_processes_are_told_by_name_and_the_worst_exit_status_counts(capsys):
    fine = [sys.executable, "-c", "print('[b]one'); print('two')"]
    bad = [sys.executable, "-c", "raise SystemExit('no')"]
    assert run_together({"seed 0": fine, "seed 1": bad}) == 1
    assert sorted(capsys.readouterr().out.splitlines()) == ["seed 0: [b]one", "seed 0: two", "seed 1: no"]
    assert run_together({"seed 0": fine}) == 0


def test_evaluating_what_is_no_run_is_refused(run, tmp_path):
    _, err, status = run("evaluate", str(tmp_path))
    assert status == 2
    assert "is no run: it has no config.json" in err
