"""A run of MARCO in its folder: begun, stopped, gone on with, and shown.

config.json         all settings, the command and the versions
data/               every real episode (see `marco.data.dataset`)
checkpoint.npz      what had been learned at the end of the last phase
metrics.jsonl       one line per phase; lists hold one number per seed
policy/seed-S.npz   the team of each seed; `marco.load` reads it
result.json         what the teams are worth in the true world
figures/            drawn from the above
tensorboard/        the metrics again, if asked for
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import numpy as np

from marco.algorithm.precompile import compiled_ahead
from marco.algorithm.loop import Event, Marco, MarcoState
from marco.data.dataset import Dataset
from marco.environments.base import Environment, HostWorld
from marco.environments.registry import make, optimum
from marco.runs.checkpoint import RunJournal, alone
from marco.algorithm.presets import MarcoPreset, marco_settings
from marco.runs.model_free import judge
from marco.learners.presets import LearnerName
from marco.runs.folder import check_free, create_run, read_config, read_metrics, save_policy
from marco.learners.seeds import check_one_at_a_time, policy_of_seed
from marco.runs.interrupt import stopping
from marco.runs.tensorboard import TensorBoard, summary_writer
from marco.data.storage import write_atomically
from marco.algorithm.config import MarcoConfig, checked_changes
from marco.types import Episode


class Stopped(Exception):  # noqa: N818  (not an error)
    """The user asked the run to stop; it can be resumed."""


@dataclass(frozen=True)
class Logged:
    """The real episodes that a run starts from."""

    files: tuple[str, ...]
    """Where they came from; the run has its own copy."""
    samples: int
    """Real steps, of each seed."""
    counts: bool
    """Whether they count against the budget."""

    def plan(self, settings: MarcoConfig) -> MarcoConfig:
        """The settings as they are with these samples among those of the run."""
        total = settings.samples if self.counts else settings.samples + self.samples
        if self.samples > total:
            raise ValueError(
                f"--data holds {self.samples:,} samples, more than the budget of {total:,}: give --samples "
                f"{self.samples} or more, or --no-data-counts."
            )
        return replace(settings, samples=total, first=max(settings.first, self.samples))


@dataclass(frozen=True)
class MarcoRun:
    """What a run of MARCO is made from; `config.json` holds exactly this, and what follows from it."""

    world: str
    world_settings: dict[str, Any]
    preset: MarcoPreset
    learner: LearnerName | None
    samples: int | None
    changes: dict[str, Any]
    seeds: tuple[int, ...]
    test_episodes: int
    out: Path
    logged: Logged | None = None
    tensorboard: bool = False

    @classmethod
    def read(cls, out: Path) -> "MarcoRun":
        """The run of a folder."""
        config = read_config(out)
        if config.get("method") != "marco":
            raise ValueError(f"{out} is no run of MARCO: only these can be resumed.")
        run = cls(
            world=config["world"],
            world_settings=config["settings"],
            preset=config["preset"],
            learner=config["learner_name"],
            samples=config["samples"],
            changes=config["changes"],
            seeds=tuple(config["seeds"]),
            test_episodes=config["test_episodes"],
            out=out,
            logged=_logged(config.get("logged")),
            tensorboard=config.get("tensorboard", False),
        )
        if json.loads(json.dumps(asdict(run.settings))) != config["marco"]:
            raise ValueError(
                f"{out} was begun with settings that this version of MARCO does not give any more: "
                f"go on with the versions in {out / 'config.json'}."
            )
        return run

    @cached_property
    def true_world(self) -> Environment | HostWorld:
        """The world itself, made once: a simulator may be slow to start."""
        return make(self.world, **self.world_settings)

    @cached_property
    def settings(self) -> MarcoConfig:
        """The letters of Algorithm 1."""
        changes = checked_changes(self.changes)
        settings = marco_settings(self.preset, self.true_world.spec, self.samples, self.learner, **changes)
        return settings if self.logged is None else self.logged.plan(settings)

    def create(self, logged: Sequence[Episode] = ()) -> None:
        """Make the folder; nothing is compiled or played before all settings are found good."""
        settings, world = self.settings, self.true_world
        check_one_at_a_time(world, self.seeds)
        if self.tensorboard:
            summary_writer()
        check_free(self.out)
        facts = {
            "world": self.world,
            "settings": self.world_settings,
            "method": "marco",
            "preset": self.preset,
            "learner_name": self.learner,
            "samples": self.samples,
            "changes": self.changes,
            "seeds": list(self.seeds),
            "test_episodes": self.test_episodes,
            "logged": None if self.logged is None else asdict(self.logged),
            "tensorboard": self.tensorboard,
            "marco": asdict(settings),
        }
        # Before config.json, which makes a run of the folder: none begins without its logged episodes.
        dataset = Dataset(self.out / "data", world.spec, len(self.seeds))
        for chunk in logged:
            dataset.append(chunk)
        create_run(self.out, facts, settings.team)

    def follow(self) -> Iterator[Event]:
        """Run, or go on, to the end; the teams and what they are worth are then in the folder."""
        world = self.true_world
        with alone(self.out), stopping(f"marco resume {self.out}") as stop, self._board() as board:
            dataset = Dataset(self.out / "data", world.spec, len(self.seeds))
            marco = Marco(world, self.settings, self.seeds, dataset, RunJournal(self.out))
            with compiled_ahead(marco) as events:
                for event, state in events:
                    if event.phase == "done":
                        result = self._conclude(world, marco, state)
                        if board:
                            board.add_scalars(
                                "real/return", [row["mean"] for row in result["real"]], event.samples
                            )
                    elif board and event.over:
                        board.add(event)
                    yield event
                    if stop.asked and event.phase != "done":
                        raise Stopped

    @contextmanager
    def _board(self) -> Iterator[TensorBoard | None]:
        board = TensorBoard(self.out, self.seeds) if self.tensorboard else None
        try:
            yield board
        finally:
            if board:
                board.close()

    def _conclude(
        self, world: Environment | HostWorld, marco: Marco, state: MarcoState
    ) -> dict[str, Any]:
        """Save the teams, and judge them in the true world, counted apart."""
        rows = []
        for index, seed in enumerate(self.seeds):
            policy = policy_of_seed(marco.settings.team, state.team, index)
            save_policy(self.out / "policy" / f"seed-{seed}.npz", policy)
            estimate = judge(jax.random.key(1_000_000), world, policy, self.test_episodes)
            rows.append({"seed": seed, **estimate._asdict()})
        imagined = read_metrics(self.out)[-1]
        result = {
            "samples": np.asarray(marco.dataset.samples).tolist(),
            "logged": 0 if self.logged is None else self.logged.samples,
            "optimum": optimum(world),
            "imagined": imagined["numbers"]["imagined_return"],
            "real": rows,
        }
        write_atomically(self.out / "result.json", (json.dumps(result, indent=1) + "\n").encode())
        return result


def _logged(facts: dict[str, Any] | None) -> Logged | None:
    return None if facts is None else Logged(tuple(facts["files"]), facts["samples"], facts["counts"])
