"""The networks inside a component: from a row of inputs to the distribution of a row of features.

Three kinds. `Chain` (the default): one small network per feature, which also sees the features before it;
early stopping treats each network on its own. `Factored`: one network for all categorical features and one
for all continuous ones; features are independent given the inputs. `Recurrent` (the paper's dynamics of
discrete states): a GRU that predicts one feature after the other.

Output layers start at zero: uniform classes, standard Gaussians. Early stopping keeps that prior wherever
held-out data show no gain, so that pure chance (who enters the room next in `switch`) stays pure chance.

A *unit* of a predictor is a part that shares no weights with the rest, so that it can be stopped alone.
"""

from abc import abstractmethod
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from marco.model.codes import Codes, sum_rows
from marco.model.config import PredictorConfig, PredictorName
from marco.model.likelihoods import (
    REACH,
    Layout,
    Prediction,
    Targets,
    add_changes,
    bounded_log_variance,
    categorical,
    draw_classes,
    draw_values,
)
from marco.networks import GRU, MLP, Dense


class Predictor(eqx.Module):
    """The distribution of a row of features, given a row of inputs."""

    @abstractmethod
    def predict(
        self, x: Float[Array, " in"], classes: Int[Array, " F"], seen: Bool[Array, "F K"]
    ) -> Prediction:
        """Each feature's distribution given the inputs and, where the kind uses them, those before it."""

    @abstractmethod
    def draw(self, u: Float[Array, " draws"], x: Float[Array, " in"], seen: Bool[Array, "F K"]) -> Targets:
        """Draw a whole row from uniform noise: one number per categorical feature, then one per value."""

    @abstractmethod
    def losses(self, by_slot: Float[Array, " slots"]) -> Float[Array, " units"]:
        """Add up the losses of the slots that a unit predicts."""

    @abstractmethod
    def choose(self, mine: Bool[Array, " units"], other: "Predictor") -> "Predictor":
        """This predictor's unit where `mine`, else the other's."""

    @abstractmethod
    def shrink_inputs(self, by: Float[Array, " units"], varies: Bool[Array, " in"]) -> "Predictor":
        """The same predictor with the weights of inputs that vary this much nearer to 0, unit by unit.

        Those of inputs that never varied stay: by them members disagree on what is new.
        """

    @abstractmethod
    def recalibrate_variance(self, by: Float[Array, " C"]) -> "Predictor":
        """The same predictor with this much added to the log-variances of its continuous features."""


class _Row(NamedTuple):
    """What a network of a chain is given."""

    on: Int[Array, " codes"]
    """The column that is on in each long code, -1 if there is none."""
    others: Float[Array, " others"]
    """The columns that belong to none of these."""


