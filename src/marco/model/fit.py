"""Maximum likelihood: every component of a model from the same real data."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from marco.model.components import Component, Known, Model, layouts
from marco.model.early_stopping import ComponentFit, FitConfig, Rows, fit_component
from marco.model.inputs import COMPONENTS, ComponentName, Inputs
from marco.model.likelihoods import Layout, Targets
from marco.model.predictors import PredictorConfig
from marco.model.rows import Data
from marco.types import Spec, concatenate_observations


@dataclass(frozen=True)
class ModelConfig:
    """The networks of each component, and how they are trained."""

    dynamics: PredictorConfig
    reward: PredictorConfig
    observation: PredictorConfig
    termination: PredictorConfig
    available: PredictorConfig
    training: FitConfig
    outcomes: FitConfig | None = None
    """How the reward and the termination are trained, if otherwise: what they tell of can be so rare that
    little is gained per row, and nothing for many rounds before it is found out."""
    distances: bool = True
    """Whether distances within the state are shown to the networks too."""

    def __post_init__(self) -> None:
        if self.available.kind != "factored":
            raise ValueError(
                f"ModelConfig: available must be factored, got {self.available.kind!r}: all actions are "
                "asked for at once, so none can be given those before it."
            )

    def training_of(self, name: ComponentName) -> FitConfig:
        """How a component is trained."""
        return self.outcomes if self.outcomes and name in ("reward", "termination") else self.training


def fit(
    key: PRNGKeyArray,
    spec: Spec,
    data: Data,
    settings: ModelConfig,
    known: dict[ComponentName, Any] | None = None,
) -> tuple[Model, dict[ComponentName, ComponentFit]]:
    """Learn every component that is not known from all data, from scratch."""
    fitted = {name: fit_one(key, spec, data, settings, name) for name in to_learn(known or {})}
    components = {name: component for name, (component, _) in fitted.items()}
    reports = {name: report for name, (_, report) in fitted.items()}
    return model_of(spec, data, settings, components, known or {}), reports


def to_learn(known: Iterable[str]) -> list[ComponentName]:
    """The components that are not known; the starts need no training."""
    if unknown := set(known) - set(COMPONENTS):
        raise ValueError(f"no such component: {', '.join(unknown)}; there are {', '.join(COMPONENTS)}.")
    return [name for name in COMPONENTS if name not in ("start", *known)]


def fit_one(
    key: PRNGKeyArray, spec: Spec, data: Data, settings: ModelConfig, name: ComponentName
) -> tuple[Component, ComponentFit]:
    """Learn one component: none needs another."""
    inputs = Inputs(spec, settings.distances)
    layout = layouts(spec, continuous_reward=data.reward_values.shape[-1] == 0)[name]
    return fit_component(
        jax.random.fold_in(key, COMPONENTS.index(name)),
        problem(inputs, name, layout, data),
        layout,
        inputs.numeric(name),
        getattr(settings, name),
        settings.training_of(name),
    )


def model_of(
    spec: Spec,
    data: Data,
    settings: ModelConfig,
    components: dict[ComponentName, Component],
    known: dict[ComponentName, Any],
) -> Model:
    """The model of components learned and known; its starts are those that were seen, if not known."""
    given: dict[str, Any] = {name: Known(function) for name, function in known.items()}
    return Model(
        known_start=given.pop("start", None),
        **components,
        **given,
        reward_values=jnp.asarray(data.reward_values),
        starts=jnp.asarray(data.starts),
        num_starts=jnp.asarray(data.num_starts),
        inputs=Inputs(spec, settings.distances),
    )


def problem(inputs: Inputs, name: ComponentName, layout: Layout, data: Data) -> Rows:
    """What goes in and what should come out, for one component."""
    steps, moments = data.steps, data.moments
    match name:
        case "dynamics":
            x = inputs.before_step(steps.state, steps.actions)
            change = steps.following[:, layout.value_columns] - steps.state[:, layout.value_columns]
            targets = layout.split(jnp.asarray(steps.following))._replace(values=change)
            return Rows(x, targets, steps.episode, data.num_steps)
        case "reward" | "termination":
            x = inputs.after_step(steps.state, steps.actions, steps.following)
            return Rows(x, _outcome(name, data), steps.episode, data.num_steps)
        case "observation":
            x = inputs.before_step(moments.state, moments.previous_actions)
            shown = layout.split(concatenate_observations(inputs.spec, moments.observation))
            return Rows(x, shown, moments.episode, data.num_moments)
        case _:
            masks = moments.available[:, *np.nonzero(inputs.spec.actions_exist)]
            targets = Targets(masks.astype(jnp.int32), jnp.zeros((len(masks), 0)))
            return Rows(inputs.moment(moments.state), targets, moments.episode, data.num_moments)


def _outcome(name: ComponentName, data: Data) -> Targets:
    rewards = data.steps.reward
    if name == "termination":
        return Targets(data.steps.terminated.astype(jnp.int32)[:, None], jnp.zeros((len(rewards), 0)))
    if not data.reward_values.size:
        return Targets(jnp.zeros((len(rewards), 0), jnp.int32), rewards[:, None])
    nearest = jnp.argmin(jnp.abs(rewards[:, None] - data.reward_values), axis=-1).astype(jnp.int32)
    return Targets(nearest[:, None], jnp.zeros((len(rewards), 0)))
