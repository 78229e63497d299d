"""How well and how fast models are learned."""

from statistics import mean

from record import MODELS, Results, Row
from tables.common import commits, device, grouped, markdown, summary, with_range


def switch_models(results: Results) -> str:
    """Errors of the dynamics, exact."""
    of = grouped(
        (row for row in results.read(MODELS) if row["study"] != "switch-default-two-cores"), "study", "size"
    )
    lines = []
    for study, size in of:
        if study != "switch-default":
            continue
        cells = [_model_errors(of[name, size]) for name in ("switch-default", "switch-paper")]
        lines.append([f"{size:,}", *cells[0], *cells[1]])
    header = [
        f"{preset}: {error}" for preset in ("default", "paper") for error in ("total variation", "impossible")
    ]
    return markdown(["samples", *header], lines)


def _model_errors(rows: list[Row]) -> list[str]:
    found = summary([row["total_variation"] for row in rows])
    return [with_range(found, 3), f"{mean(row['impossible'] for row in rows):.4f}"]


def reference_models(results: Results) -> str:
    """Errors of positions, open loop, and of rewards."""
    steps, lines = (1, 5, 10, 25), []
    rows = [row for row in results.read(MODELS) if row["study"] == "reference-default"]
    for (size,), each in grouped(rows, "size").items():
        errors = [summary([row[f"position_error_{step}"] for row in each]) for step in steps]
        reward = summary([row["reward_error"] for row in each])
        near = [f"{error.mean:.4f}" for error in errors[:-1]]
        lines.append([f"{size:,}", *near, with_range(errors[-1], 3), with_range(reward, 4)])
    header = ["samples", "1 step", *(f"{step} steps" for step in steps[1:]), "reward, mean absolute error"]
    return markdown(header, lines)


def model_seconds(results: Results) -> str:
    """Seconds to fit 10,000 samples."""
    lines = []
    of = grouped((row for row in results.read(MODELS) if row["size"] == 10_000), "study")
    for (study,), rows in of.items():
        first = next(row for row in results.read(MODELS) if row["study"] == study)
        times = [f"{rows[0]['seconds']:.2f}", f"{first['seconds_with_compilation'] - first['seconds']:.0f}"]
        lines.append([f"`{study}`", device(results, rows[0]), str(len(rows)), *times, commits(results, rows)])
    return markdown(["study", "device", "seeds at once", "seconds", "compilation", "commit"], lines)
