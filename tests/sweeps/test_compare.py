"""What `marco compare` says, worked by hand; and what it reads, here and elsewhere."""

import json

import numpy as np
import pytest

from helpers.sweeping import pretend
from marco.runs.run import Run
from marco.statistics import Interval
from marco.sweeps.cells import Maker
from marco.sweeps.compare import curve, groups_of, improvements, over_worlds, read_rows, thresholds
from marco.sweeps.file import read_sweep
from marco.sweeps.table import Row, parse_table, write_table


def row(value, seed=0, budget=100, world="switch", optimum=1.0, **settings):
    facts = {"standard_error": 0.0, "exact": True, "test_episodes": 0, "imagined": None, "seconds": 1.0}
    facts |= {"marco": "1", "jax": "1", "commit": "a", "run": f"{world}-{settings}-{budget}-{seed}"}
    method = settings.pop("method", "marco")
    return Row(world, method, "default", settings, seed, budget, budget, value, optimum=optimum, **facts)


def runs(values, **facts):
    return [row(value, seed, **facts) for seed, value in enumerate(values)]


def test_a_table_is_read_as_it_was_written(tmp_path):
    rows = [row(0.25, lam="0"), row(-1.5, 1, optimum=None, lam="2")]
    write_table(tmp_path / "table.csv", rows)
    assert parse_table((tmp_path / "table.csv").read_text(), "") == rows


def test_a_damaged_table_is_named_with_its_line(tmp_path):
    write_table(tmp_path / "table.csv", [row(0.25), row(0.5, 1)])
    text = (tmp_path / "table.csv").read_text()
    with pytest.raises(ValueError, match=r"t\.csv, line 3 is damaged: .*'half'"):
        parse_table(text.replace(",0.5,", ",half,"), "t.csv")
    with pytest.raises(ValueError, match=r"t\.csv is no table of runs: it has no column 'world'"):
        parse_table("a,b\n1,2\n", "t.csv")


def test_settings_are_told_by_what_is_not_the_same():
    groups = groups_of([*runs([0.1, 0.2], lam="0", kind="a"), *runs([0.3], lam="2", kind="a")])
    assert [(group.setting, group.values.tolist()) for group in groups] == [
        ("lam=0", [0.1, 0.2]),
        ("lam=2", [0.3]),
    ]
    free = groups_of([*runs([0.1]), *runs([0.2], method="model-free")])
    assert [group.setting for group in free] == ["marco", "model-free"]
    with pytest.raises(ValueError, match="seed 0 is there more than once"):
        groups_of([row(0.1), row(0.2)])


def test_samples_to_shares_of_the_optimum():
    """At 100 samples 0.2, at 200 0.6: half of the optimum after 175, nine tenths never."""
    groups = groups_of([*runs([0.2, 0.2], budget=100), *runs([0.6, 0.6], budget=200)])
    half, *others = thresholds(groups)
    assert half[2:] == (0.5, pytest.approx(Interval(175.0, 100.0, 200.0)))
    assert [interval.estimate for *_, interval in others] == [np.inf, np.inf]
    assert thresholds(groups_of(runs([0.2]))) == []  # one budget is no curve
    (only,) = thresholds(groups, [0.3])
    assert only[3].estimate == pytest.approx(125.0)


def test_environments_are_put_together_by_their_optima_alone():
    both = [*runs([0.5, 0.5]), *runs([2.0, 2.0], world="bridge", optimum=2.0)]
    ((setting, middle, _, count),) = over_worlds(groups_of(both))
    assert (setting, middle, count) == ("marco", Interval(0.75, 0.75, 0.75), 4)
    assert over_worlds(groups_of([*both, *runs([1.0], world="reference", optimum=None)])) == []


def test_who_is_better_with_the_largest_budget():
    rows = [*runs([0.9, 0.9], budget=100, lam="0"), *runs([0.1, 0.1], budget=200, lam="0")]
    rows += runs([0.5, 0.5], budget=200, lam="2")
    ((one, other, interval, worlds),) = improvements(groups_of(rows))
    assert (one, other, interval, worlds) == ("lam=0", "lam=2", Interval(0.0, 0.0, 0.0), 1)
    ((one, other, interval, _),) = improvements(groups_of(rows), "lam=0")
    assert (one, other, interval.estimate) == ("lam=2", "lam=0", 1.0)
    with pytest.raises(ValueError, match="--baseline 'lam=1' is none of the settings: lam=0; lam=2"):
        improvements(groups_of(rows), "lam=1")


@pytest.fixture
def folders(tmp_path):
    """Two finished runs of MARCO with other lambdas, a seed each."""
    (tmp_path / "a.toml").write_text(
        "worlds = ['switch']\nseeds = 2\n[settings]\nsamples = 500\n[grid]\nlam = [0.0, 2.0]\n"
    )
    cells = Maker(read_sweep(tmp_path / "a.toml")).grid()
    for cell in cells:
        for seed in (0, 1):
            pretend(tmp_path / "runs" / cell.name / f"seed-{seed}", cell.of_seeds([seed]), cell.varied["lam"])
    return [tmp_path / "runs" / cell.name for cell in cells]


