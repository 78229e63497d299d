"""How much the members of an ensemble disagree: r-tilde of Equation 1, and two alternatives."""

from typing import Literal

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from marco.model.components import Component, Known, Model
from marco.model.likelihoods import Prediction
from marco.types import concatenate_observations

BonusName = Literal["variance", "standard-deviation", "mutual-information"]


def uncertainty(
    model: Model,
    kind: BonusName,
    s: Float[Array, " S"],
    a: Int[Array, " N"],
    following: Float[Array, " S"],
    observation: Float[Array, "N O"],
) -> Float[Array, ""]:
    """r-tilde(s, a) = sum over components f and their features k of Var_i f_k,i(s, a).

    Taken along a step: an auto-regressive component is asked about each feature given those that were
    drawn before it, and reward, termination and observation about the step that was drawn. Components
    that are known or have one member add nothing.
    """
    parts = [
        (model.dynamics, model.inputs.before_step(s, a), following),
        (model.reward, model.inputs.after_step(s, a, following), None),
        (model.termination, model.inputs.after_step(s, a, following), None),
        (
            model.observation,
            model.inputs.before_step(following, a),
            concatenate_observations(model.spec, observation),
        ),
        (model.available, model.inputs.moment(following), None),
    ]
    total = jnp.float32(0.0)
    for component, x, shown in parts:
        if isinstance(component, Known) or component.num_members == 1:
            continue
        total += disagreement(kind, _predictions(component, x, shown), component.values.scale > 0.0)
    return total


def disagreement(kind: BonusName, prediction: Prediction, varies: Array) -> Float[Array, ""]:
    """What members (first axis) disagree on, summed over classes, features and numbers that ever vary.

    Exactly 0 where they agree. Numbers count in units of their own spread in the data.
    """
    # From here on only differences between members count: what is equal cancels without rounding.
    probability, mean = jnp.exp(prediction.log_probability), prediction.mean
    match kind:
        case "variance":
            classes, numbers = _variance(probability), _variance(mean)
        case "standard-deviation":
            classes, numbers = jnp.sqrt(_variance(probability)), jnp.sqrt(_variance(mean))
        case "mutual-information":
            classes = _class_information(prediction.log_probability)
            numbers = _gaussian_information(prediction)
    return jnp.sum(classes) + jnp.sum(jnp.where(varies, numbers, 0.0))


def _predictions(component: Component, x: Array, shown: Array | None) -> Prediction:
    if shown is None:
        classes = jnp.zeros(component.layout.num_categorical, jnp.int32)
    else:
        classes = component.layout.split(shown).classes
    return component.predict(x, classes)


def _variance(members: Float[Array, "members *rest"]) -> Float[Array, "*rest"]:
    apart = members - members[0]
    return jnp.mean(jnp.square(apart - jnp.mean(apart, axis=0)), axis=0)


def _class_information(log_probability: Float[Array, "members *rest"]) -> Float[Array, "*rest"]:
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
