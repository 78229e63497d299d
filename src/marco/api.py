"""`marco.learn`: MARCO in an environment, in memory or in a resumable folder."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
from rich.console import Console

from marco.algorithm.config import MarcoConfig
from marco.algorithm.descriptions import Descriptions
from marco.algorithm.events import Event
from marco.algorithm.loop import Marco, phases
from marco.algorithm.precompile import compiled_ahead
from marco.algorithm.state import MarcoState
from marco.algorithm.trial import Candidate
from marco.checks import check_episodes
from marco.compilation import keep_compiled
from marco.data.dataset import BrokenOff, Dataset, PlayedAgain
from marco.environments.base import Environment, HostWorld
from marco.environments.registry import make, name_of
from marco.evaluation import Estimate, evaluate
from marco.learners.parallel import check_memory
from marco.model.description_file import GivenDescription, read_description
from marco.model.environment import ModelEnvironment
from marco.model.inputs import ComponentName
from marco.policies.base import Policy
from marco.runs.checkpoint import read_events
from marco.runs.config import RunConfig
from marco.runs.progress import Progress
from marco.runs.run import TEST_SEED, Run
from marco.simulators.config import Workers, as_workers
from marco.simulators.pool import Simulators, opened
from marco.types import Episode

Known = Mapping[ComponentName, Callable[..., Any]]
"""Components of the model that are known: functions in place of networks (see docs/design.md)."""


@dataclass(frozen=True, repr=False)
class Result:
    """What MARCO has learned with one seed."""

    team: Policy
    """The team's policy; `team.save(path)` writes it for `marco.load`."""
    model: ModelEnvironment
    """The learned model: an environment like any other."""
    episodes: Episode
    """All real episodes (axes T B)."""
    samples: int
    """The real steps that were taken, those included that broke off without an outcome."""
    broken_off: BrokenOff
    """The real episodes that broke off, and all their steps; what was shown of them is in `episodes`."""
    played_again: PlayedAgain
    """Beginnings of episodes whose simulator was lost. Their steps are not among the samples."""
    metrics: list[Event]
    """The end of every phase; values are lists with one entry per seed of the call."""
    imagined: float
    """The team's return in the model."""
    imagined_range: tuple[float, float]
    """Its return in the member of the model that thinks least of it, and in the one that thinks most."""
    candidates: tuple[Candidate, ...]
    """The teams that it was chosen from, itself first: what the model says of each, and what it earned."""
    env: Environment | HostWorld
    test_episodes: int
    warnings: tuple[str, ...] = ()
    """What is to be known before the team is trusted: of the last model, and of what was collected last."""
    evaluated: Estimate | None = None
    """The value, where a folder has it already."""

    def __repr__(self) -> str:
        """A line; a value that was not asked for yet is not evaluated for it."""
        spec = self.env.spec
        known = self.evaluated or self.__dict__.get("value")
        real = "not evaluated yet: see .value" if known is None else f"{known.mean:.4g}"
        warned = f", {len(self.warnings)} warnings" if self.warnings else ""
        return (
            f"Result({spec.num_agents} agents in {spec.name}, {self.samples:,} real samples, "
            f"imagined return {self.imagined:.4g}, real return {real}{warned})"
        )

    @property
    def expected(self) -> tuple[float, float]:
        """Between what the team's real return is expected to be, by the model and its trial: 95 in 100."""
        return self.candidates[0].interval

    @cached_property
    def value(self) -> Estimate:
        """The team's return in the true environment, evaluated when it is first asked for.

        Exact where that can be had. Else it takes `test_episodes` more real episodes, which are counted in
        `value.steps` and teach the team nothing.
        """
        if self.evaluated is not None:
            return self.evaluated
        with opened(self.env) as env:
            return evaluate(env, self.team, self.test_episodes, seed=TEST_SEED)


def learn(
    env: Environment | HostWorld | str,
    samples: int | None = None,
    seed: int = 0,
    *,
    out: str | os.PathLike[str] | None = None,
    config: MarcoConfig | None = None,
    known: Known | None = None,
    description: str | os.PathLike[str] | GivenDescription | None = None,
    on_event: Callable[[Event], None] | None = None,
    progress: bool = True,
    test_episodes: int | None = None,
    workers: int | Workers | None = None,
    ray: str | None = None,
    step_timeout: float | None = None,
) -> Result:
    """Learn a team's policy with MARCO from at most `samples` real steps.

    Args:
        env: an environment, or its name (see `marco.make`).
        samples: the budget of real steps; the preset's own if not given. Never one more is taken, but for
            what is played again with `workers` (see `Result.played_again`).
        seed: the seed of everything drawn at random.
        out: a folder for a run that survives a crash. The same call again goes on where it was.
        config: the settings, as `MarcoConfig.preset("paper", env.spec, lam=0.0)` gives them.
        known: components of the model that need not be learned, as functions by name.
        description: what the columns of the environment mean, or a file that says it (docs/worlds.md).
        on_event: called with the progress of every phase.
        progress: whether to show the progress (a board in a terminal, lines elsewhere).
        test_episodes: real episodes by which `result.value` is estimated, where it is not exact.
        workers: simulators side by side, each in a process of its own, for an environment outside JAX that
            has a name (see `marco.make`). It changes nothing but the time; see docs/runs.md.
        ray: the address of a Ray cluster for them, or auto; processes of this machine if not given.
        step_timeout: seconds after which a simulator that does not answer is replaced.
    """
    (result,) = learn_seeds(
        env,
        (seed,),
        samples,
        out=out,
        config=config,
        known=known,
        description=description,
        on_event=on_event,
        progress=progress,
        test_episodes=test_episodes,
        workers=workers,
        ray=ray,
        step_timeout=step_timeout,
    )
    return result


