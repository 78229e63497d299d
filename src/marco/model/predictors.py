"""The networks inside a component: from a row of inputs to the distribution of a row of features.

Three kinds. `Chain` (the default): one small network per feature, which also sees the features before it,
each stopped on its own. `Factored`: one network for all classes and one for all numbers, which are
independent given the inputs. `Recurrent` (the paper's dynamics of discrete states): a GRU that writes one
feature after the other.

All begin by saying nothing: every class is as likely as the others, every number a standard Gaussian. What
held-out rows do not bear out is then never said, and who enters the room next stays pure chance.

A *unit* of a predictor is a part that shares no weights with the rest, so that it can be stopped alone.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from marco.model.likelihoods import (
    Layout,
    Prediction,
    Targets,
    bounded_log_variance,
    categorical,
    draw_classes,
    draw_values,
)
from marco.networks import GRU, MLP, Dense

PredictorName = Literal["chain", "factored", "recurrent"]


class Predictor(eqx.Module):
    """The distribution of a row of features, given a row of inputs."""

    @abstractmethod
    def predict(
        self, x: Float[Array, " in"], classes: Int[Array, " F"], seen: Bool[Array, "F K"]
    ) -> Prediction:
        """Each feature's distribution given the inputs and, where the kind uses them, those before it."""

    @abstractmethod
    def draw(self, luck: Float[Array, " draws"], x: Float[Array, " in"], seen: Bool[Array, "F K"]) -> Targets:
        """The whole row that uniform numbers, one for each class and then each number, stand for."""

    @abstractmethod
    def losses(self, by_slot: Float[Array, " slots"]) -> Float[Array, " units"]:
        """Add up the losses of the slots that a unit predicts."""

    @abstractmethod
    def choose(self, mine: Bool[Array, " units"], other: "Predictor") -> "Predictor":
        """My unit where `mine`, else the other's."""

    @abstractmethod
    def recalibrate_variance(self, by: Float[Array, " C"]) -> "Predictor":
        """The same, but less sure of its numbers: so much is added to their log-variances."""


class Chain(Predictor):
    """p(y|x) = prod_k p(y_k | y_1 .. y_k-1, x), a network per factor; the numbers come last, together.

    Each network adds a linear map to an MLP: over one step most worlds change nearly linearly.
    """

    deep: MLP
    straight: Dense
    layout: Layout = eqx.field(static=True)

    @classmethod
    def create(cls, key: PRNGKeyArray, size_in: int, layout: Layout, hidden: tuple[int, ...]) -> "Chain":
        """Draw the weights of all networks of the chain."""
        size_in += layout.num_categorical * layout.num_classes
        size_out = max(layout.num_classes if layout.categorical else 0, 2 * layout.num_values)
        keys = jax.random.split(key, layout.num_slots)

        def one(key: PRNGKeyArray) -> tuple[MLP, Dense]:
            deep = _undecided(key, size_in, *hidden, size_out)
            return deep, Dense(jnp.zeros((size_in, size_out)), jnp.zeros(size_out))

        deep, straight = jax.vmap(one)(keys)
        return cls(deep, straight, layout)

    def predict(
        self, x: Float[Array, " in"], classes: Int[Array, " F"], seen: Bool[Array, "F K"]
    ) -> Prediction:
        """All factors at once: each is shown the true classes before its own."""
        earlier = jnp.asarray(np.tri(self.layout.num_slots, self.layout.num_categorical, -1, np.float32))
        known = jax.nn.one_hot(classes, self.layout.num_classes)
        given = earlier[:, :, None] * known
        inputs = jnp.concatenate(
            [jnp.broadcast_to(x, (self.layout.num_slots, *x.shape)), given.reshape(len(given), -1)], axis=-1
        )
        return self._prediction(jax.vmap(_out)((self.deep, self.straight), inputs), seen)

    def draw(self, luck: Float[Array, " draws"], x: Float[Array, " in"], seen: Bool[Array, "F K"]) -> Targets:
        """One feature after the other."""
        layout = self.layout
        count = layout.num_categorical
        networks = (self.deep, self.straight)

        def one_class(known: Array, slot: Any) -> tuple[Array, Array]:
            which, networks, luck, possible = slot
            row = jnp.concatenate([x, known.ravel()])
            scores = _out(networks, row)[: layout.num_classes]
            drawn = draw_classes(luck, categorical(scores[None], possible[None])[0])
            return known.at[which].set(jax.nn.one_hot(drawn, layout.num_classes)), drawn

        known, classes = jnp.zeros((count, layout.num_classes)), jnp.zeros(0, jnp.int32)
        if count:
            of_classes = jax.tree.map(lambda leaf: leaf[:count], networks)
            slots = (jnp.arange(count), of_classes, luck[:count], seen)
            known, classes = jax.lax.scan(one_class, known, slots)
        if not layout.num_values:
            return Targets(classes, jnp.zeros(0))
        last = jax.tree.map(lambda leaf: leaf[-1], networks)
        row = jnp.concatenate([x, known.ravel()])
        mean, log_variance = self._gaussian(_out(last, row))
        return Targets(classes, draw_values(luck[count:], mean, log_variance))

    def losses(self, by_slot: Float[Array, " slots"]) -> Float[Array, " units"]:
        """Every slot is a unit."""
        return by_slot

    def choose(self, mine: Bool[Array, " units"], other: "Predictor") -> "Predictor":
        """Slot by slot."""
        return jax.tree.map(
            lambda own, its: jnp.where(mine.reshape(-1, *[1] * (own.ndim - 1)), own, its), self, other
        )

    def recalibrate_variance(self, by: Float[Array, " C"]) -> "Predictor":
        """In the last network's bias."""
        count = self.layout.num_values
        bias = self.straight.bias.at[-1, count : 2 * count].add(by)
        return Chain(self.deep, Dense(self.straight.weight, bias), self.layout)

    def _prediction(self, out: Float[Array, "slots out"], seen: Bool[Array, "F K"]) -> Prediction:
        scores = out[: self.layout.num_categorical, : self.layout.num_classes]
        return Prediction(categorical(scores, seen), *self._gaussian(out[-1]))

    def _gaussian(self, out: Float[Array, " out"]) -> tuple[Float[Array, " C"], Float[Array, " C"]]:
        count = self.layout.num_values
        return out[:count], bounded_log_variance(out[count : 2 * count])


