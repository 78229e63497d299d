"""Line 6 of Algorithm 1 for all seeds at once."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Key

from marco.compilation import program
from marco.learners.parallel import each, side_by_side, stack_seeds
from marco.model.environment import ModelEnvironment
from marco.model.fit import Fits, ModelPlan, Part
from marco.model.rows import Data


def stack_data(rows: list[tuple[Data, ...]]) -> tuple[Data, ...]:
    """The rows of all seeds, seeds first: where rewards are continuous for one seed, they are for all."""
    categorical = [all(data.reward_values.size for data in one) for one in zip(*rows, strict=True)]
    alike = [
        tuple(
            data if few else data._replace(reward_values=jnp.zeros(0))
            for data, few in zip(row, categorical, strict=True)
        )
        for row in rows
    ]
    return stack_seeds(alike)


def fit_models(keys: Key[Array, " S"], data: Any, plan: ModelPlan) -> tuple[ModelEnvironment, Fits]:
    """`fit_model` for all seeds: each component is a program of its own, run beside the others."""
    return _assemble(data, fit_parts(keys, data, plan, plan.components()), plan)


def fit_parts(keys: Key[Array, " S"], data: Any, plan: ModelPlan, parts: Sequence[Part]) -> dict[Part, Any]:
    """Some components of all seeds, and how their training went."""
    fitted = side_by_side(lambda part: _fit_component(keys, data, plan, part), parts)
    return dict(zip(parts, fitted, strict=True))


def model_like(keys: Key[Array, " S"], data: Any, plan: ModelPlan) -> tuple[ModelEnvironment, Fits]:
    """The shapes of what `fit_models` gives. What is traced for them is not traced again for the fit."""
    fitted = {part: _fit_component.eval_shape(keys, data, plan, part) for part in plan.components()}
    return _assemble.eval_shape(data, fitted, plan)


def fit_warnings(fits: Fits, seeds: Sequence[int]) -> tuple[str, ...]:
    """A line for each component that is no better than its floor; `fits` are those of `fit_models`."""
    found = []
    for number, model in enumerate(fits):
        whose = "the model's" if len(fits) == 1 else f"agent {number}'s model:"
        for name, fit in model.items():
            idle = [seed for seed, nothing in zip(seeds, fit.learned_nothing(), strict=True) if nothing]
            if idle:
                found.append(
                    f"{whose} {name} ({of_seeds(idle)}) predicts held-out steps no better than "
                    "frequencies and means do: it is pure chance, or nothing was learned of it."
                )
    return tuple(found)


def of_seeds(seeds: Sequence[int]) -> str:
    """Whom a warning is about."""
    return f"seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}"


LARGE = 50e9
"""Operations of a gradient step that keep a GPU busy; the paper's GRU of 500 units takes some 500e9."""


@partial(program, static_argnames=("plan", "part"))
def _fit_component(keys: Key[Array, " S"], data: Any, plan: ModelPlan, part: Part) -> Any:
    """All seeds at once; one after the other, where one is enough, unless they are on several devices.

    Then they take the memory of one, and none waits for another that stops later.
    """

    def one(key: Array, rows: Any) -> Any:
        return plan.fit_component(key, rows, part)

    if plan.arithmetic(part) > LARGE and len(jax.devices()) == 1:
        return jax.lax.map(lambda own: one(*own), (keys, data))
    return each(one)(keys, data)


@partial(jax.jit, static_argnames="plan")
def _assemble(data: Any, fitted: dict[Part, Any], plan: ModelPlan) -> tuple[ModelEnvironment, Fits]:
    return jax.vmap(plan.assemble)(data, fitted)
