import json
import math
import re
from importlib import import_module
from itertools import count

import pytest


@pytest.fixture
def run(monkeypatch, capsys):
    """Run a command; what it printed. Its errors are raised, not printed."""

    def run_command(name, *arguments):
        import_module(f"marco.cli.{name}").main(list(arguments))
        return capsys.readouterr().out

    return run_command


def test_solve_shows_value_and_trees(run):
    out = run("solve", "dectiger", "--horizon", "3")
    assert "dectiger, horizon 3: value 5.190812" in out
    assert "  hear-left: listen\n    hear-left: open-right\n    hear-right: listen" in out


def test_solve_in_json_and_from_a_file(run, tmp_path):
    from marco.tabular.dpomdp.format import write
    from marco.tabular.library import load

    write(load("recycling"), tmp_path / "mine.dpomdp.gz")
    found = json.loads(run("solve", str(tmp_path / "mine.dpomdp.gz"), "--horizon", "3", "--json"))
    assert found["problem"] == "mine"
    assert found["value"] == pytest.approx(10.660125)
    assert found["optimal"]
    assert len(found["policy"]) == 2
    assert len(found["policy"][0]["actions"]) == 3


def test_solve_within_a_time(run):
    found = json.loads(run("solve", "dectiger", "--horizon", "7", "--time", "0.3", "--json"))
    assert not found["optimal"]
    assert found["value"] <= 9.993568 <= found["upper"]


def test_solve_shows_the_beginning_of_large_trees_at_once(run):
    """A tree of 40 steps has 2^40 lines."""
    out = run("solve", "dectiger", "--horizon", "40", "--time", "0.2")
    assert "dectiger, horizon 40: best found" in out
    assert out.count("and about 10^12 more lines; --json gives the whole policy") == 2
    assert out.count("hear-left: ") < 200


def test_solve_says_when_the_memory_is_used_up(run, monkeypatch):
    monkeypatch.setattr("marco.tabular.solver.search.process_bytes", count(0, 10**12).__next__)
    out = run("solve", "dectiger", "--horizon", "7", "--memory", "0.5", "--no-trees")
    assert "The search ended at 0.5 GB of memory: --memory gives it more." in out


def test_rmax_reports_runs_and_draws_them(run, tmp_path):
    path = tmp_path / "runs.png"
    asked = ("rmax", "counterexample", "--horizon", "5", "--m", "5", "--runs", "2", "--unknown", "self-loop")
    out = json.loads(run(*asked, "--json", "--figure", str(path)))
    assert out["failing"] == 2
    assert out["regret_mean"] == pytest.approx(0.14)
    assert out["failing_interval"] == pytest.approx([0.1581, 1.0], abs=1e-4)
    assert out["escapes_most"] <= out["escapes_limit"] == 5 * 24
    assert [life["final"] for life in out["each"]] == [True, True]
    assert sum(phase["episodes"] for phase in out["each"][0]["phases"]) == 5_000
    assert path.read_bytes()[:4] == b"\x89PNG"
    words = run(*asked[:-4], "--episodes", "20")
    assert "the run ends with a regret above 0.05" in " ".join(words.split())
    assert "confidence interval" not in words
    words = " ".join(run(*asked[:-2], "--episodes", "20").split())
    assert "2 of 2 runs end with a regret above 0.05; 95% confidence interval of the share: 0.158 to" in words


@pytest.mark.parametrize("method", ["random", "epsilon-greedy", "psrl", "bonus", "centralised"])
def test_rmax_by_other_methods(run, method):
    asked = ("rmax", "recycling", "--horizon", "2", "--method", method, "--episodes", "30", "--json")
    assert json.loads(run(*asked))["method"] == method


def test_rmax_shows_its_progress_where_there_is_no_terminal(monkeypatch, capsys):
    monkeypatch.setattr("marco.cli.rmax.REPORT_EVERY", -1.0)
    import_module("marco.cli.rmax").main(["recycling", "--env.horizon", "1", "--m", "1", "--runs", "3"])
    assert "0 of 3 runs\n1 of 3 runs\n2 of 3 runs\n" in capsys.readouterr().err


def test_the_figure_names_the_method_in_words(run, monkeypatch, tmp_path):
    titles = []
    monkeypatch.setattr("marco.cli.rmax.draw_runs", lambda runs, title, path: titles.append(title))
    asked = ("rmax", "recycling", "--horizon", "1", "--episodes", "5", "--figure", str(tmp_path / "a.png"))
    run(*asked, "--m", "2")
    run(*asked, "--method", "epsilon-greedy", "--runs", "2")
    run(*asked, "--method", "random", "--plan-time", "2")
    assert titles == [
        "recycling, horizon 1: rmax (m = 2, unknown = absorbing), 1 run",
        "recycling, horizon 1: epsilon-greedy (epsilon = 0.3), 2 runs",
        "recycling, horizon 1: random (2 s per plan), 1 run",
    ]


def test_bound_says_when_it_is_vacuous(run):
    asked = ("bound", "--states", "16", "--joint-actions", "25", "--horizon", "3", "--epsilon", "0.1")
    out = json.loads(run(*asked, "--delta", "0.1", "--json"))
    assert out["repaired"]["m"] == 149_549
    assert math.log10(out["printed"]["m"]) == pytest.approx(11.6, abs=0.05)
    assert "vacuous in practice" in out["repaired"]["verdict"]
    assert "vacuous in practice" in " ".join(run(*asked, "--delta", "0.1").split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("solve", "tiger", "--horizon", "2"), "unknown environment 'tiger': do you mean 'dectiger'?"),
        (("solve", "dectiger", "--horizon", "0"), "needs a horizon of at least 1, got 0"),
        (("solve", "switch", "--horizon", "2", "--env.agents"), "--env.agents needs a value"),
        (("solve", "switch", "--horizen", "2"), "there is no option --horizen: do you mean --horizon?"),
        (("rmax", "dectiger", "--horizon", "2", "--runs", "0"), "--runs must be at least 1, got 0"),
        (("rmax", "dectiger", "--horizon", "2", "--m", "0"), "m must be at least 1, got 0"),
        (("rmax", "dectiger", "--horizon", "2", "--figure", "no/such/a.png"), "there is no folder"),
        (("rmax", "dectiger", "--horizon", "2", "--figure", "a.txt"), "'a.txt' must end in one of"),
        (("rmax", "dectiger", "--horizon", "2", "--epsilon", "-1"), "--epsilon must be a number from 0 on"),
    ],
)
def test_mistakes(run, arguments, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        run(*arguments)
