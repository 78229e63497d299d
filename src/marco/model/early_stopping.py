"""The training of one component: an ensemble in which every unit of every member is stopped on its own."""

import math
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from marco.model.components import Bounds, Component, Scaling
from marco.model.config import FitConfig, PredictorConfig
from marco.model.likelihoods import Layout, Targets, negative_log_likelihood
from marco.model.predictors import Predictor, create_predictor
from marco.model.relations import guess_by
from marco.sampling import draw_below

TELLING = 0.01
"""Held-out rows judge a value if it varies there by this share of its variance over all rows, or more."""


LEAST_GAIN = 1e-3
"""In nats per row: a component that gains less over its floor has learned nothing."""


UNLIKELY = math.log(10.0)
"""In nats: a class that was given less than one chance in ten."""


RELAXED, LEAST_SPARSITY = 0.3, 0.05
"""A unit that gains nothing any more is drawn to 0 by so much less, and not at all below the second."""


CERTAIN, PRECISE = 3e-5, 1e-7
"""Classes are all but right if they are predicted within so many nats, values if their squared error is below
this share of their variance."""


class ComponentFit(NamedTuple):
    """How a component's training went."""

    loss: Float[Array, "*members units"]
    """The held-out loss: nats per row, none counted as worse than `FitConfig.most_nats` allows; of continuous
    features half the log of their squared errors."""
    floor: Float[Array, "*members units"]
    """The same loss of who knows the frequencies of the classes and the means of the values, and no more."""
    held_out: Bool[Array, "*members rows"]
    """Which rows each member never trained on."""
    epochs: Int[Array, "*members"]
    steps: Int[Array, "*members"]
    """Gradient steps."""

    def learned_nothing(self) -> Bool[np.ndarray, "*seeds"]:
        """Whether the component is no better than its floor, where there is something to be learned.

        Classes of which only one was met, and values that never vary, have a floor of exactly 0.
        """
        loss, floor = np.asarray(self.loss), np.asarray(self.floor)
        gain = (floor - loss).sum(-1).mean(-1)
        return np.asarray((floor != 0.0).any((-2, -1)) & (gain < LEAST_GAIN))


class Examples(NamedTuple):
    """Supervised examples; rows from `number` on are padding."""

    x: Float[Array, "rows in"]
    targets: Targets
    episode: Int[Array, " rows"]
    """Of which episode: rows of one episode are correlated, so that whole episodes are held out."""
    number: Int[Array, ""]


@partial(jax.jit, static_argnames=("layout", "numeric", "predictor", "config"))
def fit_ensemble(
    key: PRNGKeyArray,
    rows: Examples,
    layout: Layout,
    numeric: tuple[bool, ...],
    predictor: PredictorConfig,
    config: FitConfig,
) -> tuple[Component, ComponentFit]:
    """Train an ensemble. The program depends on the padded size alone: new data recompile nothing."""
    guess = guess_by(layout, rows.x, rows.targets.classes, rows.number)
    if guess is not None:
        rows = rows._replace(x=guess.widen(layout, rows.x))
        numeric += (False,) * (rows.x.shape[-1] - len(numeric))
    inputs = _scaling(rows.x, rows.number, jnp.asarray(numeric))
    # An input that never varied may vary later, and must then make a difference.
    inputs = Scaling(inputs.shift, jnp.where(inputs.scale > 0.0, inputs.scale, 1.0))
    everything = jnp.ones(layout.num_values, bool)
    values = _scaling(rows.targets.values, rows.number, everything)
    seen = _seen(rows, layout)
    targets = rows.targets._replace(values=values.normalise(rows.targets.values))
    scaled = rows._replace(x=inputs.normalise(rows.x), targets=targets)
    training = _Training(scaled, seen, values.scale > 0.0, predictor, layout, config)
    members, report = jax.vmap(training.member)(jax.random.split(key, predictor.members))
    bounds = _bounds(targets.values, rows.number)
    component = Component(members, inputs, values, seen, bounds, layout, guess)
    return component, report._replace(epochs=report.epochs.max(), steps=report.steps.max())


