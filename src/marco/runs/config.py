"""The configuration of a run: everything it is made from, written once to config.json and read back."""

import json
import math
import os
import platform
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass, field, is_dataclass, replace
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from reprlib import repr as shortened
from typing import Any, Literal, get_args, get_origin

import numpy as np

from marco.algorithm.config import MarcoConfig
from marco.algorithm.model_free import ModelFreeConfig
from marco.checks import check_episodes, check_seeds
from marco.data.storage import read_json
from marco.environments import settings
from marco.learners.base import Learner
from marco.learners.mappo import MAPPO
from marco.learners.q_learning import QLearner
from marco.model.description_file import GivenDescription, from_json, given_as_json
from marco.simulators.config import Workers

FORMAT = 2
"""The version of config.json's format."""

LIBRARIES = ("marco-marl", "jax", "jaxlib", "equinox", "optax", "numpy")
LEARNERS: dict[str, type[Any]] = {"QLearner": QLearner, "MAPPO": MAPPO}
"""Learners that can be read back from a file. No other class is ever looked up by a name in a file."""

Method = Literal["marco", "model-free"]
Settings = dict[str, Any]
"""Those of an environment. JSON has no tuples, so that these are not written as they are."""


@dataclass(frozen=True)
class Logged:
    """The real episodes that a run starts from."""

    files: tuple[str, ...]
    """Where they came from; the run has its own copy."""
    samples: int
    """Real steps of each seed."""
    counts: bool
    """Whether they count against the budget."""

    def adapt(self, config: MarcoConfig) -> MarcoConfig:
        """The configuration of a run that has these samples already."""
        total = config.samples if self.counts else config.samples + self.samples
        if self.samples > total:
            raise ValueError(
                f"--data holds {self.samples:,} samples, more than the budget of {total:,}: give --samples "
                f"{self.samples} or more, or --no-data-counts."
            )
        return replace(config, samples=total, first_chunk=max(config.first_chunk, self.samples))


@dataclass(frozen=True)
class RunConfig:
    """What a run is made from."""

    world: str | None
    """How the environment is named; None where it was made in Python."""
    method: Method
    algorithm: MarcoConfig | ModelFreeConfig
    seeds: tuple[int, ...]
    test_episodes: int
    """Episodes by which teams are evaluated in the true environment, where that is not exact."""
    world_settings: Settings = field(default_factory=dict)
    preset: str | None = None
    """The preset that the algorithm's settings came from; they are written out all the same."""
    known: tuple[str, ...] = ()
    """Components of the model that were given as functions, in Python."""
    logged: Logged | None = None
    description: GivenDescription | None = None
    """What the user says of the environment's columns."""
    tensorboard: bool = False
    workers: Workers | None = None
    """Simulators side by side, of a host environment; a run may go on with others."""

    def __post_init__(self) -> None:
        """A value that would stop the run at its end must not get into a file, nor out of one."""
        if self.world is not None and not self.world.isprintable():
            raise ValueError(f"world must be the name of an environment, got {self.world!r}")
        if self.method != ("marco" if isinstance(self.algorithm, MarcoConfig) else "model-free"):
            raise ValueError(f"method={self.method!r} has other settings than those of algorithm")
        check_seeds(self.seeds)
        check_episodes("test_episodes", self.test_episodes)


def config_text(config: RunConfig) -> bytes:
    """The content of config.json: a configuration, with the command and the versions it was made with."""
    facts = {
        "format": FORMAT,
        "command": shlex.join(["marco", *sys.argv[1:]]),
        "versions": {"python": platform.python_version()} | {name: version_of(name) for name in LIBRARIES},
        "commit": commit(),
        **as_json(config),
    }
    return (json.dumps(facts, indent=1) + "\n").encode()


def read_config(path: Path) -> RunConfig:
    """The configuration in a file, or in the folder of a run. Nothing that it names is imported."""
    file = path / "config.json" if path.is_dir() else path
    if not file.is_file():
        what = f"{path} is no run: it has no config.json" if path.is_dir() else f"there is no {path}"
        raise ValueError(f"{what}. Give the folder of a run, or its config.json.")
    cure = (
        "Correct it there, or remove the file and learn anew from the samples of the run: marco train WORLD "
        f"--data {shlex.quote(str(file.parent))}"
    )
    facts = read_json(file, cure)
    if facts.get("format") != FORMAT:
        raise ValueError(
            f"{file} has the format {facts.get('format')!r}, this MARCO reads {FORMAT}: use the version that "
            "wrote it."
        )
    known = {name: facts[name] for name in RunConfig.__dataclass_fields__ if name in facts}
    import cattrs

    try:
        return _converter().structure(known, RunConfig)
    except cattrs.BaseValidationError as error:
        reasons = "; ".join(cattrs.transform_error(error, format_exception=_reason))
        raise ValueError(f"{file} is damaged, or of another version of MARCO: {reasons}. {cure}") from error


