import sys

import pytest

from marco.cli import COMMANDS
from marco.cli.each_seed import run_together
from marco.cli.settings import take_env


def test_worlds_lists_sizes_and_optima(run):
    out, _, status = run("worlds")
    assert status == 0
    rows = {line.split("│")[1].strip(): line for line in out.splitlines() if line.startswith("│")}
    assert "20/27" not in out
    known = {
        "switch": "3 4 2 7 6 0.740741",
        "reference": "2 50 21 40 25 unknown",
        "dectiger": "2 3 2 2 4 unknown",
    }
    for name, cells in known.items():
        assert rows[name].replace("│", " ").split()[1:] == cells.split()
    for form in ("FILE.dpomdp", "jaxmarl:NAME", "package.module:function", "path/to/file.py:function"):
        assert form in out


def test_worlds_describes_an_environment_column_by_column(run):
    out, _, status = run("worlds", "reference", "--env.horizon", "9")
    assert status == 0
    assert "reference: 2 agents, up to 9 steps" in out
    assert "agent agent 0: 50 actions: move (5) x message (10)" in out
    assert "partner's goal" in out
    assert "3 classes" in out
    assert "read off shapes" not in out  # it says itself what its columns are


def test_worlds_help_and_version_import_neither_jax_nor_numpy():
    """So they answer at once."""
    import subprocess

    for words, answer in (("worlds", "broadcast-channel"), ("--help", "resume"), ("--version", "marco ")):
        code = (
            "import sys\n"
            "sys.modules['jax'] = sys.modules['numpy'] = None\n"
            f"sys.argv = ['marco', {words!r}]\n"
            "from marco.cli import main\n"
            "main()\n"
        )
        ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert ran.returncode == 0, ran.stderr
        assert answer in ran.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_shows_its_options(run, command):
    out, err, status = run(command, "--help")
    assert status == 0, err
    assert out.startswith(f"usage: marco {command}")


def test_a_discount_that_is_not_used_is_said_in_one_line(run, tmp_path):
    from marco.tabular.dpomdp.format import text
    from marco.tabular.library import load

    words = text(load("recycling")).replace("discount: 1.0", "discount: 0.9")
    (tmp_path / "mine.dpomdp").write_text(words)
    _, err, status = run("solve", tmp_path / "mine.dpomdp", "--horizon", "1")
    assert status == 0
    assert err.startswith("marco: warning: discount 0.9 of ")
    assert err.endswith("mine.dpomdp is not used: returns are undiscounted sums over the horizon.\n")


def test_too_little_memory_is_one_line(run, monkeypatch):
    def unable(arguments):
        raise MemoryError(*arguments)

    monkeypatch.setattr("marco.cli.worlds.main", unable)
    line = "marco: the memory is not enough: take something smaller."
    assert run("worlds")[1:] == (f"{line}\n", 2)
    assert run("worlds", "Unable to allocate 9 GiB")[1:] == (f"{line} Unable to allocate 9 GiB\n", 2)


def test_an_unknown_command_is_answered_by_the_one_meant(run):
    _, err, status = run("trian")
    assert (status, err) == (2, "marco: there is no command 'trian': do you mean 'train'?\n")


