"""The policy file: written from a JAX policy, and read back into one.

`deploy` reads the same file with numpy alone.
"""

import json
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from marco.data.storage import save_arrays
from marco.networks import GRU, Dense, RecurrentNetwork, TeamNetwork
from marco.policies.base import RecurrentPolicy
from marco.policies.controller import FAR, ControllerPolicy
from marco.policies.deploy import FORMAT, TeamPolicy, load
from marco.types import Spec, action_table
from marco.units import Columns

LAYERS = {
    "encoder": lambda network: network.encoder,
    "input": lambda network: network.gru.from_input,
    "memory": lambda network: network.gru.from_memory,
    "head": lambda network: network.head,
}
"""The layers of a team's network by their names in a policy file."""


CONTROLLERS = ("actions", "successors", "observations")
"""The arrays of a planned team."""


def save_policy(path: Path, policy: RecurrentPolicy) -> None:
    """Write a team so that numpy alone can play it."""
    if policy.stochastic:
        raise ValueError(
            "a saved team acts greedily, and this one draws its actions: save `learner.greedy(...)`."
        )
    team = policy.network
    spec = team.spec
    arrays: dict[str, Any] = {"facts": _facts(spec, shared=team.share_parameters, factored=team.factored)}
    for name, part in LAYERS.items():
        layer = part(team.network)
        arrays |= {name: np.asarray(layer.weight), f"{name}_bias": np.asarray(layer.bias)}
    arrays["table"] = action_table(spec, team.factored)
    shape = (spec.num_agents, spec.observation_width)
    shift, scale = policy.columns or (np.zeros(shape), np.ones(shape))
    arrays |= {"shift": np.asarray(shift, np.float32), "scale": np.asarray(scale, np.float32)}
    arrays["sizes"] = np.array([spec.observation_width, spec.num_actions, spec.num_agents])
    save_arrays(path, arrays)


def save_controllers(path: Path, policy: ControllerPolicy) -> None:
    """Write a planned team so that numpy alone can play it; what is padding in it is left out."""
    actions, successors = np.asarray(policy.actions), np.asarray(policy.successors)
    known = np.asarray(policy.observations)
    nodes = int(successors.max()) + 1
    real = max(1, int((np.abs(known) < FAR).all(-1).sum(-1).max()))
    arrays = {
        "facts": _facts(policy.spec, kind="controllers"),
        "actions": actions[:, :, :nodes],
        "successors": successors[:, :, :nodes, :real],
        "observations": known[:, :real],
    }
    save_arrays(path, arrays)


def _facts(spec: Spec, **facts: Any) -> Any:
    """What a policy file says in words."""
    agents = [
        {
            "name": agent.name,
            "num_actions": agent.num_actions,
            "observation_width": agent.observation_width,
            "action_labels": [agent.action_label(action) for action in range(agent.num_actions)],
        }
        for agent in spec.agents
    ]
    return np.array(json.dumps({"format": FORMAT, "world": spec.name, **facts, "agents": agents}))


def load_policy(path: Path, spec: Spec, seed: int | None = None) -> RecurrentPolicy | ControllerPolicy:
    """A saved team, to be played in compiled environments with this spec."""
    team = load(path, seed)
    try:
        return as_policy(team, spec)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def as_policy(team: TeamPolicy, spec: Spec) -> RecurrentPolicy | ControllerPolicy:
    """A loaded team as a JAX policy."""
    arrays, facts = team.arrays, team.facts
    agents = facts["agents"]
    sizes = (
        max(agent["observation_width"] for agent in agents),
        max(agent["num_actions"] for agent in agents),
        len(agents),
    )
    needed = (spec.observation_width, spec.num_actions, spec.num_agents)
    if sizes != needed:
        raise ValueError(
            f"this team was trained in {facts['world']!r} with {sizes} observation dimensions, actions and "
            f"agents; {spec.name} has {needed}: evaluate it in an environment of the same shape."
        )
    if facts.get("kind") == "controllers":
        return ControllerPolicy(**{name: jnp.asarray(arrays[name]) for name in CONTROLLERS}, spec=spec)
    if not np.array_equal(arrays["table"], action_table(spec, facts["factored"])):
        raise ValueError(
            f"this team was trained in {facts['world']!r}, whose actions have other components than those of "
            f"{spec.name}: evaluate it in an environment of the same shape."
        )
    layers = {name: Dense(jnp.asarray(arrays[name]), jnp.asarray(arrays[f"{name}_bias"])) for name in LAYERS}
    network = RecurrentNetwork(layers["encoder"], GRU(layers["input"], layers["memory"]), layers["head"])
    team_network = TeamNetwork(network, spec, facts["shared"], facts["factored"])
    if not arrays["shift"].any() and (arrays["scale"] == 1.0).all():
        return RecurrentPolicy(team_network)
    columns = Columns(jnp.asarray(arrays["shift"]), jnp.asarray(arrays["scale"]))
    return RecurrentPolicy(team_network, columns=columns)
