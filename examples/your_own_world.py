"""Write a world of your own, check it, play it, and train a team in it.

    python examples/your_own_world.py

A speaker sees one of three colours and says one of three words; a step later the listener hears the word and
names a colour. The team earns 1 if that is the right one. They have to agree on a language.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

import marco
from marco import Agent, FiniteEnvironment, Spec
from marco.environments import Transition
from marco.evaluation import sampled_value
from marco.learners import init, train
from marco.types import ActionComponent, Categorical

SPEAKER, LISTENER = 0, 1
COLOURS = 3
SEEN = Categorical("colour", 1 + COLOURS, blank=True)
HEARD = Categorical("word", 1 + COLOURS, blank=True)
# Action 0 is to wait; actions 1 to 3 are the words of the speaker and the answers of the listener.
ACTION = ActionComponent("say", 1 + COLOURS, ("wait", "one", "two", "three"))
SPEC = Spec(
    name="colours",
    agents=(Agent("speaker", (ACTION,), (SEEN,)), Agent("listener", (ACTION,), (HEARD,))),
    state=(Categorical("colour", COLOURS), HEARD),
    horizon=2,
)


class Talk(NamedTuple):
    """The colour, and the word: 0 until it is said."""

    colour: Int[Array, ""]
    word: Int[Array, ""]


class Colours(FiniteEnvironment):
    """A world without numbers to learn: everything is in its methods. Its chance can be enumerated."""

    @property
    def spec(self) -> Spec:
        """Two agents with four actions each."""
        return SPEC

    def start_probabilities(self) -> Float[Array, " K"]:
        """Each colour with the same probability."""
        return jnp.full((COLOURS,), 1 / COLOURS)

    def start(self, outcome: Int[Array, ""]) -> Talk:
        """Nothing has been said."""
        return Talk(outcome, jnp.int32(0))

    def outcome_probabilities(self, world: Talk, actions: Int[Array, " N"]) -> Float[Array, " K"]:
        """Nothing is left to chance after the start."""
        return jnp.ones((1,))

    def successor(self, world: Talk, actions: Int[Array, " N"], outcome: Int[Array, ""]) -> Transition:
        """First the word is said, then the answer is judged and all is over."""
        answering = world.word > 0
        right = answering & (actions[LISTENER] == 1 + world.colour)
        word = jnp.where(answering, world.word, actions[SPEAKER])
        return Transition(Talk(world.colour, word), right.astype(jnp.float32), answering)

    def observe(self, world: Talk) -> Float[Array, "N O"]:
        """The speaker sees the colour, the listener hears the word."""
        return jnp.stack([SEEN.encode(1 + world.colour), HEARD.encode(world.word)])

    def available(self, world: Talk) -> Bool[Array, "N A"]:
        """One speaks, then the other; who is not asked can only wait."""
        wait = jnp.arange(1 + COLOURS) == 0
        answering = world.word > 0
        return jnp.stack([jnp.where(answering, wait, ~wait), jnp.where(answering, ~wait, wait)])

    def central(self, world: Talk) -> Float[Array, " S"]:
        """The columns of `SPEC.state`, one feature after the other."""
        return jnp.concatenate([jax.nn.one_hot(world.colour, COLOURS), HEARD.encode(world.word)])


def main() -> None:
    """Check, train, show."""
    world = Colours()
    random = marco.RandomPolicy()
    exact = marco.evaluate(world, random).mean
    sampled = sampled_value(jax.random.key(0), world, random, episodes=10_000)
    print(f"random: exact {exact:.4f}, sampled {sampled.mean:.4f} +- {sampled.standard_error:.4f}")
    if abs(sampled.mean - exact) > 4 * sampled.standard_error:
        raise SystemExit("outcome_probabilities and successor do not agree with what is played.")

    learner = marco.QLearner(
        mixer="vdn",
        td_lambda=1.0,  # an answer is worth what it earns: look at the whole return, not one step ahead
        optimiser="adam",
        learning_rate=2e-3,
        epsilon_anneal_steps=30_000,
        episodes_per_update=32,
        buffer_size=1_024,
        batch_size=64,
        target_update_interval=20,
    )
    key_init, key_train, key_show = jax.random.split(jax.random.key(1), 3)
    state = init(key_init, learner, world.spec)
    state, _ = train(key_train, world, learner, state, 600)
    team = learner.greedy(state.learner)
    print(
        f"trained on {int(state.samples):,} steps: exact {marco.evaluate(world, team).mean:.4f}, best 1.0000"
    )

    talks = marco.rollouts(key_show, world, team, episodes=6)
    colours = SEEN.decode(talks.observation[0, :, SPEAKER])
    words, answers = talks.actions[0, :, SPEAKER], talks.actions[1, :, LISTENER]
    for colour, word, answer in zip(colours, words, answers, strict=True):
        said = ACTION.labels[word]
        print(f"  colour {int(colour)}: the speaker says {said!r}, the answer is colour {int(answer)}")


if __name__ == "__main__":
    main()
