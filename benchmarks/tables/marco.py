"""What MARCO reaches, beside the best model-free learner, and how long it takes."""

from statistics import mean

from record import MARCO, MARCO_PROGRESS, MARCO_SECONDS, Results, Row
from tables.common import (
    SPREAD,
    commits,
    curve,
    decimals,
    device,
    grouped,
    markdown,
    short_world,
    summary,
    with_interval,
)

BASELINES = {
    "switch": "switch-iql-tuned",
    "bridge": "bridge-vdn-tuned",
    "reference": "reference-qmix-tuned",
    SPREAD: "spread-mappo",
}
"""The strongest model-free study of each environment."""
POOLED = ("-default", "-default-earlier-draws")
"""Studies of one preset that differ only in how random numbers are drawn."""
HEADLINES = (
    ("switch", 1_000),
    ("switch", 10_000),
    ("bridge", 10_000),
    ("bridge", 20_000),
    ("reference", 20_000),
    ("reference", 50_000),
    (SPREAD, 20_000),
)
"""Environments and budgets of the table in the top README."""


def marco(results: Results, *studies: str) -> str:
    """A line for each study and budget."""
    lines = []
    for (study, samples), rows in grouped(results.read(MARCO), "study", "samples").items():
        if study in studies:
            lines.append((studies.index(study), samples, _marco_line(results, study, samples, rows)))
    header = ["study", "real samples", "runs", "return", "lowest to highest", "optimal", "imagined", "commit"]
    return markdown(header, [line for *_, line in sorted(lines)])


def _marco_line(results: Results, study: str, samples: int, rows: list[Row]) -> list[str]:
    digits, found = decimals(rows[0]["world"]), summary([row["return"] for row in rows])
    spread = f"{found.lowest:.{digits}f} to {found.highest:.{digits}f}"
    imagined = mean(row["imagined"] for row in rows)
    cells = [f"`{study}`", f"{samples:,}", str(found.runs), with_interval(found, digits), spread]
    return [
        *cells,
        optimal(rows),
        f"{imagined:.{digits - 1}f}".replace("-0.000", "0.000"),
        commits(results, rows),
    ]


def optimal(rows: list[Row]) -> str:
    """How many runs have the optimum, where one is known, and how many stand at 0."""
    best = rows[0]["optimum"]
    if best is None:
        return ""
    zeros = sum(abs(row["return"]) < 1e-5 for row in rows)
    return f"{sum(abs(row['return'] - best) < 1e-5 for row in rows)}" + (f" ({zeros} at 0)" if zeros else "")


def pooled(results: Results, world: str, samples: int) -> list[Row]:
    """All runs of the default preset with this budget."""
    names = ["spread" + end if world == SPREAD else world + end for end in POOLED]
    return [row for row in results.read(MARCO) if row["study"] in names and row["samples"] == samples]


def headline(results: Results) -> str:
    """MARCO beside the best model-free learner: the table of the top README."""
    header = ["environment", "real samples", "MARCO", "runs", "best model-free", "optimum", "fewer samples"]
    return markdown(header, [_headline_line(results, world, samples) for world, samples in HEADLINES])


def _headline_line(results: Results, world: str, samples: int) -> list[str]:
    rows, digits = pooled(results, world, samples), decimals(world)
    found, best = summary([row["return"] for row in rows]), rows[0]["optimum"]
    count = f", {optimal(rows)} optimal" if best is not None else ""
    points = curve(results, BASELINES[world])
    last, end = points[-1]
    reached = [used for used, point in points if point.mean >= found.mean]
    factor = f"{reached[0] / samples:.0f}x" if reached else f"over {last / samples:.0f}x"
    learner = BASELINES[world].split("-")[1].upper()
    return [
        short_world(world),
        f"{samples:,}",
        f"**{with_interval(found, digits)}**",
        f"{found.runs}{count}",
        f"{learner}: {with_interval(end, digits)} after {last:,.0f}",
        "unknown" if best is None else f"{best:.4f}",
        factor,
    ]


def rewarded_chunks(results: Results, study: str, samples: int) -> list[int]:
    """For each run, how many of its chunks of real data have a mean return other than 0."""
    rows = [
        row
        for row in results.read(MARCO_PROGRESS)
        if (row["study"], row["samples"], row["phase"]) == (study, samples, "collect")
    ]
    return [sum(row["return"] != 0 for row in of_run) for of_run in grouped(rows, "seed").values()]


def training_in_model(results: Results, study: str) -> str:
    """Return in the true environment at each tenth of the last training."""
    rows = [r for r in results.read(MARCO_PROGRESS) if r["study"] == study and r["phase"] == "final"]
    of_seed = list(grouped(rows, "seed").values())
    points = [
        (mean(r["model_steps"] for r in at), mean(r["return"] for r in at))
        for at in zip(*of_seed, strict=True)
    ]
    return markdown(
        ["steps in the last model", *(f"{steps / 1e3:.0f}k" for steps, _ in points)],
        [["return", *(f"{value:.3f}" for _, value in points)]],
    )


def seconds(results: Results) -> str:
    """Seconds of each phase, compilation in brackets."""
    phases = ("collect", "fit", "team", "explore", "final")
    lines = []
    for (study, samples), rows in grouped(results.read(MARCO_SECONDS), "study", "samples").items():
        of = {row["phase"]: row for row in rows}
        times = [_seconds_of(of[phase]) if phase in of else "" for phase in phases]
        budget = f"{samples:,}" if samples else "all budgets"
        lines.append([f"`{study}`", budget, *times, device(results, rows[0]), commits(results, rows)])
    return markdown(["study", "real samples", *phases, "device", "commit"], lines)


def _seconds_of(row: Row) -> str:
    compiling = f" ({row['compiling']:.0f})" if row["compiling"] is not None else ""
    return f"{row['seconds']:.0f}{compiling}"
