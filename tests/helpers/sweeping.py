"""A sweep without its runs: what a run would reach is given by a formula."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from marco.jobs.engine import Engine
from marco.jobs.events import Event
from marco.runs.run import Run

MODEL_FREE = """
worlds = [{{ name = "switch", env.agents = 2, env.horizon = 3 }}]
seeds = {seeds}
[settings]
method = "model-free"
preset = "paper"
evaluate_every = 60
[grid]
samples = [60, 120]
"learner.learning_rate" = [0.001, 5e-4]
"""
"""Runs of seconds."""


@dataclass(frozen=True)
class Pretended(Engine):
    """An engine whose runs take no time, and reach what `value(config)` says."""

    workers: int = 2
    value: Callable[..., float] = float
    fails: Sequence[str] = ()
    stops_after: int | None = None
    ran: list[str] = field(default_factory=list)

    def work(self, function, shared, next_task):
        while (task := next_task()) is not None:
            if len(self.ran) == self.stops_after:
                raise KeyboardInterrupt
            self.ran.append(task.label)
            if any(word in task.label for word in self.fails):
                yield Event("ended", task, "Traceback ...\nRuntimeError: it broke\nNothing is lost.")
                continue
            pretend(task.folder, task.config, self.value(task.config))
            yield Event("done", task)


def pretend(folder, config, value, optimum=1.0):
    """The folder of a run that has reached a value."""
    if not (folder / "config.json").exists():
        Run(folder, config).create()
    rows = [
        {"seed": seed, "mean": value + 0.01 * seed, "standard_error": 0.0, "episodes": 0, "steps": 0}
        for seed in config.seeds
    ]
    samples = [config.algorithm.samples] * len(rows)
    imagined = [0.5] * len(rows) if config.method == "marco" else None
    result = {"samples": samples, "optimum": optimum, "imagined": imagined, "real": rows}
    Path(folder / "result.json").write_text(json.dumps(result))