class Factored(Predictor):
    """One network for all classes and one for all numbers; features are independent given the inputs."""

    classes: MLP
    numbers: MLP
    layout: Layout = eqx.field(static=True)

    @classmethod
    def create(cls, key: PRNGKeyArray, size_in: int, layout: Layout, hidden: tuple[int, ...]) -> "Factored":
        """Draw the weights of both networks; one with nothing to say has no outputs."""
        key_classes, key_numbers = jax.random.split(key)
        scores = layout.num_categorical * layout.num_classes
        return cls(
            _undecided(key_classes, size_in, *hidden, scores) if scores else MLP(()),
            _undecided(key_numbers, size_in, *hidden, 2 * layout.num_values)
            if layout.num_values
            else MLP(()),
            layout,
        )

    def predict(
        self, x: Float[Array, " in"], classes: Int[Array, " F"], seen: Bool[Array, "F K"]
    ) -> Prediction:
        """The inputs decide; the classes are not looked at."""
        shape = (self.layout.num_categorical, self.layout.num_classes)
        scores = self.classes(x).reshape(shape) if self.classes.layers else jnp.zeros(shape)
        out = self.numbers(x) if self.numbers.layers else jnp.zeros(0)
        mean, raw = jnp.split(out, 2)
        return Prediction(categorical(scores, seen), mean, bounded_log_variance(raw))

    def draw(self, luck: Float[Array, " draws"], x: Float[Array, " in"], seen: Bool[Array, "F K"]) -> Targets:
        """Each feature on its own."""
        of_classes, of_values = jnp.split(luck, [self.layout.num_categorical])
        said = self.predict(x, jnp.zeros(self.layout.num_categorical, jnp.int32), seen)
        drawn = draw_classes(of_classes, said.log_probability)
        return Targets(drawn, draw_values(of_values, said.mean, said.log_variance))

    def losses(self, by_slot: Float[Array, " slots"]) -> Float[Array, " units"]:
        """Classes together, numbers together."""
        count = self.layout.num_categorical
        return jnp.stack([by_slot[:count].sum(), by_slot[count:].sum()])

    def choose(self, mine: Bool[Array, " units"], other: "Predictor") -> "Predictor":
        """Network by network."""
        assert isinstance(other, Factored)
        return Factored(
            _where(mine[0], self.classes, other.classes),
            _where(mine[1], self.numbers, other.numbers),
            self.layout,
        )

    def recalibrate_variance(self, by: Float[Array, " C"]) -> "Predictor":
        """In the last bias of the numbers' network."""
        if not self.numbers.layers:
            return self
        *layers, last = self.numbers.layers
        bias = last.bias.at[self.layout.num_values :].add(by)
        return Factored(self.classes, MLP((*layers, Dense(last.weight, bias))), self.layout)


