"""The study of exploration goes on from its files, and its files say where each run came from."""

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from marco.tabular.library import load
from marco.tabular.rmax.known_model import make_task
from marco.tabular.rmax.loop import learn
from marco.tabular.rmax.rmax import RMax
from marco.tabular.solver.search import solve

SCRIPT = Path(__file__).parents[3] / "benchmarks" / "tabular.py"


def study(out: Path, *arguments: str) -> dict[str, Any]:
    """Add runs of R-MAX with m=1 on recycling; what the file then holds."""
    told = ["--problems", "recycling", "--methods", "rmax m=1", "--out", str(out), *arguments]
    surroundings = {**os.environ, "JAX_PLATFORMS": "cpu"}
    subprocess.run([sys.executable, str(SCRIPT), "rmax", *told], check=True, env=surroundings)
    return json.loads((out / "rmax-recycling.json").read_text())


@pytest.fixture(scope="module")
def studies(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], dict[str, Any]]:
    """A file after three runs, and after two more."""
    out = tmp_path_factory.mktemp("study")
    return study(out, "--runs", "3", "--processes", "2"), study(out, "--runs", "5")


def test_runs_are_added_and_none_is_made_twice(studies: tuple[dict[str, Any], dict[str, Any]]) -> None:
    first, second = (study["cells"]["rmax m=1"]["rows"] for study in studies)
    assert second[:3] == first
    assert [row[0] for row in second] == [0, 1, 2, 3, 4]


def test_every_run_names_its_source(studies: tuple[dict[str, Any], dict[str, Any]]) -> None:
    rows, sources = studies[1]["cells"]["rmax m=1"]["rows"], studies[1]["sources"]
    assert [row[1] for row in rows] == [0, 0, 0, 1, 1]
    assert [source["runs"] for source in sources] == [3, 2]
    assert all("--methods" in source["command"] for source in sources)


def test_the_nth_run_has_the_seed_n(studies: tuple[dict[str, Any], dict[str, Any]]) -> None:
    problem = load("recycling")
    best = solve(problem.dynamics, 4).lower
    run = learn(np.random.default_rng(4), make_task(problem), 4, RMax(1), 2_000, best)
    row = dict(zip(studies[1]["columns"], studies[1]["cells"]["rmax m=1"]["rows"][4], strict=True))
    assert row["samples"] == run.samples
    assert row["regret"] == pytest.approx(run.regret, abs=1e-5)
    assert row["plans"] == len(run.phases)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module that makes the table."""
    monkeypatch.syspath_prepend(SCRIPT.parent)
    return importlib.import_module("tabular_table")


def test_the_table_of_the_benchmarks_is_what_the_files_say(told: Any) -> None:
    lines = list(told.table(SCRIPT.parent / "results" / "tabular"))
    assert "\n".join(lines) in (SCRIPT.parent / "README.md").read_text()


def test_who_needs_fewer_samples_worked_by_hand(told: Any) -> None:
    """Of six pairs three are won and two are ties: one of numbers, one of runs that both fail."""
    ours, theirs = np.array([1.0, 3.0, np.inf]), np.array([3.0, np.inf])
    assert told.needs_fewer(ours, theirs) == pytest.approx((3 + 2 / 2) / 6)
