"""How good a model is: on the rows that its members held out, and against the truth where that is known."""

from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float

from marco.environments.base import Environment, FiniteEnvironment
from marco.model.components import Model
from marco.model.description import Description, in_words
from marco.model.early_stopping import ComponentFit
from marco.model.environment import DescribedEnvironment, LearnedEnvironment, ModelEnvironment
from marco.model.fit import Fits
from marco.model.inputs import ComponentName
from marco.model.report.component import ComponentReport, component_report, mean_or_none, visit_bins
from marco.model.report.exact import Pairs, dynamics_error, reachable_pairs
from marco.model.report.held_out import BINS
from marco.model.report.open_loop import OpenLoopError, open_loop_error
from marco.model.rows import Data
from marco.policies.base import RandomPolicy

TEST_EPISODES = 100
"""True episodes of random play for the open-loop error; the model never learns from them."""


class ErrorBin(NamedTuple):
    """The exact error of pairs that are in the data about equally often; None without pairs."""

    visits: str
    pairs: int
    total_variation: float | None
    impossible: float | None


class ExactReport(NamedTuple):
    """How far the dynamics are from the true ones, exactly, over all reachable pairs (s, a)."""

    pairs: int
    total_variation: float
    """The mean over pairs, each counting the same."""
    visited_total_variation: float
    """The mean over the data: each pair counts as often as it occurs."""
    largest: float
    impossible: float
    """The mean probability of impossible next states."""
    histogram: tuple[int, ...]
    """Of total variation, from 0 to 1."""
    by_visits: tuple[ErrorBin, ...]


class ModelReport(NamedTuple):
    """All that is known of how good a model is."""

    environment: str
    samples: int
    """The real steps it was learned from."""
    components: tuple[ComponentReport, ...]
    exact: ExactReport | None
    open_loop: OpenLoopError | None
    description: tuple[str, ...] = ()
    """What the columns of the environment were found, or said, to mean, and how long the state is remembered;
    nothing where its spec says it all."""

    def as_dict(self) -> dict[str, Any]:
        """Plain dictionaries, lists and numbers, for JSON."""
        plain: dict[str, Any] = _plain(self)
        return plain


def report_environment(
    environment: ModelEnvironment, fits: Fits, data: tuple[Data, ...], true_environment: Any
) -> ModelReport:
    """Evaluate a fitted model against all that is known of the true environment. Nothing is fitted.

    `environment` and `fits` are those of `fit_model`, for one seed; `data` is what they were fitted to. Where
    there are several models, one per agent, the first agent's is evaluated.
    """
    model, true_spec = environment.models[0], true_environment.spec
    continuous = model.spec.state_has_numbers
    pairs = None
    if isinstance(true_environment, FiniteEnvironment) and model.spec == true_environment.spec:
        pairs = None if continuous else reachable_pairs(true_environment)
    loop: OpenLoopError | None = None
    description: Description | None = None
    if isinstance(environment, DescribedEnvironment):
        description = environment.description
        environment = environment.inner
    comparable = isinstance(environment, LearnedEnvironment) and model.spec.frames == 1
    if isinstance(true_environment, Environment) and comparable:
        key, horizon = jax.random.key(1_000_000), true_environment.spec.horizon
        if continuous:
            loop = open_loop_error(
                key, model, true_environment, RandomPolicy(), TEST_EPISODES, horizon, description
            )
    found = model_report(model, fits[0], data[0], pairs, loop)
    words = () if description is None else in_words(description, true_spec)
    if model.spec.frames > 1:
        words += (f"the state is remembered: it is that of the last {model.spec.frames} steps",)
    return found._replace(description=words)


def model_report(
    model: Model,
    fits: dict[ComponentName, ComponentFit],
    data: Data,
    pairs: Pairs | None = None,
    open_loop: OpenLoopError | None = None,
) -> ModelReport:
    """Evaluate a model on the rows that its members held out, and against the truth where that is given.

    `fits` and `data` are those of the model's fit. `pairs` (of `reachable_pairs`) adds the exact error of the
    dynamics, for discrete states; `open_loop` (of `open_loop_error`) the error over many steps.
    """
    floors = {} if pairs is None else {"dynamics": true_nats(pairs, data)}
    parts = tuple(component_report(model, name, fit, data, floors.get(name)) for name, fit in fits.items())
    exact = None if pairs is None else exact_report(model, pairs, data)
    return ModelReport(model.spec.name, int(data.num_steps), parts, exact, open_loop)


def exact_report(model: Model, pairs: Pairs, data: Data) -> ExactReport:
    """The exact error of the dynamics, by how often the pairs are in the data."""
    found = dynamics_error(model, pairs, data)
    variation, impossible = found.total_variation, found.impossible
    bins = [
        ErrorBin(label, int(here.sum()), mean_or_none(variation[here]), mean_or_none(impossible[here]))
        for label, here in visit_bins(found.seen)
    ]
    counts, _ = np.histogram(variation, BINS, (0.0, 1.0))
    return ExactReport(
        pairs=len(variation),
        total_variation=float(variation.mean()),
        visited_total_variation=float((variation * found.seen).sum() / max(found.seen.sum(), 1)),
        largest=float(variation.max()),
        impossible=float(impossible.mean()),
        histogram=tuple(counts.tolist()),
        by_visits=tuple(bins),
    )


def true_nats(pairs: Pairs, data: Data) -> Float[np.ndarray, " rows"]:
    """-ln T(s'|s,a) of each real step under the true dynamics: on average no model has a lower loss.

    NaN for steps that the true dynamics cannot take.
    """
    index = {_key(s, a): row for row, (s, a) in enumerate(zip(pairs.state, pairs.actions, strict=True))}
    count = int(data.num_steps)
    steps = [np.asarray(leaf)[:count] for leaf in data.steps[:3]]
    found = np.full(count, np.nan)
    for row, (state, actions, next_state) in enumerate(zip(*steps, strict=True)):
        pair = index.get(_key(state, actions))
        if pair is None:
            continue
        probability = pairs.chance[pair][(pairs.following[pair] == next_state).all(-1)].sum()
        if probability > 0.0:
            found[row] = -np.log(probability)
    return found


def _key(state: np.ndarray, actions: np.ndarray) -> bytes:
    return np.asarray(state, np.float32).tobytes() + np.asarray(actions, np.int32).tobytes()


def _plain(value: Any) -> Any:
    if hasattr(value, "_asdict"):
        return {name: _plain(part) for name, part in value._asdict().items()}
    return [_plain(part) for part in value] if isinstance(value, tuple) else value
