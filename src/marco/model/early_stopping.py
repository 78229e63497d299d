"""The training of one component: an ensemble whose members, and their units, are stopped each on its own."""

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from marco.checks import check_positive
from marco.model.components import Bounds, Component, Scaling
from marco.model.likelihoods import Layout, Targets, negative_log_likelihood
from marco.model.predictors import Predictor, PredictorConfig
from marco.sampling import draw_below


@dataclass(frozen=True)
class FitConfig:
    """How long and on what the networks are trained.

    An epoch is as many gradient steps as would pass over the training rows once, but at least
    `min_steps_per_epoch`; rows are drawn at random. After each epoch the held-out likelihood is taken, and a
    unit that has gained less than `min_delta` in `patience` epochs is finished; of each unit the
    best is kept.
    """

    learning_rate: float = 1e-3
    batch_size: int = 128
    max_epochs: int = 200
    min_steps_per_epoch: int = 30
    patience: int = 5
    min_delta: float = 1e-3
    """In nats per row."""
    holdout: float = 0.3
    """The share of the episodes that a member never trains on; each member holds out others."""
    bootstrap: bool = False
    """Whether each member trains on rows drawn with replacement."""
    weight_decay: float = 0.0
    ema_decay: float = 0.98
    """The networks kept are running averages of those trained, with this memory; 0 keeps these themselves."""

    def __post_init__(self) -> None:
        check_positive(
            "FitConfig",
            learning_rate=self.learning_rate,
            batch_size=self.batch_size,
            max_epochs=self.max_epochs,
        )
        check_positive("FitConfig", min_steps_per_epoch=self.min_steps_per_epoch, patience=self.patience)
        for name, value in (("holdout", self.holdout), ("ema_decay", self.ema_decay)):
            if not 0.0 <= value < 1.0:
                raise ValueError(f"FitConfig: {name} must be at least 0 and below 1, got {value}.")
        if self.holdout == 0.0:
            raise ValueError("FitConfig: holdout=0 leaves nothing to stop by: hold out a share of the rows.")


class ComponentFit(NamedTuple):
    """How a component's training went."""

    loss: Float[Array, "*members units"]
    """The least loss on the rows held out: nats per row; for numbers half the log of their squared errors."""
    held_out: Bool[Array, "*members rows"]
    """Which rows each member never trained on."""
    rounds: Int[Array, "*members"]
    updates: Int[Array, "*members"]


class Rows(NamedTuple):
    """A supervised problem; rows from `number` on are padding."""

    x: Float[Array, "rows in"]
    targets: Targets
    episode: Int[Array, " rows"]
    """Of which episode: rows of one are alike, so that whole episodes are held out."""
    number: Int[Array, ""]


@partial(jax.jit, static_argnames=("layout", "numeric", "predictor", "settings"))
def fit_component(
    key: PRNGKeyArray,
    rows: Rows,
    layout: Layout,
    numeric: tuple[bool, ...],
    predictor: PredictorConfig,
    settings: FitConfig,
) -> tuple[Component, ComponentFit]:
    """Train an ensemble. The program depends on the padded size alone, so that new data recompile nothing."""
    inputs = _scaling(rows.x, rows.number, jnp.asarray(numeric))
    # An input that never varied must still be told apart, should it vary one day.
    inputs = Scaling(inputs.shift, jnp.where(inputs.scale > 0.0, inputs.scale, 1.0))
    everything = jnp.ones(layout.num_values, bool)
    values = _scaling(rows.targets.values, rows.number, everything)
    seen = _seen(rows, layout)
    targets = rows.targets._replace(values=values.normalise(rows.targets.values))
    scaled = rows._replace(x=inputs.normalise(rows.x), targets=targets)
    training = _Training(scaled, seen, values.scale > 0.0, predictor, layout, settings)
    members, report = jax.vmap(training.member)(jax.random.split(key, predictor.members))
    component = Component(members, inputs, values, seen, _bounds(targets.values, rows.number), layout)
    return component, report._replace(rounds=report.rounds.max(), updates=report.updates.max())


def _scaling(x: Float[Array, "rows columns"], count: Int[Array, ""], scaled: Any) -> Scaling:
    """Mean and spread of the true rows; columns that are no numbers stay as they are."""
    true = (jnp.arange(x.shape[0]) < count)[:, None]
    mean = jnp.sum(jnp.where(true, x, 0.0), axis=0) / count
    spread = jnp.sqrt(jnp.sum(jnp.where(true, jnp.square(x - mean), 0.0), axis=0) / count)
    first = x[0]
    constant = jnp.all(jnp.where(true, x == first, True), axis=0)
    shift, scale = jnp.where(constant, first, mean), jnp.where(constant, 0.0, spread)
    return Scaling(jnp.where(scaled, shift, 0.0), jnp.where(scaled, scale, 1.0))


