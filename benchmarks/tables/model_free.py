"""What learners reach without a model."""

from collections.abc import Sequence

from record import CONTROLLERS, FREE, MODEL_FREE, Results
from tables.common import commits, curve, decimals, grouped, markdown, summary, with_range


def curves(results: Results, world: str, points: Sequence[int], *studies: str) -> str:
    """For each study the evaluation whose mean samples are nearest to the point."""
    digits, lines = decimals(world, 3), []
    of = {study: curve(results, study) for study in studies}
    for point in points:
        nearest = [min(found, key=lambda at: abs(at[0] - point))[1] for found in of.values()]
        lines.append([f"{point / 1e3:,.0f}k", *(with_range(found, digits) for found in nearest)])
    rows = results.read(MODEL_FREE)
    measured = [commits(results, [row for row in rows if row["study"] == study]) for study in studies]
    return markdown(["samples", *(f"`{study}`" for study in studies)], [*lines, ["commit", *measured]])


def controllers(results: Results) -> str:
    """Hand-written teams."""
    lines = [
        [row["team"], f"{row['return']:.2f}", f"{row['standard_error']:.2f}", f"{row['test_episodes']:,}"]
        for row in results.read(CONTROLLERS)
    ]
    return markdown(["hand-written team", "return", "standard error", "episodes"], lines)


def free(results: Results) -> str:
    """The preset `free-samples`, where samples cost nothing."""
    lines = []
    for (study, world), rows in grouped(results.read(FREE), "study", "world").items():
        first, used = rows[0], [row["samples"] for row in rows]
        restarts = (min(row["lowest_restart"] for row in rows), max(row["highest_restart"] for row in rows))
        lines.append(
            [
                f"`{study}`",
                f"{first['learner'].upper()}, {first['updates']:,} updates, best of {first['restarts']}",
                with_range(summary([row["return"] for row in rows]), decimals(world)),
                f"{restarts[0]:.3f} to {restarts[1]:.3f}",
                f"{min(used) / 1e6:.1f}M to {max(used) / 1e6:.1f}M",
                f"{first['seconds']:.1f} ({first['seconds_with_compilation']:.1f})",
                commits(results, rows),
            ]
        )
    header = [
        "study",
        "learner",
        "return",
        "single restarts (sampled)",
        "steps per seed",
        "seconds, all seeds",
    ]
    return markdown([*header, "commit"], lines)
