"""The study of exploration continues from its rows, and its rows say where each run came from."""

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
from record import RMAX, SOURCES, Results
from tables.tabular import needs_fewer

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "tabular.py"
Rows = list[dict[str, Any]]


def study(out: Path, *arguments: str) -> Rows:
    """Add runs of R-MAX with m=1 on recycling; the rows of the table."""
    given = ["--problems", "recycling", "--methods", "rmax m=1", "--out", str(out), *arguments]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    subprocess.run([sys.executable, str(SCRIPT), "rmax", *given], check=True, env=environment)
    return Results(out).read(RMAX["recycling"])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("study")


@pytest.fixture(scope="module")
def studies(folder: Path) -> tuple[Rows, Rows]:
    """The table after three runs, and after two more."""
    return study(folder, "--runs", "3", "--processes", "2"), study(folder, "--runs", "5")


def test_runs_are_added_and_none_is_made_twice(studies: tuple[Rows, Rows]) -> None:
    first, second = studies
    assert second[:3] == first
    assert [row["seed"] for row in second] == [0, 1, 2, 3, 4]


def test_every_run_names_its_source(studies: tuple[Rows, Rows], folder: Path) -> None:
    sources = Results(folder).read(SOURCES)
    first, second = (source["source"] for source in sources)
    assert [row["source"] for row in studies[1]] == [first, first, first, second, second]
    assert all("--methods" in source["command"] for source in sources)


@pytest.mark.parametrize("seed", [2, 4])
def test_the_nth_run_has_the_seed_n(studies: tuple[Rows, Rows], seed: int) -> None:
    problem = load("recycling")
    best = solve(problem.dynamics, 4).lower
    run = learn(np.random.default_rng(seed), make_task(problem), 4, RMax(1), 2_000, best)
    row = studies[1][seed]
    assert row["samples_to_reach"] == run.samples_until(0.05)
    assert row["regret"] == pytest.approx(run.regret, abs=1e-4)
    assert row["plans"] == len(run.phases)
    assert row["uncertified"] == sum(not phase.certified for phase in run.phases)


def test_who_needs_fewer_samples_worked_by_hand() -> None:
    """Of six pairs three are won and two are ties: one of numbers, one of runs that both fail."""
    ours, theirs = np.array([1.0, 3.0, np.inf]), np.array([3.0, np.inf])
    assert needs_fewer(ours, theirs) == pytest.approx((3 + 2 / 2) / 6)