def _bounds(scaled: Float[Array, "rows C"], count: Int[Array, ""]) -> Bounds:
    true = (jnp.arange(scaled.shape[0]) < count)[:, None]
    low = jnp.min(jnp.where(true, scaled, jnp.inf), axis=0)
    high = jnp.max(jnp.where(true, scaled, -jnp.inf), axis=0)
    beyond = 0.5 * (high - low)
    return Bounds(low - beyond, high + beyond)


def _seen(rows: Rows, layout: Layout) -> Array:
    true = jnp.arange(rows.x.shape[0]) < rows.number
    shown = rows.targets.classes[:, :, None] == jnp.arange(layout.num_classes)
    return jnp.any(shown & true[:, None, None], axis=0)


class _Progress(NamedTuple):
    """Where the training of a member stands."""

    network: Predictor
    optimiser: Any
    average: Predictor
    best: Predictor
    loss: Float[Array, " units"]
    milestone: Float[Array, " units"]
    """The loss at the last gain worth the name."""
    stale: Int[Array, " units"]
    round: Int[Array, ""]
    updates: Int[Array, ""]


class _Evidence(NamedTuple):
    """Means over rows that were held out."""

    lost: Float[Array, " F"]
    """Of the negative log-likelihood of each categorical feature."""
    squared: Float[Array, " C"]
    """Of the squared error of each number."""
    surprise: Float[Array, " C"]
    """Of the squared error over the variance: 1, if the network is as sure as it may be."""

    def loss(self, varies: Bool[Array, " C"]) -> Float[Array, " slots"]:
        """What to stop by. Numbers are judged by their error alone, as if their variance were right.

        It is set right in the end: a network grows too sure of its rows long before it stops improving.
        """
        if not self.squared.size:
            return self.lost
        numbers = jnp.where(varies, 0.5 * jnp.log(self.squared + 1e-9), 0.0)
        return jnp.concatenate([self.lost, numbers.sum(keepdims=True)])


class _Part(NamedTuple):
    """Some of the rows: the first `number` of those listed."""

    rows: Int[Array, " rows"]
    number: Int[Array, ""]


def _part(mask: Bool[Array, " rows"]) -> _Part:
    (rows,) = jnp.nonzero(mask, size=mask.size)
    return _Part(rows.astype(jnp.int32), jnp.sum(mask, dtype=jnp.int32))


