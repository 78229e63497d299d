"""Play a PettingZoo environment: MPE's simple spread, three agents and three landmarks.

    pip install 'marco-marl[pettingzoo]'
    python examples/pettingzoo_world.py

Any `ParallelEnv` will do, an instance or a function that makes one.
"""

import jax
import numpy as np
from mpe2 import simple_spread_v3

from marco import PettingZooWorld, RandomPolicy, play
from marco.types import Continuous


def main() -> None:
    """Look at the world, play a few episodes, and look at one of them."""
    world = PettingZooWorld(simple_spread_v3.parallel_env, N=3, max_cycles=25, reward="mean")
    spec = world.spec
    print(f"{spec.name}: {spec.num_agents} agents, horizon {spec.horizon}")
    for agent in spec.agents:
        print(f"  {agent.name}: {agent.num_actions} actions, sees {agent.observation_width} columns")
    kinds = ["continuous" if isinstance(feature, Continuous) else "categorical" for feature in spec.state]
    print(f"  central state: {spec.state_width} columns, {', '.join(sorted(set(kinds)))}")

    episodes = [play(key, world, RandomPolicy()) for key in jax.random.split(jax.random.key(0), 20)]
    returns = np.array([episode.undiscounted_return for episode in episodes])
    steps = sum(int(episode.length) for episode in episodes)
    error = returns.std(ddof=1) / np.sqrt(len(returns))
    print(f"random team, {len(episodes)} episodes, {steps} steps: return {returns.mean():.2f} +- {error:.2f}")

    first = episodes[0]
    print(f"one episode: observations {first.observation.shape}, states {first.state.shape}, ", end="")
    print(f"actions {first.actions.shape}; truncated at the end: {bool(first.truncated[-1])}")
    world.close()


if __name__ == "__main__":
    main()
