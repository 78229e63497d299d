"""How fast environments are stepped and learners updated."""

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
    """Updates per second on a CPU, and the parts of an update."""
    lines = []
    rows = [row for row in results.read(SPEED) if row["study"] == "learner-speed"]
    for (world, learner, size), each in grouped(rows, "world", "side", "size").items():
        once = {row["quantity"]: row["value"] for row in each}
        speeds = [row["value"] for row in each if row["quantity"] == "updates_per_second"]
        parts = [f"{once[f'{part}_microseconds'] / 1e3:.2f}" for part in ("play", "replay", "gradient")]
        ratio = f"{once['flax_over_ours']:.2f}" if "flax_over_ours" in once else ""
        speed = f"{median(speeds):.0f} ({min(speeds):.0f} to {max(speeds):.0f})"
        quoted = f"{once['jaxmarl_quoted']:.0f}"
        lines.append([f"`{world}`", learner.upper(), str(size), speed, quoted, ", ".join(parts), ratio])
    header = ["environment", "learner", "episodes per update", "updates/s", "JaxMARL, quoted"]
    return markdown([*header, "play, replay, gradient (ms)", "gradient: Flax / ours"], lines)


def values(results: Results, study: str, **match: Any) -> list[float]:
    """Values of the speed table."""
    rows = [row for row in results.read(SPEED) if row["study"] == study]
    return [row["value"] for row in rows if all(row[name] == value for name, value in match.items())]
