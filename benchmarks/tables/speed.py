"""How fast environments are stepped and learners updated."""

from math import log
from statistics import median
from typing import Any

from record import MODEL_FREE, SPEED, Results
from tables.common import grouped, markdown


def gpu_speed(results: Results, *studies: str) -> str:
    """Updates and samples per second between the first and the last evaluation, all seeds together."""
    lines = []
    for study in studies:
        rows = [row for row in results.read(MODEL_FREE) if row["study"] == study]
        at = list(grouped(rows, "budget").values())
        first, last = at[0], at[-1]
        spent = last[0]["seconds"] - first[0]["seconds"]
        before, after = first[0]["updates"], last[0]["updates"]  # older rows alone have them
        updates = "" if after is None else f"{(after - before) * len(last) / spent:,.0f}"
        samples = sum(b["samples"] - a["samples"] for a, b in zip(first, last, strict=True)) / spent
        lines.append([f"`{study}`", updates, f"{samples:,.0f}"])
    return markdown(["study", "updates per second", "samples per second"], lines)


def throughput(results: Results) -> str:
    """Steps per second beside JaxMARL's: medians, and the ratio within each repeat."""
    lines = []
    rows = [row for row in results.read(SPEED) if row["study"] == "throughput" and row["side"] != "mpe2"]
    for (world, size), each in grouped(rows, "world", "size").items():
        sides = [[row["value"] for row in each if row["side"] == side] for side in ("marco", "jaxmarl")]
        ratios = [ours / theirs for ours, theirs in zip(*sides, strict=True)]
        speeds = [f"{median(side):,.0f}" for side in sides]
        spread = f"{median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
        lines.append([f"`{world}`", f"{size:,}", *speeds, spread])
    return markdown(["environment", "copies", "MARCO", "JaxMARL", "MARCO / JaxMARL"], lines)


def learner_speed(results: Results) -> str:
    """Updates per second on one core beside JaxMARL's: medians, and the ratio within each repeat."""
    lines = []
    rows = [row for row in results.read(SPEED) if row["study"] == "learner-speed"]
    for (world, what), each in grouped(rows, "world", "quantity").items():
        sides = [[row["value"] for row in each if row["side"] == side] for side in ("marco", "jaxmarl")]
        ratios = [ours / theirs for ours, theirs in zip(*sides, strict=True)]
        speeds = [f"{median(side):.0f}" for side in sides]
        spread = f"{median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
        lines.append([f"`{world}`", what.split()[0].upper(), *speeds, spread])
    return markdown(["environment", "learner", "MARCO", "JaxMARL", "MARCO / JaxMARL"], lines)


GROWTH = ("agents", "seeds", "members", "horizon", "width", "samples")
MACHINES = {"gpu": "one H200", "cpu": "two cores"}


def growth(results: Results) -> str:
    """Time and memory over each size, and the exponent between the two largest sizes measured."""
    lines = []
    for machine, name in MACHINES.items():
        for quantity in GROWTH:
            study = f"growth-{quantity}-{machine}"
            rows = [row for row in results.read(SPEED) if row["study"] == study]
            sizes = [size for (size,) in grouped(rows, "size")]
            cells = []
            for side, what in (
                ("fit", "seconds"),
                ("fit", "megabytes"),
                ("update", "seconds"),
                ("update", "megabytes"),
            ):
                at = {
                    row["size"]: row["value"]
                    for row in rows
                    if (row["side"], row["quantity"]) == (side, what)
                }
                cells.append(_growing(at))
            if sizes:
                refused = [row["size"] for row in rows if row["quantity"] == "refused"]
                shown = ", ".join(f"{size:,}" + " (refused)" * (size in refused) for size in sizes)
                lines.append([name, quantity, shown, *cells])
    titles = ["fit, s", "fit, MB", "update, s", "update, MB"]
    return markdown(["machine", "quantity", "sizes", *titles], lines)


def _growing(at: dict[float, float]) -> str:
    """The first and the last value, and the exponent of the growth over the last step."""
    if len(at) < 2:
        return ""
    (one, before), (two, after) = sorted(at.items())[-2:]
    exponent = log(after / before) / log(two / one)
    return f"{at[min(at)]:.3g} to {after:.3g} (^{exponent:.2f})"


def values(results: Results, study: str, **match: Any) -> list[float]:
    """Values of the speed table."""
    rows = [row for row in results.read(SPEED) if row["study"] == study]
    return [row["value"] for row in rows if all(row[name] == value for name, value in match.items())]
