"""Settings of every kind are refused by their own name: types, numbers that are not finite, sizes."""

import re
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pytest

from marco import MAPPO, MarcoConfig, QLearner
from marco.checks import check_fields, check_fits, check_seed, is_of
from marco.environments.switch import Switch
from marco.model.config import FitConfig, ModelConfig, PredictorConfig
from marco.types import Spec

INF, NAN = float("inf"), float("nan")
SPEC = Switch().spec


@pytest.fixture(autouse=True)
def unchecked(monkeypatch):
    """Without the type checks of the tests, which would refuse much of this as well."""
    monkeypatch.setattr("jaxtyping.config.jaxtyping_disable", True)


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        (int, [3, -1, np.int32(3)], [True, 3.5, "3", None]),
        (float, [3, 0.5, np.float32(1)], [True, "3", None]),
        (bool, [True, False], [1, "yes"]),
        (str, ["", "a"], [1, None]),
        (int | None, [3, None], ["a"]),
        (Literal["a", "b"], ["a"], ["c", 3]),
        (tuple[int, int], [(1, 2)], [[1, 2], (1, 2, 3), (1, "a"), 3]),
        (tuple[int, ...], [(), (1, 2, 3)], [(1.5,), [1]]),
        (list[float], [[], [1, 2.5]], [(1,), ["a"]]),
        (FitConfig, [FitConfig()], [3, {}]),
        ("an annotation that nobody here knows", [3, None], []),
    ],
)
def test_types_are_those_of_the_annotations(kind, good, bad):
    assert all(is_of(value, kind) for value in good)
    assert not any(is_of(value, kind) for value in bad)


@dataclass(frozen=True)
class Nested:
    """A configuration like any other."""

    rate: float = 0.1
    sizes: tuple[int, ...] = (3,)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rate": INF}, "Nested: rate must be a finite number, got inf."),
        ({"rate": NAN}, "Nested: rate must be a finite number, got nan."),
        ({"rate": "fast"}, "Nested: rate must be a number, got 'fast'."),
        ({"sizes": (3, 2**31)}, "Nested: sizes must be at most 2147483647, got (3, 2147483648)."),
        ({"sizes": 3}, "Nested: sizes must be tuple[int, ...], got 3."),
    ],
)
def test_any_field_is_checked_by_its_name(changes, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        check_fields(Nested(**changes))


@pytest.mark.parametrize(
    "make",
    [
        lambda: QLearner(learning_rate=INF),
        lambda: QLearner(max_grad_norm=NAN),
        lambda: QLearner("sum"),
        lambda: QLearner(buffer_size=2.5),
        lambda: MAPPO(ent_coef=NAN),
        lambda: MAPPO(vf_coef=-1.0),
        lambda: FitConfig(min_delta=NAN),
        lambda: FitConfig(weight_decay=-1.0),
        lambda: PredictorConfig(hidden=(2.5,)),
        lambda: ModelConfig(*[PredictorConfig("factored")] * 5, training=3),
        lambda: MarcoConfig.preset("default", SPEC, lam=INF),
        lambda: MarcoConfig.preset("default", SPEC, epsilon=NAN),
        lambda: MarcoConfig.preset("default", SPEC, lam=None),
        lambda: MarcoConfig.preset("default", SPEC, samples=0),
        lambda: MarcoConfig.preset("default", SPEC, samples="many"),
        lambda: MarcoConfig.preset("default", SPEC, samples=2.5),
        lambda: MarcoConfig.preset("default", SPEC, samples=10**12),
        lambda: MarcoConfig.preset("default", SPEC, final_updates=10**12),
        lambda: MarcoConfig.preset("default", SPEC, bonus="much"),
        lambda: MarcoConfig.preset("default", SPEC, team=3),
        lambda: MarcoConfig.preset("default", SPEC, **{"model.training.min_delta": NAN}),
        lambda: MarcoConfig.preset("default", "switch"),
    ],
)
def test_every_configuration_refuses_bad_values(make):
    with pytest.raises(ValueError, match=r"must|is made for"):
        make()


def test_a_part_is_named_by_where_it_stands():
    with pytest.raises(ValueError, match=r"^explorer: QLearner: learning_rate must be positive, got -1\.0"):
        MarcoConfig.preset("default", SPEC, **{"explorer.learning_rate": -1.0})
    with pytest.raises(ValueError, match=r"^model\.dynamics: an ensemble needs at least 1 member"):
        MarcoConfig.preset("default", SPEC, **{"model.dynamics.members": 0})


def test_long_trainings_anneal_within_32_bits():
    config = MarcoConfig.preset("default", SPEC, final_updates=10**9)
    assert config.candidates[0].epsilon_anneal_steps == 2**31 - 1


@pytest.mark.parametrize("seed", [-1, 2**32, 1.5, "a", True])
def test_a_seed_is_a_number_that_jax_can_tell_from_others(seed):
    with pytest.raises(ValueError, match="--seed must be a whole number from 0 to 4294967295, got"):
        check_seed("--seed", seed)


def test_what_does_not_fit_says_how_much_it_would_take():
    check_fits("it", 2**28, "less", available=2**30)
    with pytest.raises(ValueError, match=r"it would take about 2\.0 GiB, but 1\.0 GiB are there: less\."):
        check_fits("it", 2**29, "less", available=2**30)


def test_an_environment_whose_episodes_do_not_fit_is_refused_by_its_horizon():
    with pytest.raises(ValueError, match=r"'switch' with horizon=10000000000000 would take about .* GiB"):
        Spec(SPEC.name, SPEC.agents, SPEC.state, 10**13)
    with pytest.raises(ValueError, match=r"needs a whole number as horizon, got 2\.5"):
        Spec(SPEC.name, SPEC.agents, SPEC.state, 2.5)
