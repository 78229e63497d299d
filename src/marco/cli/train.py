"""`marco train`."""

import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro

from marco.algorithm.config import MarcoConfig
from marco.algorithm.model_free import ModelFreeConfig
from marco.algorithm.presets import apply_changes, change_where_known
from marco.api import default_test_episodes
from marco.checks import SEEDS, check_episodes, check_seed, cores, gib, machine_memory, same_world
from marco.cli.each_seed import commands, most_processes, run_together
from marco.cli.follow import follow
from marco.cli.settings import (
    option_of,
    options_of,
    parse_with_rest,
    take_changes,
    take_env,
    wants_help,
)
from marco.cli.workers import WorkerOptions, with_address, workers_of
from marco.compilation import keep_compiled
from marco.data.offline import for_seeds, read_logged
from marco.environments.base import Environment, HostWorld
from marco.environments.registry import defaults, full_name, make, refuse_code
from marco.environments.settings import as_json
from marco.learners.parallel import check_memory
from marco.learners.presets import LearnerName
from marco.model.description_file import GivenDescription, read_description
from marco.runs.choices import Choices, RunPreset
from marco.runs.config import Logged, Method, RunConfig, read_config
from marco.runs.run import Run
from marco.types import Episode

PROG = "marco train"


@dataclass(frozen=True)
class Train(WorkerOptions):
    """Learn a team with MARCO from few real samples; or model-free, the baseline.

    All that is learned or observed is in the run's folder. Ctrl-C stops soon, twice at once, and loses
    nothing: `marco resume` goes on. Settings of the environment: --env.agents 4. Settings of MARCO: --lam 0
    --team.learning-rate 5e-4 --model.dynamics.members 3; `marco train WORLD --help` lists them all.
    """

    world: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="WORLD")] = None
    """An environment: a built-in name, a table, a .dpomdp file, jaxmarl:NAME, or package.module:function (see
    `marco worlds`)."""
    method: Method = "marco"
    """How to learn: in a learned model, or from real steps alone."""
    preset: RunPreset | None = None
    """default: the best we know for few samples; paper: the paper's numbers; free-samples (model-free only):
    for environments whose steps cost nothing."""
    learner: LearnerName | None = None
    """The team's learner, if not the preset's own choice."""
    samples: int | None = None
    """The budget: real steps per seed; the preset's own, or 100,000 for model-free, if not given."""
    restarts: int | None = None
    """MARCO: teams trained in the last model, of which the best is kept; 0 trains on the team of the
    refits."""
    reward: str | None = None
    """PettingZoo and JaxMARL: the team's reward as the mean or the sum of its agents', or as one agent's, by
    name; the mean, if not given."""
    seed: int | None = None
    """The first seed; 0, if not given."""
    seeds: int | None = None
    """How many seeds; 1, if not given. They are trained at once; in a host environment a process each, with
    folders seed-S in --out."""
    out: Path | None = None
    """The folder of the run; runs/WORLD-METHOD-SEED, if not given."""
    config: Path | None = None
    """Begin from the settings in the config.json of another run; other options change them."""
    trust: bool = False
    """Run the code that --config names as its environment, where you do not name it yourself."""
    evaluate_every: int | None = None
    """Model-free: samples between two evaluations; a twentieth of the budget (a fifth in a host
    environment)."""
    episodes: int | None = None
    """Test episodes of an evaluation, where it is not exact; 1,000 (20 in a host environment) by default."""
    data: Annotated[tuple[Path, ...], tyro.conf.arg(metavar="PATH ...")] = ()
    """MARCO: real episodes to start from: folders of earlier runs in the same environment, or files."""
    describe: Path | None = None
    """MARCO: a file (JSON or TOML) that says what the columns of state and observations mean; found out from
    the samples where it says nothing, and the environment nothing either."""
    data_counts: bool = True
    """MARCO: whether the steps of --data count against the budget."""
    tensorboard: bool = False
    """Write the metrics for TensorBoard too, into the run's folder."""


