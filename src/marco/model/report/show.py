"""The model report as tables for the terminal, and as a figure."""

from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from marco.model.report.component import ComponentReport
from marco.model.report.held_out import BINS
from marco.model.report.open_loop import OpenLoopError
from marco.model.report.summary import ExactReport, ModelReport
from marco.model.report.verdict import verdict


def report_table(report: ModelReport) -> Group:
    """A one-sentence verdict and all tables of a report, to be printed as one."""
    shown: list[RenderableType] = [Text(verdict(report)), *map(Text, report.description), _components(report)]
    if any(part.categorical for part in report.components):
        shown.append(_categorical(report))
    if any(part.continuous for part in report.components):
        shown.append(_continuous(report))
    shown += [_visits(part) for part in report.components if part.by_visits and part.component == "dynamics"]
    if report.exact is not None:
        shown.append(_exact(report.exact))
    if report.open_loop is not None:
        shown.append(_open_loop(report.open_loop))
    return Group(*shown)


def report_figure(report: ModelReport, path: Path) -> None:
    """Calibration; loss by visits, of discrete states; and the exact or the open-loop error, if known."""
    from matplotlib.figure import Figure

    panels = [_draw_calibration]
    if any(part.by_visits for part in report.components):
        panels.append(_draw_visits)
    if report.exact is not None:
        panels.append(_draw_exact)
    if report.open_loop is not None:
        panels.append(_draw_open_loop)
    figure = Figure(figsize=(4.2 * len(panels), 3.6), layout="constrained")
    for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        axes.spines[["top", "right"]].set_visible(False)
        panel(axes, report)
    figure.suptitle(f"The model of {report.environment}, learned from {report.samples:,} real steps")
    figure.savefig(path, dpi=150)


def _table(title: str, first: str, *others: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", caption_justify="left")
    table.add_column(first, overflow="fold")  # a long name goes on in the next line and is not cut
    for other in others:
        table.add_column(other, justify="right")
    return table


def _components(report: ModelReport) -> Table:
    table = _table("Held-out rows", "component", "rows", "nats", "excess", "accuracy", "worst")
    for part in report.components:
        accuracy = [one.accuracy for one in part.categorical]
        mean = sum(accuracy) / len(accuracy) if accuracy else None
        table.add_row(
            part.component,
            f"{part.held_out:,} of {part.rows:,}",
            f"{part.loss:.3f}",
            _number(part.excess),
            _share(mean),
            _share(min(accuracy, default=None)),
        )
    table.caption = (
        "nats: negative log-likelihood per row. excess: nats above the true dynamics' own on the same rows, "
        "where they are known; the rest is chance. accuracy: mean and worst of the categorical features."
    )
    return table


def _categorical(report: ModelReport) -> Table:
    table = _table("Categorical features", "feature", "nats", "accuracy", "calib. error")
    for part in report.components:
        if part.component == "available":  # a feature per agent and action: the sum above is enough
            continue
        for one in part.categorical:
            shares = (_share(one.accuracy), _number(one.calibration_error))
            table.add_row(f"{part.component}: {one.feature}", f"{one.loss:.3f}", *shares)
    return table


def _continuous(report: ModelReport) -> Table:
    table = _table("Continuous features", "feature", "nats", "RMSE", "RMSE/std", "in 50%", "in 90%")
    for part in report.components:
        for one in part.continuous:
            errors = (_number(one.rmse), _number(one.normalised_rmse))
            within = (_share(one.within_50), _share(one.within_90))
            table.add_row(f"{part.component}: {one.feature}", f"{one.loss:.3f}", *errors, *within)
    table.caption = "in 50%, in 90%: how often the truth lies within the predicted central interval"
    return table


def _visits(part: ComponentReport) -> Table:
    title = f"The {part.component} by how often (s, a) was trained on"
    known = part.excess is not None
    table = _table(title, "times", "rows", "nats", "excess" if known else "wrong")
    for one in part.by_visits:
        last = _number(one.excess) if known else _share(one.wrong)
        table.add_row(one.visits, f"{one.rows:,}", _number(one.loss), last)
    if not known:
        table.caption = "wrong: some feature is not the likeliest, also where it is pure chance"
    return table


def _exact(exact: ExactReport) -> Table:
    title = "The dynamics against the true ones, exactly"
    table = _table(title, "times (s, a) seen", "pairs", "total variation", "impossible")
    for one in exact.by_visits:
        table.add_row(one.visits, f"{one.pairs:,}", _number(one.total_variation), _number(one.impossible))
    table.add_section()
    table.add_row("all", f"{exact.pairs:,}", _number(exact.total_variation), _number(exact.impossible))
    table.caption = (
        f"total variation at most {exact.largest:.4f}, and {exact.visited_total_variation:.4f} on average "
        "over the data; impossible: the probability of next states that cannot follow"
    )
    return table


def _open_loop(found: OpenLoopError) -> Table:
    steps = len(found.error[0])
    steps_shown = sorted({1, 2, 5, 10, 20, steps} & set(range(1, steps + 1)))
    table = _table("Open-loop error after so many steps", "feature", *map(str, steps_shown))
    for name, error in zip(found.features, found.error, strict=True):
        table.add_row(name, *(_number(error[step - 1]) for step in steps_shown))
    table.caption = f"{found.episodes:,} fresh episodes, {found.real_steps:,} real steps counted apart"
    return table


def _draw_calibration(axes: Any, report: ModelReport) -> None:
    axes.plot([0, 1], [0, 1], color="0.7", linewidth=1, linestyle="--")
    for part in report.components:
        curve = part.calibration
        places = ([one.confidence for one in curve], [one.accuracy for one in curve])
        if curve:
            axes.plot(*places, marker="o", markersize=3, label=part.component)
    axes.set(xlabel="confidence", ylabel="accuracy", title="Calibration", xlim=(0, 1.02), ylim=(0, 1.02))
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
    axes.set(xlabel="times (s, a) was trained on", ylabel="nats per row", title="Loss by visits")
    axes.legend(frameon=False, fontsize=8)


def _draw_exact(axes: Any, report: ModelReport) -> None:
    if report.exact is None:
        return
    edges = [index / BINS for index in range(BINS)]
    axes.bar(edges, report.exact.histogram, 1 / BINS, align="edge", edgecolor="white")
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
