"""`marco evaluate`."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro
from rich.table import Table

from marco.checks import check_episodes, check_seed
from marco.cli.common import RunOptions, cell, console
from marco.cli.settings import parse
from marco.cli.workers import WorkerOptions, with_address, workers_of
from marco.compilation import keep_compiled
from marco.environments.base import optimum_of
from marco.evaluation import evaluate
from marco.policies.export import load_policy
from marco.runs.run import TEST_SEED, Run
from marco.simulators.pool import opened


@dataclass(frozen=True, kw_only=True)
class Evaluate(RunOptions, WorkerOptions):
    """Evaluate the teams of a run in the true environment."""

    run_folder: Annotated[Path, tyro.conf.Positional]
    """The folder of a run."""
    episodes: int | None = None
    """Test episodes, where the exact value cannot be had; as many as the run itself took, if not given."""
    seed: int = TEST_SEED
    """The seed of the test episodes."""
    json: bool = False
    """Print one JSON object, and nothing else."""


def main(arguments: list[str]) -> None:
    """Evaluate every seed of the run."""
    options = parse(Evaluate, with_address(arguments), "marco evaluate")
    check_seed("--seed", options.seed)
    if options.episodes is not None:
        check_episodes("--episodes", options.episodes)
    keep_compiled()
    run = Run.open(options.run_folder, options.world, options.trust)
    workers = workers_of(options, run.config.workers, options.trust)
    run = replace(run, config=replace(run.config, workers=workers))
    files = {seed: run.folder / "policy" / f"seed-{seed}.npz" for seed in run.config.seeds}
    found = {seed: file for seed, file in files.items() if file.exists()}
    if not found:
        raise ValueError(f"{run.folder} holds no team yet: it is saved when training ends.")
    with opened(run.playing):
        rows = [_row(run, seed, file, options) for seed, file in found.items()]
    optimum = optimum_of(run.env)
    if options.json:
        exact = [row["exact"] for row in rows]
        means = {
            "mean": float(np.mean([row["mean"] for row in rows])),
            "exact": None if None in exact else float(np.mean(exact)),
        }
        facts = {"run": str(run.folder), "world": run.env.spec.name, "optimum": optimum}
        print(json.dumps({**facts, **means, "seeds": rows}))
        return
    table = Table("seed", "return", "95% interval", "exact value", "test episodes", "optimum")
    for row in rows:
        columns = ("seed", "mean", "interval", "exact", "episodes")
        table.add_row(*(cell(row[column]) for column in columns), cell(optimum))
    console.print(table)
    if steps := sum(row["steps"] for row in rows):
        console.print(f"{steps:,} real steps were taken for this.")


def _row(run: Run, seed: int, file: Path, options: Evaluate) -> dict[str, Any]:
    policy = load_policy(file, run.env.spec)
    episodes = run.config.test_episodes if options.episodes is None else options.episodes
    estimate = evaluate(run.playing, policy, episodes, seed=options.seed)
    return {
        "seed": seed,
        "mean": estimate.mean,
        "interval": list(estimate.interval),
        "exact": estimate.mean if estimate.exact else None,
        "episodes": estimate.episodes,
        "steps": estimate.steps,
    }
