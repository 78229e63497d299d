"""One way to name an environment: `make` gives it as an Environment, `problem` as the tables of a Dec-POMDP.

A name is one of the catalogue, a .dpomdp file, `jaxmarl:NAME`, or a function of the user's own, as
`package.module:function` or `path/to/file.py:function`. Each leads to a function, and whatever that returns
is adapted.
"""

import sys
import weakref
from collections.abc import Callable, Collection
from contextlib import nullcontext, suppress
from difflib import get_close_matches
from functools import partial
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from marco.checks import check_types
from marco.environments.base import Environment, FiniteEnvironment, HostWorld
from marco.environments.catalogue import CATALOGUE
from marco.environments.settings import check_annotated, check_names, defaults_of, parameters_of
from marco.environments.user_code import call, noted
from marco.optional import require
from marco.tabular.problem import DecPOMDP
from marco.types import Spec

ADAPTED = ("horizon", "reward", "state")
"""Settings of the adapters, for environments that do not take them themselves."""
FILES = (".dpomdp", ".dpomdp.gz")


def make(name: str, /, **settings: Any) -> Environment | HostWorld:
    """An environment by its name, with settings of its own: `make("switch", agents=4)`.

    A setting that the function of the name does not take itself may be one of the adapters': `horizon` and
    `reward` (and `state`, PettingZoo only).
    """
    function = function_at(name)
    default = {"horizon": CATALOGUE[name].horizon} if _is_table(name) else {}
    made, left, accepted = _made(name, function, default | settings)
    env, adapted = _adapt(made, name, left)
    check_names(name, left, (*accepted, *adapted))
    with nullcontext() if _is_ours(name) else noted(f"spec of {name}"):
        env.spec  # noqa: B018  (a bad size is refused here, not at the first step)
    with suppress(TypeError):  # some objects cannot be remembered, and need not be
        _NAMES[id(env)] = (weakref.ref(env), full_name(name), settings)
        weakref.finalize(env, _NAMES.pop, id(env), None)
    return env


_NAMES: dict[int, tuple[Any, str, dict[str, Any]]] = {}
"""How the environments that `make` gave were named, by identity."""


def name_of(env: Environment | HostWorld) -> tuple[str | None, dict[str, Any]]:
    """The name and the settings by which `make` gave this environment; None if it was made otherwise."""
    made, name, settings = _NAMES.get(id(env), (lambda: None, "", {}))
    return (name, settings) if made() is env else (None, {})


def problem(name: str, /, **settings: Any) -> DecPOMDP:
    """The tables of a finite environment by its name, for planners."""
    table = CATALOGUE[name].table if name in CATALOGUE else None
    made, left, accepted = _made(name, function_at(table or name), settings)
    check_names(name, left, accepted)
    if isinstance(made, DecPOMDP):
        return made
    if isinstance(made, FiniteEnvironment):
        from marco.tabular.convert import from_environment

        return from_environment(made)
    raise ValueError(
        f"{name} cannot be written as a table, since its random outcomes cannot be enumerated: "
        "give a .dpomdp file, a DecPOMDP or a FiniteEnvironment."
    )


def full_name(name: str) -> str:
    """The name as it is understood anywhere: a file by its whole path."""
    file, _, function = name.rpartition(":")
    if file.endswith(".py"):
        return f"{_path(file).resolve()}:{function}"
    return str(_path(name).resolve()) if _is_file(name) else name


def defaults(name: str) -> dict[str, Any]:
    """The settings that an environment has if none are given, as config.json holds them.

    An environment with a default given is the same as without.
    """
    own = defaults_of(function_at(name))
    return {"horizon": CATALOGUE[name].horizon, **own} if _is_table(name) else own


def runs_code(name: str) -> bool:
    """Whether a name leads to code that is neither MARCO's nor JaxMARL's: a folder may be anyone's."""
    return not _is_ours(name) and name.rpartition(":")[0] not in ("", "jaxmarl")


def refuse_code(name: str, settings: dict[str, Any], source: str, naming: str) -> None:
    """Refuse a name out of a file if it runs code, and show what would be run; `naming` is one cure."""
    if runs_code(name):
        raise ValueError(
            f"{source} would run code: {name!r} with the settings {settings}. If you want that, name it "
            f"({naming}) or trust it (--trust). Nothing was imported."
        )


def function_at(name: str) -> Callable[..., Any]:
    """The function that a name leads to."""
    if not isinstance(name, str):
        raise ValueError(f"an environment is named by a word, as 'switch', got {name!r}.")
    if name in CATALOGUE:
        return function_at(CATALOGUE[name].path)
    if _is_file(name):
        from marco.tabular.dpomdp.format import read

        return partial(read, _path(name))
    module, colon, function = name.rpartition(":")
    if not colon:
        raise ValueError(_unknown(name))
    if module == "jaxmarl":
        return _jaxmarl_maker(function)
    return _member(name, _module(module, name), function)


def _made(
    name: str, function: Callable[..., Any], settings: dict[str, Any]
) -> tuple[Any, dict[str, Any], Collection[str]]:
    """What the function returns, the settings left for an adapter, and the names of those it takes."""
    named, takes_any = parameters_of(function)
    left = {key: value for key, value in settings.items() if key in ADAPTED and key not in named}
    own = {key: value for key, value in settings.items() if key not in left}
    if not takes_any:
        check_names(name, own, named)
    check_annotated(name, own, named)
    check_types(name, left, {"horizon": int})
    made = function(**own) if _is_ours(name) else call(function, own, name)
    return made, left, tuple(named)


