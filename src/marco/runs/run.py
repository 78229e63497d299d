"""A run in its folder: begun, interrupted, resumed, concluded.

config.json         all settings, the command and the versions
data/               every real episode (see `marco.data.dataset`)
checkpoint.npz      what had been learned at the end of the last phase
description.json    what the environment's columns mean, where that was found out from data
metrics.jsonl       one line per phase or evaluation; lists hold one value per seed
policy/seed-S.npz   the team of each seed; `marco.load` reads it
result.json         the value of the teams in the true environment
figures/            drawn from the above
tensorboard/        the metrics again, if asked for

A model-free run has no data and no checkpoint, and cannot be resumed.
"""

import json
import os
import shlex
import shutil
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import numpy as np

from marco.algorithm.config import MarcoConfig
from marco.algorithm.descriptions import Descriptions
from marco.algorithm.events import NO_JOURNAL, Event, Journal, PhaseName
from marco.algorithm.loop import Marco, phases
from marco.algorithm.memory import Memories
from marco.algorithm.model_free import ModelFree, ModelFreeConfig
from marco.algorithm.precompile import compiled_ahead
from marco.algorithm.trial import Candidate
from marco.checks import same_world
from marco.data.dataset import Dataset
from marco.data.storage import read_json, write_atomically
from marco.environments.base import Environment, HostWorld, WorldError, optimum_of
from marco.environments.registry import defaults, make, refuse_code, runs_code
from marco.environments.user_code import is_noted
from marco.evaluation import evaluate
from marco.learners.base import Learner
from marco.learners.candidates import ImaginedReturn
from marco.model.inputs import ComponentName
from marco.policies.base import Policy, Savable
from marco.runs.checkpoint import RunJournal, alone, append_metrics, read_events
from marco.runs.config import LEARNERS, RunConfig, as_json, config_text, read_config
from marco.runs.tensorboard import TensorBoard, summary_writer
from marco.simulators.pool import Simulators, opened
from marco.types import Episode, Spec

TEST_SEED = 1_000_000
"""The seed of test episodes: no training uses it."""