def test_runs_are_told_by_their_settings(folders):
    rows = read_rows([str(folders[0] / "seed-0"), str(folders[0] / "seed-0"), str(folders[1])])
    groups = groups_of(rows)
    assert [(group.setting, len(group.rows)) for group in groups] == [("lam=0", 1), ("lam=2", 2)]
    assert groups[0].rows[0].jax
    assert rows[0].imagined == 0.5


def test_a_run_elsewhere_is_read_like_one_here(folders, run, tmp_path):
    fsspec = pytest.importorskip("fsspec")
    there = fsspec.filesystem("memory")
    for folder in folders:
        there.put(str(folder / "seed-0"), f"/bucket/{folder.name}", recursive=True)
    write_table(tmp_path / "table.csv", [row(0.25, lam="0"), row(0.5, 1, lam="0")])
    there.put(str(tmp_path / "table.csv"), "/bucket/sweep/table.csv")
    here = read_rows([str(folder / "seed-0") for folder in folders])
    away = read_rows([f"memory://bucket/{folder.name}" for folder in folders])
    assert [(one.value, one.settings, one.seed) for one in away] == [
        (one.value, one.settings, one.seed) for one in here
    ]
    assert [one.value for one in read_rows(["memory://bucket/sweep"])] == [0.25, 0.5]
    assert "0.375 (0.250" in run("compare", "memory://bucket/sweep/table.csv")[0]
    with pytest.raises(ValueError, match="memory://bucket/none is neither a run"):
        read_rows(["memory://bucket/none"])


def test_nothing_is_written_beside_what_is_fetched(folders):
    """A store may hold names that lead out of a folder: only a run's own names are asked for."""
    fsspec = pytest.importorskip("fsspec")
    there = fsspec.filesystem("memory")
    there.put(str(folders[0] / "seed-0"), "/evil/run", recursive=True)
    there.pipe_file("/evil/run/../../escaped", b"no")
    from marco.runs.remote import local_run

    folder = local_run("memory://evil/run")
    assert sorted(path.name for path in folder.iterdir()) == ["config.json", "result.json"]


def test_code_that_a_run_names_is_not_imported(folders, tmp_path):
    folder = folders[0] / "seed-0"
    facts = json.loads((folder / "config.json").read_text())
    (tmp_path / "theirs.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    facts["world"] = f"{tmp_path / 'theirs.py'}:make"
    (folder / "config.json").write_text(json.dumps(facts))
    assert read_rows([str(folder)])[0].world == "theirs.py:make"
    assert not (tmp_path / "ran").exists()


def test_a_model_free_run_has_a_curve_of_its_own(tmp_path):
    (tmp_path / "a.toml").write_text(
        "worlds = ['switch']\n[settings]\nmethod = 'model-free'\npreset = 'paper'\nsamples = 200\n"
    )
    (cell,) = Maker(read_sweep(tmp_path / "a.toml")).grid()
    folder = tmp_path / "run"
    pretend(folder, cell.of_seeds([3]), 0.6)
    lines = [
        {"phase": "train", "iteration": 0, "samples": n, "metrics": {"samples": [n], "return": [n / 300]}}
        for n in (90, 180)
    ]
    (folder / "metrics.jsonl").write_text(
        "".join(json.dumps({**one, "seconds": 2.5}) + "\n" for one in lines)
    )
    (found,) = groups_of(read_rows([str(folder)]))
    assert found.rows[0].seconds == 2.5
    samples, values = curve([found])
    assert (samples, [one.tolist() for one in values]) == ([90.0, 180.0], [[0.3], [0.6]])


def test_the_command_draws_and_exports(run, tmp_path):
    write_table(
        tmp_path / "table.csv",
        [*runs([0.2, 0.3], budget=100), *runs([0.6, 0.7], budget=200), *runs([0.5], world="bridge")],
    )
    figure, export = tmp_path / "a.png", tmp_path / "a.json"
    _, err, status = run("compare", tmp_path / "table.csv", "--figure", figure, "--json", export)
    assert status == 0, err
    assert figure.read_bytes()[1:4] == b"PNG"
    told = json.loads(export.read_text())["marco"]["switch"]["marco"]["seed_1"]
    assert told["step_1"] == {"step_count": 200, "return": [0.7]}
    assert told["absolute_metrics"] == {"return": [0.7]}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere"], "there is no nowhere: give folders of runs or sweeps"),
        (["."], ". is neither a run (config.json) nor a sweep (table.csv)"),
        (["none.csv"], "there is no none.csv"),
        (["t.csv", "--figure", "a.xyz"], "--figure a.xyz must end in one of"),
        (["t.csv", "--figure", "no/a.png"], "there is no folder no"),
    ],
)
def test_mistakes_give_one_line(run, tmp_path, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    write_table(tmp_path / "t.csv", runs([0.2, 0.3]))
    _, err, status = run("compare", *words)
    assert status == 2
    assert message in err
    assert len(err.splitlines()) == 1


def test_an_unfinished_run_is_told(folders, tmp_path):
    config = Run.open(folders[0] / "seed-0").config
    Run(tmp_path / "begun", config).create()
    with pytest.raises(ValueError, match=r"result\.json cannot be read"):
        read_rows([str(tmp_path / "begun")])
