"""The results of runs as one tidy table: a row per run and seed."""

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from marco.data.storage import read_json, write_atomically
from marco.runs.checkpoint import read_metrics
from marco.runs.config import RunConfig, read_config

NAME = "table.csv"
FIRST = ("world", "method", "preset")
LAST = (
    *("seed", "budget", "samples", "return", "standard_error", "exact", "test_episodes", "imagined"),
    *("optimum", "seconds", "marco", "jax", "commit", "run"),
)
"""The columns before and after those of the settings that vary."""


@dataclass(frozen=True)
class Row:
    """What one run has reached with one seed."""

    world: str
    method: str
    preset: str
    settings: dict[str, str]
    """What it is told from other runs by."""
    seed: int
    budget: int
    """Real samples that it was given."""
    samples: int
    """Real samples that it took."""
    value: float
    """The return of its team in the true environment."""
    standard_error: float
    exact: bool
    test_episodes: int
    """Episodes of the evaluation, none of an exact one. They are not among the samples."""
    imagined: float | None
    """The return in the model."""
    optimum: float | None
    seconds: float | None
    """Of the whole run, all of its seeds."""
    marco: str
    jax: str
    commit: str
    run: str
    """The folder."""
    curve: tuple[tuple[int, float], ...] = field(default=(), compare=False)
    """Samples and return of evaluations on the way, where there were any. Not in the file."""


def rows_of_run(folder: Path, settings: dict[str, Any] | None = None, name: str = "") -> list[Row]:
    """The rows of a finished run."""
    config, cure = read_config(folder), f"Evaluate the run again: marco resume {folder}"
    facts = read_json(folder / "config.json", cure)
    result = read_json(folder / "result.json", cure)
    versions = facts.get("versions") if isinstance(facts.get("versions"), dict) else {}
    metrics = read_metrics(folder)
    marco = config.method == "marco"
    seconds = sum(row["seconds"] for row in metrics) if marco else max([0.0, *(_seconds(metrics))])
    try:
        return [
            Row(
                world=world_name(config),
                method=config.method,
                preset=config.preset or "",
                settings={key: _formatted(value) for key, value in (settings or {}).items()},
                seed=int(real["seed"]),
                budget=config.algorithm.samples,
                samples=int(result["samples"][index]),
                value=float(real["mean"]),
                standard_error=float(real["standard_error"]),
                exact=int(real["episodes"]) == 0,
                test_episodes=int(real["episodes"]),
                imagined=None if result["imagined"] is None else float(result["imagined"][index]),
                optimum=None if result["optimum"] is None else float(result["optimum"]),
                seconds=round(seconds, 1) if metrics else None,
                marco=str((versions or {}).get("marco-marl", "")),
                jax=str((versions or {}).get("jax", "")),
                commit=str(facts.get("commit") or ""),
                run=name or str(folder),
                curve=() if marco else _curve(metrics, index),
            )
            for index, real in enumerate(result["real"])
        ]
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise ValueError(f"{folder / 'result.json'} is damaged: {error!r}. {cure}") from error


def is_done(folder: Path) -> bool:
    """Whether a run has come to its end; one whose result is damaged has not."""
    try:
        return bool(rows_of_run(folder))
    except ValueError:
        return False


def world_name(config: RunConfig) -> str:
    """An environment with its settings: those with others are other environments."""
    name = "unnamed" if config.world is None else Path(config.world).name
    return " ".join([name, *(f"{key}={_formatted(value)}" for key, value in config.world_settings.items())])


def write_table(path: Path, rows: Sequence[Row]) -> None:
    """Write a table, whole or not at all."""
    varied = list(dict.fromkeys(name for row in rows for name in row.settings))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*FIRST, *varied, *LAST])
    for row in rows:
        cells = [*(getattr(row, name) for name in FIRST), *(row.settings.get(name, "") for name in varied)]
        cells += [row.value if name == "return" else getattr(row, name) for name in LAST]
        writer.writerow([_formatted(cell) for cell in cells])
    write_atomically(path, text.getvalue().encode())


def parse_table(text: str, source: str) -> list[Row]:
    """The rows of a table. What is damaged is named by its line."""
    lines = csv.DictReader(io.StringIO(text))
    columns = list(lines.fieldnames or ())
    if missing := [name for name in (*FIRST, *LAST) if name not in columns]:
        raise ValueError(
            f"{source} is no table of runs: it has no column {missing[0]!r}. Give the {NAME} of a sweep."
        )
    varied = [name for name in columns if name not in (*FIRST, *LAST)]
    rows = []
    for number, line in enumerate(lines, 2):
        try:
            rows.append(_parsed(line, varied))
        except (ValueError, TypeError) as error:
            raise ValueError(f"{source}, line {number} is damaged: {error}.") from error
    return rows


def _parsed(line: dict[str, str], varied: Iterable[str]) -> Row:
    def number(name: str) -> float | None:
        return float(line[name]) if line[name] else None

    return Row(
        world=line["world"],
        method=line["method"],
        preset=line["preset"],
        settings={name: line[name] for name in varied},
        seed=int(line["seed"]),
        budget=int(line["budget"]),
        samples=int(line["samples"]),
        value=float(line["return"]),
        standard_error=float(line["standard_error"]),
        exact=_truth(line["exact"]),
        test_episodes=int(line["test_episodes"]),
        imagined=number("imagined"),
        optimum=number("optimum"),
        seconds=number("seconds"),
        marco=line["marco"],
        jax=line["jax"],
        commit=line["commit"],
        run=line["run"],
    )


def _truth(text: str) -> bool:
    if text not in ("yes", "no"):
        raise ValueError(f"exact must be yes or no, got {text!r}")
    return text == "yes"


def _formatted(value: Any) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:.10g}"
        case tuple() | list():
            return " ".join(map(_formatted, value))
    return str(value)


def _seconds(metrics: list[dict[str, Any]]) -> list[float]:
    return [row["seconds"] for row in metrics]


def _curve(metrics: list[dict[str, Any]], index: int) -> tuple[tuple[int, float], ...]:
    """The evaluations of a model-free run on the way."""
    found = [row["metrics"] for row in metrics if row["phase"] == "train"]
    return tuple(
        (int(one["samples"][index]), float(one["return"][index]))
        for one in found
        if index < len(one.get("samples", ())) and index < len(one.get("return", ()))
    )