def _scaling(x: Float[Array, "rows dimensions"], count: Int[Array, ""], scaled: Any) -> Scaling:
    """Mean and standard deviation of the true rows; dimensions that are not `scaled` stay as they are."""
    true = (jnp.arange(x.shape[0]) < count)[:, None]
    # Not jnp.mean and jnp.std with `where`: with them models of continuous states differ in their last bits.
    mean = jnp.sum(jnp.where(true, x, 0.0), axis=0) / count
    deviation = jnp.sqrt(jnp.sum(jnp.where(true, jnp.square(x - mean), 0.0), axis=0) / count)
    first, constant = x[0], ~_varies(x, count)
    shift, scale = jnp.where(constant, first, mean), jnp.where(constant, 0.0, deviation)
    return Scaling(jnp.where(scaled, shift, 0.0), jnp.where(scaled, scale, 1.0))


def _of_classes(table: Float[Array, "F K"], classes: Int[Array, "rows F"]) -> Float[Array, "rows F"]:
    """The entry of each feature's class."""
    return jnp.take_along_axis(table[None], classes[:, :, None], axis=-1)[:, :, 0]


def _varies(x: Float[Array, "rows dimensions"], count: Int[Array, ""]) -> Bool[Array, " dimensions"]:
    """Which dimensions have more than one value in the true rows."""
    true = (jnp.arange(x.shape[0]) < count)[:, None]
    return jnp.any(true & (x != x[0]), axis=0)


def _bounds(scaled: Float[Array, "rows C"], count: Int[Array, ""]) -> Bounds:
    true = (jnp.arange(scaled.shape[0]) < count)[:, None]
    low = jnp.min(jnp.where(true, scaled, jnp.inf), axis=0)
    high = jnp.max(jnp.where(true, scaled, -jnp.inf), axis=0)
    margin = 0.5 * (high - low)
    return Bounds(low - margin, high + margin)


def _seen(rows: Examples, layout: Layout) -> Array:
    true = jnp.arange(rows.x.shape[0]) < rows.number
    occurs = rows.targets.classes[:, :, None] == jnp.arange(layout.num_classes)
    return jnp.any(occurs & true[:, None, None], axis=0)


class _TrainingMetrics(NamedTuple):
    """Means over the rows trained on of late."""

    nats: Float[Array, " F"]
    missed: Float[Array, " F"]
    """By how much rows are predicted worse than `UNLIKELY`."""


def _training_metrics(nats: Float[Array, "batch F"], weights: Float[Array, " batch"]) -> _TrainingMetrics:
    """Weighted means over a batch."""
    each = (nats, jnp.maximum(nats - UNLIKELY, 0.0))
    return _TrainingMetrics(*(jnp.mean(weights[:, None] * one, axis=0) for one in each))


class _Progress(NamedTuple):
    """The training state of one member."""

    network: Predictor
    optimiser: Any
    average: Predictor
    best: Predictor
    loss: Float[Array, " units"]
    milestone: Float[Array, " units"]
    """The loss at the last gain of at least `min_delta`."""
    stale: Int[Array, " units"]
    """Epochs since then."""
    sparsity: Float[Array, " units"]
    """How strongly the input weights are still drawn to 0."""
    epoch: Int[Array, ""]
    """Epochs trained; -1 before the prior was evaluated, which may be best."""
    steps: Int[Array, ""]
    surprise: Float[Array, " rows"]
    """How badly each row trained on was predicted when it was last drawn: a feature's usual nats are 1."""
    trained: _TrainingMetrics
    metrics: "_HeldOutMetrics"
    """Of the best of each unit."""


