"""What the learners reach in the true environments, and how fast.

    python benchmarks/learners.py STUDY ... [--seeds 10] [--out FOLDER]

Curves are model-free training on a budget of samples (`model_free.csv`, a row per evaluation and seed).
`free` studies train the best of several teams where samples cost nothing (`free_samples.csv`, a row per
seed).
"""

import argparse
import time
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from marco.algorithm.model_free import ModelFree, ModelFreeConfig
from marco.environments.base import Environment
from marco.environments.registry import make
from marco.evaluation import evaluate
from marco.learners.base import Learner
from marco.learners.mappo import MAPPO
from marco.learners.parallel import stack_seeds
from marco.learners.presets import make_learner
from marco.learners.q_learning import QLearner
from marco.learners.restarts import RestartKeys, race, restart_keys, winning_policy, winning_value
from marco.policies.base import Policy
from marco.types import Spec
from record import FREE, MODEL_FREE, RESULTS, Results, Row


class Curve(NamedTuple):
    """Model-free training: return against samples."""

    world: str
    learner: Learner
    samples: int
    every: int


class Free(NamedTuple):
    """The preset `free-samples`, where samples are free."""

    world: str
    updates: int = 3_000


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


def run_curve(name: str, study: Curve, seeds: tuple[int, ...], results: Results) -> None:
    """Train; every evaluation is written at once."""
    config = ModelFreeConfig(study.learner, study.samples, study.every)
    learner, preset = name.split("-")[1:]
    facts: Row = {"study": name, "world": study.world, "learner": learner, "preset": preset}
    begin = time.perf_counter()
    for index, (event, _) in enumerate(ModelFree(make(study.world), config, seeds).run()):
        found, seconds = event.metrics, round(time.perf_counter() - begin, 2)
        facts |= {"budget": min(study.samples, (index + 1) * study.every), "seconds": seconds}
        of_seed = zip(seeds, found["samples"], found["return"], found["test_steps"], strict=True)
        rows = [
            {**facts, "seed": seed, "samples": samples, "return": mean, "exact": not test_steps}
            for seed, samples, mean, test_steps in of_seed
        ]
        results.add(MODEL_FREE, rows)
        print(f"  {np.mean(found['samples']):>10.0f} samples: {_spread(found['return'])}", flush=True)


def run_free(name: str, study: Free, seeds: tuple[int, ...], results: Results) -> None:
    """Train twice: the second time is without compilation."""
    env = make(study.world)
    learner, restarts = free_team(env.spec)
    seconds = []
    for _ in range(2):
        begin = time.perf_counter()
        teams = train_free(env, learner, restarts, study.updates, seeds)
        seconds.append(round(time.perf_counter() - begin, 2))
    values, samples = teams.values, teams.samples
    estimates = [evaluate(env, policy, 20_000, seed=1) for policy in teams.policies]
    print(f"  {_spread([estimate.mean for estimate in estimates])} in {seconds[1]:.1f} s", flush=True)
    facts = {"study": name, "world": study.world, "learner": getattr(learner, "mixer", "mappo")}
    facts |= {"restarts": restarts, "updates": study.updates}
    facts |= {"seconds": seconds[1], "seconds_with_compilation": seconds[0]}
    rows = [
        {**facts, "seed": seed, "samples": used, "return": estimate.mean, "exact": estimate.exact}
        | {"lowest_restart": of.min(), "highest_restart": of.max()}
        for seed, estimate, used, of in zip(seeds, estimates, samples, values, strict=True)
    ]
    results.add(FREE, rows)


class FreeTeams(NamedTuple):
    """The best team of each seed, the value of each of its restarts, and the samples of all together."""

    policies: list[Policy]
    values: np.ndarray
    samples: np.ndarray


def train_free(
    env: Environment, learner: Learner, restarts: int, updates: int, seeds: tuple[int, ...]
) -> FreeTeams:
    """Train several teams in the true environment, and keep the best of each seed."""
    each = restart_keys(jnp.stack([jax.random.key(seed) for seed in seeds]), restarts)
    # As if every restart were a seed of its own: so the value of each is known.
    keys, envs = RestartKeys(*(key.reshape(-1, 1) for key in each)), stack_seeds([env] * each.init.size)
    *_, last = race(keys, lambda progress: envs, envs, (learner,), updates)
    values, samples = winning_value(last.best).reshape(-1, restarts), last.steps.reshape(-1, restarts).sum(-1)
    best = [winning_policy(last.best, i * restarts + int(of.argmax())) for i, of in enumerate(values)]
    return FreeTeams(best, values, samples)


def free_team(spec: Spec) -> tuple[Learner, int]:
    """The learner of the preset `free-samples`, and of how many teams the best is kept.

    One QMIX team in five gets stuck on the riddle; of MAPPO's on `reference` none of ten did.
    """
    learner = make_learner("free-samples", spec)
    return learner, 1 if isinstance(learner, MAPPO) else 4


def _spread(returns: list[float]) -> str:
    return f"mean {np.mean(returns):.4f}, from {min(returns):.4f} to {max(returns):.4f}"


def main() -> None:
    """Run the named studies one after the other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("studies", nargs="+", choices=STUDIES, metavar="STUDY", help=", ".join(STUDIES))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    seeds, results = tuple(range(arguments.seeds)), Results(arguments.out)
    for name in arguments.studies:
        study = STUDIES[name]
        print(f"{name}, {len(seeds)} seeds", flush=True)
        if isinstance(study, Curve):
            run_curve(name, study, seeds, results)
        else:
            run_free(name, study, seeds, results)


if __name__ == "__main__":
    main()
