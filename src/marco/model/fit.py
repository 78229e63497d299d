"""Fitting a model by maximum likelihood: every component of it from the same real data."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from marco.model.certain import Certain, certain
from marco.model.codes import NO_CODES, Codes
from marco.model.components import Component, Known, Model, layouts
from marco.model.config import ModelConfig
from marco.model.early_stopping import ComponentFit, Examples, fit_ensemble
from marco.model.environment import ModelEnvironment, ResampleMember
from marco.model.inputs import COMPONENTS, ComponentName, Inputs
from marco.model.likelihoods import Layout, Targets
from marco.model.predictors import create_predictor
from marco.model.relations import guess_blocks
from marco.model.rows import Data, gather
from marco.model.views import View
from marco.types import Episode, Spec, concatenate_observations

Part = tuple[int, ComponentName]
"""What is fitted by itself: the index of the model, and the component of that model."""

Fits = tuple[dict[ComponentName, ComponentFit], ...]
"""How the training of each component went, for each model."""


@dataclass(frozen=True)
class ModelPlan:
    """Which model to fit, of which environment. It is static: a program depends on it and on data shapes."""

    view: View
    config: ModelConfig
    spec: Spec
    """Of the true environment."""
    resample_member: ResampleMember = "step"
    known: tuple[tuple[ComponentName, Any], ...] = ()
    """Functions of the central state that need not be learned, by component."""
    certain: tuple[Certain, ...] = ()
    """Features that need not be learned, for each model; nothing is certain, if not given."""

    def gather(self, episodes: Episode, capacity: int | None = None) -> tuple[Data, ...]:
        """The rows that each model learns from, of real episodes (axes T B). Runs on the host."""
        viewed = self.view.episodes(self.spec, episodes)
        specs = self.view.model_specs(self.spec)
        return tuple(gather(spec, own, capacity) for spec, own in zip(specs, viewed, strict=True))

    def components(self) -> tuple[Part, ...]:
        """All that is to be fitted. The starts need no training."""
        given = dict(self.known)
        if unknown := set(given) - set(COMPONENTS):
            raise ValueError(f"no such component: {', '.join(unknown)}; there are {', '.join(COMPONENTS)}.")
        return tuple(
            (index, name)
            for index, spec in enumerate(self.view.model_specs(self.spec))
            for name in COMPONENTS
            if name not in ("start", *self.view.known(spec, given))
        )

    def sizes(self) -> dict[ComponentName, int]:
        """About how many numbers the training of each component keeps: weights, their copies, and a batch."""
        return dict(_sizes(self))

    def arithmetic(self, part: Part) -> int:
        """About how many floating-point operations a gradient step of a component takes."""
        predictor, batch = self.config.predictor(part[1]), self.config.training_of(part[1]).batch_size
        return 6 * self.weights(part) * self.turns(part) * batch * predictor.members

    def weights(self, part: Part) -> int:
        """Those of one member."""
        predictor, layout = self.config.predictor(part[1]), self._layout(part[0], False, part[1])
        create = partial(create_predictor, predictor, size_in=self.width(part), layout=layout)
        return sum(leaf.size for leaf in jax.tree.leaves(jax.eval_shape(create, jax.random.key(0))))

    def width(self, part: Part) -> int:
        """The columns of its inputs."""
        index, name = part
        inputs = self.config.inputs(self.view.model_specs(self.spec)[index])
        return len(inputs.numeric(name)) + sum(
            block.width for block in guess_blocks(self._layout(index, False, name))
        )

    def turns(self, part: Part) -> int:
        """How many times its weights are used for a row."""
        index, name = part
        recurrent = self.config.predictor(name).kind == "recurrent"
        return self._layout(index, False, name).num_categorical if recurrent else 1

    def fit_component(
        self, key: PRNGKeyArray, data: tuple[Data, ...], part: Part
    ) -> tuple[Component, ComponentFit]:
        """Fit one component: none depends on another."""
        index, name = part
        specs = self.view.model_specs(self.spec)
        if len(data) != len(specs):
            raise ValueError(f"{self.spec.name} has {len(specs)} models in this view, got {len(data)} Data.")
        own = data[index]
        inputs = self.config.inputs(specs[index])
        layout = self._layout(index, own.reward_values.shape[-1] == 0, name)
        return fit_ensemble(
            jax.random.fold_in(jax.random.split(key, len(specs))[index], COMPONENTS.index(name)),
            examples(inputs, name, layout, own),
            layout,
            inputs.numeric(name),
            self.config.predictor(name),
            self.config.training_of(name),
        )

    def assemble(
        self, data: tuple[Data, ...], fitted: dict[Part, tuple[Component, ComponentFit]]
    ) -> tuple[ModelEnvironment, Fits]:
        """The learned environment of all fitted components, and how the training of each model went."""
        specs = self.view.model_specs(self.spec)
        models, fits = [], []
        for index, (spec, rows) in enumerate(zip(specs, data, strict=True)):
            own = {name: found for (model, name), found in fitted.items() if model == index}
            models.append(self._model(spec, rows, {name: component for name, (component, _) in own.items()}))
            fits.append({name: fit for name, (_, fit) in own.items()})
        return self.view.environment(tuple(models), self.spec, self.resample_member), tuple(fits)

    def with_certain(self, seeds: Sequence[tuple[Data, ...]]) -> "ModelPlan":
        """The plan without what there is nothing to learn of in the rows of all seeds."""
        if not (self.config.changes and self.config.relations):
            return self
        specs = self.view.model_specs(self.spec)
        each = zip(specs, zip(*seeds, strict=True), strict=True)
        return replace(self, certain=tuple(certain(spec, own) for spec, own in each))

    def _layout(self, index: int, continuous_reward: bool, name: ComponentName) -> Layout:
        spec = self.view.model_specs(self.spec)[index]
        layout = layouts(spec, continuous_reward, self.config.changes, self.config.relations)[name]
        found = self.certain[index]._asdict() if self.certain else {}
        return replace(layout, certain=found.get(name, ()), codes=self._codes(spec, name, layout))

    def _codes(self, spec: Spec, name: ComponentName, layout: Layout) -> Codes:
        """Where the inputs have codes; a GPU multiplies them faster than it looks them up."""
        if jax.default_backend() != "cpu":
            return NO_CODES
        return Codes.among(self.config.inputs(spec).blocks(name) + guess_blocks(layout))

    def _model(self, spec: Spec, data: Data, components: dict[ComponentName, Component]) -> Model:
        """A model of fitted and known components; its starts are those in the data, if not known."""
        functions = self.view.known(spec, dict(self.known))
        known: dict[str, Any] = {name: Known(function) for name, function in functions.items()}
        return Model(
            known_start=known.pop("start", None),
            **components,
            **known,
            reward_values=jnp.asarray(data.reward_values),
            starts=jnp.asarray(data.starts),
            num_starts=jnp.asarray(data.num_starts),
            inputs=self.config.inputs(spec),
        )


@lru_cache(maxsize=64)
def _sizes(plan: ModelPlan) -> tuple[tuple[ComponentName, int], ...]:
    """Networks are traced for it, half a second in all, and a sweep asks for every run."""
    found = dict.fromkeys((name for _, name in plan.components()), 0)
    for part in plan.components():
        predictor, batch = plan.config.predictor(part[1]), plan.config.training_of(part[1]).batch_size
        row = plan.width(part) + sum(predictor.hidden)
        if predictor.kind == "recurrent":  # gates, memories and their gradients, as measured
            row = 9 * plan.turns(part) * predictor.hidden[0]
        # The network, its gradient, two averages of the optimiser, the moving average, the best so far.
        found[part[1]] += predictor.members * (6 * plan.weights(part) + 2 * batch * row)
    return tuple(found.items())


def fit_model(key: PRNGKeyArray, plan: ModelPlan, data: tuple[Data, ...]) -> tuple[ModelEnvironment, Fits]:
    """Fit every component of one seed's models from scratch; `data` is that of `plan.gather`."""
    fitted = {part: plan.fit_component(key, data, part) for part in plan.components()}
    return plan.assemble(data, fitted)


