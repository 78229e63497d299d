"""The command `marco`."""

import ast
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from rich.console import Console
from rich.table import Table

from marco.controllers import SwitchProtocol, TellAndGo
from marco.environments.environment import Environment, FiniteEnvironment, HostWorld, WorldError
from marco.environments.worlds import WORLDS, make, optimum
from marco.evaluation import exact_value
from marco.experiments.model_free import ModelFree, judge
from marco.experiments.presets import LearnerName, Preset, make_learner
from marco.experiments.progress import TrainingProgress
from marco.experiments.runs import append_metrics, create_run, load_policy, read_config, save_policy
from marco.learners.learner import Learner
from marco.learners.q_learning import QLearner
from marco.rollout import Policy, RandomPolicy, play, rollout
from marco.show import episode_table, reference_gif
from marco.types import Episode, Spec

console = Console()


@dataclass(frozen=True)
class Worlds:
    """List the built-in worlds: sizes, horizon, and the value of the best team where it is known."""

    def run(self) -> None:
        """Print the table."""
        table = Table(show_lines=True)
        for column in ("world", "agents", "actions", "sees", "state", "horizon", "optimum"):
            table.add_column(column, justify="left" if column == "world" else "right")
        for name, built_in in WORLDS.items():
            world = built_in.make()
            spec, best = world.spec, optimum(world)
            sizes = (
                spec.num_agents,
                spec.num_actions,
                spec.observation_width,
                spec.state_width,
                spec.horizon,
            )
            value = "unknown" if best is None else f"{best:.6f}"
            table.add_row(f"[bold]{name}[/bold]\n{built_in.summary}", *map(str, sizes), value)
        console.print(table)
        console.print(
            "actions: per agent; sees: columns of an observation; state: columns of the central state."
        )
        console.print("Change sizes with --set, as in: marco play switch --set agents=4 horizon=10")
        console.print("Your own PettingZoo world: marco play package.module:function")


@dataclass(frozen=True)
class Play:
    """Show episodes of a world in the terminal."""

    world: Annotated[str, tyro.conf.Positional]
    """A built-in world (see `marco worlds`), or package.module:function for a PettingZoo world."""
    episodes: int = 1
    """How many episodes to show."""
    seed: int = 0
    """The seed of everything drawn at random."""
    policy: Literal["random", "expert"] = "random"
    """Random play, or the hand-written team where there is one (switch, bridge, reference)."""
    set: tuple[str, ...] = ()
    """Settings of the world, as in --set agents=4 horizon=10."""
    gif: Path | None = None
    """Draw the episodes into this file (reference only)."""

    def run(self) -> None:
        """Play and show."""
        if self.episodes < 1:
            raise ValueError(f"--episodes must be at least 1, got {self.episodes}.")
        world = make(self.world, **parse_settings(self.set))
        if self.gif is not None:
            _check_gif(world.spec, self.gif)
        policy: Policy = RandomPolicy() if self.policy == "random" else expert(world.spec)
        keys = jax.random.split(jax.random.key(self.seed), self.episodes)
        episodes = [_play(key, world, policy) for key in keys]
        for number, episode in enumerate(episodes, 1):
            console.print(episode_table(world.spec, episode, f"{world.spec.name}, episode {number}"))
        if isinstance(world, FiniteEnvironment):
            _print_value(world, policy, self.policy)
        if self.gif is not None:
            reference_gif(world.spec, episodes, self.gif)
            console.print(f"Drawn: {self.gif}")


