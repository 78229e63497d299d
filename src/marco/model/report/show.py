"""The model report for the eye: tables for the terminal and one figure."""

from pathlib import Path
from typing import Any

from rich.console import Group
from rich.table import Table

from marco.model.report.held_out import BINS
from marco.model.report.open_loop import OpenLoopError
from marco.model.report.summary import ComponentReport, ModelReport, TruthReport


def report_table(report: ModelReport) -> Group:
    """All tables of a report, to be printed as one."""
    tables = [_components(report), _features(report)]
    tables += [_visits(part) for part in report.components if part.by_visits and part.component == "dynamics"]
    if report.truth is not None:
        tables.append(_truth(report.truth))
    if report.open_loop is not None:
        tables.append(_open_loop(report.open_loop))
    return Group(*tables)


def report_figure(report: ModelReport, path: Path) -> None:
    """Calibration; error by visits, of discrete states; and the exact or the open-loop error, if known."""
    from matplotlib.figure import Figure

    panels = [_draw_calibration]
    if any(part.by_visits for part in report.components):
        panels.append(_draw_visits)
    if report.truth is not None:
        panels.append(_draw_truth)
    if report.open_loop is not None:
        panels.append(_draw_open_loop)
    figure = Figure(figsize=(4.2 * len(panels), 3.6), layout="constrained")
    for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        axes.spines[["top", "right"]].set_visible(False)
        panel(axes, report)
    figure.suptitle(f"The model of {report.world}, learned from {report.samples:,} real steps")
    figure.savefig(path, dpi=150)


def _table(title: str, first: str, *others: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold")
    table.add_column(first)
    for other in others:
        table.add_column(other, justify="right")
    return table


def _components(report: ModelReport) -> Table:
    title = f"The model of {report.world}, from {report.samples:,} real steps: rows held out"
    table = _table(title, "component", "rows judged", "nats per row", "classes right", "least right")
    for part in report.components:
        right = [one.accuracy for one in part.classes]
        mean = sum(right) / len(right) if right else None
        table.add_row(
            part.component,
            f"{part.judged:,} of {part.rows:,}",
            f"{part.loss:.3f}",
            _share(mean),
            _share(min(right, default=None)),
        )
    return table


def _features(report: ModelReport) -> Table:
    table = _table("Feature by feature", "feature", "nats", "right", "calibration error")
    for name in ("error", "in spreads", "in 50%", "in 90%"):
        table.add_column(name, justify="right")
    for part in report.components:
        if part.component == "available":  # a feature per agent and action: the sum above says enough
            continue
        for one in part.classes:
            shares = (_share(one.accuracy), _number(one.calibration_error))
            table.add_row(f"{part.component}: {one.feature}", f"{one.loss:.3f}", *shares)
        for two in part.numbers:
            errors = (_number(two.error), _number(two.error_in_spreads))
            within = (_share(two.within_50), _share(two.within_90))
            table.add_row(f"{part.component}: {two.feature}", f"{two.loss:.3f}", "", "", *errors, *within)
    return table


def _visits(part: ComponentReport) -> Table:
    table = _table(
        f"The {part.component} by how often (s, a) was trained on", "times", "rows", "nats per row", "wrong"
    )
    for one in part.by_visits:
        table.add_row(one.visits, f"{one.rows:,}", _number(one.loss), _share(one.wrong))
    return table


def _truth(truth: TruthReport) -> Table:
    table = _table(
        "The dynamics against the true ones, exactly", "times (s, a) seen", "pairs", "variation", "impossible"
    )
    for one in truth.by_visits:
        row = (f"{one.pairs:,}", _number(one.total_variation), _number(one.impossible))
        table.add_row(one.visits, *row)
    table.add_section()
    table.add_row("all", f"{truth.pairs:,}", _number(truth.total_variation), _number(truth.impossible))
    table.caption = (
        f"total variation at most {truth.largest:.4f}, and {truth.visited_total_variation:.4f} on average "
        "over the data"
    )
    return table


def _open_loop(found: OpenLoopError) -> Table:
    steps = len(found.error[0])
    shown = sorted({1, 2, 5, 10, 20, steps} & set(range(1, steps + 1)))
    table = _table("Open-loop error after so many steps", "feature", *map(str, shown))
    for name, error in zip(found.features, found.error, strict=True):
        table.add_row(name, *(_number(error[step - 1]) for step in shown))
    table.caption = f"{found.episodes:,} fresh episodes, {found.real_steps:,} real steps counted apart"
    return table


def _draw_calibration(axes: Any, report: ModelReport) -> None:
    axes.plot([0, 1], [0, 1], color="0.7", linewidth=1, linestyle="--")
    for part in report.components:
        curve = part.calibration
        places = ([one.confidence for one in curve], [one.right for one in curve])
        if curve:
            axes.plot(*places, marker="o", markersize=3, label=part.component)
    axes.set(xlabel="confidence", ylabel="share right", title="Calibration", xlim=(0, 1.02), ylim=(0, 1.02))
    axes.legend(frameon=False, fontsize=8)


def _draw_visits(axes: Any, report: ModelReport) -> None:
    parts = [part for part in report.components if part.by_visits]
    width = 0.8 / len(parts)
    for index, part in enumerate(parts):
        places = [bin_index + width * index for bin_index in range(len(part.by_visits))]
        axes.bar(places, [one.loss or 0.0 for one in part.by_visits], width, label=part.component)
    middle = 0.4 - 0.5 * width
    labels = [one.visits for one in parts[0].by_visits]
    axes.set_xticks([place + middle for place in range(len(labels))], labels)
    axes.set(xlabel="times (s, a) was trained on", ylabel="nats per row", title="Error by visits")
    axes.legend(frameon=False, fontsize=8)


def _draw_truth(axes: Any, report: ModelReport) -> None:
    if report.truth is None:
        return
    edges = [index / BINS for index in range(BINS)]
    axes.bar(edges, report.truth.histogram, 1 / BINS, align="edge", edgecolor="white")
    axes.set(xlabel="total variation from the truth", ylabel="pairs (s, a)", title="Exact error", xlim=(0, 1))
    axes.set_yscale("symlog", linthresh=1)


def _draw_open_loop(axes: Any, report: ModelReport) -> None:
    if report.open_loop is None:
        return
    for name, error in zip(report.open_loop.features, report.open_loop.error, strict=True):
        known = [(step, value) for step, value in enumerate(error, 1) if value is not None]
        axes.plot(*zip(*known, strict=True), label=name)
    axes.set(xlabel="steps", ylabel="mean distance", title="Open-loop error", ylim=(0, None))
    axes.legend(frameon=False, fontsize=8)


def _share(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.1f}%"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"