def test_a_users_own_error_keeps_its_traceback(run, tmp_path, monkeypatch):
    (tmp_path / "my_broken_world.py").write_text("def make():\n    raise ValueError('my own mistake')\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="my own mistake") as caught:
        run("play", "my_broken_world:make")
    assert caught.value.__notes__ == ["MARCO called: my_broken_world:make with the settings {}"]


def test_an_error_inside_a_jax_environment_of_the_users_own_keeps_its_traceback(run, tmp_path, monkeypatch):
    code = "from marco.environments import Switch\nclass Mine(Switch):\n    def observe(self, world):\n"
    (tmp_path / "my_jax_world.py").write_text(code + "        raise ValueError('my own bug')\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="my own bug") as caught:
        run("play", "my_jax_world:Mine")
    assert "MARCO called: reset of Mine" in caught.value.__notes__


def test_play_shows_an_episode_and_the_exact_value(run):
    out, _, status = run("play", "switch", "--policy", "expert", "--episodes", "2", "--seed", "3")
    assert status == 0
    assert "episode 2" in out
    assert "Exact value of the expert team: 0.740741; the best team's is 0.740741." in out
    assert run("play", "switch", "--policy", "expert", "--episodes", "2", "--seed", "3")[0] == out


def test_play_shows_every_episode_before_one_that_fails(run, tmp_path, monkeypatch):
    code = (
        "from helpers.zoo_toys import Toy\nclass Failing(Toy):\n    episodes = 0\n"
        "    def reset(self, seed=None, options=None):\n        self.episodes += 1\n"
        "        return super().reset(seed, options)\n"
        "    def step(self, actions):\n        if self.episodes == 3:\n            REASON\n"
        "        return super().step(actions)\n"
    )
    for name, reason in {"raises": "raise OSError('no robot')", "lies": "return None"}.items():
        (tmp_path / f"it_{name}.py").write_text(code.replace("REASON", reason))
    monkeypatch.chdir(tmp_path)
    out, err, status = run("play", "it_lies:Failing", "--episodes", "4", "--env.state", "joint")
    assert (status, "episode 2" in out, "episode 3" in out) == (2, True, False)
    lines = err.splitlines()
    assert lines[0].startswith("marco: toy_v0, step 1, step: must return the dicts")
    assert lines[1].startswith("MARCO called: step 1 after reset(seed=")
    assert lines[2].startswith("Actions since the reset: [[")
    assert lines[3:] == ["This was episode 3 of 4."]
    with pytest.raises(OSError, match="no robot") as caught:
        run("play", "it_raises:Failing", "--episodes", "4", "--env.state", "joint")
    assert caught.value.__notes__[2] == "This was episode 3 of 4."


def test_a_warning_about_an_environment_is_one_line_without_a_place_in_the_code(run):
    _, err, _ = run("play", "helpers.zoo_toys:Toy", "--reward", "b")
    (line,) = err.splitlines()
    assert line.startswith("marco: warning: toy_v0 does not implement state(): the joint observation stands")
    assert "(--env.state joint)" in line


def test_the_reward_of_one_agent_is_an_option_of_its_own(run):
    settings = ("--env.state", "joint")
    for choice, total in {"a": 5, "b": 10, "sum": 15}.items():
        assert f"return +{total}.00" in run("play", "helpers.zoo_toys:Toy", *settings, "--reward", choice)[0]
    _, err, status = run("play", "helpers.zoo_toys:Toy", *settings, "--reward", "c")
    assert (status, err) == (2, "marco: reward must be mean, sum or an agent (a, b), got 'c'.\n")


def test_play_passes_settings_on(run):
    out, _, _ = run("play", "switch", "--env.agents", "4", "--env.horizon", "2")
    assert "agent 3" in out
    assert "best team" not in out


@pytest.mark.parametrize(
    "env",
    [("reference", "--env.horizon", "3"), ("switch", "--policy", "expert"), ("gridsmall",), ("delayed",)],
)
def test_play_draws_any_environment(run, tmp_path, env):
    path = tmp_path / "out.gif"
    _, _, status = run("play", *env, "--gif", str(path))
    assert status == 0
    assert path.read_bytes()[:4] == b"GIF8"


def test_play_runs_a_pettingzoo_world(run):
    out, _, status = run(
        "play", "mpe2.simple_spread_v3:parallel_env", "--env.max_cycles", "3", "--env.N", "2"
    )
    assert status == 0
    assert "stopped by the clock after 3 steps" in out


def test_a_world_beside_the_user_is_found(run, tmp_path, monkeypatch):
    (tmp_path / "my_world.py").write_text("from mpe2.simple_spread_v3 import parallel_env as make\n")
    monkeypatch.chdir(tmp_path)
    assert run("play", "my_world:make", "--env.max-cycles=2")[2] == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("swich",), "unknown environment 'swich': do you mean 'switch'?"),
        (("switch", "--episodes", "0"), "--episodes must be at least 1, got 0"),
        (("switch", "--env.agents"), "--env.agents needs a value"),
        (("switch", "--env.4", "1"), "--env.NAME VALUE names a setting of the environment, got '--env.4'"),
        (("switch", "--episode", "2"), "there is no option --episode: do you mean --episodes?"),
        (
            ("switch", "--env.agent", "4"),
            "switch has no setting 'agent': it has agents, horizon. Do you mean 'agents'?",
        ),
        (("reference", "--gif", "a.png"), "--gif writes a .gif file, got 'a.png'"),
        (("reference", "--gif", "no/such/a.gif"), "there is no folder"),
        (("delayed", "--policy", "expert"), "there is no expert for delayed"),
        (("no_such_module:make",), "no module"),
        (("mpe2.simple_spread_v3:parallel_env", "--env.continuous_actions", "True"), "not supported"),
    ],
)
def test_mistakes_give_one_line_and_status_2(run, arguments, message):
    _, err, status = run("play", *arguments)
    assert status == 2
    assert message in err
    assert err.startswith("marco: ")
    assert len(err.splitlines()) == 1