@dataclass(frozen=True)
class _Training:
    """The training of one member; the members are one `vmap` away."""

    rows: Rows
    seen: Array
    varies: Array
    predictor: PredictorConfig
    layout: Layout
    settings: FitConfig

    def member(self, key: PRNGKeyArray) -> tuple[Predictor, ComponentFit]:
        """Train from a fresh network until nothing improves any more."""
        key_network, key_split, key_boot, key_rounds = jax.random.split(key, 4)
        train_on, held_out = self._split(key_split)
        train, held = _part(train_on), _part(held_out)
        if self.settings.bootstrap:
            again = draw_below(key_boot, train.number, train.rows.shape)
            train = train._replace(rows=train.rows[again])
        network = self.predictor.create(key_network, self.rows.x.shape[-1], self.layout)
        units = jax.eval_shape(network.losses, jnp.zeros(self.layout.num_slots)).shape[0]
        progress = _Progress(
            network=network,
            optimiser=self._optimiser.init(network),
            average=network,
            best=network,
            loss=jnp.full(units, jnp.inf),
            milestone=jnp.full(units, jnp.inf),
            stale=jnp.zeros(units, jnp.int32),
            round=jnp.int32(0),
            updates=jnp.int32(0),
        )

        def going_on(progress: _Progress) -> Array:
            return (progress.round < self.settings.max_epochs) & jnp.any(
                progress.stale < self.settings.patience
            )

        def one_round(progress: _Progress) -> _Progress:
            key_round = jax.random.fold_in(key_rounds, progress.round)
            progress = self._judge(held, self._train(key_round, train, progress))
            return progress._replace(round=progress.round + 1)

        progress = self._judge(held, progress)  # to have learned nothing may be best
        progress = jax.lax.while_loop(going_on, one_round, progress)
        surprise = self._evidence(progress.best, held).surprise
        best = progress.best.recalibrate_variance(jnp.log(jnp.maximum(surprise, 1e-6)))
        return best, ComponentFit(progress.loss, held_out, progress.round, progress.updates)

    def _split(self, key: PRNGKeyArray) -> tuple[Bool[Array, " rows"], Bool[Array, " rows"]]:
        """Episodes to train on and episodes to judge by, at least one of each; a single one is both."""
        true = jnp.arange(self.rows.x.shape[0]) < self.rows.number
        luck = jnp.where(true, jax.random.uniform(key, true.shape)[self.rows.episode], 2.0)
        first, last = luck.min(), jnp.where(true, luck, -1.0).max()
        held = true & ((luck == first) | ((luck < self.settings.holdout) & (luck != last)))
        train = true & (~held | (first == last))
        return train, held

    def _train(self, key: PRNGKeyArray, train: _Part, progress: _Progress) -> _Progress:
        batch = self.settings.batch_size
        updates = jnp.maximum(-(-train.number // batch), self.settings.min_steps_per_epoch)

        def one_update(index: Array, carry: tuple[Any, ...]) -> tuple[Any, ...]:
            network, optimiser, average = carry
            luck = draw_below(jax.random.fold_in(key, index), train.number, (batch,))
            slope = jax.grad(self._loss)(network, train.rows[luck])
            change, optimiser = self._optimiser.update(slope, optimiser, network)
            network = optax.apply_updates(network, change)
            # Early on the average would remember the random start: it begins short.
            done = progress.updates + index
            memory = jnp.minimum(self.settings.ema_decay, done / (done + 10.0))
            average = jax.tree.map(lambda old, new: memory * old + (1.0 - memory) * new, average, network)
            return network, optimiser, average

        carry = (progress.network, progress.optimiser, progress.average)
        network, optimiser, average = jax.lax.fori_loop(0, updates, one_update, carry)
        return progress._replace(
            network=network, optimiser=optimiser, average=average, updates=progress.updates + updates
        )

    def _judge(self, held: _Part, progress: _Progress) -> _Progress:
        now = progress.average.losses(self._evidence(progress.average, held).loss(self.varies))
        better = now < progress.loss
        gained = now < progress.milestone - self.settings.min_delta
        return progress._replace(
            best=progress.average.choose(better, progress.best),
            loss=jnp.where(better, now, progress.loss),
            milestone=jnp.where(gained, now, progress.milestone),
            stale=jnp.where(gained, 0, progress.stale + 1),
        )

    def _evidence(self, network: Predictor, held: _Part) -> _Evidence:
        """What the rows held out say, batch by batch."""
        batch = self.settings.batch_size

        def one_batch(index: Array, total: _Evidence) -> _Evidence:
            places = index * batch + jnp.arange(batch)
            rows = held.rows[places % held.number]
            targets = jax.tree.map(lambda leaf: leaf[rows], self.rows.targets)
            said = jax.vmap(lambda x, c: network.predict(x, c, self.seen))(self.rows.x[rows], targets.classes)
            squared = jnp.square(targets.values - said.mean)
            lost = negative_log_likelihood(said, targets, self.varies)[:, : self.layout.num_categorical]
            found = _Evidence(lost, squared, squared * jnp.exp(-said.log_variance))
            counted = (places < held.number)[:, None]
            return jax.tree.map(lambda t, f: t + jnp.where(counted, f, 0.0).sum(0), total, found)

        numbers = jnp.zeros(self.layout.num_values)
        nothing = _Evidence(jnp.zeros(self.layout.num_categorical), numbers, numbers)
        total = jax.lax.fori_loop(0, -(-held.number // batch), one_batch, nothing)
        return jax.tree.map(lambda leaf: leaf / held.number, total)

    def _loss(self, network: Predictor, rows: Int[Array, " batch"]) -> Float[Array, ""]:
        return self._lost(network, rows).mean(axis=0).sum()

    def _lost(self, network: Predictor, rows: Int[Array, " batch"]) -> Float[Array, "batch slots"]:
        targets = jax.tree.map(lambda leaf: leaf[rows], self.rows.targets)

        def one(x: Array, classes: Array, values: Array) -> Array:
            said = network.predict(x, classes, self.seen)
            return negative_log_likelihood(said, Targets(classes, values), self.varies)

        return jax.vmap(one)(self.rows.x[rows], *targets)

    @property
    def _optimiser(self) -> optax.GradientTransformation:
        return optax.adamw(self.settings.learning_rate, weight_decay=self.settings.weight_decay)
