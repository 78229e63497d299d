"""The documents say what the data say."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from figures import draw_headline
from record import MARCO, MODEL_FREE, RESULTS, SOURCES, TABLES, Results
from report import HERE, TOP, report, with_results
from tables.common import summary
from tables.marco import headline

README = HERE / "README.md"


@pytest.fixture(scope="module")
def written() -> str:
    return report(Results(RESULTS))


def test_the_committed_page_is_what_the_data_give(written: str) -> None:
    assert README.read_text() == written, "Run python benchmarks/report.py."


def test_the_results_table_of_the_readme_is_what_the_data_give() -> None:
    text = (TOP / "README.md").read_text()
    assert with_results(text, Results(RESULTS)) == text, "Run python benchmarks/report.py."


@pytest.mark.parametrize(
    ("table", "before", "after"),
    [
        (
            "marco",
            "switch-default,switch,default,,1000,0,0.740741",
            "switch-default,switch,default,,1000,0,0.640741",
        ),
        (
            "model_free",
            "bridge-vdn-tuned,bridge,vdn,tuned,1000000,",
            "bridge-vdn-tuned,bridge,vdn,tuned,1050000,",
        ),
        ("rmax_recycling", "random,,4,236,", "random,,4,,"),
        ("solver", "9.993568", "9.983568"),
        ("speed", "115152", "125152"),
        ("models", "0.026906", "0.126906"),
    ],
)
def test_a_changed_number_is_noticed(tmp_path: Path, table: str, before: str, after: str) -> None:
    shutil.copytree(RESULTS, tmp_path / "results")
    path = tmp_path / "results" / f"{table}.csv"
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after, 1))
    assert report(Results(tmp_path / "results")) != README.read_text()


def test_a_changed_number_in_the_readme_is_noticed() -> None:
    text = (TOP / "README.md").read_text()
    table = text[text.index("<!-- results -->") :]
    changed = text.replace(table, table.replace("0.73", "0.74", 1))
    assert changed != text
    assert with_results(changed, Results(RESULTS)) == text


def test_a_readme_without_markers_is_refused() -> None:
    with pytest.raises(ValueError, match="<!-- results --> and <!-- /results --> once each"):
        with_results("# MARCO\n", Results(RESULTS))


def test_every_row_names_a_source_and_the_tables_are_small() -> None:
    results = Results(RESULTS)
    sources = {row["source"] for row in results.read(SOURCES)}
    assert {row["source"] for table in TABLES for row in results.read(table)} == sources
    assert sum(path.stat().st_size for path in RESULTS.iterdir()) < 1_000_000


def test_the_interval_over_seeds_worked_by_hand() -> None:
    """Student's t with two degrees of freedom is 4.3027; the standard error of 1, 2, 3 is 1 / sqrt(3)."""
    found = summary([1.0, 2.0, 3.0])
    assert (found.runs, found.mean, found.lowest, found.highest) == (3, 2.0, 1.0, 3.0)
    assert found.half_width == pytest.approx(4.3027 / 3**0.5, abs=1e-4)


@pytest.mark.parametrize(("last", "factor"), [(0.7, "4x"), (0.5, "over 4x")])
def test_how_many_fewer_samples_worked_by_hand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, last: float, factor: str
) -> None:
    """MARCO has 0.6 after 1,000 samples; model-free passes that after 4,000, or not within them."""
    monkeypatch.setattr("tables.marco.HEADLINES", (("switch", 1_000),))
    results, facts = Results(tmp_path), {"world": "switch", "preset": "default"}
    run = {**facts, "study": "switch-default", "samples": 1_000, "optimum": 0.8}
    results.add(MARCO, [{**run, "seed": seed, "return": value} for seed, value in enumerate((0.5, 0.7))])
    curve: dict[str, Any] = {**facts, "study": "switch-iql-tuned", "seed": 0}
    points = [(2_000, 0.3), (4_000, last)]
    results.add(MODEL_FREE, [{**curve, "budget": n, "samples": n, "return": value} for n, value in points])
    line = headline(results).splitlines()[-1]
    assert line.endswith(f"| 0.8000 | {factor} |")
    assert "| 2, 0 optimal |" in line


def test_the_headline_figure_is_drawn_and_small(tmp_path: Path) -> None:
    draw_headline(Results(RESULTS), tmp_path / "headline.png")
    assert 20_000 < (tmp_path / "headline.png").stat().st_size < 200_000
    assert (TOP / "docs" / "figures" / "headline.png").stat().st_size < 200_000