class Recurrent(Predictor):
    """The paper's auto-regressive model: an encoder of the inputs, then a GRU from feature to feature."""

    encoder: MLP
    entry: Dense
    gru: GRU
    head: MLP
    layout: Layout = eqx.field(static=True)

    @classmethod
    def create(cls, key: PRNGKeyArray, size_in: int, layout: Layout, hidden: tuple[int, ...]) -> "Recurrent":
        """Draw the weights; the first of the hidden sizes is that of every layer."""
        if layout.num_values:
            raise ValueError(
                "the recurrent predictor is for classes only: use chain or factored for numbers."
            )
        size, keys = hidden[0], jax.random.split(key, 4)
        return cls(
            MLP.create(keys[0], size_in, size, size),
            Dense.several(keys[1], (layout.num_categorical * (1 + layout.num_classes), size))[0],
            GRU.create(keys[2], size, size),
            _undecided(keys[3], size, size, layout.num_classes),
            layout,
        )

    def predict(
        self, x: Float[Array, " in"], classes: Int[Array, " F"], seen: Bool[Array, "F K"]
    ) -> Prediction:
        """Each feature after the true ones before it."""
        said, memory = [], self._start(x)
        for slot in range(self.layout.num_categorical):
            memory, scores = self._next(memory, slot, classes)
            said.append(scores)
        nothing = jnp.zeros(0)
        return Prediction(categorical(jnp.stack(said), seen), nothing, nothing)

    def draw(self, luck: Float[Array, " draws"], x: Float[Array, " in"], seen: Bool[Array, "F K"]) -> Targets:
        """Each feature after those drawn before it."""
        classes, memory = jnp.zeros(self.layout.num_categorical, jnp.int32), self._start(x)
        for slot in range(self.layout.num_categorical):
            memory, scores = self._next(memory, slot, classes)
            drawn = draw_classes(luck[slot], categorical(scores[None], seen[slot][None])[0])
            classes = classes.at[slot].set(drawn)
        return Targets(classes, jnp.zeros(0))

    def losses(self, by_slot: Float[Array, " slots"]) -> Float[Array, " units"]:
        """All is one unit."""
        return by_slot.sum(keepdims=True)

    def choose(self, mine: Bool[Array, " units"], other: "Predictor") -> "Predictor":
        """One or the other."""
        return _where(mine[0], self, other)

    def recalibrate_variance(self, by: Float[Array, " C"]) -> "Predictor":
        """There are no numbers here."""
        return self

    def _start(self, x: Float[Array, " in"]) -> Float[Array, " H"]:
        return jax.nn.relu(self.encoder(x))

    def _next(
        self, memory: Float[Array, " H"], slot: int, classes: Int[Array, " F"]
    ) -> tuple[Float[Array, " H"], Float[Array, " K"]]:
        """One step: shown which feature is next, and the class of the one before."""
        before = jnp.zeros((self.layout.num_categorical, self.layout.num_classes))
        if slot:
            before = before.at[slot - 1].set(jax.nn.one_hot(classes[slot - 1], self.layout.num_classes))
        which = jax.nn.one_hot(slot, self.layout.num_categorical)
        entry = jax.nn.relu(self.entry(jnp.concatenate([which, before.ravel()])))
        memory = self.gru(memory, self.gru.from_input(entry))
        return memory, self.head(memory)


KINDS: dict[PredictorName, type[Chain | Factored | Recurrent]] = {
    "chain": Chain,
    "factored": Factored,
    "recurrent": Recurrent,
}


@dataclass(frozen=True)
class PredictorConfig:
    """Which network, how large, and how many of them make the ensemble."""

    kind: PredictorName = "chain"
    hidden: tuple[int, ...] = (64, 64)
    members: int = 5

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"unknown predictor {self.kind!r}: there are {', '.join(KINDS)}.")
        if not self.hidden or min(self.hidden) < 1:
            raise ValueError(f"hidden sizes must be positive and at least one, got {self.hidden}.")
        if self.members < 1:
            raise ValueError(f"an ensemble needs at least 1 member, got members={self.members}.")

    def create(self, key: PRNGKeyArray, size_in: int, layout: Layout) -> Predictor:
        """One member."""
        return KINDS[self.kind].create(key, size_in, layout, self.hidden)


def _out(networks: tuple[MLP, Dense], row: Float[Array, " in"]) -> Float[Array, " out"]:
    deep, straight = networks
    return deep(row) + straight(row)


def _undecided(key: PRNGKeyArray, *sizes: int) -> MLP:
    """An MLP whose outputs are all zero as long as it has learned nothing."""
    mlp = MLP.create(key, *sizes)
    last = jax.tree.map(jnp.zeros_like, mlp.layers[-1])
    return MLP((*mlp.layers[:-1], last))


def _where(mine: Bool[Array, ""], own: Any, its: Any) -> Any:
    return jax.tree.map(lambda left, right: jnp.where(mine, left, right), own, its)
