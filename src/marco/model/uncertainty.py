"""How much the members of an ensemble disagree: r-tilde of Equation 1, and two alternatives."""

from functools import partial
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from marco.model.components import Component, Known, Model
from marco.model.likelihoods import Prediction
from marco.types import concatenate_observations

BonusName = Literal["variance", "standard-deviation", "mutual-information"]


class ObservedSteps(NamedTuple):
    """Real steps as one model observes them; rows that are not `real` are padding."""

    state: Float[Array, "*seeds rows S"]
    actions: Int[Array, "*seeds rows N"]
    next_state: Float[Array, "*seeds rows S"]
    observation: Float[Array, "*seeds rows N O"]
    """After the step."""
    real: Bool[Array, "*seeds rows"]


def mean_uncertainty(
    models: tuple[Model, ...], bonus: BonusName, steps: tuple[ObservedSteps, ...]
) -> Float[Array, ""]:
    """r-tilde of real steps: the mean over steps of the sum over models."""
    total = jnp.float32(0.0)
    for model, rows in zip(models, steps, strict=True):
        r_tilde = jax.vmap(partial(uncertainty, model, bonus))(*rows[:-1])
        total += jnp.sum(jnp.where(rows.real, r_tilde, 0.0)) / jnp.maximum(rows.real.sum(), 1)
    return total


def uncertainty(
    model: Model,
    bonus: BonusName,
    s: Float[Array, " S"],
    a: Int[Array, " N"],
    next_s: Float[Array, " S"],
    observation: Float[Array, "N O"],
) -> Float[Array, ""]:
    """r-tilde(s, a) = sum over components f and their features k of Var_i f_k,i(s, a).

    It is computed along a step: an auto-regressive component predicts each feature given those that were
    drawn before it, and reward, termination and observation are predicted for the step that was drawn.
    Components that are known or have one member add nothing.
    """
    parts = [
        (model.dynamics, model.inputs.before_step(s, a), next_s),
        (model.reward, model.inputs.after_step(s, a, next_s), None),
        (model.termination, model.inputs.after_step(s, a, next_s), None),
        (
            model.observation,
            model.inputs.before_step(next_s, a),
            concatenate_observations(model.spec, observation),
        ),
        (model.available, model.inputs.state(next_s), None),
    ]
    total = jnp.float32(0.0)
    for component, x, drawn in parts:
        if isinstance(component, Known) or component.num_members == 1:
            continue
        total += disagreement(bonus, _predictions(component, x, drawn), component.values.scale > 0.0)
    return total


def disagreement(bonus: BonusName, prediction: Prediction, varies: Array) -> Float[Array, ""]:
    """How much members (first axis) disagree, summed over classes, features and values that ever vary.

    Exactly 0 where they agree. Values are in units of their standard deviation in the data.
    """
    # Only differences between members enter below, so that equal members cancel without rounding.
    probability, mean = jnp.exp(prediction.log_probability), prediction.mean
    match bonus:
        case "variance":
            categorical, continuous = _variance(probability), _variance(mean)
        case "standard-deviation":
            categorical, continuous = jnp.sqrt(_variance(probability)), jnp.sqrt(_variance(mean))
        case "mutual-information":
            categorical = _categorical_information(prediction.log_probability)
            continuous = _gaussian_information(prediction)
    return jnp.sum(categorical) + jnp.sum(jnp.where(varies, continuous, 0.0))


def _predictions(component: Component, x: Array, drawn: Array | None) -> Prediction:
    if drawn is None:
        classes = jnp.zeros(component.layout.num_categorical, jnp.int32)
    else:
        classes = component.layout.split(drawn).classes
    return component.predict(x, classes)


def _variance(members: Float[Array, "members *rest"]) -> Float[Array, "*rest"]:
    apart = members - members[0]
    return jnp.mean(jnp.square(apart - jnp.mean(apart, axis=0)), axis=0)


def _categorical_information(log_probability: Float[Array, "members *rest"]) -> Float[Array, "*rest"]:
    """The mean over members of p ln(p / mixture)."""
    # In logarithms, to the likeliest member: p / mixture, rounded when compiled, is not 1 for equal members.
    apart = log_probability - jnp.max(log_probability, axis=0)
    mixture = jnp.log1p(jnp.mean(jnp.expm1(apart), axis=0))
    probability = jnp.exp(log_probability)
    return jnp.mean(jnp.where(probability > 0.0, probability * (apart - mixture), 0.0), axis=0)


def _gaussian_information(prediction: Prediction) -> Float[Array, " C"]:
    """By how much, in logarithms, the mixture taken as one Gaussian is wider than its members."""
    log_variance = prediction.log_variance
    base = log_variance[0]
    relative = jnp.exp(log_variance - base)
    spread = _variance(prediction.mean) * jnp.exp(-base)
    mixture = 1.0 + jnp.mean(relative - 1.0, axis=0) + spread
    return 0.5 * (jnp.log(mixture) - jnp.mean(log_variance - base, axis=0))
