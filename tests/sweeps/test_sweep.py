"""A sweep: nothing is run twice, what failed is told, and a sweep that is killed goes on."""

import os
import subprocess
import sys
import time
from dataclasses import replace

import pytest

from helpers.sweeping import MODEL_FREE, Pretended, pretend
from marco.runs.run import Run
from marco.sweeps.cells import Maker
from marco.sweeps.file import read_sweep
from marco.sweeps.grid import run_grid
from marco.sweeps.runs import SweepFolder, _clear
from marco.sweeps.table import FIRST, LAST, parse_table


@pytest.fixture
def maker(tmp_path):
    def make(seeds=2, more=""):
        path = tmp_path / "study.toml"
        path.write_text(MODEL_FREE.format(seeds=seeds) + more)
        return Maker(read_sweep(path))

    return make


def value(config):
    return config.algorithm.samples / 1_000 + config.algorithm.learner.learning_rate


def sweep(maker, out, **options):
    said, engine = [], Pretended(value=value, **options)
    failures = run_grid(maker, out, lambda: engine, said.append)
    return engine.ran, failures, said


def test_the_table_has_a_row_for_every_run_and_seed(maker, tmp_path):
    ran, failures, _ = sweep(maker(), tmp_path / "out")
    assert (len(ran), failures) == (8, [])
    text = (tmp_path / "out" / "table.csv").read_text()
    varied = ("env.agents", "env.horizon", "learner.learning_rate")
    assert text.splitlines()[0].split(",") == [*FIRST, *varied, *LAST]
    rows = parse_table(text, "table")
    assert len(rows) == 8
    one = next(row for row in rows if row.budget == 120 and row.seed == 1)
    assert (one.world, one.method, one.preset) == ("switch agents=2 horizon=3", "model-free", "paper")
    assert one.settings == {"env.agents": "2", "env.horizon": "3", "learner.learning_rate": "0.001"}
    assert (one.value, one.exact, one.optimum, one.imagined) == (0.131, True, 1.0, None)
    assert (tmp_path / "out" / one.run / "result.json").exists()


def test_the_first_seed_of_every_setting_comes_first(maker, tmp_path):
    ran, _, _ = sweep(maker(), tmp_path)
    assert [label.rpartition("/")[2] for label in ran] == ["seed-0"] * 4 + ["seed-1"] * 4


def test_what_is_done_is_not_repeated_and_more_seeds_are_added(maker, tmp_path):
    sweep(maker(2), tmp_path / "out")
    assert sweep(maker(2), tmp_path / "out")[0] == []
    ran, _, said = sweep(maker(3), tmp_path / "out")
    assert {label.rpartition("/")[2] for label in ran} == {"seed-2"}
    assert "8 runs are done, 4 to run, 2 at a time." in said


def test_failures_are_told_and_tried_again(maker, tmp_path):
    out = tmp_path / "out"
    ran, failures, _ = sweep(maker(), out, fails=["samples=60-learner.learning_rate=0.001"])
    assert len(ran) == 8
    assert {failure.reason for failure in failures} == {"RuntimeError: it broke"}
    assert len(failures) == 2
    assert "Traceback" in failures[0].log.read_text()
    assert len(parse_table((out / "table.csv").read_text(), "")) == 6
    ran, failures, _ = sweep(maker(), out)
    assert (len(ran), failures) == (2, [])
    assert len(parse_table((out / "table.csv").read_text(), "")) == 8


def test_a_sweep_that_stops_has_the_rows_so_far(maker, tmp_path):
    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        sweep(maker(), out, stops_after=3)
    assert len(parse_table((out / "table.csv").read_text(), "")) == 3
    assert len(sweep(maker(), out)[0]) == 5


def test_other_settings_in_the_same_folder_are_refused(maker, tmp_path):
    sweep(maker(), tmp_path / "out")
    other = maker()
    other.file = replace(other.file, settings={**other.file.settings, "evaluate_every": 30})
    with pytest.raises(ValueError, match="holds a run with another algorithm: choose another folder"):
        sweep(other, tmp_path / "out")


