"""What Algorithm 1 needs at least, and at most: refused before anything is compiled or played, or lost."""

from collections.abc import Sequence

import numpy as np

from marco.algorithm.config import MarcoConfig
from marco.algorithm.events import Event
from marco.checks import check_fits
from marco.data.dataset import Dataset
from marco.environments.base import Environment, HostWorld, has_joint_state
from marco.learners.parallel import memory_available
from marco.model.fit import ModelPlan
from marco.types import Spec


def check_samples(config: MarcoConfig, spec: Spec) -> None:
    """Refuse a budget that may end within the first episode, of which no model can be learned and judged."""
    if config.samples <= spec.horizon:
        raise ValueError(
            f"samples={config.samples} is too few for {spec.name}, whose episodes take up to {spec.horizon} "
            f"steps: a model learns from one episode and is judged by another, so give {2 * spec.horizon} or "
            "more."
        )


def check_data_and_model(plan: ModelPlan, config: MarcoConfig, seeds: int) -> None:
    """Refuse more data, or larger models, than fit into the memory."""
    spec, available = plan.spec, memory_available()
    state = max(spec.state_width, plan.view.spec(spec).state_width)
    seen = spec.num_agents * (spec.observation_width + spec.num_actions)
    # A step is kept with both of its states, and with what was seen before and after it; once more as rows.
    step = 2 * (2 * state + 2 * seen)
    batch = max(1, config.chunk // spec.horizon) * (spec.horizon + 1) * (spec.state_width + seen)
    cure = "make it smaller, or train fewer seeds"
    check_fits(f"samples={config.samples}", seeds * config.samples * step, cure, available)
    check_fits(f"chunk={config.chunk}", seeds * batch, cure, available)
    for name, numbers in plan.sizes().items():
        check_fits(
            f"model.{name}", seeds * numbers, "use fewer members, or smaller hidden or batch_size", available
        )


def check_memory_of_state(config: MarcoConfig, env: Environment | HostWorld) -> None:
    """Refuse to remember where the state is the environment's own, or longer than an episode is."""
    frames, spec = config.memory, env.spec
    if frames <= 1:
        return
    if not has_joint_state(env) or config.view != "centralised":
        raise ValueError(
            f"memory={frames} is for a centralised model where the state is only the joint observation, as "
            f"in PettingZoo without state(). In {spec.name}, with the view {config.view}, leave it out."
        )
    if frames > spec.horizon:
        raise ValueError(
            f"memory={frames} is more than an episode of {spec.name} has steps: give {spec.horizon} or less, "
            "or 0, to have it chosen."
        )


def check_known(plan: ModelPlan, known: Sequence[tuple[str, object]]) -> None:
    """Refuse known components that are none, or no functions."""
    plan.components()
    for name, function in known:
        if not callable(function):
            raise ValueError(f"known: {name} must be a function, got {function!r}.")


def check_finite(event: Event, seeds: tuple[int, ...]) -> None:
    """Refuse to go on with what has diverged."""
    for name, values in event.metrics.items():
        for seed, value in zip(seeds, values, strict=True):
            if value is not None and not np.isfinite(value):
                raise ValueError(
                    f"{event.phase}: the {name} of seed {seed} is {value} after {event.samples} samples: "
                    "training diverged. All real samples are kept; in another run larger chunks, or a "
                    "smaller lam, may help (--data takes the samples along)."
                )


def check_collected(dataset: Dataset, samples: int) -> None:
    """Refuse to go on from what was learned, if some of the data that it was learned from are gone."""
    if dataset.samples.min() < samples:
        raise ValueError(
            f"{dataset.folder} holds {dataset.samples.min()} samples, but {samples} were "
            "learned from: a chunk is missing. Put it back, or begin another run."
        )