def test_settings_are_literals_or_strings():
    words = [
        "--env.a",
        "1",
        "--lam",
        "0",
        "--env.b=0.5",
        "--env.c",
        "True",
        "--env.d",
        "mean",
        "--env.e",
        "-1",
    ]
    settings, rest = take_env(words)
    assert settings == {"a": 1, "b": 0.5, "c": True, "d": "mean", "e": -1}
    assert rest == ["--lam", "0"]


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
        "    marco.environments.PettingZooWorld(lambda: None)\n"
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
        "train", "switch", "--method", "model-free", "--preset", "paper", "--env.horizon", "3", *options
    )
    assert status == 0, err
    assert "exact return" in out
    left = 120 - max(json.loads((folder / "result.json").read_text())["samples"])
    words = (
        f"{left} samples of the budget were left, too few for an update, which takes 1 episodes of up to 3"
    )
    assert (words in " ".join(out.split())) == (left > 0)
    config = json.loads((folder / "config.json").read_text())
    assert (config["world"], config["world_settings"], config["seeds"]) == ("switch", {"horizon": 3}, [4, 5])
    assert config["algorithm"]["learner"]["mixer"] == "iql"
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert len(lines) == 2
    assert max(lines[-1]["metrics"]["samples"]) <= 120
    out, _, status = run("evaluate", str(folder), "--json")
    result = json.loads(out)
    assert result["optimum"] == pytest.approx(2 / 9)
    assert [row["exact"] for row in result["seeds"]] == pytest.approx(lines[-1]["metrics"]["return"])
    assert result["exact"] == pytest.approx(sum(lines[-1]["metrics"]["return"]) / 2)
    team = marco.load(folder, seed=5)
    assert len(team.act([[1, 0], [0, 0], [0, 0]], [[1, 1, 1, 1], [1, 0, 0, 0], [1, 0, 0, 0]])) == 3
    assert "0.2222" in run("evaluate", str(folder))[0]
    _, err, status = run("train", "switch", "--method", "model-free", "--preset", "paper", *options)
    assert status == 2
    assert "exists already: choose another folder, or remove it" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("switch", "--samples", "5"), "samples=5 is less than one update may take"),
        (("switch", "--seeds", "0"), "--seeds must be at least 1, got 0"),
        (("reference", "--preset", "paper", "--seeds", "100000"), "seeds need about"),
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
    options = ("--samples", "500", "--env.N", "2", "--seed", "5", "--seeds", "2", "--out", tmp_path / "runs")
    assert run("train", "mpe2.simple_spread_v3:parallel_env", *options)[2] == 0
    assert list(asked) == ["seed 5", "seed 6"]
    monkeypatch.undo()
    begun = []
    monkeypatch.setattr("marco.cli.train.follow", lambda one: begun.append((one.config.seeds, one.folder)))
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
