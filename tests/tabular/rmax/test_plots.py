import math

import pytest

from marco.tabular.rmax.loop import LearningRun, PlanPhase
from marco.tabular.rmax.plots import draw_runs


def a_run(escape):
    """A run with two plans; the second team has no regret."""
    return LearningRun(
        [PlanPhase(10, 40, 1.0, escape, 1, 5, True), PlanPhase(9, 36, 0.0, escape, 4, 0, True)], True
    )


@pytest.fixture
def drawn(monkeypatch, tmp_path):
    """Draw runs, and return the figure that would have been closed."""
    from matplotlib import pyplot

    kept = []
    monkeypatch.setattr(pyplot, "close", kept.append)

    def draw(runs):
        draw_runs(runs, "recycling, horizon 4: rmax (m = 5), 2 runs", tmp_path / "runs.png")
        assert (tmp_path / "runs.png").read_bytes()[:4] == b"\x89PNG"
        return kept[-1]

    return draw


def test_three_panels_with_the_escape_probability_between_0_and_1(drawn):
    figure = drawn([a_run(0.0), a_run(0.0)])
    assert [axis.get_ylabel() for axis in figure.axes] == [
        "regret of the team (exact)",
        "probability to meet an unknown pair",
        "known pairs",
    ]
    assert figure.axes[1].get_ylim() == (-0.02, 1.02)


def test_without_unknown_pairs_there_is_no_empty_panel(drawn):
    figure = drawn([a_run(math.nan)])
    assert [axis.get_ylabel() for axis in figure.axes] == [
        "regret of the team (exact)",
        "pairs visited at least once",
    ]


def test_the_title_is_inside_the_figure(drawn):
    figure = drawn([a_run(math.nan)])
    (title,) = [text for text in figure.texts if text.get_text().startswith("recycling")]
    box = title.get_window_extent()
    assert 0.0 < box.x0 < box.x1 < figure.bbox.width
