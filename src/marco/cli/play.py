"""`marco play`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import jax
import tyro

from marco.checks import check_seed
from marco.cli.common import RunOptions, console
from marco.cli.settings import options_of, parse_with_rest, refuse_unknown, take_env
from marco.compilation import keep_compiled
from marco.environments.base import Environment, FiniteEnvironment, HostWorld, expert_of, optimum_of
from marco.environments.catalogue import CATALOGUE
from marco.environments.registry import FILES, make
from marco.environments.render import check_gif, draw_gif, episode_table
from marco.environments.user_code import during
from marco.evaluation import EXACT_LIMIT, TooManyHistoriesError, exact_value
from marco.policies.base import Policy, RandomPolicy
from marco.policies.export import load_policy
from marco.rollout import play
from marco.runs.run import Run

PROG = "marco play"
MOST_EPISODES = 10_000
"""The most episodes to look at."""


@dataclass(frozen=True, kw_only=True)
class Play(RunOptions):
    """Show episodes in the terminal, or as a moving picture: of an environment, or of the team of a run.

    Settings of the environment: --env.agents 4.
    """

    env: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="WORLD|RUN")]
    """The folder of a run, or the name of an environment, a file or a function (see `marco worlds`)."""
    episodes: int = 1
    """How many episodes to show."""
    seed: int | None = None
    """Of a run, which seed's team; of an environment, the seed of everything drawn at random."""
    policy: Literal["random", "expert"] | None = None
    """Random play, or the hand-written team where there is one (switch, bridge, reference)."""
    reward: str | None = None
    """PettingZoo and JaxMARL: the team's reward as mean or sum of its agents', or as one agent's, by name."""
    gif: Path | None = None
    """Draw the episodes into this file."""


def main(arguments: list[str]) -> None:
    """Play and show."""
    options, rest = parse_with_rest(Play, arguments, PROG)
    settings, rest = take_env(rest, options.reward)
    refuse_unknown(rest, options_of(Play))
    keep_compiled()
    if _is_run(options.env):
        _play_run(Path(options.env), options, settings)
        return
    if options.world is not None or options.trust:
        raise ValueError(f"--world and --trust are for runs, and {options.env} is none: leave them out.")
    env = make(options.env, **settings)
    policy = expert_of(env) if options.policy == "expert" else RandomPolicy()
    if policy is None:
        raise ValueError(f"there is no expert for {env.spec.name} with these settings: use --policy random.")
    show_episodes(
        env, policy, options.episodes, options.seed or 0, options.gif, team=options.policy or "random"
    )


def _is_run(name: str) -> bool:
    """Whether a folder is meant, or a file of one: a run's own refusals are clearer than an environment's."""
    path = Path(name)
    if (path / "config.json").exists() or path.suffix in (".npz", ".json", ".jsonl"):
        return True
    missing = ":" not in name and len(path.parts) > 1 and not path.exists() and not name.endswith(FILES)
    return name not in CATALOGUE and (path.is_dir() or missing)


def _play_run(folder: Path, options: Play, settings: dict[str, Any]) -> None:
    """The team that a run has trained."""
    if options.policy or settings:
        raise ValueError(f"{folder} is a run: its own team is shown, in its own environment.")
    run = Run.open(folder, options.world, options.trust)
    team = load_policy(folder, run.env.spec, options.seed)
    show_episodes(run.env, team, options.episodes, 0, options.gif, team="trained")


def show_episodes(
    env: Environment | HostWorld,
    policy: Policy,
    episodes: int = 1,
    seed: int = 0,
    gif: Path | None = None,
    *,
    team: str = "given",
) -> None:
    """Play episodes and print each as a table, then the team's exact value where it can be computed soon.

    With `gif` the episodes are also drawn into that file. `team` is what the printed value calls the team.
    """
    if episodes < 1:
        raise ValueError(f"--episodes must be at least 1, got {episodes}.")
    if episodes > MOST_EPISODES:
        raise ValueError(f"--episodes must be at most {MOST_EPISODES:,}, got {episodes}.")
    check_seed("--seed", seed)
    if gif is not None:
        check_gif(gif)
    played = []
    for number, key in enumerate(jax.random.split(jax.random.key(seed), episodes), 1):
        with during(f"episode {number} of {episodes}"):
            played.append(play(key, env, policy))
        console.print(episode_table(env.spec, played[-1], f"{env.spec.name}, episode {number}"))
    if isinstance(env, FiniteEnvironment):
        _print_value(env, policy, team)
    if gif is not None:
        draw_gif(env, played, gif)
        console.print(f"Drawn: {gif}")


def _print_value(env: FiniteEnvironment, policy: Policy, team: str) -> None:
    try:
        value = exact_value(env, policy, EXACT_LIMIT)
    except TooManyHistoriesError:
        return
    best = optimum_of(env)
    beside = "" if best is None else f"; the best team's is {best:.6f}"
    console.print(f"Exact value of the {team} team: {value:.6f}{beside}.")
