"""What the learners reach in the true worlds, and how fast: `python benchmarks/learners.py STUDY ...`.

Curves are model-free training on a budget of samples; `free` studies train by the default recipe where
samples cost nothing. Every study is one JSON file under benchmarks/results/learners.
"""

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from marco.environments.registry import make, optimum
from marco.learners.mappo import MAPPO
from marco.learners.presets import default_recipe
from marco.learners.q_learning import QLearner
from marco.learners.seeds import seed_keys
from marco.learners.training import train_best
from marco.runs.model_free import ModelFree, judge
from record import RESULTS, provenance


class Curve(NamedTuple):
    """Model-free training: returns against samples."""

    world: str
    learner: Any
    samples: int
    every: int


class Free(NamedTuple):
    """The default recipe of a world, samples free."""

    world: str


PYMARL = {"learning_rate": 5e-4, "epsilon_anneal_steps": 50_000}
STUDIES: dict[str, Curve | Free] = {
    "switch-iql-paper": Curve("switch", QLearner("iql"), 250_000, 10_000),
    "switch-vdn-paper": Curve("switch", QLearner("vdn"), 250_000, 10_000),
    "switch-iql-tuned": Curve("switch", QLearner("iql", **PYMARL), 250_000, 10_000),
    "bridge-vdn-paper": Curve("bridge", QLearner("vdn"), 1_000_000, 50_000),
    "bridge-vdn-tuned": Curve("bridge", QLearner("vdn", **PYMARL), 1_000_000, 50_000),
    "reference-qmix-paper": Curve("reference", QLearner("qmix"), 1_000_000, 50_000),
    "reference-qmix-tuned": Curve("reference", QLearner("qmix", factored=True, **PYMARL), 1_000_000, 50_000),
    "reference-mappo-tuned": Curve(
        "reference",
        MAPPO(hidden=128, learning_rate=2e-3, episodes_per_update=32),
        1_000_000,
        50_000,
    ),
    "switch-free": Free("switch"),
    "reference-free": Free("reference"),
}


def run_curve(study: Curve, seeds: tuple[int, ...]) -> dict[str, Any]:
    """Train, and keep every evaluation."""
    env = make(study.world)
    curve = []
    for evaluation, _ in ModelFree(env, study.learner, seeds, study.samples, study.every).run():
        curve.append(evaluation._asdict())
        print(f"  {np.mean(evaluation.samples):>10.0f} samples: {_spread(evaluation.returns)}", flush=True)
    return {"learner": asdict(study.learner), "curve": curve}


def run_free(study: Free, seeds: tuple[int, ...]) -> dict[str, Any]:
    """Train by the default recipe twice: the second time is without compilation."""
    env = make(study.world)
    recipe = default_recipe(env.spec)
    over_seeds = jax.jit(
        jax.vmap(lambda key: train_best(key, env, recipe.learner, recipe.updates, recipe.restarts))
    )
    keys, seconds = seed_keys(seeds), []
    for _ in range(2):
        begin = time.perf_counter()
        best = jax.block_until_ready(over_seeds(keys))
        seconds.append(time.perf_counter() - begin)
    policies = [
        recipe.learner.greedy(jax.tree.map(lambda leaf, i=i: leaf[i], best.state.learner))
        for i in range(len(seeds))
    ]
    estimates = [judge(jax.random.key(1), env, policy, 20_000) for policy in policies]
    returns = [estimate.mean for estimate in estimates]
    print(f"  {_spread(returns)} in {seconds[1]:.1f} s", flush=True)
    return {
        "recipe": {"updates": recipe.updates, "restarts": recipe.restarts, "learner": asdict(recipe.learner)},
        "returns": returns,
        "standard_errors": [estimate.standard_error for estimate in estimates],
        "values_of_restarts": np.asarray(best.values).tolist(),
        "samples_per_seed": np.asarray(best.samples).tolist(),
        "seconds_with_compilation": seconds[0],
        "seconds": seconds[1],
    }


def _spread(returns: list[float]) -> str:
    return f"mean {np.mean(returns):.4f}, from {min(returns):.4f} to {max(returns):.4f}"


def main() -> None:
    """Run the named studies one after the other; each is written as soon as it is done."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("studies", nargs="+", choices=STUDIES, metavar="STUDY", help=", ".join(STUDIES))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--out", type=Path, default=RESULTS / "learners")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    for name in arguments.studies:
        study, seeds = STUDIES[name], tuple(range(arguments.seeds))
        print(f"{name}, {len(seeds)} seeds", flush=True)
        run: Callable[[Any, tuple[int, ...]], dict[str, Any]] = (
            run_curve if isinstance(study, Curve) else run_free
        )
        begin = time.perf_counter()
        found = run(study, seeds)
        facts = {"study": name, "world": study.world, "optimum": optimum(make(study.world)), "seeds": seeds}
        total = {"total_seconds": time.perf_counter() - begin}
        path = arguments.out / f"{name}.json"
        path.write_text(json.dumps({**provenance(), **facts, **found, **total}, indent=1) + "\n")


if __name__ == "__main__":
    main()