def as_json(config: Any) -> Any:
    """A configuration in plain dictionaries, lists and numbers, as config.json has it."""
    try:
        return json.loads(json.dumps(_converter().unstructure(config), default=_number))
    except TypeError as error:
        raise ValueError(f"the settings cannot be written to config.json: {error}.") from error


def _number(value: Any) -> Any:
    """A number of numpy's as one of Python's."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{value!r} is no number and no word")


def version_of(library: str) -> str:
    """The version that is installed."""
    try:
        return version(library)
    except PackageNotFoundError:  # a source tree that was never installed
        return "unknown"


@cache
def commit() -> str | None:
    """The commit of the program, marked if it was changed; None where it is no checkout."""
    if "MARCO_COMMIT" in os.environ:
        return os.environ["MARCO_COMMIT"]
    top, git = Path(__file__).parents[3], shutil.which("git")
    if git is None or not (top / ".git").exists():  # a package may be installed inside another's repository
        return None
    command = [git, "describe", "--always", "--dirty"]
    done = subprocess.run(command, cwd=top, capture_output=True, text=True, check=False)
    return done.stdout.strip() or None


@cache
def _converter() -> Any:
    import cattrs

    converter = cattrs.Converter(forbid_extra_keys=True)
    for kind in (bool, int, float, str):
        converter.register_structure_hook(kind, _plain)
    converter.register_structure_hook_func(_is_tuple, lambda value, kind: _items(converter, value, kind))
    converter.register_unstructure_hook_func(
        lambda kind: kind is Learner, lambda learner: _learner_as_dict(converter, learner)
    )
    converter.register_structure_hook_func(
        lambda kind: kind is Learner, lambda value, _: _learner_from_dict(converter, value)
    )
    converter.register_unstructure_hook_func(lambda kind: kind == Settings, settings.as_json)
    converter.register_structure_hook_func(
        lambda kind: kind == Settings, lambda value, _: settings.from_json(value)
    )
    converter.register_structure_hook(
        MarcoConfig | ModelFreeConfig,
        lambda value, _: converter.structure(value, MarcoConfig if "model" in value else ModelFreeConfig),
    )
    converter.register_unstructure_hook(
        GivenDescription | None, lambda given: None if given is None else given_as_json(given)
    )
    converter.register_structure_hook(
        GivenDescription | None, lambda value, _: None if value is None else from_json(value)
    )
    converter.register_structure_hook(
        str | None, lambda value, _: None if value is None else converter.structure(value, str)
    )
    return converter


def _plain(value: Any, kind: type[Any]) -> Any:
    """A value as it stands, and no other made of it: "no" is no boolean, 2.5 no count, 1e999 no number."""
    numbers = (bool, int, float)
    same = type(value) is kind or (kind in numbers and type(value) in numbers and kind(value) == value)
    if not same or value in (math.inf, -math.inf):
        raise ValueError(f"must be {kind.__name__}, got {shortened(value)}")
    return kind(value)


def _items(converter: Any, value: Any, kind: Any) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise ValueError(f"must be a list, got {shortened(value)}")
    return tuple(converter.structure(value, list[get_args(kind)[0]]))  # type: ignore[misc]


def _is_tuple(kind: Any) -> bool:
    return get_origin(kind) is tuple


def _reason(error: BaseException, kind: Any) -> str:
    """What our own checks say; of other errors what cattrs makes of them."""
    import cattrs.v

    if type(error) is ValueError:
        return str(error).rstrip(".")
    reason = cattrs.v.format_exception(error, kind)
    return reason if reason.isprintable() else ascii(reason)


def _learner_as_dict(converter: Any, learner: Any) -> dict[str, Any]:
    kind = type(learner).__name__
    if type(learner) is LEARNERS.get(kind):
        return {"kind": kind, **converter.unstructure(learner, LEARNERS[kind])}
    # What is no dataclass shows its address, which no other process has.
    settings = repr(learner) if is_dataclass(learner) else ""
    return {"kind": f"{type(learner).__module__}:{kind}", "settings": settings}


def _learner_from_dict(converter: Any, value: dict[str, Any]) -> Learner:
    kind = value.get("kind")
    if kind not in LEARNERS:
        raise ValueError(
            f"the learner {kind!r} is none of MARCO's own ({', '.join(LEARNERS)}), and files run no code: "
            "go on with the run from Python, by marco.learn with the same config and out"
        )
    settings = {name: setting for name, setting in value.items() if name != "kind"}
    return converter.structure(settings, LEARNERS[kind])
