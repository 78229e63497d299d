"""How well and how fast models are learned from random play, all seeds at once.

    python benchmarks/models.py switch --preset default [--seeds 10] [--sizes 250 500 ...] [--out FOLDER]
    python benchmarks/models.py reference --preset default [--sizes 10000 50000]

For `switch` the error is exact: the total variation between the model's next state and the true one over all
reachable pairs (s, a), and the model's probability of next states that cannot be. For `reference` it is the
distance between where agents are and where the model has them, fed the same actions from the same start.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from marco.environments.registry import make
from marco.learners.presets import model_settings
from marco.model.fit import fit
from marco.model.report.exact import dynamics_error, reachable_pairs
from marco.model.rows import gather
from marco.policies.base import RandomPolicy
from marco.rollout import rollouts
from record import RESULTS, provenance

SIZES = {"switch": [250, 500, 1_000, 2_500, 5_000, 10_000], "reference": [10_000, 50_000]}
STEPS = (1, 5, 10, 25)


def random_play(env: Any, seeds: int, size: int) -> list[Any]:
    """For each seed, episodes of random play with at least `size` steps in all."""
    episodes = size // env.spec.horizon
    while True:
        keys = jax.vmap(jax.random.key)(jnp.arange(seeds))
        play = jax.jit(jax.vmap(lambda key, count=episodes: rollouts(key, env, RandomPolicy(), count)))
        played = jax.tree.map(np.asarray, play(keys))
        if played.mask.sum((1, 2)).min() >= size:
            return [jax.tree.map(lambda leaf, seed=seed: leaf[seed], played) for seed in range(seeds)]
        episodes *= 2


def samples(env: Any, played: Any, size: int, capacity: int) -> Any:
    """The first whole episodes with at most `size` steps in all."""
    fits = int(np.searchsorted(np.cumsum(played.mask.sum(0)), size, side="right"))
    return gather(env.spec, jax.tree.map(lambda leaf: leaf[:, :fits], played), capacity)


def open_loop(model: Any, played: Any, key: jax.Array) -> jax.Array:
    """The mean distance of the agents from where the model has them, after each step of true actions."""

    def one(key: jax.Array, states: jax.Array, actions: jax.Array) -> jax.Array:
        def step(s: jax.Array, given: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            key_draw, key_member = jax.random.split(given[0])
            s = model.draw_following(key_draw, jax.random.uniform(key_member), s, given[1])
            return s, s

        imagined = jax.lax.scan(step, states[0], (jax.random.split(key, len(actions)), actions))[1]
        return imagined - states[1:]

    keys = jax.random.split(key, played.reward.shape[1])
    error = jax.vmap(one, (0, 1, 1), 1)(keys, played.state, played.actions)
    places = error[..., np.array([[0, 1], [4, 5]])]
    return jnp.sqrt(jnp.square(places).sum(-1)).mean((1, 2))


def reward_error(model: Any, played: Any) -> jax.Array:
    """The mean absolute error of the reward on true steps, the members' mean."""
    members = jnp.linspace(0.0, 0.999, 5)

    def one(s: jax.Array, a: jax.Array, following: jax.Array) -> jax.Array:
        return jax.vmap(lambda member: model.expected_reward(member, s, a, following))(members).mean()

    said = jax.vmap(jax.vmap(one))(played.state[:-1], played.actions, played.state[1:])
    return jnp.abs(said - played.reward).mean()


def main() -> None:
    """Learn, measure, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("world", choices=list(SIZES))
    parser.add_argument("--preset", choices=["default", "paper"], default="default")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--sizes", type=int, nargs="*")
    parser.add_argument("--out", type=Path, default=RESULTS / "models")
    arguments = parser.parse_args()
    env, sizes = make(arguments.world), arguments.sizes or SIZES[arguments.world]
    settings = model_settings(arguments.preset, env.spec)
    fit_all = jax.jit(jax.vmap(lambda key, data: fit(key, env.spec, data, settings)))
    pairs = reachable_pairs(env) if arguments.world == "switch" else None
    tests = None if pairs else rollouts(jax.random.key(10_000), env, RandomPolicy(), 200)
    keys = jax.vmap(jax.random.key)(jnp.arange(arguments.seeds) + 1_000)
    rows, played = [], random_play(env, arguments.seeds, max(sizes))
    for size in sizes:
        data = [samples(env, one, size, max(sizes)) for one in played]
        stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *data)
        seconds = []
        for _ in range(1 if rows else 2):  # the very first compiles
            start = time.perf_counter()
            models, reports = jax.block_until_ready(fit_all(keys, stacked))
            seconds.append(time.perf_counter() - start)
        row = {
            "samples": [int(one.num_steps) for one in data],
            "seconds": seconds,
            "updates": {name: np.asarray(report.updates).tolist() for name, report in reports.items()},
            "loss": {name: np.asarray(report.loss).tolist() for name, report in reports.items()},
        }
        row |= exact(models, pairs, data) if pairs else numbers(models, tests)
        rows.append(row)
        shown = {name: value for name, value in row.items() if name not in ("updates", "loss", "samples")}
        print(size, json.dumps(shown), flush=True)
    facts = {**provenance(), "world": arguments.world, "preset": arguments.preset, "rows": rows}
    arguments.out.mkdir(parents=True, exist_ok=True)
    path = arguments.out / f"{arguments.world}-{arguments.preset}.json"
    path.write_text(json.dumps(facts, indent=1) + "\n")


def exact(models: Any, pairs: Any, data: list[Any]) -> dict[str, Any]:
    """Errors of the dynamics, one number per seed."""
    found = [
        dynamics_error(jax.tree.map(lambda leaf, seed=seed: leaf[seed], models), pairs, one)
        for seed, one in enumerate(data)
    ]
    return {
        "total_variation": [float(error.total_variation.mean()) for error in found],
        "total_variation_worst_pair": [float(error.total_variation.max()) for error in found],
        "impossible": [float(error.impossible.mean()) for error in found],
        "impossible_worst_pair": [float(error.impossible.max()) for error in found],
        "pairs_never_seen": [int((error.seen == 0).sum()) for error in found],
    }


def numbers(models: Any, tests: Any) -> dict[str, Any]:
    """Errors of places and rewards, one number per seed."""
    loops = np.asarray(jax.jit(jax.vmap(lambda m: open_loop(m, tests, jax.random.key(3))))(models))
    rewards = jax.jit(jax.vmap(lambda model: reward_error(model, tests)))(models)
    by_step = {str(step): loops[:, step - 1].tolist() for step in STEPS}
    return {"position_error": by_step, "reward_error": np.asarray(rewards).tolist()}


if __name__ == "__main__":
    main()
