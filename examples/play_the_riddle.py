"""Exact values: the value of a team in the riddle of the prisoners and the switch, to the last digit.

    python examples/play_the_riddle.py

Nothing is sampled here except the one episode that is shown.
"""

from fractions import Fraction

import jax
import jax.numpy as jnp
from rich.console import Console

from marco.environments import Switch, SwitchProtocol, episode_table
from marco.evaluation import exact_value
from marco.policies.base import EpsilonGreedy, RandomPolicy
from marco.rollout import rollout


def main() -> None:
    """Show an episode, then the values of four teams."""
    riddle = Switch(agents=3, horizon=6)
    protocol = SwitchProtocol(riddle.spec)
    episode = jax.jit(rollout)(jax.random.key(2), riddle, protocol)
    Console(width=110).print(episode_table(riddle.spec, episode, "The optimal protocol, one episode"))

    teams = {
        "random": RandomPolicy(),
        "protocol, 10% of the actions random": EpsilonGreedy(protocol, jnp.float32(0.1)),
        "protocol, 1% of the actions random": EpsilonGreedy(protocol, jnp.float32(0.01)),
        "protocol": protocol,
    }
    print("\nexact expected return, three agents, six steps")
    for name, team in teams.items():
        print(f"  {name:<36} {exact_value(riddle, team):+.6f}")

    print("\nthe protocol against the bound, by horizon")
    for horizon in (3, 4, 5, 6):
        shorter = Switch(agents=3, horizon=horizon)
        value = exact_value(shorter, SwitchProtocol(shorter.spec))
        exact = Fraction(value).limit_denominator(999)
        print(f"  T={horizon}  {value:.6f} = {exact}, best {shorter.optimum:.6f}")


if __name__ == "__main__":
    main()
