"""A search: trials depend on their number alone, halving ends poor ones early, a stopped search goes on."""

import pytest

from helpers.sweeping import Pretended
from marco.sweeps.cells import Maker
from marco.sweeps.file import read_sweep
from marco.sweeps.search import run_search
from marco.sweeps.table import parse_table

pytest.importorskip("optuna")

TEXT = """
worlds = ["switch"]
seeds = 4
[settings]
samples = 500
[search]
method = "{method}"
trials = 8
[search.settings]
lam = {{ low = 0.0, high = 4.0 }}
bonus = ["variance", "standard-deviation"]
model.dynamics.hidden = [[8], [8, 8]]
"""


@pytest.fixture
def search(tmp_path):
    def begin(method, out="out", **options):
        (tmp_path / "study.toml").write_text(TEXT.format(method=method))
        maker, said = Maker(read_sweep(tmp_path / "study.toml")), []
        engine = Pretended(value=lambda config: -abs(config.algorithm.lam - 3.0), **options)
        failures = run_search(maker, tmp_path / out, lambda: engine, said.append)
        rows = parse_table((tmp_path / out / "table.csv").read_text(), "")
        return engine.ran, failures, said, rows

    return begin


def test_random_search_runs_every_seed_and_tells_the_best(search):
    ran, failures, said, rows = search("random")
    assert (len(ran), len(rows), failures) == (32, 32, [])
    best = min(rows, key=lambda row: abs(float(row.settings["lam"]) - 3.0)).settings
    assert f"The best is trial {best['trial']}," in "\n".join(said)
    (told,) = [line for line in said if line.startswith('"lam"')]
    assert float(told.split("=")[1]) == pytest.approx(float(best["lam"]))
    assert "8 trials, 8 with all seeds; 16,000 real samples in all of their runs." in said
    assert {row.settings["model.dynamics.hidden"] for row in rows} == {"8", "8 8"}


def test_halving_ends_poor_trials_early_and_finds_one_as_good(search):
    _, _, _, every = search("random", "random")
    ran, _, said, rows = search("halving", "halving")
    assert 8 + 4 <= len(ran) <= 26
    seeds = {name: sum(row.settings["trial"] == name for row in rows) for name in map(str, range(8))}
    assert min(seeds.values()) == 1
    assert max(seeds.values()) == 4

    def lam(rows, name):
        return next(row.settings["lam"] for row in rows if row.settings["trial"] == name)

    assert all(lam(rows, name) == lam(every, name) for name in seeds)  # trial k is trial k
    best = min(seeds, key=lambda name: abs(float(lam(rows, name)) - 3.0))
    assert any(f"The best is trial {best}," in line for line in said)


@pytest.mark.parametrize("method", ["random", "halving"])
def test_a_search_that_was_stopped_goes_on_as_if_it_had_not(search, method):
    whole = search(method, "whole")
    with pytest.raises(KeyboardInterrupt):
        search(method, "stopped", stops_after=9)
    ran, _, _, rows = search(method, "stopped")
    assert len(ran) == len(whole[0]) - 9
    assert [(row.settings, row.seed, row.value) for row in rows] == [
        (row.settings, row.seed, row.value) for row in whole[3]
    ]
    assert search(method, "stopped")[0] == []


def test_a_trial_that_fails_is_given_up(search):
    ran, failures, said, _ = search("random", fails=["trial-2-switch/seed-0"])
    assert [failure.task.label for failure in failures] == ["trial-2-switch/seed-0"]
    assert "8 trials, 7 with all seeds" in " ".join(said)
    assert not any(label.startswith("trial-2") and not label.endswith("seed-0") for label in ran)