def examples(inputs: Inputs, name: ComponentName, layout: Layout, data: Data) -> Examples:
    """Inputs and targets of one component."""
    steps, timesteps = data.steps, data.timesteps
    match name:
        case "dynamics":
            x = inputs.before_step(steps.state, steps.actions)
            continuous = layout.value_dimensions
            change = steps.next_state[:, continuous] - steps.state[:, continuous]
            targets = layout.split(jnp.asarray(steps.next_state))._replace(values=change)
            return Examples(x, targets, steps.episode, data.num_steps)
        case "reward" | "termination":
            x = inputs.after_step(steps.state, steps.actions, steps.next_state)
            return Examples(x, _outcome(name, data), steps.episode, data.num_steps)
        case "observation":
            x = inputs.before_step(timesteps.state, timesteps.previous_actions)
            observed = layout.split(concatenate_observations(inputs.spec, timesteps.observation))
            return Examples(x, observed, timesteps.episode, data.num_timesteps)
        case _:
            masks = timesteps.available[:, *np.nonzero(inputs.spec.actions_exist)]
            targets = Targets(masks.astype(jnp.int32), jnp.zeros((len(masks), 0)))
            return Examples(inputs.state(timesteps.state), targets, timesteps.episode, data.num_timesteps)


def _outcome(name: ComponentName, data: Data) -> Targets:
    rewards = data.steps.reward
    if name == "termination":
        return Targets(data.steps.terminated.astype(jnp.int32)[:, None], jnp.zeros((len(rewards), 0)))
    if not data.reward_values.size:
        return Targets(jnp.zeros((len(rewards), 0), jnp.int32), rewards[:, None])
    nearest = jnp.argmin(jnp.abs(rewards[:, None] - data.reward_values), axis=-1).astype(jnp.int32)
    return Targets(nearest[:, None], jnp.zeros((len(rewards), 0)))
