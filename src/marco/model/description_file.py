"""Descriptions as files: JSON or TOML, written by runs and by hand.

`state` is a list of features, and `agents` has one for each agent, by its name; what is left out is found
out from data. A feature has a name (`feature`) and its `columns`, counted from 0. With `values` it has a
class for each value (a list of numbers where there are several columns); a single value is a constant.
"""

import json
import tomllib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from marco.model.description import Description, Row
from marco.model.parts import Part
from marco.types import Spec


@dataclass(frozen=True)
class GivenDescription:
    """What somebody says of an environment's columns, or of some of them."""

    state: tuple[Part, ...] | None = None
    agents: tuple[tuple[str, tuple[Part, ...]], ...] = ()

    def over(self, found: Description, spec: Spec) -> Description:
        """The description `found`, with what is given in its place; refused if it does not fit the spec."""
        state, own = found.state, dict(zip((agent.name for agent in spec.agents), found.agents, strict=True))
        if self.state is not None:
            state = _row("state", spec.state_width, self.state)
            if not state.features:
                raise ValueError("the description of the state has only constants: a model needs a feature.")
        for name, parts in self.agents:
            if name not in own:
                raise ValueError(f"the description names agent {name!r}: {spec.name} has {', '.join(own)}.")
            own[name] = _row(f"agent {name!r}", own[name].width, parts)
        return Description(state, tuple(own.values()))


def as_json(description: Description, spec: Spec) -> dict[str, Any]:
    """A description in plain dictionaries, lists and numbers."""
    agents = zip(spec.agents, description.agents, strict=True)
    return {
        "state": [_plain(part) for part in description.state.parts],
        "agents": {agent.name: [_plain(part) for part in row.parts] for agent, row in agents},
    }


def given_as_json(given: GivenDescription) -> dict[str, Any]:
    """What was given in plain dictionaries, lists and numbers."""
    state = {} if given.state is None else {"state": [_plain(part) for part in given.state]}
    return state | {"agents": {name: [_plain(part) for part in parts] for name, parts in given.agents}}


def from_json(facts: Any) -> GivenDescription:
    """The description in plain dictionaries and lists; refused by name if it is none."""
    if not isinstance(facts, dict) or not facts or set(facts) - {"state", "agents"}:
        raise ValueError(f"a description has `state` or `agents`, or both, got {_short(facts)}.")
    agents = facts.get("agents", {})
    if not isinstance(agents, dict):
        raise ValueError(f"`agents` has a list of features for each agent by name, got {_short(agents)}.")
    state = _parts("state", facts["state"]) if "state" in facts else None
    return GivenDescription(state, tuple((name, _parts(name, parts)) for name, parts in agents.items()))


def read_description(path: Path) -> GivenDescription:
    """The description in a file, of which the name ends in .toml or .json."""
    try:
        raw = path.read_bytes().decode()
        facts = tomllib.loads(raw) if path.suffix == ".toml" else json.loads(raw)
    except OSError as error:
        raise ValueError(f"the description {path} cannot be read: {error.strerror}.") from error
    except (ValueError, RecursionError) as error:
        kind = "TOML" if path.suffix == ".toml" else "JSON (call a file of TOML something.toml)"
        raise ValueError(f"the description {path} is no {kind}: {error}.") from error
    try:
        return from_json(facts)
    except ValueError as error:
        raise ValueError(f"the description {path} cannot be used: {error}") from error


def _plain(part: Part) -> dict[str, Any]:
    shown = {field.name: getattr(part, field.name) for field in fields(part)}
    values = [row[0] if len(row) == 1 else list(row) for row in part.values]
    listed = {name: list(value) for name, value in shown.items() if isinstance(value, tuple)}
    return {name: value for name, value in (shown | listed | {"values": values}).items() if value}


def _parts(where: str, given: Any) -> tuple[Part, ...]:
    if not isinstance(given, list) or not all(isinstance(one, dict) for one in given):
        raise ValueError(f"{where} must be a list of features, got {_short(given)}.")
    return tuple(_part(where, one) for one in given)


def _part(where: str, given: dict[str, Any]) -> Part:
    known = [field.name for field in fields(Part)]
    if strange := sorted(set(given) - set(known)):
        raise ValueError(f"{where}: a feature has no {strange[0]!r}, only {', '.join(known)}.")
    name, columns = given.get("feature"), given.get("columns")
    if not isinstance(name, str) or not name.isprintable() or not _are(int, columns):
        raise ValueError(f"{where}: a feature needs a name (feature) and columns, got {_short(given)}.")
    values = [[one] if _are(float, [one]) else one for one in _list(where, name, given, "values")]
    if not all(_are(float, row) for row in values):
        raise ValueError(f"{where}: the values of {name!r} must be numbers, or lists of them.")
    labels = _list(where, name, given, "labels")
    flags = {key: given.get(key, False) for key in ("absent", "vector")}
    others = {key: _list(where, name, given, key) for key in ("repeats", "plus", "minus")}
    plain = all(isinstance(one, str) for one in labels) and all(type(one) is bool for one in flags.values())
    if not plain or not all(_are(int, listed) for listed in others.values()):
        kinds = ", ".join(("labels", *others, *flags))
        raise ValueError(f"{where}: {name!r} has one of {kinds} of another kind: {_short(given)}.")
    rows = tuple(tuple(map(float, row)) for row in values)
    rest: dict[str, Any] = flags | {key: tuple(listed) for key, listed in others.items()}
    try:
        return Part(name, tuple(columns or ()), rows, tuple(labels), **rest)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error


def _row(where: str, width: int, parts: tuple[Part, ...]) -> Row:
    try:
        return Row(width, parts)
    except ValueError as error:
        raise ValueError(f"the description of {where} does not fit its {width} columns: {error}") from error


def _list(where: str, name: str, given: dict[str, Any], key: str) -> list[Any]:
    found = given.get(key, [])
    if not isinstance(found, list):
        raise ValueError(f"{where}: {key} of {name!r} must be a list, got {_short(found)}.")
    return found


def _are(kind: type, values: Any) -> bool:
    """Whether these are whole numbers, or numbers of any kind."""
    kinds = (int,) if kind is int else (int, float)
    return isinstance(values, list) and all(type(one) in kinds for one in values)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
