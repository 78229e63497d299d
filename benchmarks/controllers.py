"""What hand-written teams earn in `reference`: the yardsticks of the tables.

python benchmarks/controllers.py [--episodes 96000] [--out FILE]
"""

import argparse
import json
from pathlib import Path

import jax
import numpy as np

from marco.environments.experts import GoToCentroid, StandStill, TellAndGo
from marco.environments.reference import Reference
from marco.policies.base import RandomPolicy
from marco.rollout import rollouts
from record import RESULTS, provenance

TEAMS = {
    "random": RandomPolicy(),
    "still": StandStill(),
    "centroid": GoToCentroid(),
    "own goal from step 1": TellAndGo(),
}
BATCH = 8_000


def main() -> None:
    """Play, average, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--episodes", type=int, default=96_000)
    parser.add_argument("--out", type=Path, default=RESULTS / "controllers.json")
    arguments = parser.parse_args()
    rows = {}
    for name, team in TEAMS.items():
        keys = jax.random.split(jax.random.key(0), arguments.episodes // BATCH)
        returns = np.concatenate(
            [np.asarray(rollouts(key, Reference(), team, BATCH).undiscounted_return) for key in keys]
        )
        error = float(returns.std() / np.sqrt(len(returns)))
        rows[name] = {"mean": float(returns.mean()), "standard_error": error, "episodes": len(returns)}
        print(f"{name}: {returns.mean():.3f} +- {error:.3f}", flush=True)
    arguments.out.write_text(
        json.dumps({**provenance(), "world": "reference", "teams": rows}, indent=1) + "\n"
    )


if __name__ == "__main__":
    main()