class Chain(Predictor):
    """p(y|x) = prod_k p(y_k | y_1 .. y_k-1, x), a network per factor; continuous features come last.

    Each network adds a linear map to an MLP: over one step most environments change nearly linearly. Where
    the layout is one of `changes`, a class has two scores that are added up: its own, and that of its
    distance from the present class. "One row up" is then one output, and learned for all rows at once.
    """

    mlp: MLP
    linear: Dense
    layout: Layout = eqx.field(static=True)

    @classmethod
    def create(cls, key: PRNGKeyArray, size_in: int, layout: Layout, hidden: tuple[int, ...]) -> "Chain":
        """Draw the weights of all networks of the chain."""
        size_in += len(layout.learned) * layout.num_classes
        size_out = max(layout.num_scores if layout.categorical else 0, 2 * layout.num_values)
        keys = jax.random.split(key, layout.num_slots)[layout.learned_slots]

        def one(key: PRNGKeyArray) -> tuple[MLP, Dense]:
            mlp = _zero_output_mlp(key, size_in, *hidden, size_out)
            return mlp, Dense(jnp.zeros((size_in, size_out)), jnp.zeros(size_out))

        mlp, linear = jax.vmap(one)(keys)
        return cls(mlp, linear, layout)

    def predict(
        self, x: Float[Array, " in"], classes: Int[Array, " F"], seen: Bool[Array, "F K"]
    ) -> Prediction:
        # All factors at once: each is given the true classes before its own.
        layout, count = self.layout, len(self.layout.learned)
        networks = len(layout.learned_slots)
        earlier = jnp.asarray(np.tri(networks, count, -1, np.float32))
        given = earlier[:, :, None] * jax.nn.one_hot(classes[layout.learned], layout.num_classes)
        inputs = jnp.concatenate(
            [jnp.broadcast_to(x, (networks, *x.shape)), given.reshape(networks, count * layout.num_classes)],
            axis=-1,
        )
        out, near = jax.vmap(_out)((self.mlp, self.linear), inputs), layout.near(x)
        scores = add_changes(out[:count], _of(near, layout.learned), layout.num_classes)
        means = self._gaussian(out[-1] if networks else jnp.zeros(0))
        return Prediction(categorical(layout.with_certain(scores, near), layout.possible(seen)), *means)

    def draw(self, u: Float[Array, " draws"], x: Float[Array, " in"], seen: Bool[Array, "F K"]) -> Targets:
        layout, near = self.layout, self.layout.near(x)
        learned, count = layout.learned, len(layout.learned)

        def one_class(row: _Row, slot: Any) -> tuple[_Row, Array]:
            which, u, possible, near = slot
            scores = add_changes(self._out_of(which, row), near, layout.num_classes)
            drawn = draw_classes(u, categorical(scores[None], possible[None])[0])
            return self._given(row, which, drawn), drawn

        row, classes = self._row(x), jnp.zeros(0, jnp.int32)
        if count:
            slots = (jnp.arange(count), u[learned], seen[learned], _of(near, learned))
            row, classes = jax.lax.scan(one_class, row, slots)
        if layout.certain:
            assert near is not None
            classes = jnp.argmax(near[:, REACH], axis=-1).astype(jnp.int32).at[learned].set(classes)
        if not layout.num_values:
            return Targets(classes, jnp.zeros(0))
        mean, log_variance = self._gaussian(self._out_of(jnp.int32(count), row))
        return Targets(classes, draw_values(u[layout.num_categorical :], mean, log_variance))

    def losses(self, by_slot: Float[Array, " slots"]) -> Float[Array, " units"]:
        return by_slot

    def choose(self, mine: Bool[Array, " units"], other: "Predictor") -> "Predictor":
        learned = mine[self.layout.learned_slots]
        return jax.tree.map(
            lambda own, its: jnp.where(learned.reshape(-1, *[1] * (own.ndim - 1)), own, its), self, other
        )

    def shrink_inputs(self, by: Float[Array, " units"], varies: Bool[Array, " in"]) -> "Predictor":
        # Not those of the linear maps, which are not what overfits.
        first, *rest = self.mlp.layers
        given = jnp.ones(first.weight.shape[1] - varies.size, bool)
        each = by[self.layout.learned_slots, None, None] * jnp.concatenate([varies, given])[:, None]
        size = jnp.maximum(jnp.abs(first.weight) - each, 0.0)
        shrunk = Dense(jnp.sign(first.weight) * size, first.bias)
        return Chain(MLP((shrunk, *rest)), self.linear, self.layout)

    def recalibrate_variance(self, by: Float[Array, " C"]) -> "Predictor":
        if not (count := self.layout.num_values):
            return self
        bias = self.linear.bias.at[-1, count : 2 * count].add(by)
        return Chain(self.mlp, Dense(self.linear.weight, bias), self.layout)

    def _row(self, x: Float[Array, " in"]) -> "_Row":
        """The inputs, before any class is drawn."""
        none = jnp.zeros(len(self.layout.learned) * self.layout.num_classes)
        row = jnp.concatenate([x, none])
        return _Row(self._codes.on(row), self._codes.others(row))

    def _given(self, row: "_Row", which: Int[Array, ""], drawn: Int[Array, ""]) -> "_Row":
        """The row for the networks that follow, to which this class is given."""
        count, classes = len(self.layout.learned), self.layout.num_classes
        before = self._size_in + which * classes
        if row.on.size > len(self.layout.codes.places):
            return row._replace(on=row.on.at[which - count].set(before + drawn))
        hot = jax.nn.one_hot(drawn, classes)
        place = row.others.size + (which - count) * classes
        return row._replace(others=jax.lax.dynamic_update_slice_in_dim(row.others, hot, place, 0))

    def _out_of(self, which: Int[Array, ""], row: "_Row") -> Float[Array, " out"]:
        """What one of the networks makes of a row."""
        first, *later = self.mlp.layers

        def enter(layer: Dense) -> Array:
            coded = sum_rows(layer.weight, which, row.on)
            return coded + row.others @ self._codes.others(layer.weight[which]) + layer.bias[which]

        rest = MLP(tuple(jax.tree.map(lambda leaf: leaf[which], later)))
        return rest(jax.nn.relu(enter(first))) + enter(self.linear)

    @property
    def _size_in(self) -> int:
        return self.linear.weight.shape[-2] - len(self.layout.learned) * self.layout.num_classes

    @property
    def _codes(self) -> Codes:
        """Of the inputs and of the classes before."""
        layout = self.layout
        return layout.codes.followed_by(self._size_in, len(layout.learned), layout.num_classes)

    def _gaussian(self, out: Float[Array, " out"]) -> tuple[Float[Array, " C"], Float[Array, " C"]]:
        count = self.layout.num_values
        return out[:count], bounded_log_variance(out[count : 2 * count])


