"""Tables of results: rows with a key, a unit that one command measures as a whole, and a source."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import record
from record import CONTROLLERS, MODEL_FREE, SOURCES, Results, formatted, parsed

CURVE = {"study": "a", "world": "w", "learner": "iql", "preset": "paper", "samples": 9, "return": 0.5}


@pytest.fixture
def results(tmp_path: Path) -> Results:
    return Results(tmp_path / "results")


def as_another_command(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(record, "own_source", lambda: {"source": name, "commit": "53e1234"})


def test_a_row_replaces_the_row_with_its_key_and_no_other(results: Results) -> None:
    teams = [{"world": "w", "team": team, "return": value} for team, value in (("a", 1), ("b", 2))]
    results.add(CONTROLLERS, teams)
    results.add(CONTROLLERS, [{"world": "w", "team": "a", "return": 3}])
    assert [(row["team"], row["return"]) for row in results.read(CONTROLLERS)] == [("a", 3), ("b", 2)]


def test_a_curve_is_never_of_two_commands(results: Results, monkeypatch: pytest.MonkeyPatch) -> None:
    """A curve (study and seed) that is measured again with fewer evaluations leaves no old ones behind."""
    as_another_command(monkeypatch, "old")
    old = [{**CURVE, "seed": seed, "budget": budget} for seed in (0, 1) for budget in (10, 20)]
    results.add(MODEL_FREE, old)
    as_another_command(monkeypatch, "new")
    results.add(MODEL_FREE, [{**CURVE, "seed": 0, "budget": 10}])
    results.add(MODEL_FREE, [{**CURVE, "seed": 0, "budget": 30}])
    found = [(row["source"], row["seed"], row["budget"]) for row in results.read(MODEL_FREE)]
    assert found == [("old", 1, 10), ("old", 1, 20), ("new", 0, 10), ("new", 0, 30)]


def test_every_source_has_its_provenance(results: Results) -> None:
    results.add(CONTROLLERS, [{"world": "w", "team": "a", "return": 1}])
    (source,) = results.read(SOURCES)
    assert results.read(CONTROLLERS)[0]["source"] == source["source"]
    assert all(source[name] for name in ("command", "date", "commit", "device", "python", "jax"))


def test_merged_rows_keep_their_sources(
    results: Results, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Results(tmp_path / "other")
    as_another_command(monkeypatch, "here")
    results.add(CONTROLLERS, [{"world": "w", "team": "a", "return": 1}])
    as_another_command(monkeypatch, "gpu")
    other.add(CONTROLLERS, [{"world": "w", "team": "b", "return": 2}])
    results.merge(other)
    assert [(row["team"], row["source"]) for row in results.read(CONTROLLERS)] == [
        ("a", "here"),
        ("b", "gpu"),
    ]
    assert [row["source"] for row in results.read(SOURCES)] == ["here", "gpu"]


def test_studies_that_write_at_the_same_time_lose_no_row(results: Results) -> None:
    def write(team: int) -> None:
        results.add(CONTROLLERS, [{"world": "w", "team": str(team), "return": team}])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(20)))
    assert sorted(row["return"] for row in results.read(CONTROLLERS)) == list(range(20))


@pytest.mark.parametrize(
    ("value", "text"),
    [(20 / 27, "0.740741"), (-7.0, "-7"), (-1e-9, "0"), (True, "1"), (None, ""), ("53e1234", "53e1234")],
)
def test_numbers_have_six_decimals_at_most(value: Any, text: str) -> None:
    assert formatted(value) == text


def test_an_empty_number_is_none_and_a_commit_is_text(
    results: Results, monkeypatch: pytest.MonkeyPatch
) -> None:
    """53e1234 is a commit, not infinity."""
    as_another_command(monkeypatch, "here")
    results.add(CONTROLLERS, [{"world": "w", "team": "a"}])
    assert results.read(CONTROLLERS)[0]["return"] is None
    assert results.read(SOURCES)[0]["commit"] == "53e1234"
    assert parsed("0.5") == 0.5
