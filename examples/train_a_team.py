"""Train a team with MARCO from 1,000 real steps, and see by exact values what it has learned.

    python examples/train_a_team.py

Three prisoners, four steps: the best team earns 4/9. Takes a few minutes on two cores; half of that is
compilation, which is kept for the next time.
"""

import numpy as np

import marco


def main() -> None:
    """Learn, evaluate, save, and play with numpy alone."""
    env = marco.make("switch", horizon=4)
    print(f"random play: {marco.evaluate(env, marco.RandomPolicy()).mean:+.4f}")

    result = marco.learn(env, samples=1_000, seed=0)
    print(f"real steps: {result.samples:,}; return in the model: {result.imagined:+.4f}")
    print(f"after: {result.value.mean:+.4f}; the best team earns {env.optimum:+.4f}")

    # The learned model is an environment like any other.
    print(f"random play, imagined: {marco.evaluate(result.model, marco.RandomPolicy(), 10_000).mean:+.4f}")

    # A saved team needs numpy and nothing else; each agent acts on its own observations.
    result.team.save("team.npz")
    team = marco.load("team.npz")
    team.reset()
    in_the_room, light_is_on = 1.0, 0.0
    observations = np.array([[in_the_room, light_is_on], [0.0, 0.0], [0.0, 0.0]])
    masks = np.array([[1, 1, 1, 1], [1, 0, 0, 0], [1, 0, 0, 0]], bool)
    actions = team.act(observations, masks)
    print("the first visitor's action:", team.agent(0).action_labels[actions[0]])


if __name__ == "__main__":
    main()