class Factored(Predictor):
    """One network for all categorical and one for all continuous features, independent given the inputs.

    Classes are scored as in a chain.
    """

    categorical: MLP
    continuous: MLP
    layout: Layout = eqx.field(static=True)

    @classmethod
    def create(cls, key: PRNGKeyArray, size_in: int, layout: Layout, hidden: tuple[int, ...]) -> "Factored":
        """Draw the weights of both networks; one without features to predict has no layers."""
        key_categorical, key_continuous = jax.random.split(key)
        scores = len(layout.learned) * layout.num_scores
        return cls(
            _zero_output_mlp(key_categorical, size_in, *hidden, scores) if scores else MLP(()),
            _zero_output_mlp(key_continuous, size_in, *hidden, 2 * layout.num_values)
            if layout.num_values
            else MLP(()),
            layout,
        )

    def predict(
        self, x: Float[Array, " in"], classes: Int[Array, " F"], seen: Bool[Array, "F K"]
    ) -> Prediction:
        layout = self.layout
        shape, near = (len(layout.learned), layout.num_scores), layout.near(x)
        both = self.categorical(x).reshape(shape) if self.categorical.layers else jnp.zeros(shape)
        scores = add_changes(both, _of(near, layout.learned), layout.num_classes)
        out = self.continuous(x) if self.continuous.layers else jnp.zeros(0)
        mean, raw = jnp.split(out, 2)
        every = categorical(layout.with_certain(scores, near), layout.possible(seen))
        return Prediction(every, mean, bounded_log_variance(raw))

    def draw(self, u: Float[Array, " draws"], x: Float[Array, " in"], seen: Bool[Array, "F K"]) -> Targets:
        of_classes, of_values = jnp.split(u, [self.layout.num_categorical])
        prediction = self.predict(x, jnp.zeros(self.layout.num_categorical, jnp.int32), seen)
        drawn = draw_classes(of_classes, prediction.log_probability)
        return Targets(drawn, draw_values(of_values, prediction.mean, prediction.log_variance))

    def losses(self, by_slot: Float[Array, " slots"]) -> Float[Array, " units"]:
        count = self.layout.num_categorical
        return jnp.stack([by_slot[:count].sum(), by_slot[count:].sum()])

    def choose(self, mine: Bool[Array, " units"], other: "Predictor") -> "Predictor":
        """Network by network."""
        assert isinstance(other, Factored)
        return Factored(
            _where(mine[0], self.categorical, other.categorical),
            _where(mine[1], self.continuous, other.continuous),
            self.layout,
        )

    def shrink_inputs(self, by: Float[Array, " units"], varies: Bool[Array, " in"]) -> "Predictor":
        return self  # its features share their inputs, and have use for all

    def recalibrate_variance(self, by: Float[Array, " C"]) -> "Predictor":
        if not self.continuous.layers:
            return self
        *layers, last = self.continuous.layers
        bias = last.bias.at[self.layout.num_values :].add(by)
        return Factored(self.categorical, MLP((*layers, Dense(last.weight, bias))), self.layout)


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
                "the recurrent predictor is for categorical features only: use chain or factored."
            )
        size, keys = hidden[0], jax.random.split(key, 4)
        return cls(
            MLP.create(keys[0], size_in, size, size),
            Dense.several(keys[1], (layout.num_categorical * (1 + layout.num_classes), size))[0],
            GRU.create(keys[2], size, size),
            _zero_output_mlp(keys[3], size, size, layout.num_classes),
            layout,
        )

    def predict(
        self, x: Float[Array, " in"], classes: Int[Array, " F"], seen: Bool[Array, "F K"]
    ) -> Prediction:
        predicted, memory, entries = [], self._start(x), self._entries()
        for slot in range(self.layout.num_categorical):
            memory, scores = self._next(memory, entries, slot, classes)
            predicted.append(scores)
        nothing = jnp.zeros(0)
        return Prediction(categorical(jnp.stack(predicted), seen), nothing, nothing)

    def draw(self, u: Float[Array, " draws"], x: Float[Array, " in"], seen: Bool[Array, "F K"]) -> Targets:
        classes, memory = jnp.zeros(self.layout.num_categorical, jnp.int32), self._start(x)
        entries = self._entries()
        for slot in range(self.layout.num_categorical):
            memory, scores = self._next(memory, entries, slot, classes)
            drawn = draw_classes(u[slot], categorical(scores[None], seen[slot][None])[0])
            classes = classes.at[slot].set(drawn)
        return Targets(classes, jnp.zeros(0))

    def losses(self, by_slot: Float[Array, " slots"]) -> Float[Array, " units"]:
        return by_slot.sum(keepdims=True)

    def choose(self, mine: Bool[Array, " units"], other: "Predictor") -> "Predictor":
        return _where(mine[0], self, other)

    def shrink_inputs(self, by: Float[Array, " units"], varies: Bool[Array, " in"]) -> "Predictor":
        return self  # as a factored one

    def recalibrate_variance(self, by: Float[Array, " C"]) -> "Predictor":
        return self  # it has no continuous features

    def _start(self, x: Float[Array, " in"]) -> Float[Array, " H"]:
        return jax.nn.relu(self.encoder(x))

    def _entries(self) -> Float[Array, "F K gates"]:
        """What enters the GRU: it is told which feature is next, and the class of the one before.

        These are few, so they are computed for all rows at once: half of the arithmetic is saved.
        """
        features, classes = self.layout.num_categorical, self.layout.num_classes
        which, before = jnp.split(self.entry.weight, [features])
        after = before.reshape(features, classes, -1)[:-1]
        first = jnp.zeros((1, *after.shape[1:]))  # none is before it
        entry = which[:, None] + jnp.concatenate([first, after]) + self.entry.bias
        return self.gru.from_input(jax.nn.relu(entry))

    def _next(
        self,
        memory: Float[Array, " H"],
        entries: Float[Array, "F K gates"],
        slot: int,
        classes: Int[Array, " F"],
    ) -> tuple[Float[Array, " H"], Float[Array, " K"]]:
        """One step."""
        before = jax.nn.one_hot(classes[slot - 1] if slot else 0, self.layout.num_classes)
        memory = self.gru(memory, before @ entries[slot])
        return memory, self.head(memory)