class _HeldOutMetrics(NamedTuple):
    """Means over held-out rows."""

    nats: Float[Array, " F"]
    """The negative log-likelihood of each categorical feature, none counted as more than the worst."""
    squared_error: Float[Array, " C"]
    squared_z: Float[Array, " C"]
    """The squared error over the predicted variance: 1, if the variance is calibrated."""


def _criterion(
    nats: Float[Array, " F"], squared_error: Float[Array, " C"], judged: Bool[Array, " C"]
) -> Float[Array, " slots"]:
    """The criterion of early stopping: nats, and of continuous features the log of their error alone.

    The predicted variance becomes overconfident long before the mean stops improving; it is recalibrated at
    the end.
    """
    if not squared_error.size:
        return nats
    continuous = jnp.where(judged, 0.5 * jnp.log(squared_error + 1e-9), 0.0)
    return jnp.concatenate([nats, continuous.sum(keepdims=True)])


class _Subset(NamedTuple):
    """Some of the rows: the first `number` of those listed."""

    rows: Int[Array, " rows"]
    number: Int[Array, ""]


class _Lesson(NamedTuple):
    """What an epoch trains on: a place among the rows trained on for each draw, and how much it weighs."""

    places: Int[Array, " rows"]
    weights: Float[Array, " rows"]


def _lesson(
    key: PRNGKeyArray, surprise: Float[Array, " rows"], number: Int[Array, ""], share: float
) -> _Lesson:
    """A `share` of the draws by surprise, the rest even; weights make up for it in the gradient.

    An event of three rows in ten thousand is in one batch of thirty where draws are even: until it comes
    again, the optimiser has forgotten it.
    """
    listed = jnp.arange(surprise.shape[0]) < number
    surprise = jnp.where(listed, surprise + 1e-6, 0.0)
    chance = jnp.where(listed, (1.0 - share) / number, 0.0) + share * surprise / surprise.sum()
    # One row at every nth part of the whole: no row is drawn by chance less often than its due.
    marks = (jnp.arange(surprise.shape[0]) + jax.random.uniform(key)) / number
    places = jnp.minimum(jnp.searchsorted(jnp.cumsum(chance), marks, method="sort"), number - 1)
    return _Lesson(places.astype(jnp.int32), 1.0 / (number * chance[places]))


def _subset(mask: Bool[Array, " rows"]) -> _Subset:
    (rows,) = jnp.nonzero(mask, size=mask.size)
    return _Subset(rows.astype(jnp.int32), jnp.sum(mask, dtype=jnp.int32))