@dataclass(frozen=True)
class Run:
    """A folder and what is run in it."""

    folder: Path
    config: RunConfig
    given: Environment | HostWorld | None = None
    """The environment, where it was made in Python."""
    known: tuple[tuple[ComponentName, Any], ...] = ()
    trusted: bool = False
    """Whether the user wants the code run that the folder names. It may be anyone's folder."""

    @classmethod
    def open(cls, folder: Path, world: str | None = None, trust: bool = False) -> "Run":
        """The run of a folder. Who names its world again, or trusts it, lets the code of the world be run."""
        if not folder.is_dir():
            what = "is a file" if folder.exists() else "does not exist"
            near = [f" Do you mean {one}?" for one in folder.parents[:2] if (one / "config.json").is_file()]
            raise ValueError(f"{folder} {what}: give the folder of a run.{''.join(near[:1])}")
        config = read_config(folder)
        if world is not None:
            if config.world is None:
                raise ValueError(_made_in_python(folder))
            if not same_world(world, config.world):
                raise ValueError(f"--world {world}: {folder} is a run of {config.world!r}. Name the same.")
            config = replace(config, world=world)
        if not trust:
            _refuse_links(folder)
        return cls(folder, config, trusted=trust or world is not None)

    @cached_property
    def env(self) -> Environment | HostWorld:
        """The true environment, made once: a simulator may be slow to start."""
        if self.given is not None:
            return self.given
        world, settings = self.config.world, self.config.world_settings
        if world is None:
            raise ValueError(_made_in_python(self.folder))
        if not self.trusted:
            refuse_code(world, settings, str(self.folder), f"--world {shlex.quote(world)}")
        return make(world, **settings)

    @cached_property
    def playing(self) -> Environment | HostWorld:
        """The environment as the run plays in it: by simulators side by side, if it has workers."""
        workers = self.config.workers
        return self.env if workers is None else Simulators(self.env, workers)

    @property
    def go_on(self) -> str:
        """How to go on with this run."""
        foreign = any(type(learner) not in LEARNERS.values() for learner in self._learners)
        if self.config.world is None or self.config.known or foreign:
            return "the same call of marco.learn goes on"
        return self.command("resume")

    def command(self, name: str) -> str:
        """A command for this run, as one can copy it; what would run code is named again."""
        world = self.config.world
        named = ["--world", world] if world is not None and runs_code(world) else []
        workers = self.config.workers if name in ("resume", "evaluate") else None
        cluster = [] if workers is None or workers.ray is None else ["--ray", workers.ray]
        return shlex.join(["marco", name, str(self.folder), *named, *cluster])

    @cached_property
    def dataset(self) -> Dataset:
        """The real episodes of the run."""
        return Dataset(self.folder / "data", self.env.spec, len(self.config.seeds))

    @property
    def phases(self) -> list[tuple[int, PhaseName]]:
        """The phases of the run, with their iterations."""
        algorithm = self.config.algorithm
        if isinstance(algorithm, ModelFreeConfig):
            return [(0, "train")]
        return [(phase.iteration, phase.name) for phase in phases(algorithm)]

    @property
    def result(self) -> dict[str, Any]:
        """What `result.json` says; a run that is done has just written it."""
        again = "resume" if self.config.method == "marco" else "evaluate"
        return read_json(self.folder / "result.json", f"Evaluate the teams again: {self.command(again)}")

    def create(self, logged: Sequence[Episode] = ()) -> None:
        """Make the folder. Nothing is compiled or played before all settings are found good."""
        self.check()
        check_free(self.folder)
        config = config_text(self.config)
        try:
            (self.folder / "policy").mkdir(parents=True)
        except OSError as error:
            raise ValueError(
                f"the folder {self.folder} cannot be made: {error.strerror}. Choose another (--out)."
            ) from error
        try:
            # Before config.json, which makes a run of the folder: none begins without its logged episodes.
            for chunk in logged:
                self.dataset.append(chunk)
            write_atomically(self.folder / "config.json", config)
        except BaseException:
            shutil.rmtree(self.folder, ignore_errors=True)  # else the corrected command would be refused
            raise

    def check(self) -> None:
        """Refuse what could not be run, kept or resumed."""
        as_json(self.config)
        self._algorithm(Dataset(None, self.env.spec, len(self.config.seeds))).check()
        if self.config.tensorboard:
            summary_writer()
        algorithm = self.config.algorithm
        kept = algorithm.final_learners if isinstance(algorithm, MarcoConfig) else (algorithm.learner,)
        for learner in kept:
            check_savable(learner, self.env.spec)

    def check_same(self) -> None:
        """Refuse to go on with a run of other settings."""
        stored = read_json(self.folder / "config.json", "Correct it, or choose another folder.")
        usual = {} if self.config.world is None else {"world_settings": defaults(self.config.world)}
        for name, ours in as_json(self.config).items():
            theirs = stored.get(name)
            if name == "world" and isinstance(theirs, str) and ours and same_world(theirs, ours):
                continue
            if name in usual and isinstance(theirs, dict):  # a default that is given changes nothing
                theirs, ours = usual[name] | theirs, usual[name] | ours
            if theirs != ours and name not in ("preset", "tensorboard", "workers"):
                raise ValueError(
                    f"{self.folder} holds a run with another {name}: choose another folder, or the settings "
                    "that it was begun with."
                )

    def marco(self) -> Marco:
        """The algorithm with the folder's data and checkpoint."""
        if self.config.method != "marco":
            raise ValueError(f"{self.folder} is no run of MARCO: it has no model, and cannot be resumed.")
        if set(self.config.known) != {name for name, _ in self.known}:
            raise ValueError(
                f"{self.folder} was begun with known functions ({', '.join(self.config.known)}): go on with "
                "marco.learn and the same `known`."
            )
        algorithm = self._algorithm(self.dataset, RunJournal(self.folder))
        assert isinstance(algorithm, Marco)
        return algorithm

    def follow(self) -> Generator[Event, None, None]:
        """Run, or go on, to the end; then the teams and their values are in the folder."""
        with alone(self.folder), self._board() as board, self._noting(), opened(self.playing):
            follow = self._follow_marco if self.config.method == "marco" else self._follow_model_free
            for event in follow():
                if board and event.phase == "done":
                    board.add_scalars(
                        "real/return", [row["mean"] for row in self.result["real"]], event.samples
                    )
                elif board and event.metrics and (event.over or event.phase == "train"):
                    board.add(event)
                yield event

    def _follow_marco(self) -> Iterator[Event]:
        marco = self.marco()
        with compiled_ahead(marco) as events:
            for event, state in events:
                if event.phase == "done":
                    policies = [state.policy(marco.config, index) for index in range(len(marco.seeds))]
                    trial = marco.shortened(read_events(self.folder)).trial(state)
                    self._conclude(
                        policies,
                        self.dataset.samples.tolist(),
                        state.imagined_return,
                        [trial.candidates(index) for index in range(len(marco.seeds))],
                        self.dataset,
                        state.warnings(marco.seeds, read_events(self.folder)),
                    )
                yield event

    def _follow_model_free(self) -> Iterator[Event]:
        nothing = Dataset(None, self.env.spec, len(self.config.seeds))
        algorithm = self._algorithm(nothing)
        assert isinstance(algorithm, ModelFree)
        begun = time.perf_counter()
        for event, policies in algorithm.run():
            seconds = round(time.perf_counter() - begun, 3)
            append_metrics(self.folder, {**event._asdict(), "seconds": seconds})
            self._save(policies)
            yield event
        self._conclude(policies, event.metrics["samples"], None, [], nothing, ())
        yield Event("done", 0, event.samples, {})

    def _algorithm(self, dataset: Dataset, journal: Journal = NO_JOURNAL) -> Marco | ModelFree:
        config = self.config
        if isinstance(config.algorithm, MarcoConfig):
            kept = dataset.folder is not None
            file = self.folder / "description.json" if kept else None
            descriptions = Descriptions(file, config.description)
            return Marco(
                self.playing,
                config.algorithm,
                config.seeds,
                dataset,
                self.known,
                descriptions=descriptions,
                memories=Memories(self.folder / "memory.json" if kept else None),
                journal=journal,
            )
        if config.workers is not None:
            raise ValueError("workers are for MARCO: a model-free run steps one simulator. Leave them out.")
        return ModelFree(self.env, config.algorithm, config.seeds, config.test_episodes)

    @contextmanager
    def _noting(self) -> Iterator[None]:
        """Say below an error of the environment or the learner how to go on."""
        try:
            yield
        except Exception as error:
            if self.config.method == "marco" and (is_noted(error) or isinstance(error, WorldError)):
                error.add_note(f"Nothing is lost: {self.go_on}")
            raise

    @contextmanager
    def _board(self) -> Iterator[TensorBoard | None]:
        board = TensorBoard(self.folder, self.config.seeds) if self.config.tensorboard else None
        try:
            yield board
        finally:
            if board:
                board.close()

    def _save(self, policies: Sequence[Policy]) -> None:
        for seed, policy in zip(self.config.seeds, policies, strict=True):
            assert isinstance(policy, Savable)
            policy.save(self.folder / "policy" / f"seed-{seed}.npz")

    def _conclude(
        self,
        policies: Sequence[Policy],
        samples: list[int],
        imagined: ImaginedReturn | None,
        candidates: Sequence[tuple[Candidate, ...]],
        dataset: Dataset,
        warnings: tuple[str, ...],
    ) -> None:
        """Save the teams, and evaluate them in the true environment; those steps are counted apart."""
        self._save(policies)
        rows = []
        for seed, policy in zip(self.config.seeds, policies, strict=True):
            estimate = evaluate(self.playing, policy, self.config.test_episodes, seed=TEST_SEED)
            rows.append({"seed": seed, **estimate._asdict()})
        result = {
            "samples": samples,
            "logged": 0 if self.config.logged is None else self.config.logged.samples,
            "broken_off": dataset.broken_off._asdict(),
            "played_again": dataset.played_again._asdict(),
            "optimum": optimum_of(self.env),
            "imagined": None if imagined is None else np.asarray(imagined.mean).tolist(),
            "imagined_range": None
            if imagined is None
            else np.stack([imagined.low, imagined.high], -1).tolist(),
            "candidates": [[one._asdict() for one in own] for own in candidates],
            "real": rows,
            "warnings": warnings,
        }
        write_atomically(self.folder / "result.json", (json.dumps(result, indent=1) + "\n").encode())

    @property
    def _learners(self) -> tuple[Learner, ...]:
        """All learners of the run; first those whose teams are kept."""
        algorithm = self.config.algorithm
        if isinstance(algorithm, ModelFreeConfig):
            return (algorithm.learner,)
        return (*algorithm.final_learners, algorithm.team, algorithm.explorer)


def _made_in_python(folder: Path) -> str:
    return (
        f"the environment of {folder} was made in Python, and has no name: use marco.learn(env, "
        f"out={str(folder)!r}) there."
    )


def _refuse_links(folder: Path) -> None:
    """Refuse a link: by one, a folder of someone else's would have us write where it likes."""
    for where, folders, files in os.walk(folder):
        for name in (*folders, *files):
            if (path := Path(where) / name).is_symlink():
                raise ValueError(
                    f"{path} is a link, by which the folder could have files written elsewhere: put in its "
                    "place what it leads to or, if it is your own, say --trust."
                )


def check_free(path: Path) -> None:
    """Refuse a folder that holds anything."""
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise ValueError(f"{path} exists already: choose another folder, or remove it.")


def check_savable(learner: Learner, spec: Spec) -> None:
    """Refuse a learner whose team could not be saved, before it is trained."""
    team = jax.eval_shape(lambda key: learner.greedy(learner.init(key, spec)), jax.random.key(0))
    if not isinstance(team, Savable):
        raise ValueError(
            f"the team of {type(learner).__name__} is a {type(team).__name__}, which cannot be saved: let "
            "`greedy` return a RecurrentPolicy, give it a method save(path), or learn in memory, without out."
        )
