"""How far problems can be solved exactly: longer and longer horizons, and bounds where the time is up."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

from marco.jobs.events import Report
from marco.jobs.processes import work
from marco.tabular import DecPOMDP, Limits, load, solve
from record import SOLVER, SOURCES, Results, own_source

# problem: (horizons, the published value where one is known)
SOLVED: dict[str, dict[int, float | None]] = {
    "dectiger": {2: -4.0, 3: 5.190812, 4: 4.802755, 5: 7.026451, 6: 10.381625, 7: None, 8: None},
    "broadcast-channel": {
        2: 2.0,
        3: 2.99,
        4: 3.89,
        5: 4.79,
        10: 9.29,
        20: 18.313228,
        30: 27.421850,
        100: None,
        300: None,
        1000: None,
    },
    "recycling": {
        2: 7.0,
        3: 10.660125,
        4: 13.38,
        5: 16.486,
        6: 19.5542,
        10: 31.863889,
        15: None,
        30: None,
        60: None,
        100: None,
        200: None,
        400: None,
    },
    "gridsmall": {1: 0.37, 2: 0.91, 3: 1.550444, 4: 2.241577, 5: 2.970496, 6: None, 7: None},
    "Grid3x3corners": {2: 0.0, 3: 0.1332, 4: 0.4329, 5: 0.895656, 6: None, 7: None, 8: None},
    "Mars": {2: 5.8, 3: 9.38, 4: 10.1808, 5: None, 6: None, 7: None, 8: None, 9: None},
    "switch": {3: 2 / 9, 4: 4 / 9, 5: 50 / 81, 6: 20 / 27, 7: None, 8: None},
    "bridge": {3: None, 5: None, 8: None, 10: None, 12: None, 20: None, 40: None, 80: None},
}
FILES = ("Grid3x3corners", "Mars")
"""Problems that are no part of the library: read from --files."""
GRACE = 20.0
"""Seconds after the limit when a solver that has not stopped is killed."""
REPORT_EVERY = 5.0
State = Literal["done", "solving"]
"""A row that is `solving` holds the bounds so far: a study that was ended leaves it so."""


class OneHorizon(NamedTuple):
    """A task."""

    problem: str
    horizon: int


def study_solver(
    seconds: float, minutes: float, files: Path | None, processes: int, results: Results
) -> None:
    """Solve everything within a time limit each; every row is written as soon as it is known.

    Continues from the rows in the table that are of this commit and this limit.
    """
    deadline, problems = time.monotonic() + 60.0 * minutes, dict(_problems(files))
    facts = {"limit": seconds, "processes": processes}
    rows = _held(results, facts)
    tasks = [OneHorizon(name, horizon) for name in problems for horizon in SOLVED[name]]
    pending = iter(sorted((task for task in tasks if task not in rows), key=_place))
    events = work(
        one_horizon,
        (problems, seconds),
        lambda: next(pending, None),
        processes=processes,
        deadline=deadline,
        limit=seconds + GRACE,
    )
    for event in events:
        if event is None:
            continue
        state: State = "solving" if event.kind == "report" else "done"
        before = rows.get(event.task, {})
        found = {**before, "failure": event.value} if event.kind == "ended" else event.value
        rows[event.task] = {**facts, **_known(event.task), **found, "state": state}
        if state == "done":
            print(rows[event.task], flush=True)
        results.add(SOLVER, [rows[event.task]])


def _held(results: Results, facts: dict[str, Any]) -> dict[OneHorizon, dict[str, Any]]:
    """Finished rows of the same commit, limit and number of processes."""
    commits = {row["source"]: row["commit"] for row in results.read(SOURCES)}
    return {
        OneHorizon(row["problem"], row["horizon"]): row
        for row in results.read(SOLVER)
        if row["state"] == "done"
        and commits[row["source"]] == own_source()["commit"]
        and all(row[name] == value for name, value in facts.items())
    }


def _problems(files: Path | None) -> Iterator[tuple[str, DecPOMDP]]:
    for name in SOLVED:
        if name in FILES:
            path = None if files is None else files / f"{name}.dpomdp.gz"
            if path is None or not path.exists():
                print(f"{name}: left out, there is no file")
                continue
            yield name, load(str(path))
        else:
            yield name, load(name)


def _place(task: OneHorizon) -> float:
    """How far down its problem's list a horizon is: what is easy comes first, what may fail last."""
    horizons = list(SOLVED[task.problem])
    return horizons.index(task.horizon) / len(horizons)


def one_horizon(
    shared: tuple[dict[str, DecPOMDP], float], task: OneHorizon, report: Report
) -> dict[str, Any]:
    """Solve, reporting the bounds now and then."""
    problems, seconds = shared
    problem, reported = problems[task.problem], [0.0]
    dynamics = problem.dynamics  # made before the clock starts

    def bounds(lower: float, upper: float, elapsed: float) -> None:
        if elapsed - reported[0] > REPORT_EVERY:
            reported[0] = elapsed
            report({"value": lower, "upper": upper, "optimal": False, "seconds": round(elapsed, 3)})

    began = time.process_time()
    found = solve(dynamics, problem.steps(task.horizon), Limits(seconds), report=bounds)
    return {
        "value": found.lower,
        "upper": found.upper,
        "optimal": found.optimal,
        "seconds": round(found.seconds, 3),
        "cpu_seconds": round(time.process_time() - began, 3),
        "occupancy_states": found.nodes,
    }


def _known(task: OneHorizon) -> dict[str, Any]:
    return {**task._asdict(), "published": SOLVED[task.problem][task.horizon]}
