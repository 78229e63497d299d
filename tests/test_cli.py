import sys

import pytest

from marco.cli import main, parse_settings


@pytest.fixture
def run(monkeypatch, capsys):
    """Run the command in this process; what it printed, and its exit status."""

    def run_marco(*arguments):
        monkeypatch.setattr(sys, "argv", ["marco", *arguments])
        monkeypatch.setattr(sys, "path", list(sys.path))
        try:
            main()
            status = 0
        except SystemExit as stop:
            status = stop.code
        captured = capsys.readouterr()
        return captured.out, captured.err, status

    return run_marco


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
        "import marco, marco.environments.pettingzoo, marco.environments.jaxmarl\n"
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