@dataclass(frozen=True)
class Train:
    """Train a team in the true world, model-free: the baseline. Every sample is a real step."""

    world: Annotated[str, tyro.conf.Positional]
    """A built-in world (see `marco worlds`), or package.module:function for a PettingZoo world."""
    method: Literal["model-free"] = "model-free"
    """How to learn."""
    preset: Preset = "default"
    """default: many samples, best teams; frugal: few samples; paper: the paper's numbers."""
    learner: LearnerName | None = None
    """The learner, if not the preset's own choice."""
    samples: int = 1_000_000
    """The budget: real steps per seed."""
    seed: int = 0
    """The first seed."""
    seeds: int = 1
    """How many seeds, trained at once."""
    out: Path | None = None
    """The folder of the run; runs/WORLD-LEARNER-SEED, if not given."""
    evaluate_every: int | None = None
    """Samples between two evaluations; a twentieth of the budget (a fifth in a host world) by default."""
    episodes: int | None = None
    """Test episodes of an evaluation, where it is not exact; 1,000 (20 in a host world) by default."""
    set: tuple[str, ...] = ()
    """Settings of the world, as in --set agents=4 horizon=10."""

    def run(self) -> None:
        """Train, evaluate on the way, and save the team."""
        settings = parse_settings(self.set)
        world = make(self.world, **settings)
        learner = make_learner(self.preset, world.spec, self.learner)
        if self.seeds < 1:
            raise ValueError(f"--seeds must be at least 1, got {self.seeds}.")
        seeds = tuple(range(self.seed, self.seed + self.seeds))
        # In a host world test episodes are real steps, taken one by one: few will do.
        share, tests = (20, 1_000) if isinstance(world, Environment) else (5, 20)
        every = max(1, self.samples // share) if self.evaluate_every is None else self.evaluate_every
        tests = tests if self.episodes is None else self.episodes
        training = ModelFree(world, learner, seeds, self.samples, every, tests)
        kind = getattr(learner, "mixer", "mappo")
        out = self.out or Path("runs") / f"{world.spec.name}-{kind}-{self.seed}"
        facts = {"world": self.world, "settings": settings, "method": self.method, "preset": self.preset}
        budget = {"samples": self.samples, "seeds": list(seeds), "evaluate_every": every}
        create_run(out, {**facts, **budget, "test_episodes": tests}, learner)
        try:
            self._follow(training, out)
        except KeyboardInterrupt:
            console.print(f"Stopped. The team of the last evaluation is in {out}.")
            sys.exit(130)
        console.print(f"The team is in {out}: marco evaluate {out}")

    def _follow(self, training: ModelFree, out: Path) -> None:
        with TrainingProgress(console, self.samples) as progress:
            for evaluation, policies in training.run():
                epsilon = _epsilon(training.learner, evaluation.samples)
                append_metrics(out, evaluation._asdict() | {"epsilon": epsilon})
                for seed, policy in zip(training.seeds, policies, strict=True):
                    save_policy(out / "policy" / f"seed-{seed}.npz", policy)
                progress.show(evaluation, epsilon)
        best = optimum(training.world)
        _print_returns(training.seeds, evaluation.samples, evaluation.returns, evaluation.exact, best)


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
            table.add_row(*(_cell((row | {"optimum": optimum(world)})[column]) for column in columns))
        console.print(table)

    def _evaluate(self, world: Environment[Any] | HostWorld, seed: int, file: Path) -> dict[str, Any]:
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


def parse_settings(settings: tuple[str, ...]) -> dict[str, Any]:
    """Settings of a world from name=value words; a value that is no Python literal is a string."""
    parsed: dict[str, Any] = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not (name.isidentifier() and equals):
            raise ValueError(f"--set takes name=value, got {setting!r}.")
        try:
            parsed[name] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            parsed[name] = value
    return parsed


def expert(spec: Spec) -> Policy:
    """The hand-written team of a world."""
    if spec.name in ("switch", "bridge"):
        return SwitchProtocol(spec)
    if spec.name == "reference":
        return TellAndGo()
    raise ValueError(f"there is no expert for {spec.name}: use --policy random.")


def _play(key: jax.Array, world: Environment[Any] | HostWorld, policy: Policy) -> Episode:
    if isinstance(world, Environment):
        return jax.jit(rollout)(key, world, policy)
    return play(key, world, policy)


def _print_value(world: FiniteEnvironment[Any], policy: Policy, name: str) -> None:
    best = optimum(world)
    beside = "" if best is None else f"; the best team's is {best:.6f}"
    console.print(f"Exact value of the {name} team: {exact_value(world, policy):.6f}{beside}.")


def _check_gif(spec: Spec, path: Path) -> None:
    if spec.name != "reference":
        raise ValueError(f"only reference can be drawn, got {spec.name}: leave out --gif.")
    if path.suffix.lower() != ".gif":
        raise ValueError(f"--gif writes a .gif file, got {str(path)!r}.")
    if not path.absolute().parent.is_dir():
        raise ValueError(f"--gif: there is no folder {str(path.absolute().parent)!r}: make it first.")


def _epsilon(learner: Learner, samples: list[int]) -> float | None:
    if not isinstance(learner, QLearner):
        return None
    return float(learner.epsilon(jnp.int32(np.mean(samples))))


def _print_returns(
    seeds: tuple[int, ...], samples: list[int], returns: list[float], exact: bool, best: float | None
) -> None:
    table = Table("seed", "real samples", "exact return" if exact else "return", "optimum")
    for seed, count, value in zip(seeds, samples, returns, strict=True):
        table.add_row(str(seed), f"{count:,}", f"{value:.4f}", _cell(best))
    console.print(table)


def _cell(value: Any) -> str:
    match value:
        case None:
            return "unknown"
        case float():
            return f"{value:.4f}"
        case [low, high]:
            return f"{low:.4f} to {high:.4f}"
    return str(value)


def _keep_compiled() -> None:
    """A second start must not compile again."""
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "marco" / "jax"
        jax.config.update("jax_compilation_cache_dir", str(cache))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)


def main() -> None:
    """Run the command; a user's mistake gives one line and exit status 2, not a traceback."""
    command = tyro.cli(
        Worlds | Play | Train | Evaluate,
        prog="marco",
        description="Learn a team's policy from few real interactions.",
    )
    _keep_compiled()
    sys.path.insert(0, "")  # a world of the user's own is looked for here first, as python itself does
    try:
        command.run()
    except (ValueError, ImportError, WorldError) as error:
        print(f"marco: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
