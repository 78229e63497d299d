"""The cells of a sweep: one setting in one environment, with all settings of its runs made out.

All are made before anything is run, so that no mistake in the file waits for hours.
"""

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from difflib import get_close_matches
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

from marco.api import default_test_episodes
from marco.checks import check_episodes, check_types
from marco.environments.base import Environment, HostWorld
from marco.environments.registry import defaults, full_name, make, runs_code
from marco.runs.choices import Choices
from marco.runs.config import RunConfig
from marco.runs.run import Run
from marco.sweeps.file import Settings, SweepFile, World

CHOICES = tuple(one.name for one in fields(Choices))
OWN = (*CHOICES, "episodes")
"""Settings that are options of `marco train` and no fields of a configuration."""
COLUMNS = {"method", "preset", "samples"}
"""Settings that have columns of their own in every table."""
LONGEST = 100
"""Of a folder's name."""


@dataclass(frozen=True)
class Cell:
    """One setting in one environment; its runs differ by their seeds alone."""

    name: str
    """The folder of its runs."""
    config: RunConfig
    varied: Settings
    """What it is told from others by: the columns of the table."""
    vectorised: bool = True
    """Whether several seeds can share a run."""

    def of_seeds(self, seeds: Sequence[int]) -> RunConfig:
        """The configuration of a run with these seeds."""
        return replace(self.config, seeds=tuple(seeds))


class Maker:
    """Makes cells; each environment is made once."""

    def __init__(self, file: SweepFile, trust: bool = False) -> None:
        self.file, self._trust = file, trust
        self._make = cache(self._made)

    def grid(self) -> list[Cell]:
        """All cells of the file's grid."""
        file = self.file
        variants: Iterable[tuple[str, Settings]] = file.variants.items() or [("", {})]
        cells = [
            self.cell(world, variant, settings, dict(zip(file.grid, values, strict=True)))
            for world, (variant, settings), values in product(
                file.worlds, variants, product(*file.grid.values())
            )
        ]
        return _with_different_names(cells)

    def cell(self, world: World, variant: str, settings: Settings, chosen: Settings, name: str = "") -> Cell:
        """A cell with the settings of the file, of the environment and the variant, and those chosen."""
        given = self.file.settings | world.settings | settings | chosen
        where = ", ".join([world.name, *([variant] if variant else []), *map(_pair, chosen.items())])
        try:
            config, env = self._config(world.name, given)
            Run(Path(), config, env).check()
        except ValueError as error:
            raise ValueError(f"{self.file.path}, {where}: {error}") from error
        varied = {column: _told(config, given, column) for column in self._columns}
        if self.file.variants:
            varied = {"variant": variant} | varied
        parts = [world.name, *map(_pair, world.settings.items()), variant, *map(_pair, chosen.items())]
        name = name or slug("-".join(part for part in parts if part))
        return Cell(name, config, varied, isinstance(env, Environment))

    @property
    def _columns(self) -> list[str]:
        """Every setting that is not the same for all."""
        file = self.file
        named = [*(world.settings for world in file.worlds), *file.variants.values(), file.grid]
        named += [dict.fromkeys(file.search.settings)] if file.search else []
        return list(dict.fromkeys(name for one in named for name in one if name not in COLUMNS))

    def _config(self, world: str, given: Settings) -> tuple[RunConfig, Environment | HostWorld]:
        own = {name: given[name] for name in OWN if name in given}
        of_env = {name.removeprefix("env."): value for name, value in given.items() if name[:4] == "env."}
        changes = {name: value for name, value in given.items() if name not in own and name[:4] != "env."}
        choices = _choices(own)
        env = self._make(world, tuple(of_env.items()))
        usual = choices.default(env)
        for name in changes:
            _refuse_unknown(name, [one.name for one in fields(usual)])
        changes = {name: _like(_leaf(usual, name), value) for name, value in changes.items()}
        episodes = own.get("episodes", default_test_episodes(env))
        check_episodes("episodes", episodes)
        config = RunConfig(
            world=full_name(world),
            method=choices.method,
            algorithm=choices.algorithm(env, changes),
            seeds=self.file.seeds[:1],
            test_episodes=episodes,
            world_settings=of_env,
            preset=choices.preset or "default",
        )
        return config, env

    def _made(self, world: str, settings: tuple[tuple[str, Any], ...]) -> Environment | HostWorld:
        """A file may be anyone's: the code that it names is run only if that is wanted."""
        if runs_code(world) and not self._trust:
            raise ValueError(
                f"{world!r} with the settings {dict(settings)} is code that would be run. If you want that, "
                "say --trust. Nothing was imported."
            )
        return make(world, **dict(settings))


def _choices(own: Settings) -> Choices:
    """The choices, each of its type; what they may not be together is refused as by `marco train`."""
    given = {name: value for name, value in own.items() if name in CHOICES}
    check_types("the sweep", given, {one.name: one.type for one in fields(Choices)})
    choices = Choices(**given)
    for name, least in (("samples", 1), ("evaluate_every", 1), ("restarts", 0)):
        if (value := getattr(choices, name)) is not None and value < least:
            raise ValueError(f"{name} must be at least {least}, got {value}.")
    only = {"model-free": ("evaluate_every",), "marco": ("restarts",)}
    for method, names in only.items():
        for name in names:
            if getattr(choices, name) is not None and choices.method != method:
                raise ValueError(f'{name} is for method = "{method}".')
    if choices.preset == "free-samples" and choices.method == "marco":
        raise ValueError('preset = "free-samples" is for method = "model-free".')
    return choices


def _refuse_unknown(name: str, of_config: list[str]) -> None:
    first = name.partition(".")[0]
    if first in of_config:
        return
    meant = get_close_matches(first, [*of_config, *OWN, "env"], 1, cutoff=0.5)
    hint = f"do you mean {meant[0]!r}?" if meant else "`marco train WORLD --help` lists them."
    raise ValueError(f"there is no setting {name!r}: {hint}")


def _leaf(config: Any, name: str) -> Any:
    """The value of a setting by its dotted name; None if there is none."""
    for part in name.split("."):
        if not is_dataclass(config):
            return None
        config = getattr(config, part, None)
    return config


def _like(usual: Any, value: Any) -> Any:
    """A whole number for a setting that is a number: lam = 2 is lam = 2.0."""
    return float(value) if isinstance(usual, float) and type(value) is int else value


def _told(config: RunConfig, given: Settings, name: str) -> Any:
    """The value of a setting, if it was chosen or not."""
    if name.startswith("env."):
        usual = {} if config.world is None else defaults(config.world)
        return given.get(name, usual.get(name.removeprefix("env."), ""))
    if name in OWN:
        return given.get(name, "")
    found = _leaf(config.algorithm, name)
    return given.get(name, "") if found is None or is_dataclass(found) else found


def _pair(setting: tuple[str, Any]) -> str:
    return f"{setting[0]}={_word(setting[1])}"


def _word(value: Any) -> str:
    return "x".join(map(str, value)) if isinstance(value, tuple) else str(value)


def slug(text: str) -> str:
    """A name of a folder on any system."""
    plain = re.sub(r"[^A-Za-z0-9.=_+-]+", "-", text).strip("-.")
    if len(plain) <= LONGEST and plain == text:
        return plain
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    return f"{plain[:LONGEST]}-{digest}"


def _with_different_names(cells: list[Cell]) -> list[Cell]:
    names = [cell.name for cell in cells]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"{name} is in the sweep {names.count(name)} times: leave one out.")
    return cells
