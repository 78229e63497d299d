"""A run of MARCO in its folder: begun, stopped, gone on with, and shown.

config.json         all settings, the command and the versions
data/               every real episode (see `marco.dataset`)
checkpoint.npz      what had been learned at the end of the last phase
metrics.jsonl       one line per phase; lists hold one number per seed
policy/seed-S.npz   the team of each seed; `marco.load` reads it
result.json         what the teams are worth in the true world
figures/            drawn from the above
"""

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from types import FrameType
from typing import Any

import jax
import numpy as np

from marco.algorithm import Event, Marco, MarcoState
from marco.dataset import Dataset
from marco.environments.environment import Environment, HostWorld
from marco.environments.worlds import make, optimum
from marco.experiments.journal import RunJournal, alone
from marco.experiments.marco_presets import MarcoPreset, marco_settings
from marco.experiments.model_free import judge
from marco.experiments.presets import LearnerName
from marco.experiments.runs import create_run, read_config, save_policy
from marco.experiments.seeds import policy_of_seed
from marco.files import write_atomically
from marco.plan import MarcoSettings


class Stopped(Exception):  # noqa: N818  (not an error)
    """The user asked the run to stop; it can be resumed."""


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
        )
        if json.loads(json.dumps(asdict(run.settings))) != config["marco"]:
            raise ValueError(
                f"{out} was begun with settings that this version of MARCO does not give any more: "
                f"go on with the versions in {out / 'config.json'}."
            )
        return run

    @cached_property
    def true_world(self) -> Environment[Any] | HostWorld:
        """The world itself, made once: a simulator may be slow to start."""
        return make(self.world, **self.world_settings)

    @cached_property
    def settings(self) -> MarcoSettings:
        """The letters of Algorithm 1."""
        return marco_settings(self.preset, self.true_world.spec, self.samples, self.learner, **self.changes)

    def create(self) -> None:
        """Make the folder; nothing is compiled or played before all settings are found good."""
        settings, world = self.settings, self.true_world
        if not isinstance(world, Environment) and len(self.seeds) > 1:
            raise ValueError(
                f"{world.spec.name} is no JAX world and runs one seed at a time, got seeds "
                f"{list(self.seeds)}: start one process per seed."
            )
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
            "marco": asdict(settings),
        }
        create_run(self.out, facts, settings.team)

    def follow(self) -> Iterator[Event]:
        """Run, or go on, to the end; the teams and what they are worth are then in the folder."""
        world = self.true_world
        with alone(self.out), _stopping() as stop:
            dataset = Dataset(self.out / "data", world.spec, len(self.seeds))
            marco = Marco(world, self.settings, self.seeds, dataset, RunJournal(self.out))
            for event, state in marco.run():
                if event.phase == "done":
                    self._conclude(world, marco, state)
                yield event
                if stop.asked and event.phase != "done":
                    raise Stopped

    def _conclude(self, world: Environment[Any] | HostWorld, marco: Marco, state: MarcoState) -> None:
        """Save the teams, and judge them in the true world, counted apart."""
        rows = []
        for index, seed in enumerate(self.seeds):
            policy = policy_of_seed(marco.settings.team, state.team, index)
            save_policy(self.out / "policy" / f"seed-{seed}.npz", policy)
            estimate = judge(jax.random.key(1_000_000), world, policy, self.test_episodes)
            rows.append({"seed": seed, **estimate._asdict()})
        imagined = [json.loads(line) for line in (self.out / "metrics.jsonl").read_text().splitlines()][-1]
        result = {
            "samples": np.asarray(marco.dataset.samples).tolist(),
            "optimum": optimum(world),
            "imagined": imagined["numbers"]["imagined_return"],
            "real": rows,
        }
        write_atomically(self.out / "result.json", (json.dumps(result, indent=1) + "\n").encode())


class _Stop:
    """Whether the user has asked to stop."""

    asked = False


@contextmanager
def _stopping() -> Iterator[_Stop]:
    """The first Ctrl-C lets the phase end; the second ends at once, which is as safe."""
    stop = _Stop()

    def ask(number: int, frame: FrameType | None) -> None:
        stop.asked = True
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        print("\nStopping when this phase is done; Ctrl-C again stops at once. Nothing is lost.", flush=True)

    before = signal.signal(signal.SIGINT, ask)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)
