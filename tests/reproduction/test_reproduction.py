"""The paper's experiments: what is run, what is said of it, and that all of it can be run."""

import json
import sys
from dataclasses import replace

import numpy as np
import pytest

from marco.algorithm.loop import Marco
from marco.cli import main
from marco.data.dataset import Dataset
from marco.environments.registry import make
from marco.policies.base import RandomPolicy
from marco.reproduction import claims as paper
from marco.reproduction.cells import (
    BATCH,
    QUICK,
    STUDIES,
    MarcoCell,
    ModelFreeCell,
    TabularCell,
    cell_named,
    cells_of,
)
from marco.reproduction.measure import PAIRS, Curve, _changes
from marco.reproduction.statistics import (
    Interval,
    difference,
    improvement,
    mean_and_iqm,
    ratio,
    samples_of_mean,
    samples_to,
    stays_from,
)
from marco.reproduction.store import Measured, Row, read, write


def curve(*values, first=100):
    """Runs whose values are given at every `first` samples."""
    return [
        Row("train", seed, first * (i + 1), first * (i + 1), value)
        for seed, run in enumerate(values)
        for i, value in enumerate(run)
    ]


def measured(*values, **options):
    return Measured({"commit": "abc", "device": "cpu"}, curve(*values, **options))


def finished(values, samples=10):
    rows = [Row("done", seed, samples, 50, value) for seed, value in enumerate(values)]
    return Measured({"commit": "abc", "device": "cpu"}, rows)


def test_every_cell_has_settings_that_can_be_run():
    for cell in cells_of(STUDIES):
        if not isinstance(cell, TabularCell):
            spec = make(cell.world).spec
            assert cell.config(spec).samples == cell.samples
            cell.quick(spec)
    assert len({cell.name for cell in cells_of(STUDIES)}) == len(cells_of(STUDIES))
    assert all(cell_named(name) for name in QUICK)


def test_the_papers_learners_play_side_by_side_with_as_many_updates_per_episode():
    spec = make("bridge").spec
    cell = cell_named("bridge-paper")
    assert isinstance(cell, MarcoCell)
    config, plain = cell.config(spec), replace(cell, preset="default").config(spec)
    for learner in (config.team, config.explorer):
        assert learner.episodes_per_update == learner.gradient_steps == BATCH
        assert learner.target_update_interval * BATCH == 200
    assert config.final_updates * BATCH == 40_000
    assert plain.candidates
    assert not config.candidates


def test_more_updates_per_episode_have_smaller_budgets():
    four, sixteen = cell_named("bridge-free-tuned-4"), cell_named("bridge-free-tuned-16")
    assert isinstance(four, ModelFreeCell)
    assert isinstance(sixteen, ModelFreeCell)
    assert (four.learner.gradient_steps, four.samples) == (4, 1_000_000)
    assert (sixteen.learner.gradient_steps, sixteen.samples) == (16, 250_000)
    assert sixteen.cut
    assert not four.cut
    assert (four.learner.target_update_interval, sixteen.learner.target_update_interval) == (50, 12)
    assert sixteen.learner.epsilon_anneal_steps == 12_500


def test_an_unknown_cell_is_refused_by_name():
    with pytest.raises(ValueError, match="there is no cell 'bridge'"):
        cell_named("bridge")


def test_cells_are_read_as_they_were_written(tmp_path):
    visits = (0.5, 0.1, -9.0, -8.0, -7.0, -6.0, -5.0)
    rows = [Row("team", 3, 10, 20, 0.25, None, *visits), Row("done", 3, 10, 30, 1.0)]
    write(tmp_path / "a" / "cell.csv", {"commit": "abc"}, rows)
    assert read(tmp_path / "a" / "cell.csv") == Measured({"commit": "abc"}, rows)


def test_a_damaged_cell_is_named(tmp_path):
    (tmp_path / "cell.csv").write_text("# {\nphase,seed\n")
    with pytest.raises(ValueError, match=r"cell\.csv is damaged .* delete it"):
        read(tmp_path / "cell.csv")


def test_means_and_the_middle_half():
    mean, iqm = mean_and_iqm(np.array([0.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 10.0]))
    assert mean.estimate == pytest.approx(2.0)
    assert iqm == Interval(1.0, *iqm[1:])
    assert mean.low < 2.0 < mean.high


def test_a_run_that_never_gets_there_is_censored():
    runs = measured([0.1, 0.6, 0.4], [0.1, 0.2, 0.3])
    each = [samples_to(rows, 0.5) for rows in runs.curve().values()]
    assert each == [200.0, np.inf]
    assert samples_of_mean(runs, 0.5).estimate == np.inf
    assert samples_of_mean(runs, 0.35).estimate == pytest.approx(100 + 100 * 0.25 / 0.3)
    assert str(samples_of_mean(runs, 0.35)).endswith("never)")


