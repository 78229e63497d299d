"""Play a PettingZoo environment: MPE's simple spread, three agents and three landmarks.

    pip install 'marco-marl[pettingzoo]'
    python examples/pettingzoo_world.py

Any `ParallelEnv` will do: by the name of the function that makes it, as here, or as `PettingZooWorld(env)`.
"""

import jax

from marco import RandomPolicy, make, play
from marco.evaluation import evaluate
from marco.types import Continuous


def main() -> None:
    """Look at the environment, evaluate a random team in it, and look at one episode."""
    env = make("mpe2.simple_spread_v3:parallel_env", N=3, max_cycles=25, reward="mean")
    spec = env.spec
    print(f"{spec.name}: {spec.num_agents} agents, horizon {spec.horizon}")
    for agent in spec.agents:
        print(f"  {agent.name}: {agent.num_actions} actions, sees {agent.observation_width} columns")
    kinds = ["continuous" if isinstance(feature, Continuous) else "categorical" for feature in spec.state]
    print(f"  central state: {spec.state_width} columns, {', '.join(sorted(set(kinds)))}")

    value = evaluate(env, RandomPolicy(), episodes=20)
    print(f"random team, {value.episodes} episodes, {value.steps} steps: ", end="")
    print(f"return {value.mean:.2f} +- {value.standard_error:.2f}")

    first = play(jax.random.key(0), env, RandomPolicy())
    print(f"one episode: observations {first.observation.shape}, states {first.state.shape}, ", end="")
    print(f"actions {first.actions.shape}; truncated at the end: {bool(first.truncated[-1])}")


if __name__ == "__main__":
    main()