def _adapt(made: Any, name: str, settings: dict[str, Any]) -> tuple[Environment | HostWorld, Collection[str]]:
    """Whatever a function returned as an environment, and which settings its adapter takes."""
    if isinstance(made, Environment):
        return made, ()
    if isinstance(made, DecPOMDP):
        return _table_environment(made, name, **settings), ("horizon",)
    if _is_pettingzoo(made):
        from marco.environments.adapters.pettingzoo import PettingZooWorld

        return PettingZooWorld(made, **settings), ADAPTED
    if callable(getattr(made, "step_env", None)):
        from marco.environments.adapters.jaxmarl import JaxMARLWorld

        takes = ("horizon", "reward")
        check_names(name, settings, takes)
        return JaxMARLWorld(made, **settings), takes
    with noted(f"spec of {name}"):
        is_host = isinstance(made, HostWorld) and isinstance(made.spec, Spec)
    if is_host:
        return made, ()
    raise ValueError(
        f"{name} returned {made!r}, which is no environment: return an Environment or a HostWorld of marco, "
        "a DecPOMDP, a PettingZoo ParallelEnv, or a JaxMARL environment."
    )


def _table_environment(table: DecPOMDP, name: str, **settings: Any) -> Environment:
    check_names(name, settings, ("horizon",))
    if "horizon" not in settings:
        raise ValueError(
            f"{name} does not say how long an episode lasts: give horizon=, its number of steps."
        )
    return table.environment(settings["horizon"])


def _is_pettingzoo(made: Any) -> bool:
    # Whoever made one has imported PettingZoo; nobody else needs it.
    zoo = sys.modules.get("pettingzoo")
    return zoo is not None and isinstance(made, zoo.ParallelEnv | zoo.AECEnv)


def _is_ours(name: str) -> bool:
    """Whether no code but MARCO's makes the environment."""
    return name in CATALOGUE or _is_file(name)


def _is_file(name: str) -> bool:
    """Whether a name is that of a .dpomdp file, whatever it ends in."""
    return name.endswith(FILES) or (not name.endswith(".py") and ":" not in name and _path(name).is_file())


def _path(name: str) -> Path:
    """A path, with ~ for the home of the user; of a user who has none it is a name like any other."""
    try:
        return Path(name).expanduser()
    except RuntimeError:
        return Path(name)


def _is_table(name: str) -> bool:
    return name in CATALOGUE and CATALOGUE[name].kind == "table"


def _unknown(name: str) -> str:
    if meant := get_close_matches(name, CATALOGUE, 1):
        return f"unknown environment {name!r}: do you mean {meant[0]!r}?"
    if name.endswith(".py"):
        return f"{name!r} names a file, but no function in it: write {name}:function."
    if "." in name or "/" in name:
        return (
            f"{name!r} names no function: write package.module:function, as in "
            "mpe2.simple_spread_v3:parallel_env, or give a .dpomdp file."
        )
    return (
        f"unknown environment {name!r}: there are {', '.join(CATALOGUE)}; for your own give "
        "package.module:function, path/to/file.py:function or a .dpomdp file, for JaxMARL's jaxmarl:NAME."
    )


def _jaxmarl_maker(name: str) -> Callable[..., Any]:
    jaxmarl = require("jaxmarl", "jaxmarl")
    known = list(jaxmarl.registered_envs)
    if name not in known:
        meant = get_close_matches(name, known, 1)
        cure = f"do you mean 'jaxmarl:{meant[0]}'?" if meant else f"it has {', '.join(known)}."
        raise ValueError(f"JaxMARL has no environment {name!r}: {cure}")
    return partial(jaxmarl.make, name)


def _member(path: str, module: ModuleType, name: str) -> Callable[..., Any]:
    function: Callable[..., Any] | None = getattr(module, name, None)
    if not callable(function):
        offered = [key for key, value in vars(module).items() if key[0] != "_" and callable(value)]
        raise ValueError(
            f"{path!r}: module {module.__name__!r} has no function {name!r}. It offers {offered}."
            f"{_meant(name, offered)}"
        )
    return function


def _meant(name: str, offered: list[str]) -> str:
    meant = get_close_matches(name, offered, 1)
    return f" Do you mean {meant[0]!r}?" if meant else ""


def _module(name: str, path: str) -> ModuleType:
    if name.endswith(".py"):
        return _module_in_file(_path(name), path)
    if not all(part.isidentifier() for part in name.split(".")):
        hint = _meant(path, [path.replace(":", ".py:")] if Path(f"{name}.py").is_file() else [])
        raise ValueError(
            f"{path!r} names no function: write package.module:function or path/to/file.py:function.{hint}"
        )
    if "" not in sys.path and not name.startswith("marco."):
        sys.path.insert(0, "")  # a module of the user's own is looked for here first, as python itself does
    try:
        with noted(f"import {name}"):
            return import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise  # The module is there; something that it imports is not.
        raise ValueError(
            f"{path!r}: there is no module {error.name!r}. Install it or correct the path. A function in a "
            "file is path/to/file.py:function."
        ) from error


def _module_in_file(file: Path, path: str) -> ModuleType:
    if not file.is_file():
        hint = _meant(file.name, [one.name for one in file.parent.glob("*.py")])
        raise ValueError(f"{path!r}: there is no file {str(file)!r}. Correct the path.{hint}")
    # Under its full path, so that it is loaded once and hides no installed module of the same name.
    name, folder = str(file.resolve()), str(file.resolve().parent)
    if name in sys.modules:
        return sys.modules[name]
    if folder not in sys.path:
        sys.path.insert(0, folder)  # its neighbours are found, as python itself does for a script
    found = spec_from_file_location(name, file)
    assert found is not None
    assert found.loader is not None
    module = module_from_spec(found)
    sys.modules[name] = module
    try:
        with noted(f"import {file}"):
            found.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
