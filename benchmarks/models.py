"""How well and how fast models are learned from random play, all seeds at once.

    python benchmarks/models.py switch --preset default [--seeds 10] [--sizes 250 500 ...] [--out FOLDER]
    python benchmarks/models.py reference --preset default [--sizes 10000 50000]

For `switch` the error is exact: the total variation between the model's next state and the true one over all
reachable pairs (s, a), and the model's probability of impossible next states. For `reference` it is the
distance between the agents' true and predicted positions, open loop: same start, same actions.
"""

import argparse
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from marco.algorithm.fit import fit_models, stack_data
from marco.algorithm.presets import default_model, paper_model
from marco.environments.registry import make
from marco.model import Centralised, ModelPlan
from marco.model.report.exact import dynamics_error, reachable_pairs
from marco.model.report.open_loop import open_loop_error
from marco.policies.base import RandomPolicy
from marco.rollout import rollouts
from record import MODELS, RESULTS, Results

SIZES = {"switch": [250, 500, 1_000, 2_500, 5_000, 10_000], "reference": [10_000, 50_000]}
STEPS = (1, 5, 10, 25)
TEST_EPISODES = 200


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


def first_episodes(played: Any, size: int) -> Any:
    """The first whole episodes with at most `size` steps in all."""
    fits = int(np.searchsorted(np.cumsum(played.mask.sum(0)), size, side="right"))
    return jax.tree.map(lambda leaf: leaf[:, :fits], played)


@jax.jit
def reward_error(model: Any, played: Any) -> jax.Array:
    """The mean absolute error of the reward on true steps, the members' mean."""
    members = jnp.linspace(0.0, 0.999, 5)

    def one(s: jax.Array, a: jax.Array, next_s: jax.Array) -> jax.Array:
        return jax.vmap(lambda member: model.expected_reward(member, s, a, next_s))(members).mean()

    predicted = jax.vmap(jax.vmap(one))(played.state[:-1], played.actions, played.state[1:])
    return jnp.abs(predicted - played.reward).mean()


def main() -> None:
    """Fit, measure, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("world", choices=list(SIZES))
    parser.add_argument("--preset", choices=["default", "paper"], default="default")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--sizes", type=int, nargs="*")
    parser.add_argument("--name", help="of the study; WORLD-PRESET by default")
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    env = make(given.world)
    config = (paper_model if given.preset == "paper" else default_model)(env.spec)
    plan = ModelPlan(Centralised(), config, env.spec)
    facts = {
        "study": given.name or f"{given.world}-{given.preset}",
        "world": given.world,
        "preset": given.preset,
    }
    for rows in study(env, plan, given.seeds, given.sizes or SIZES[given.world]):
        Results(given.out).add(MODELS, [facts | row for row in rows])


def study(env: Any, plan: ModelPlan, seeds: int, sizes: list[int]) -> Iterator[list[dict[str, Any]]]:
    """For each size of the data, the errors of every seed's model."""
    pairs = reachable_pairs(env) if env.spec.name == "switch" else None
    keys = jax.vmap(jax.random.key)(jnp.arange(seeds) + 1_000)
    played = random_play(env, seeds, max(sizes))
    for index, size in enumerate(sizes):
        data = [plan.gather(first_episodes(one, size), max(sizes)) for one in played]
        stacked, seconds = stack_data(data), []
        for _ in range(1 if index else 2):  # the very first compiles
            start = time.perf_counter()
            fitted, _ = jax.block_until_ready(fit_models(keys, stacked, plan))
            seconds.append(round(time.perf_counter() - start, 3))
        facts = {"size": size, "seconds": seconds[-1]}
        facts |= {} if index else {"seconds_with_compilation": seconds[0]}
        rows = [rows_of_seed for (rows_of_seed,) in data]
        models = [jax.tree.map(lambda leaf, seed=seed: leaf[seed], fitted.models[0]) for seed in range(seeds)]
        found = exact_errors(models, pairs, rows) if pairs else sampled_errors(models, env)
        yield [
            {**facts, "seed": seed, "samples": int(own.num_steps)}
            | {name: of[seed] for name, of in found.items()}
            for seed, own in enumerate(rows)
        ]
        means = {name: round(float(np.mean(values)), 5) for name, values in found.items()}
        print(f"{size:,} samples, {seconds[-1]:.2f} s: {means}", flush=True)


def exact_errors(models: list[Any], pairs: Any, data: list[Any]) -> dict[str, list[float]]:
    """Errors of the dynamics, one value per seed."""
    found = [dynamics_error(model, pairs, own) for model, own in zip(models, data, strict=True)]
    return {
        "total_variation": [float(error.total_variation.mean()) for error in found],
        "total_variation_worst": [float(error.total_variation.max()) for error in found],
        "impossible": [float(error.impossible.mean()) for error in found],
        "impossible_worst": [float(error.impossible.max()) for error in found],
        "pairs_never_seen": [int((error.seen == 0).sum()) for error in found],
    }


def sampled_errors(models: list[Any], env: Any) -> dict[str, list[float]]:
    """Errors of positions and rewards on episodes of random play, one value per seed."""
    key = jax.random.key(10_000)
    loops = [open_loop_error(key, model, env, RandomPolicy(), TEST_EPISODES, max(STEPS)) for model in models]
    places = [i for i, name in enumerate(loops[0].features) if name.startswith("position")]
    tests = rollouts(key, env, RandomPolicy(), TEST_EPISODES)
    by_step = {
        f"position_error_{step}": [
            float(np.mean([loop.error[i][step - 1] for i in places])) for loop in loops
        ]
        for step in STEPS
    }
    return {**by_step, "reward_error": [float(reward_error(model, tests)) for model in models]}


if __name__ == "__main__":
    main()
