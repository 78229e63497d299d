"""The folder of a run: its settings, its metrics, and its policies, one per seed.

config.json         all settings, the command and the versions
metrics.jsonl       one line per evaluation; lists hold one number per seed
policy/seed-S.npz   the team as it was at the last evaluation; `marco.load` reads it
"""

import json
import os
import platform
import shlex
import sys
from contextlib import suppress
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from marco.data.storage import naming, save_arrays, write_atomically
from marco.learners.base import Learner
from marco.policies.base import RecurrentPolicy
from marco.networks import GRU, Dense, RecurrentNetwork, TeamNetwork
from marco.types import action_table
from marco.policies.deploy import FORMAT
from marco.types import Spec

LIBRARIES = ("marco-marl", "jax", "jaxlib", "equinox", "optax", "numpy")

WEIGHTS = {
    "encoder": lambda network: network.encoder,
    "input": lambda network: network.gru.from_input,
    "memory": lambda network: network.gru.from_memory,
    "head": lambda network: network.head,
}
"""The parts of a team's network by their names in a policy file."""


def check_free(path: Path) -> None:
    """Refuse a folder that holds anything."""
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise ValueError(f"{path} exists already: choose another --out, or remove it.")


def create_run(path: Path, settings: dict[str, Any], learner: Learner) -> None:
    """Write down what will happen in a folder, which is made if need be: this makes a run of it."""
    (path / "policy").mkdir(parents=True)
    facts = {
        "format": FORMAT,
        "command": shlex.join(["marco", *sys.argv[1:]]),
        "versions": {"python": platform.python_version()} | {name: version(name) for name in LIBRARIES},
        **settings,
        "learner": {"kind": type(learner).__name__, **asdict(learner)},  # type: ignore[call-overload]
    }
    write_atomically(path / "config.json", (json.dumps(facts, indent=1) + "\n").encode())


def read_config(path: Path) -> dict[str, Any]:
    """What `create_run` wrote down."""
    file = path / "config.json"
    try:
        return json.loads(file.read_text())
    except FileNotFoundError as error:
        raise ValueError(f"{path} is no run: it has no config.json.") from error
    except ValueError as error:
        raise ValueError(f"{file} is damaged: {error}") from error


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The lines that `append_metrics` wrote; one torn by a crash is left out."""
    file, rows = path / "metrics.jsonl", []
    for line in file.read_text().splitlines() if file.exists() else ():
        with suppress(ValueError):
            rows.append(json.loads(line))
    return rows


def append_metrics(path: Path, metrics: dict[str, Any]) -> None:
    """Add a line to the metrics; it is on the disk when this returns."""
    whole = path / "metrics.jsonl"
    with naming(whole), whole.open("a") as file:
        file.write(json.dumps(metrics, allow_nan=False) + "\n")
        file.flush()
        os.fsync(file.fileno())


def save_policy(path: Path, policy: RecurrentPolicy) -> None:
    """Write a team so that numpy alone can play it."""
    team = policy.network
    spec, network = team.spec, team.network
    agents = [
        {
            "name": agent.name,
            "num_actions": agent.num_actions,
            "observation_width": agent.observation_width,
            "action_labels": [agent.action_label(action) for action in range(agent.num_actions)],
        }
        for agent in spec.agents
    ]
    facts = {"format": FORMAT, "world": spec.name, "shared": team.share_parameters, "factored": team.factored}
    arrays: dict[str, Any] = {"facts": np.array(json.dumps({**facts, "agents": agents}))}
    for name, part in WEIGHTS.items():
        layer = part(network)
        arrays |= {name: np.asarray(layer.weight), f"{name}_bias": np.asarray(layer.bias)}
    arrays["table"] = action_table(spec, team.factored)
    arrays["sizes"] = np.array([spec.observation_width, spec.num_actions, spec.num_agents])
    save_arrays(path, arrays)


def load_policy(path: Path, spec: Spec) -> RecurrentPolicy:
    """A saved team for play in compiled worlds of the given shape."""
    with np.load(path, allow_pickle=False) as archive:
        facts = json.loads(str(archive["facts"]))
        layers = {
            name: Dense(jnp.asarray(archive[name]), jnp.asarray(archive[f"{name}_bias"])) for name in WEIGHTS
        }
        sizes = tuple(int(size) for size in archive["sizes"])
    if sizes != (spec.observation_width, spec.num_actions, spec.num_agents):
        raise ValueError(f"{path} was trained in a world of another shape than {spec.name}.")
    network = RecurrentNetwork(layers["encoder"], GRU(layers["input"], layers["memory"]), layers["head"])
    return RecurrentPolicy(TeamNetwork(network, spec, facts["shared"], facts["factored"]))
