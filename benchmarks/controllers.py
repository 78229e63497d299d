"""Returns of hand-written teams in `reference`, for comparison.

python benchmarks/controllers.py [--episodes 96000] [--out FOLDER]
"""

import argparse
from pathlib import Path

import jax
import numpy as np

from marco.environments.experts import GoToCentroid, StandStill, TellAndGo
from marco.environments.reference import Reference
from marco.policies.base import RandomPolicy
from marco.rollout import rollouts
from record import CONTROLLERS, RESULTS, Results

TEAMS = {
    "random": RandomPolicy(),
    "standing still": StandStill(),
    "to the centroid, silent": GoToCentroid(),
    "tell and go from step 1": TellAndGo(),
}
BATCH = 8_000


def main() -> None:
    """Play, average, write a row for each team."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--episodes", type=int, default=96_000)
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    for name, team in TEAMS.items():
        keys = jax.random.split(jax.random.key(0), arguments.episodes // BATCH)
        returns = np.concatenate(
            [np.asarray(rollouts(key, Reference(), team, BATCH).undiscounted_return) for key in keys]
        )
        error = float(returns.std() / np.sqrt(len(returns)))
        row = {"world": "reference", "team": name, "return": returns.mean(), "standard_error": error}
        Results(arguments.out).add(CONTROLLERS, [row | {"test_episodes": len(returns)}])
        print(f"{name}: {returns.mean():.3f} +- {error:.3f}", flush=True)


if __name__ == "__main__":
    main()