def test_seeds_share_a_run_where_there_is_a_gpu(maker, tmp_path):
    (cell, *_) = maker(4).grid()
    folder = SweepFolder(tmp_path, together=True)
    (task,) = folder.missing(cell, [0, 1, 2, 3])
    assert (task.folder.name, task.config.seeds) == ("seeds-0-to-3", (0, 1, 2, 3))
    (alone,) = SweepFolder(tmp_path, together=True).missing(replace(cell, vectorised=False), [5])
    assert alone.folder.name == "seed-5"
    pretend(task.folder, task.config, 0.5)
    assert [row.seed for row in SweepFolder(tmp_path, False).rows([cell])] == [0, 1, 2, 3]
    assert [one.config.seeds for one in SweepFolder(tmp_path, False).missing(cell, [3, 4, 5])] == [(4,), (5,)]


def test_what_cannot_be_gone_on_with_is_removed_and_nothing_else(maker, tmp_path):
    """A run of MARCO that was cut short is kept: it can be resumed."""
    free = maker().grid()[0].config
    text = "worlds = ['switch']\n[settings]\nsamples = 500\n"
    (tmp_path / "marco.toml").write_text(text)
    marco = Maker(read_sweep(tmp_path / "marco.toml")).grid()[0].config
    for name, config in (("free", free), ("marco", marco)):
        Run(tmp_path / name, config).create()
        _clear(tmp_path / name, config)
    (tmp_path / "half" / "policy").mkdir(parents=True)
    _clear(tmp_path / "half", marco)
    kept = [name for name in ("free", "marco", "half") if (tmp_path / name).exists()]
    assert kept == ["marco"]
    pretend(tmp_path / "free", free, 0.5)
    _clear(tmp_path / "free", free)
    assert (tmp_path / "free" / "result.json").exists()


def test_a_sweep_killed_in_the_middle_goes_on_and_its_table_is_complete(maker, run, tmp_path):
    """Real runs in processes, the driver killed by SIGKILL: what was done is not touched again."""
    made, out = maker(1), tmp_path / "out"
    command = [sys.executable, "-m", "marco.cli", "sweep", str(made.file.path), "--out", str(out)]
    driver = subprocess.Popen([*command, "--workers", "2"], stdout=subprocess.DEVNULL)
    begun = time.monotonic()
    while not (done := list(out.glob("runs/*/*/result.json"))):
        assert driver.poll() is None
        assert time.monotonic() - begun < 300
        time.sleep(0.1)
    driver.kill()
    driver.wait()
    time.sleep(1.0)  # its processes have seen it end, and ended
    done = list(out.glob("runs/*/*/result.json"))
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in done}
    assert 1 <= len(before) < 4
    shown, err, status = run("sweep", made.file.path, "--out", out, "--workers", "2")
    assert status == 0, err
    assert f"{len(before)} runs are done, {4 - len(before)} to run, 2 at a time." in shown
    rows = parse_table((out / "table.csv").read_text(), "table")
    assert sorted((row.budget, row.settings["learner.learning_rate"]) for row in rows) == [
        (60, "0.0005"),
        (60, "0.001"),
        (120, "0.0005"),
        (120, "0.001"),
    ]
    assert {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in before} == before
    assert "0 to run" in run("sweep", made.file.path, "--out", out)[0]
    shown = run("compare", out)[0]
    assert "switch" in shown
    assert "improvement" in shown


def test_a_dry_run_runs_nothing(maker, run, tmp_path):
    shown, _, status = run("sweep", maker().file.path, "--out", tmp_path / "out", "--dry-run")
    assert status == 0
    assert "model-free, 120 samples a seed" in shown
    assert not (tmp_path / "out").exists()


def test_a_mistake_in_the_file_is_one_line(run, tmp_path):
    (tmp_path / "a.toml").write_text("worlds = ['swich']\n")
    _, err, status = run("sweep", tmp_path / "a.toml")
    assert status == 2
    assert err.startswith("marco: ")
    assert "a.toml, swich: unknown environment 'swich': do you mean 'switch'?" in err
    assert len(err.splitlines()) == 1


RAY = "MARCO_CRASH" in os.environ


@pytest.mark.skipif(not RAY, reason="a minute: make crash")
def test_a_sweep_on_ray(maker, run, tmp_path):
    pytest.importorskip("ray")
    _, err, status = run("sweep", maker(1).file.path, "--out", tmp_path / "out", "--workers", "2", "--ray")
    assert status == 0, err
    assert len(parse_table((tmp_path / "out" / "table.csv").read_text(), "table")) == 4
