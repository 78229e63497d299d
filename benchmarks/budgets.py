"""What MARCO reaches on a budget of real samples, all seeds at once, and where the time goes.

    python benchmarks/budgets.py WORLD [--preset default] [--samples N] [--seeds 10] [--change name=value ...]

Real returns are exact where chance can be enumerated, else means over 2,000 test episodes, counted apart.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import jax

from marco.algorithm import Marco
from marco.commands.common import parse_settings
from marco.dataset import Dataset
from marco.environments.worlds import make, optimum
from marco.experiments.marco_presets import marco_settings
from marco.experiments.model_free import judge
from marco.experiments.seeds import policy_of_seed
from record import RESULTS, provenance


class Forgetful:
    """A journal that keeps nothing: the study is short."""

    latest = 0

    def keep(self, step: int, state: Any, event: Any) -> None:
        """Let it go."""

    def restore(self, like: Any) -> Any:
        """There is nothing to go back to."""
        raise RuntimeError("nothing was kept.")


def main() -> None:
    """Run, judge, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("world")
    parser.add_argument("--preset", choices=["default", "paper"], default="default")
    parser.add_argument("--samples", type=int)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--change", nargs="*", default=[])
    parser.add_argument("--name", help="of the result's file; WORLD-PRESET-SAMPLES by default")
    parser.add_argument("--out", type=Path, default=RESULTS / "marco")
    arguments = parser.parse_args()
    world, changes = make(arguments.world), parse_settings(tuple(arguments.change), "--change")
    settings = marco_settings(arguments.preset, world.spec, arguments.samples, **changes)
    seeds = tuple(range(arguments.first_seed, arguments.first_seed + arguments.seeds))
    phases, start = [], time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        marco = Marco(world, settings, seeds, Dataset(Path(folder), world.spec, len(seeds)), Forgetful())
        for event, state in marco.run():  # noqa: B007  (the last state is the result)
            seconds = time.perf_counter() - start
            phases.append({**event._asdict(), "seconds": seconds})
            print(f"{seconds:7.1f} s {event.samples:>7,} {event.phase}", flush=True)
    policies = [policy_of_seed(settings.team, state.team, index) for index in range(len(seeds))]
    key = jax.random.key(1_000_000)
    real = [judge(key, world, policy, 2_000)._asdict() for policy in policies]
    facts = {"world": arguments.world, "preset": arguments.preset, "samples": settings.samples}
    result = {**provenance(), **facts, "changes": changes, "seeds": seeds, "optimum": optimum(world)}
    returns = [row["mean"] for row in real]
    print(f"real return {sum(returns) / len(returns):.4f}, from {min(returns):.4f} to {max(returns):.4f}")
    arguments.out.mkdir(parents=True, exist_ok=True)
    name = arguments.name or f"{arguments.world}-{arguments.preset}-{settings.samples}"
    path = arguments.out / f"{name}.json"
    path.write_text(json.dumps({**result, "real": real, "phases": phases}, indent=1) + "\n")


if __name__ == "__main__":
    main()