PREDICTORS: dict[PredictorName, type[Chain | Factored | Recurrent]] = {
    "chain": Chain,
    "factored": Factored,
    "recurrent": Recurrent,
}


def create_predictor(
    config: PredictorConfig, key: PRNGKeyArray, size_in: int, layout: Layout
) -> Chain | Factored | Recurrent:
    """One member of an ensemble, with fresh weights."""
    return PREDICTORS[config.kind].create(key, size_in, layout, config.hidden)


def _out(networks: tuple[MLP, Dense], row: Float[Array, " in"]) -> Float[Array, " out"]:
    mlp, linear = networks
    return mlp(row) + linear(row)


def _of(near: Bool[Array, "F near K"] | None, which: Int[np.ndarray, " L"]) -> Any:
    return None if near is None else near[which]


def _zero_output_mlp(key: PRNGKeyArray, *sizes: int) -> MLP:
    """An MLP whose last layer is zero at first, so that it begins at the prior."""
    mlp = MLP.create(key, *sizes)
    last = jax.tree.map(jnp.zeros_like, mlp.layers[-1])
    return MLP((*mlp.layers[:-1], last))


def _where(mine: Bool[Array, ""], own: Any, its: Any) -> Any:
    return jax.tree.map(lambda left, right: jnp.where(mine, left, right), own, its)