def test_ratio_by_hand():
    """Both runs pass 0.45 half-way between 300 and 400 samples; MARCO has it from 10."""
    runs = measured([0.0, 0.2, 0.4, 0.5], [0.0, 0.2, 0.4, 0.5])
    assert ratio(10, runs, np.array([0.45, 0.45])) == pytest.approx(Interval(35.0, 30.0, 40.0))
    assert ratio(10, runs, np.array([0.5, 0.5]), margin=0.05) == pytest.approx(Interval(35.0, 30.0, 40.0))
    assert ratio(20, measured([0.0, 0.4]), np.array([0.5])).estimate == np.inf


def test_teams_that_were_not_kept_do_not_count():
    rows = [Row("final", 0, 10, 20, 0.9), Row("done", 0, 10, 30, 0.5)]
    runs = Measured({}, rows)
    assert runs.final().tolist() == [0.5]
    assert samples_of_mean(runs, 0.7).estimate == np.inf


@pytest.mark.parametrize(
    ("values", "samples"), [([0.1, 0.9, 0.2, 0.9], 400), ([0.9, 0.1], np.inf), ([0.9, 0.9], 100)]
)
def test_where_a_run_stays(values, samples):
    assert stays_from(curve(values), 0.5) == samples


def test_difference_and_improvement():
    gap = difference(np.array([1.0, 3.0]), np.array([0.0, 1.0]))
    assert gap.estimate == 1.5
    assert gap.low == pytest.approx(0.0)
    assert gap.high == pytest.approx(3.0)
    better = improvement([np.array([1.0, 1.0])], [np.array([0.0, 0.0])])
    assert better == Interval(1.0, 1.0, 1.0)


