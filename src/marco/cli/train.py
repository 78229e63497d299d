"""`marco train` and `marco resume`."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import jax.numpy as jnp
import numpy as np
import tyro
from rich.progress import TimeRemainingColumn
from rich.table import Table

from marco.cli.common import cell, console, parse_settings
from marco.cli.each_seed import commands, run_together
from marco.data.offline import for_seeds, read_logged
from marco.environments.base import Environment, HostWorld
from marco.environments.registry import make, optimum
from marco.learners.base import Learner
from marco.learners.presets import LearnerName, Preset, make_learner
from marco.learners.q_learning import QLearner
from marco.runs.figures import run_figure
from marco.runs.folder import append_metrics, check_free, create_run, read_metrics, save_policy
from marco.runs.model_free import ModelFree
from marco.runs.model_free_progress import TrainingProgress, live_bar
from marco.runs.progress import MarcoProgress
from marco.runs.run import Logged, MarcoRun, Stopped

BASELINES = {
    "switch": "tuned IQL has 0.684 after 193,000 samples and 0.702 after 240,000 (ten seeds; "
    "benchmarks/results/learners/switch-iql-tuned.json).",
    "bridge": "tuned VDN has 0.693 after 573,000 samples and 0.700 after 960,000 (ten seeds; "
    "benchmarks/results/learners/bridge-vdn-tuned.json).",
    "reference": "tuned QMIX has -16.58 after 500,000 samples and -10.24 after 1,000,000 (ten seeds; "
    "benchmarks/results/learners/reference-qmix-tuned.json).",
}
"""The strongest baselines we have measured, to be shown beside a result."""


@dataclass(frozen=True)
class Train:
    """Train a team: MARCO, from few real samples; or model-free in the true world, the baseline.

    All that is learned or seen is in the run's folder. Ctrl-C stops MARCO soon, twice at once, and loses
    nothing: `marco resume` goes on.
    """

    world: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="WORLD")]
    """A built-in world (see `marco worlds`), or package.module:function for a PettingZoo world."""
    method: Literal["marco", "model-free"] = "marco"
    """How to learn: in a learned model, or from real steps alone."""
    preset: Preset = "default"
    """default: the best we know; paper: the paper's numbers; frugal (model-free only): few samples."""
    learner: LearnerName | None = None
    """The team's learner, if not the preset's own choice."""
    samples: int | None = None
    """The budget: real steps per seed; the preset's own, or a million for model-free, if not given."""
    seed: int = 0
    """The first seed."""
    seeds: int = 1
    """How many seeds, trained at once; in a host world by a process each, with folders seed-S in --out."""
    out: Path | None = None
    """The folder of the run; runs/WORLD-METHOD-SEED, if not given."""
    evaluate_every: int | None = None
    """Model-free: samples between two evaluations; a twentieth of the budget (a fifth in a host world)."""
    episodes: int | None = None
    """Test episodes of an evaluation, where it is not exact; 1,000 (20 in a host world) by default."""
    set: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME=VALUE ...")] = ()
    """Settings of the world, as in --set agents=4 horizon=10."""
    change: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME=VALUE ...")] = ()
    """Settings of MARCO, as in --change lam=0 collector=random kind=joint-observation (all: docs/runs.md)."""
    data: Annotated[tuple[Path, ...], tyro.conf.arg(metavar="PATH ...")] = ()
    """MARCO: real episodes to start from: folders of earlier runs of the same world, or files."""
    data_counts: bool = True
    """MARCO: whether the steps of --data count against the budget."""
    tensorboard: bool = False
    """MARCO: write what is learned for TensorBoard too, into the run's folder."""

    def run(self) -> None:
        """Train, and save the team."""
        world = make(self.world, **parse_settings(self.set))
        if self.seeds < 1:
            raise ValueError(f"--seeds must be at least 1, got {self.seeds}.")
        seeds = tuple(range(self.seed, self.seed + self.seeds))
        if self.seeds > 1 and not isinstance(world, Environment):
            out = self.out or Path("runs") / f"{world.spec.name}-{self.method}"
            sys.exit(run_together(commands(sys.argv[1:], seeds, out)))
        if self.method == "marco":
            self._run_marco(world, seeds)
        else:
            self._run_model_free(world, seeds)

    def _run_marco(self, world: Environment | HostWorld, seeds: tuple[int, ...]) -> None:
        if self.preset == "frugal":
            raise ValueError("--preset frugal is for --method model-free: MARCO has default and paper.")
        if self.evaluate_every is not None:
            raise ValueError("--evaluate-every is for --method model-free: MARCO is judged at its end.")
        tests = 1_000 if isinstance(world, Environment) else 20
        settings = parse_settings(self.set)
        chunks = for_seeds(read_logged(self.data, self.world, settings, world.spec), len(seeds))
        logged = None
        if chunks:
            steps = sum(int(np.asarray(chunk.mask)[0].sum()) for chunk in chunks)
            logged = Logged(tuple(map(str, self.data)), steps, self.data_counts)
        run = MarcoRun(
            world=self.world,
            world_settings=settings,
            preset=self.preset,
            learner=self.learner,
            samples=self.samples,
            changes=parse_settings(self.change, "--change"),
            seeds=seeds,
            test_episodes=tests if self.episodes is None else self.episodes,
            out=self.out or Path("runs") / f"{world.spec.name}-marco-{self.seed}",
            logged=logged,
            tensorboard=self.tensorboard,
        )
        run.create(chunks)
        follow(run)

    def _run_model_free(self, world: Environment | HostWorld, seeds: tuple[int, ...]) -> None:
        for option, given in (
            ("change", self.change),
            ("data", self.data),
            ("tensorboard", self.tensorboard),
        ):
            if given:
                raise ValueError(f"--{option} is for --method marco.")
        learner = make_learner(self.preset, world.spec, self.learner)
        samples = 1_000_000 if self.samples is None else self.samples
        # In a host world test episodes are real steps, taken one by one: few will do.
        share, tests = (20, 1_000) if isinstance(world, Environment) else (5, 20)
        every = max(1, samples // share) if self.evaluate_every is None else self.evaluate_every
        tests = tests if self.episodes is None else self.episodes
        training = ModelFree(world, learner, seeds, samples, every, tests)
        kind = getattr(learner, "mixer", "mappo")
        out = self.out or Path("runs") / f"{world.spec.name}-{kind}-{self.seed}"
        settings = parse_settings(self.set)
        facts = {"world": self.world, "settings": settings, "method": self.method, "preset": self.preset}
        budget = {"samples": samples, "seeds": list(seeds), "evaluate_every": every}
        check_free(out)
        create_run(out, {**facts, **budget, "test_episodes": tests}, learner)
        try:
            self._follow(training, out)
        except KeyboardInterrupt:
            console.print(f"Stopped. The team of the last evaluation is in {out}.")
            sys.exit(130)
        console.print(f"The team is in {out}: marco evaluate {out}")

    def _follow(self, training: ModelFree, out: Path) -> None:
        with live_bar(console, training.samples, TimeRemainingColumn()) as update:
            progress = TrainingProgress(console, training.samples, update)
            for evaluation, policies in training.run():
                epsilon = _epsilon(training.learner, evaluation.samples)
                append_metrics(out, evaluation._asdict() | {"epsilon": epsilon})
                for seed, policy in zip(training.seeds, policies, strict=True):
                    save_policy(out / "policy" / f"seed-{seed}.npz", policy)
                progress.show(evaluation, epsilon)
        best = optimum(training.world)
        _print_returns(training.seeds, evaluation.samples, evaluation.returns, evaluation.exact, best)


@dataclass(frozen=True)
class Resume:
    """Go on with a run of MARCO that was stopped, however it was stopped."""

    run_folder: Annotated[Path, tyro.conf.Positional]
    """The folder of the run."""

    def run(self) -> None:
        """Go on to the end."""
        follow(MarcoRun.read(self.run_folder))


def follow(run: MarcoRun) -> None:
    """Run to the end, saying what happens; show what came of it."""
    try:
        before = [(row["phase"], row["seconds"]) for row in read_metrics(run.out) if "seconds" in row]
        progress = MarcoProgress(console, run.settings.schedule, before)
        with progress.live():
            for event in run.follow():
                progress.show(event)
    except Stopped:
        console.print(f"Stopped. Nothing is lost: marco resume {run.out}")
        sys.exit(130)
    show_result(run)


def show_result(run: MarcoRun) -> None:
    """The table at the end, and the figure."""
    result = json.loads((run.out / "result.json").read_text())
    exact = not any(row["episodes"] for row in result["real"])
    columns = ("seed", "real samples", "imagined return", "exact return" if exact else "return", "optimum")
    table = Table(*columns)
    for row, used, imagined in zip(result["real"], result["samples"], result["imagined"], strict=True):
        table.add_row(
            str(row["seed"]), f"{used:,}", cell(imagined), cell(row["mean"]), cell(result["optimum"])
        )
    console.print(table)
    if (baseline := BASELINES.get(run.world)) and not run.world_settings:
        console.print(f"Model-free, for comparison: {baseline}")
    if result["logged"]:
        console.print(f"Of the real samples {result['logged']:,} were logged before this run.")
    if tests := sum(row["steps"] for row in result["real"]):
        console.print(f"{tests:,} more real steps were taken to judge the teams, and taught them nothing.")
    figure = run_figure(run)
    console.print(f"Figure: {figure}")
    console.print(f"The team is in {run.out}: marco evaluate {run.out}")


def _epsilon(learner: Learner, samples: list[int]) -> float | None:
    if not isinstance(learner, QLearner):
        return None
    return float(learner.epsilon(jnp.int32(np.mean(samples))))


def _print_returns(
    seeds: tuple[int, ...], samples: list[int], returns: list[float], exact: bool, best: float | None
) -> None:
    table = Table("seed", "real samples", "exact return" if exact else "return", "optimum")
    for seed, count, value in zip(seeds, samples, returns, strict=True):
        table.add_row(str(seed), f"{count:,}", f"{value:.4f}", cell(best))
    console.print(table)