def learn_seeds(
    env: Environment | HostWorld | str,
    seeds: Sequence[int],
    samples: int | None = None,
    *,
    out: str | os.PathLike[str] | None = None,
    config: MarcoConfig | None = None,
    known: Known | None = None,
    description: str | os.PathLike[str] | GivenDescription | None = None,
    on_event: Callable[[Event], None] | None = None,
    progress: bool = True,
    test_episodes: int | None = None,
    workers: int | Workers | None = None,
    ray: str | None = None,
    step_timeout: float | None = None,
) -> list[Result]:
    """`learn` with several seeds at once, vectorised; one result per seed."""
    keep_compiled()
    env = make(env) if isinstance(env, str) else env
    if not isinstance(env, Environment | HostWorld):
        raise ValueError(f"env must be an environment, or the name of one, got {env!r}.")
    config = _config(config, env, samples)
    tests = default_test_episodes(env) if test_episodes is None else test_episodes
    check_episodes("test_episodes", tests)
    if not hasattr(seeds, "__len__"):
        raise ValueError(f"seeds must be a list of numbers, got {seeds!r}.")
    # Before they are listed: a range may be of any length.
    check_memory(config.final_learners, env.spec, len(seeds))
    board = Progress(
        Console(quiet=not progress),
        [(phase.iteration, phase.name) for phase in phases(config)],
        config.samples,
    )
    ended: list[Event] = []
    values: list[Estimate | None] = [None] * len(seeds)

    def report(event: Event) -> None:
        board.show(event)
        if event.over and event.phase != "done":
            ended.append(event)
        if on_event is not None:
            on_event(event)

    functions = tuple((known or {}).items())
    given = description
    if given is not None and not isinstance(given, GivenDescription):
        given = read_description(Path(given))
    simulated = as_workers(workers, ray, step_timeout)
    with board.live():
        if out is None:
            played = env if simulated is None else Simulators(env, simulated)
            dataset = Dataset(None, env.spec, len(seeds))
            found = Descriptions(given=given)
            marco = Marco(played, config, tuple(seeds), dataset, known=functions, descriptions=found)
            marco.check()
            with opened(played), compiled_ahead(marco) as events:
                for event, state in events:  # noqa: B007  (the last state is what was learned)
                    report(event)
        else:
            run = _open(Path(out), env, config, tuple(seeds), tests, functions, simulated, given)
            for event in run.follow():
                report(event)
            marco = run.marco()
            state = marco.restore()
            ended = read_events(run.folder)
            values = [Estimate(*(row[name] for name in Estimate._fields)) for row in run.result["real"]]
    return _results(marco, state, ended, tests, values)


def default_test_episodes(env: Environment | HostWorld) -> int:
    """In a host environment test episodes are real steps, taken one by one: few will do."""
    return 1_000 if isinstance(env, Environment) else 20


def _config(config: MarcoConfig | None, env: Environment | HostWorld, samples: int | None) -> MarcoConfig:
    if config is None:
        return MarcoConfig.preset("default", env.spec, samples=samples)
    if not isinstance(config, MarcoConfig):
        raise ValueError(f"config must be a MarcoConfig, as MarcoConfig.preset makes it, got {config!r}.")
    if samples is not None and samples != config.samples:
        raise ValueError(
            f"samples={samples} and config.samples={config.samples} differ: give it to the preset, as in "
            f"MarcoConfig.preset('default', env.spec, samples={samples})."
        )
    return config


def _open(
    folder: Path,
    env: Environment | HostWorld,
    config: MarcoConfig,
    seeds: tuple[int, ...],
    tests: int,
    known: tuple[tuple[ComponentName, Any], ...],
    workers: Workers | None,
    given: GivenDescription | None,
) -> Run:
    """The run in a folder: the one that is there, if it has the same settings, or a new one."""
    world, settings = name_of(env)
    names = tuple(name for name, _ in known)
    chosen = RunConfig(
        world,
        "marco",
        config,
        seeds,
        tests,
        settings,
        known=names,
        description=given,
        workers=workers,
    )
    run = Run(folder, chosen, env, known)
    if (folder / "config.json").exists():
        run.check_same()
    else:
        run.create()
    return run


def _results(
    marco: Marco, state: MarcoState, ended: list[Event], tests: int, values: Sequence[Estimate | None]
) -> list[Result]:
    imagined, trial = state.imagined_return, marco.shortened(ended).trial(state)
    return [
        Result(
            team=state.policy(marco.config, index),
            model=jax.tree.map(lambda leaf, index=index: leaf[index], state.model),
            episodes=marco.dataset.episodes(index),
            samples=int(marco.dataset.samples[index]),
            broken_off=marco.dataset.broken_off,
            played_again=marco.dataset.played_again,
            metrics=ended,
            imagined=float(imagined.mean[index]),
            imagined_range=(float(imagined.low[index]), float(imagined.high[index])),
            candidates=trial.candidates(index),
            env=marco.env,
            test_episodes=tests,
            warnings=state.warnings(marco.seeds, ended),
            evaluated=values[index],
        )
        for index in range(len(marco.seeds))
    ]