def main(arguments: list[str]) -> None:
    """Train, and save the team."""
    options, rest = _parse(arguments)
    if wants_help(arguments):
        _show_help(options, rest)
    base = read_config(options.config) if options.config else None
    settings, rest = take_env(rest, options.reward)
    world, settings = _world(options, base, settings)
    _check_options(options, base)
    env = make(world, **settings)
    algorithm = _algorithm(options, base, env, rest, f"{PROG} {world}")
    every = _seeds(options, base)
    each_alone = len(every) > 1 and not isinstance(env, Environment)
    _check_number(every, algorithm, env)
    seeds = tuple(every[:1] if each_alone else every)
    chunks, logged = _logged(options, world, settings, env, seeds)
    if logged is not None and isinstance(algorithm, MarcoConfig):
        algorithm = logged.adapt(algorithm)
    config = RunConfig(
        world=full_name(world),
        method=_method(algorithm),
        algorithm=algorithm,
        seeds=seeds,
        test_episodes=_test_episodes(options, base, env),
        world_settings=settings,
        preset=(options.preset or "default") if base is None else base.preset,
        logged=logged,
        description=_description(options, base),
        tensorboard=options.tensorboard or (base is not None and base.tensorboard),
        workers=workers_of(options, None if base is None else base.workers, options.trust),
    )
    out = (
        options.out or Path("runs") / f"{env.spec.name}-{config.method}{'' if each_alone else f'-{seeds[0]}'}"
    )
    run = Run(out, config, env)
    if each_alone:
        run.check()  # once, and not in every process
        sys.exit(run_together(commands(["train", *arguments], every, out)))
    run.create(chunks)
    keep_compiled()
    follow(run)


def _parse(arguments: list[str]) -> tuple[Train, list[str]]:
    """The options, and the settings that are left; the environment comes first."""
    words = with_address([word for word in arguments if word not in ("-h", "--help")])
    world = words[0] if words and not words[0].startswith("-") else None
    options, rest = parse_with_rest(Train, words, PROG)
    return replace(options, world=world), rest


def _show_help(options: Train, rest: list[str]) -> None:
    """The options, and with an environment given its settings of MARCO too."""
    try:
        tyro.cli(Train, args=["--help"], prog=PROG)
    except SystemExit:
        if options.world is None:
            raise
    settings, _ = take_env(rest, options.reward)
    env = make(options.world or "", **settings)
    print(f"\nSettings, with their values for {options.world}:")
    take_changes(_choices(options).default(env), ["--help"], f"{PROG} {options.world}")