@pytest.mark.parametrize(
    ("many", "verdict"),
    [(300, paper.BETTER), (210, paper.REPRODUCED), (200, paper.OPEN), (100, paper.NOT)],
)
def test_a_factor_is_judged_by_its_interval(many, verdict):
    """The paper: 20 times fewer. MARCO has 0.5 from 10 samples, model-free jumps there just before `many`."""
    cell, free = cell_named("switch-paper"), cell_named("switch-free-paper")
    run = [0.0] * 9 + [0.5] + [0.6] * 20
    found = {
        cell.name: (cell, finished([0.5] * 5)),
        free.name: (free, measured(*[run] * 5, first=many // 10)),
    }
    claims = {(claim.claim, claim.preset): claim for claim in paper.claims(found)}
    mine = claims["`switch`: 20 times fewer samples than model-free", "paper"]
    assert mine.verdict == verdict
    assert "not run: `switch-free-tuned`" in mine.measured
    assert claims["`switch`: 20 times fewer samples than model-free", "default"].verdict == paper.NOT_RUN
    final = claims["`switch`: matches model-free's final return", "paper"]
    assert final.verdict == paper.NOT


def test_a_learner_that_was_cut_off_proves_nothing():
    cell, free, short = (cell_named(f"switch-{name}") for name in ("paper", "free-paper", "free-tuned-16"))
    found = {
        cell.name: (cell, finished([0.5] * 5)),
        free.name: (free, measured(*[[0.0] * 29 + [0.5]] * 5, first=10)),
        short.name: (short, measured(*[[0.0, 0.4]] * 5, first=5)),
    }
    first = paper.claims(found)[0]
    assert "`switch-free-paper`" in first.measured
    assert first.verdict == paper.BETTER
    found[short.name] = (short, measured(*[[0.0, 0.5]] * 5, first=5))
    assert paper.claims(found)[0].verdict == paper.NOT


def test_no_verdict_from_few_seeds():
    base, other = cell_named("bridge-paper"), cell_named("bridge-paper-lam-0")
    found = {base.name: (base, finished([0.74] * 4)), other.name: (other, finished([0.0] * 4))}
    (mine,) = [claim for claim in paper.claims(found) if (claim.study, claim.preset) == ("bonus", "paper")]
    assert mine.verdict == paper.FEW


@pytest.mark.parametrize(
    ("without", "verdict"),
    [([0.0, 0.1, 0.0, 0.3, 0.2], paper.REPRODUCED), ([0.74, 0.6, 0.9, 0.7, 0.7], paper.NOT)],
)
def test_an_ablation_is_judged_by_its_difference(without, verdict):
    base, other = cell_named("bridge-paper"), cell_named("bridge-paper-lam-0")
    with_it = finished([0.74, 0.7, 0.72, 0.71, 0.74])
    found = {base.name: (base, with_it), other.name: (other, finished(without))}
    claims = [claim for claim in paper.claims(found) if claim.study == "bonus" and claim.preset == "paper"]
    assert [claim.verdict for claim in claims] == [verdict]


def test_slightly_lower_is_no_failure():
    """All optimal against most optimal and one a little lower: it does not fail without."""
    base, other = cell_named("bridge-paper"), cell_named("bridge-paper-team")
    best = 20 / 27
    found = {base.name: (base, finished([best] * 5)), other.name: (other, finished([best] * 4 + [0.7]))}
    (mine,) = [
        claim
        for claim in paper.claims(found)
        if claim.preset == "paper" and "without the exploration" in claim.claim
    ]
    assert mine.verdict == paper.NOT


def test_repeated_values_of_a_plan_are_left_out():
    rows = curve([0.1, 0.1, 0.5, 0.5, 0.5])
    assert [(row.samples, row.value) for row in _changes(rows)] == [(100, 0.1), (300, 0.5), (500, 0.5)]


@pytest.fixture
def run_marco(monkeypatch, capsys):
    """The command in this process: what it prints."""

    def run(*arguments, fails=False):
        monkeypatch.setattr(sys, "argv", ["marco", *arguments])
        if fails:
            with pytest.raises(SystemExit):
                main()
        else:
            main()
        shown = capsys.readouterr()
        return shown.out + shown.err

    return run


QUICKLY = ["reproduce", "all", "--quick", "--seeds", "2"]


def test_a_study_that_was_stopped_goes_on_and_draws(run_marco, tmp_path, monkeypatch):
    """Stopped between the checkpoint of a phase and its rows, it goes on, draws, and redraws without running.

    No row is there twice, and what was finished is not run again.
    """
    out, kept = ["--out", str(tmp_path / "found")], Curve.add
    only = ["switch-free-paper", "bridge-paper", "tabular-recycling-random"]
    cells = [tmp_path / "found" / "cells" / f"{name}.csv" for name in only]

    def die(self, event, state):
        if event.phase == "team" and event.over:
            raise KeyboardInterrupt
        kept(self, event, state)

    monkeypatch.setattr(Curve, "add", die)
    with pytest.raises(KeyboardInterrupt):
        run_marco(*QUICKLY, *out, "--no-draw", "--only", *only)
    assert [path.exists() for path in cells] == [True, False, False]
    first = cells[0].read_bytes()
    monkeypatch.setattr(Curve, "add", kept)
    assert "3 cells, 2 to run." in run_marco(*QUICKLY, *out, "--only", *only)
    assert cells[0].read_bytes() == first
    rows = read(cells[1]).rows
    assert [row.phase for row in rows].count("team") == 2
    assert [row.phase for row in rows].count("done") == 2
    assert all(row.pairs and row.r50 is not None for row in rows if row.phase == "team")
    text = (tmp_path / "found.md").read_text()
    assert "these numbers mean nothing" in text
    assert {path.stem for path in (tmp_path / "found" / "figures").glob("*.png")} >= {"results", "tabular"}
    tasks = json.loads((tmp_path / "found" / "marl-eval.json").read_text())["marco"]
    run = tasks["bridge"]["bridge-paper"]["seed_1"]
    assert run["absolute_metrics"]["return"] == run[f"step_{len(run) - 2}"]["return"]
    run_marco(*QUICKLY, *out, "--no-run")
    assert (tmp_path / "found.md").read_text() == text
    assert read(cells[1]).rows == rows


def test_cells_side_by_side_are_as_one_after_the_other(run_marco, tmp_path):
    only = ["--no-draw", "--only", "tabular-recycling-random", "tabular-recycling-rmax-1"]
    shown = run_marco(*QUICKLY, *only, "--out", str(tmp_path / "two"), "--jobs", "2")
    assert "tabular-recycling-random: done" in shown
    run_marco(*QUICKLY, *only, "--out", str(tmp_path / "one"))
    for name in only[2:]:
        one, two = (read(tmp_path / out / "cells" / f"{name}.csv").rows for out in ("one", "two"))
        assert one == two


def test_the_pairs_that_are_met_are_of_all_timesteps(tmp_path):
    cell, env = cell_named("bridge-paper"), make("bridge")
    config = cell.quick(env.spec)
    marco = Marco(env, config, (0,), Dataset(None, env.spec, 1))
    curve_of = Curve(cell, env, marco, tmp_path)
    states = curve_of.met_pairs(RandomPolicy())
    assert len(states.state) == PAIRS
    assert len(np.unique(np.asarray(states.state), axis=0)) > 20


def test_other_settings_or_seeds_are_refused(run_marco, tmp_path):
    path = tmp_path / "cells" / "switch-free-paper.csv"
    only = ["reproduce", "results", "--out", str(tmp_path), "--only", "switch-free-paper", "--seeds", "1"]
    write(path, {"commit": "a", "device": "cpu", "settings": "other"}, curve([0.0]))
    assert "other settings than this version has: delete it" in run_marco(*only, fails=True)
    assert "has the seeds [0]" in run_marco(*only, "--first-seed", "3", fails=True)


def test_what_was_made_quickly_is_not_mixed_with_the_rest(run_marco, tmp_path):
    facts = {"commit": "a", "device": "cpu", "quick": True}
    write(tmp_path / "cells" / "switch-free-paper.csv", facts, curve([0.0]))
    only = ["--out", str(tmp_path), "--only", "switch-free-paper"]
    shown = run_marco("reproduce", "results", *only, fails=True)
    assert "was made with --quick" in shown


def test_nothing_to_draw_is_said(run_marco, tmp_path):
    shown = run_marco("reproduce", "results", "--no-run", "--out", str(tmp_path), fails=True)
    assert "there is nothing to draw" in shown
