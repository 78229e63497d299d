"""Curves in the layout that marl-eval reads: environment, task, algorithm, run, step."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple


class Curve(NamedTuple):
    """Returns of one run over its samples."""

    task: str
    algorithm: str
    seed: int
    points: Sequence[tuple[int, float]]


def marl_eval(curves: Iterable[Curve]) -> dict[str, Any]:
    """The curves as one JSON object; the last point of each is its absolute metric."""
    tasks: dict[str, Any] = {}
    for one in curves:
        steps: dict[str, Any] = {
            f"step_{index}": {"step_count": samples, "return": [value]}
            for index, (samples, value) in enumerate(one.points)
        }
        run = steps | {"absolute_metrics": {"return": [one.points[-1][1]]}}
        tasks.setdefault(one.task, {}).setdefault(one.algorithm, {})[f"seed_{one.seed}"] = run
    return {"marco": tasks}