def _world(options: Train, base: RunConfig | None, settings: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The environment and its settings. A name in a file may be anyone's: it runs code only if wanted."""
    world = options.world
    if base is None or base.world is None or (world is not None and not same_world(world, base.world)):
        if world is None:
            raise ValueError("name an environment first, as in marco train switch (marco worlds lists them).")
        return world, settings
    settings = base.world_settings | settings
    if world is None and not options.trust:
        naming = f"marco train {shlex.quote(base.world)} --config ..."
        refuse_code(base.world, settings, str(options.config), naming)
    return world or base.world, settings


def _seeds(options: Train, base: RunConfig | None) -> Sequence[int]:
    before = (0,) if base is None else base.seeds
    if options.seed is None and options.seeds is None:
        return before
    first = before[0] if options.seed is None else options.seed
    return range(first, first + (len(before) if options.seeds is None else options.seeds))


def _check_number(
    seeds: Sequence[int], algorithm: MarcoConfig | ModelFreeConfig, env: Environment | HostWorld
) -> None:
    """Refuse more seeds than fit, before they are listed or processes started."""
    if isinstance(env, Environment):
        learners = algorithm.final_learners if isinstance(algorithm, MarcoConfig) else (algorithm.learner,)
        check_memory(learners, env.spec, len(seeds))
    elif len(seeds) > (most := most_processes()):
        raise ValueError(
            f"--seeds {len(seeds)}: each seed of {env.spec.name} is a process of its own, and {most} are the "
            f"most here ({cores()} cores, {gib(machine_memory())}): give fewer now, and others later, "
            f"from --seed {seeds[most]} on."
        )


def _description(options: Train, base: RunConfig | None) -> GivenDescription | None:
    if options.describe is not None:
        return read_description(options.describe)
    return None if base is None else base.description


def _test_episodes(options: Train, base: RunConfig | None, env: Environment | HostWorld) -> int:
    if options.episodes is not None:
        return options.episodes
    return default_test_episodes(env) if base is None else base.test_episodes


def _check_options(options: Train, base: RunConfig | None) -> None:
    for name, least in (("seeds", 1), ("samples", 1), ("evaluate_every", 1), ("restarts", 0)):
        given = getattr(options, name)
        if given is not None and given < least:
            raise ValueError(f"{option_of(name)} must be at least {least}, got {given}.")
    if options.seed is not None:
        check_seed("--seed", options.seed)
    if options.seeds is not None and options.seeds > SEEDS:
        raise ValueError(f"--seeds must be at most {SEEDS}, got {options.seeds}.")
    if options.episodes is not None:
        check_episodes("--episodes", options.episodes)
    if base is not None:
        for name in ("preset", "learner", "evaluate_every"):
            if getattr(options, name) is not None:
                raise ValueError(f"{option_of(name)} makes settings, which --config has: leave one out.")
        if base.known:
            raise ValueError(f"{options.config} is of a run with known functions: begin it by marco.learn.")
    elif options.method == "marco":
        if options.preset == "free-samples":
            raise ValueError("--preset free-samples is for --method model-free: MARCO has default and paper.")
        if options.evaluate_every is not None:
            raise ValueError("--evaluate-every is for --method model-free: MARCO is evaluated at its end.")
    if (options.method if base is None else base.method) == "model-free":
        for name in ("data", "describe", "restarts"):
            if getattr(options, name):
                raise ValueError(f"--{name} is for --method marco.")


def _algorithm(
    options: Train, base: RunConfig | None, env: Environment | HostWorld, rest: list[str], prog: str
) -> MarcoConfig | ModelFreeConfig:
    choices = _choices(options)
    if base is not None:
        changes = take_changes(base.algorithm, rest, prog, options_of(Train))
        own = {} if options.samples is None else {"samples": options.samples}
        changed = _changed(base.algorithm, own | changes)
        return choices.restarted(changed) if isinstance(changed, MarcoConfig) else changed
    return choices.algorithm(env, take_changes(choices.default(env), rest, prog, options_of(Train)))


def _choices(options: Train) -> Choices:
    return Choices(**{one.name: getattr(options, one.name) for one in fields(Choices)})


def _changed(config: Any, changes: dict[str, Any]) -> Any:
    """A configuration with changes; those of the team are also those of all teams in the last model."""
    config = apply_changes(config, changes)
    of_team = {name: value for name, value in changes.items() if name.startswith("team.")}
    if not of_team or not getattr(config, "candidates", ()):
        return config
    return replace(config, candidates=tuple(change_where_known(one, of_team) for one in config.candidates))


def _method(algorithm: MarcoConfig | ModelFreeConfig) -> Method:
    return "marco" if isinstance(algorithm, MarcoConfig) else "model-free"


def _logged(
    options: Train, world: str, settings: dict[str, Any], env: Environment | HostWorld, seeds: tuple[int, ...]
) -> tuple[list[Episode], Logged | None]:
    """The episodes of --data, and what the run's configuration says of them."""
    if not options.data:
        return [], None
    usual = defaults(world)
    read = read_logged(options.data, full_name(world), usual | as_json(settings), env.spec, usual)
    chunks = for_seeds(read, len(seeds))
    if not chunks:
        return [], None
    steps = sum(int(np.asarray(chunk.mask)[0].sum()) for chunk in chunks)
    return chunks, Logged(tuple(map(str, options.data)), steps, options.data_counts)
