"""`marco evaluate` and `marco model`."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import jax
import numpy as np
import tyro
from rich.table import Table

from marco.cli.common import cell, console
from marco.environments.base import Environment, HostWorld
from marco.environments.registry import make, optimum
from marco.model.report.show import report_figure, report_table
from marco.runs.folder import load_policy, read_config
from marco.runs.model_free import judge
from marco.runs.model_report import run_model_report
from marco.runs.run import MarcoRun


@dataclass(frozen=True)
class Evaluate:
    """Say what a trained team is worth in the true world."""

    run_folder: Annotated[Path, tyro.conf.Positional]
    """The folder of a run."""
    episodes: int = 1_000
    """Test episodes, where the exact value cannot be had."""
    seed: int = 1_000_000
    """The seed of the test episodes."""
    json: bool = False
    """Print one JSON object, and nothing else."""

    def run(self) -> None:
        """Evaluate every seed of the run."""
        config = read_config(self.run_folder)
        world = make(config["world"], **config["settings"])
        files = {seed: self.run_folder / "policy" / f"seed-{seed}.npz" for seed in config["seeds"]}
        found = {seed: file for seed, file in files.items() if file.exists()}
        if not found:
            raise ValueError(f"{self.run_folder} holds no team yet: it is saved at the first evaluation.")
        results = [self._evaluate(world, seed, file) for seed, file in found.items()]
        if self.json:
            facts = {"run": str(self.run_folder), "world": world.spec.name, "optimum": optimum(world)}
            exact = [row["exact"] for row in results]
            over_seeds = {
                "mean": float(np.mean([row["mean"] for row in results])),
                "exact": None if None in exact else float(np.mean(exact)),
            }
            print(json.dumps({**facts, **over_seeds, "seeds": results}))
            return
        columns = ("seed", "mean", "interval", "exact", "episodes", "optimum")
        table = Table("seed", "return", "95% interval", "exact value", "test episodes", "optimum")
        for row in results:
            table.add_row(*(cell((row | {"optimum": optimum(world)})[column]) for column in columns))
        console.print(table)

    def _evaluate(self, world: Environment | HostWorld, seed: int, file: Path) -> dict[str, Any]:
        estimate = judge(jax.random.key(self.seed), world, load_policy(file, world.spec), self.episodes)
        exact = estimate.mean if not estimate.episodes else None
        margin = 1.96 * estimate.standard_error
        return {
            "seed": seed,
            "mean": estimate.mean,
            "interval": [estimate.mean - margin, estimate.mean + margin],
            "exact": exact,
            "episodes": estimate.episodes,
            "steps": estimate.steps,
        }


@dataclass(frozen=True)
class Model:
    """Say how good the model of a run of MARCO is: on what was held out, and against the truth."""

    run_folder: Annotated[Path, tyro.conf.Positional]
    """The folder of the run."""
    seed: int | None = None
    """Which of its seeds; the lowest, if not given."""
    figure: Path | None = None
    """Draw the report into this file."""
    json: bool = False
    """Print one JSON object, and nothing else."""

    def run(self) -> None:
        """Fit the model of the last phase again, which gives the same one, and judge it."""
        run = MarcoRun.read(self.run_folder)
        report = run_model_report(run, run.seeds[0] if self.seed is None else self.seed)
        if self.figure is not None:
            report_figure(report, self.figure)
        if self.json:
            print(json.dumps(report.as_dict()))
            return
        console.print(report_table(report))