@dataclass(frozen=True)
class _Training:
    """The training of one member; an ensemble is a `vmap` over keys."""

    rows: Examples
    seen: Array
    varies: Array
    predictor: PredictorConfig
    layout: Layout
    config: FitConfig

    def member(self, key: PRNGKeyArray) -> tuple[Predictor, ComponentFit]:
        """Train from fresh weights until no unit improves any more."""
        key_network, key_split, key_boot, key_epochs = jax.random.split(key, 4)
        train_on, held_out = self._split(key_split)
        train, held, judged = _subset(train_on), _subset(held_out), self._judged(held_out)
        frequency = self._frequency(train_on)
        most = jnp.inf if self.config.most_nats is None else self.config.most_nats
        worst = jnp.maximum(most, jnp.log(2.0) - frequency)
        if self.config.bootstrap:
            again = draw_below(key_boot, train.number, train.rows.shape)
            train = train._replace(rows=train.rows[again])
        network = create_predictor(self.predictor, key_network, self.rows.x.shape[-1], self.layout)
        units = jax.eval_shape(network.losses, jnp.zeros(self.layout.num_slots)).shape[0]
        progress = _Progress(
            network=network,
            optimiser=self._optimiser.init(network),
            average=network,
            best=network,
            loss=jnp.full(units, jnp.inf),
            milestone=jnp.full(units, jnp.inf),
            stale=jnp.zeros(units, jnp.int32),
            sparsity=self._sparsity(network),
            epoch=jnp.int32(-1),
            steps=jnp.int32(0),
            surprise=jnp.ones(train.rows.shape),
            trained=self._untrained(),
            metrics=self._unknown(),
        )

        def going_on(progress: _Progress) -> Array:
            return (progress.epoch < self.config.max_epochs) & jnp.any(progress.stale < self.config.patience)

        def one_epoch(progress: _Progress) -> _Progress:
            key_epoch = jax.random.fold_in(key_epochs, progress.epoch)
            progress = self._evaluate(held, worst, judged, self._train(key_epoch, train, progress))
            if self._sparse:
                progress = self._relax(progress)
            return progress._replace(epoch=progress.epoch + 1)

        progress = jax.lax.while_loop(going_on, one_epoch, progress)
        metrics = progress.metrics
        correction = jnp.where(judged, jnp.log(jnp.maximum(metrics.squared_z, 1e-6)), 0.0)
        best = progress.best.recalibrate_variance(correction)
        loss = network.losses(_criterion(metrics.nats, metrics.squared_error, judged))
        floor = network.losses(self._floor(frequency, held_out, judged))
        return best, ComponentFit(loss, floor, held_out, progress.epoch, progress.steps)

    def _unknown(self) -> _HeldOutMetrics:
        values = jnp.zeros(self.layout.num_values)
        return _HeldOutMetrics(jnp.zeros(self.layout.num_categorical), values, values)

    def _untrained(self) -> _TrainingMetrics:
        """Of fresh weights, to which all classes that were seen are equally likely."""
        nats = jnp.log(jnp.maximum(jnp.sum(self.seen, axis=-1), 1))
        return _TrainingMetrics(nats, jnp.maximum(nats - UNLIKELY, 0.0))

    def _sparsity(self, network: Predictor) -> Float[Array, " units"]:
        """Less where values share a network: the gradient of one that is hard is a small part of all."""
        slots = np.ones(self.layout.num_slots, np.float32)
        slots[self.layout.num_categorical :] = self.layout.num_values
        share = 1.0 / jnp.sqrt(network.losses(jnp.asarray(slots)))
        return self.config.sparsity * share if self._sparse else jnp.zeros_like(share)

    def _judged(self, held_out: Bool[Array, " rows"]) -> Bool[Array, " C"]:
        """The values that held-out rows can judge: those that vary there.

        Where a rare change is not among them, to predict no change is right to the last digit: by the log of
        its error such a value would outweigh all others, and anything learned would seem a loss.
        """
        values = self.rows.targets.values
        mean = jnp.mean(values, axis=0, where=held_out[:, None])
        spread = jnp.mean(jnp.square(values - mean), axis=0, where=held_out[:, None])
        telling = self.varies & (
            spread >= TELLING
        )  # values are normalised: over all rows their variance is 1
        # If there are none, all are judged: then nothing is learned, and that is said.
        return jnp.where(telling.any(), telling, self.varies)

    def _frequency(self, train_on: Bool[Array, " rows"]) -> Float[Array, "F K"]:
        """The log of the frequencies of classes among training rows."""
        shown = self.rows.targets.classes[:, :, None] == jnp.arange(self.layout.num_classes)
        count = jnp.sum(shown & train_on[:, None, None], axis=0) + jnp.where(self.seen, 0.5, 0.0)
        return jnp.log(jnp.maximum(count, 1e-9)) - jnp.log(count.sum(-1, keepdims=True))

    def _floor(
        self, frequency: Float[Array, "F K"], held_out: Bool[Array, " rows"], judged: Bool[Array, " C"]
    ) -> Float[Array, " slots"]:
        """The criterion for the frequencies of classes, and for the means of values."""
        targets = self.rows.targets
        each = _of_classes(frequency, targets.classes)
        nats = -jnp.mean(each, axis=0, where=held_out[:, None])
        return _criterion(nats, jnp.mean(jnp.square(targets.values), axis=0, where=held_out[:, None]), judged)

    def _split(self, key: PRNGKeyArray) -> tuple[Bool[Array, " rows"], Bool[Array, " rows"]]:
        """Episodes to train on and held-out episodes, at least one of each; a single episode is both."""
        true = jnp.arange(self.rows.x.shape[0]) < self.rows.number
        u = jnp.where(true, jax.random.uniform(key, true.shape)[self.rows.episode], 2.0)
        first, last = u.min(), jnp.where(true, u, -1.0).max()
        held = true & ((u == first) | ((u < self.config.holdout) & (u != last)))
        train = true & (~held | (first == last))
        return train, held

    def _train(self, key: PRNGKeyArray, train: _Subset, progress: _Progress) -> _Progress:
        batch, inputs_vary = self.config.batch_size, _varies(self.rows.x, self.rows.number)
        steps = jnp.maximum(-(-train.number // batch), self.config.min_steps_per_epoch)
        steps = jnp.where(progress.epoch < 0, 0, steps)  # the prior is evaluated by the same code

        lesson = _Lesson(jnp.arange(train.rows.shape[0]), jnp.ones(train.rows.shape))
        if self.config.surprises:
            lesson = _lesson(key, progress.surprise, train.number, self.config.surprises)

        def one_step(index: Array, carry: tuple[Any, ...]) -> tuple[Any, ...]:
            network, optimiser, average, surprise, trained = carry
            drawn = draw_below(jax.random.fold_in(key, index), train.number, (batch,))
            places, weights = lesson.places[drawn], lesson.weights[drawn]
            gradient, nats = jax.grad(self._loss, has_aux=True)(network, train.rows[places], weights)
            change, optimiser = self._optimiser.update(gradient, optimiser, network)
            network = optax.apply_updates(network, change)
            if self._sparse:
                by = progress.sparsity * self.config.learning_rate
                network = network.shrink_inputs(by, inputs_vary)
            # A shorter average at first, which does not remember the random weights of the start.
            done = progress.steps + index
            decay = jnp.minimum(self.config.ema_decay, done / (done + 10.0))
            now = (network, _training_metrics(nats, weights))
            average, trained = jax.tree.map(
                lambda old, new: decay * old + (1.0 - decay) * new, (average, trained), now
            )
            surprise = surprise.at[places].set(jnp.sum(nats / (trained.nats + LEAST_GAIN), axis=-1))
            return network, optimiser, average, surprise, trained

        carry = (progress.network, progress.optimiser, progress.average, progress.surprise, progress.trained)
        network, optimiser, average, surprise, trained = jax.lax.fori_loop(0, steps, one_step, carry)
        return progress._replace(
            network=network,
            optimiser=optimiser,
            average=average,
            steps=progress.steps + steps,
            surprise=surprise,
            trained=trained,
        )

    def _evaluate(
        self, held: _Subset, worst: Float[Array, "F K"], judged: Bool[Array, " C"], progress: _Progress
    ) -> _Progress:
        metrics = self._held_out_metrics(progress.average, held, worst)
        nats = metrics.nats + self.config.trained * progress.trained.missed
        now = progress.average.losses(_criterion(nats, metrics.squared_error, judged))
        better = now < progress.loss
        gained = now < progress.milestone - self.config.min_delta
        known = progress.average.losses(self._open(nats, metrics.squared_error, judged)) == 0.0
        return progress._replace(
            best=progress.average.choose(better, progress.best),
            metrics=self._of_best(better, metrics, progress),
            loss=jnp.where(better, now, progress.loss),
            milestone=jnp.where(gained, now, progress.milestone),
            stale=jnp.where(known, self.config.patience, jnp.where(gained, 0, progress.stale + 1)),
            sparsity=jnp.where(known, 0.0, progress.sparsity),
        )

    def _open(
        self, nats: Float[Array, " F"], squared_error: Float[Array, " C"], judged: Bool[Array, " C"]
    ) -> Float[Array, " slots"]:
        """1 for what may still gain something: a unit that is all but right need not be waited for."""
        classes, values = nats > CERTAIN, jnp.any(judged & (squared_error > PRECISE))
        found = jnp.append(classes, values) if squared_error.size else classes
        return found.astype(jnp.float32)

    def _of_best(
        self, better: Bool[Array, " units"], now: _HeldOutMetrics, progress: _Progress
    ) -> _HeldOutMetrics:
        """Those of now, for what units that are better now predict."""
        slots = jnp.eye(self.layout.num_slots)
        new = better.astype(jnp.float32) @ jax.vmap(progress.best.losses)(slots).T > 0.5
        classes, values = new[: self.layout.num_categorical], jnp.any(new[self.layout.num_categorical :])
        chosen = _HeldOutMetrics(classes, values, values)
        return jax.tree.map(jnp.where, chosen, now, progress.metrics)

    def _relax(self, progress: _Progress) -> _Progress:
        """A unit that is sparse and has stopped goes on with less: shrunk weights are a little too small."""
        stopped = (progress.sparsity > 0.0) & (progress.stale >= self.config.patience)
        less = progress.sparsity * RELAXED
        less = jnp.where(less < LEAST_SPARSITY, 0.0, less)
        return progress._replace(
            sparsity=jnp.where(stopped, less, progress.sparsity), stale=jnp.where(stopped, 0, progress.stale)
        )

    def _held_out_metrics(
        self, network: Predictor, held: _Subset, worst: Float[Array, "F K"]
    ) -> _HeldOutMetrics:
        """Means over the held-out rows, batch by batch."""
        batch = self.config.batch_size

        def one_batch(index: Array, total: _HeldOutMetrics) -> _HeldOutMetrics:
            places = index * batch + jnp.arange(batch)
            rows = held.rows[places % held.number]
            targets = jax.tree.map(lambda leaf: leaf[rows], self.rows.targets)
            predict = jax.vmap(lambda x, classes: network.predict(x, classes, self.seen))
            predicted = predict(self.rows.x[rows], targets.classes)
            squared = jnp.square(targets.values - predicted.mean)
            nats = negative_log_likelihood(predicted, targets, self.varies)[:, : self.layout.num_categorical]
            nats = jnp.minimum(nats, _of_classes(worst, targets.classes))
            found = _HeldOutMetrics(nats, squared, squared * jnp.exp(-predicted.log_variance))
            counted = (places < held.number)[:, None]
            return jax.tree.map(lambda t, f: t + jnp.where(counted, f, 0.0).sum(0), total, found)

        total = jax.lax.fori_loop(0, -(-held.number // batch), one_batch, self._unknown())
        return jax.tree.map(lambda leaf: leaf / held.number, total)

    def _loss(
        self, network: Predictor, rows: Int[Array, " batch"], weights: Float[Array, " batch"]
    ) -> tuple[Float[Array, ""], Float[Array, "batch F"]]:
        """The weighted mean of the loss; and the nats of each row and categorical feature."""
        targets = jax.tree.map(lambda leaf: leaf[rows], self.rows.targets)

        def one(x: Array, classes: Array, values: Array) -> Array:
            predicted = network.predict(x, classes, self.seen)
            return negative_log_likelihood(predicted, Targets(classes, values), self.varies, self.config.beta)

        loss = jax.vmap(one)(self.rows.x[rows], *targets)
        return (weights[:, None] * loss).mean(axis=0).sum(), loss[:, : self.layout.num_categorical]

    @property
    def _sparse(self) -> bool:
        return self.config.sparsity > 0.0 and self.predictor.kind == "chain"

    @property
    def _optimiser(self) -> optax.GradientTransformation:
        return optax.adamw(self.config.learning_rate, weight_decay=self.config.weight_decay)
