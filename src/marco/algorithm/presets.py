"""The presets of Algorithm 1."""

from dataclasses import replace
from typing import Any, Literal

from marco.algorithm.config import MarcoConfig
from marco.learners.mappo import MAPPO
from marco.learners.presets import LearnerName, make_learner, model_settings
from marco.learners.q_learning import QLearner
from marco.types import Spec

MarcoPreset = Literal["default", "paper"]


def marco_settings(
    preset: MarcoPreset,
    spec: Spec,
    samples: int | None = None,
    learner: LearnerName | None = None,
    **changes: Any,
) -> MarcoConfig:
    """The settings of a preset for a world, with a budget of real samples and changes by name."""
    if preset == "paper":
        settings = _paper(spec, samples, learner)
    else:
        updates = changes.get("final_updates")
        settings = _default(spec, samples, learner, updates if isinstance(updates, int) else None)
    try:
        return replace(settings, **changes)
    except TypeError as error:
        names = ", ".join(MarcoConfig.__dataclass_fields__)
        raise ValueError(f"no such setting: {error}. There are {names}.") from error


def _paper(spec: Spec, samples: int | None, learner: LearnerName | None) -> MarcoConfig:
    """The paper's numbers: 10k samples on the riddle, 50k elsewhere; lambda 2; a team from refit to refit.

    The paper trains the team for 10k (50k) model steps per refit and shows it up to 250k (1M): the rest is
    done in the last model. On `switch` it goes on for about twice as long as shown: model steps cost nothing
    real, and IQL is still learning there.
    """
    small = spec.name == "switch"
    chunk, total = (5_000, 10_000) if small else (10_000, 50_000)
    total = total if samples is None else samples
    chunk = min(chunk, total)
    numbers = spec.state_has_numbers
    team = make_learner("paper", spec, learner)
    explorer = QLearner("qmix" if numbers else "vdn")
    return MarcoConfig(
        samples=total,
        first=chunk,
        chunk=chunk,
        team=team,
        explorer=explorer,
        model=model_settings("paper", spec),
        explorer_steps=50_000 if numbers else 100_000,
        team_steps=10_000 if small else 50_000,
        final_updates=100_000 if small else 40_000,
        restarts=0,
    )


def _default(
    spec: Spec, samples: int | None, learner: LearnerName | None, final_updates: int | None
) -> MarcoConfig:
    """Few samples, in a few chunks; the best of several teams trained in the last model.

    A deviation falls as one over the square root of the visits, a variance faster: in a discrete world it
    soon weighs nothing beside a reward of 1, and `bridge` is not explored to its end. Every other team is
    VDN, which gets across on `bridge`; the others are QMIX, which solves `switch`. QMIX acts at random ever
    less for three tenths of the steps that its training can take, VDN for one: what takes many random steps
    is demonstration_share, and a light that others switch at random tells nothing.
    """
    numbers = spec.state_has_numbers
    total = (20_000 if numbers else 2_000) if samples is None else samples
    chunk = max(1, total // 4) if numbers else min(total, max(500, total // 10))
    team = make_learner("default", spec, learner)
    gradients = isinstance(team, MAPPO)
    final_updates = final_updates or (3_000 if gradients else 4_000)
    if isinstance(team, QLearner):
        mixer = team.mixer if learner else "either"
        team = replace(team, mixer=mixer, episodes_per_update=32, buffer_size=512, batch_size=64)
        most = final_updates * team.episodes_per_update * spec.horizon  # steps, if no episode ended early
        short, long = max(1, most // 10), max(1, 3 * most // 10)
        team = replace(
            team,
            epsilon_anneal_steps=short if mixer == "vdn" else long,
            additive_epsilon_anneal_steps=short if mixer == "either" else None,
        )
    return MarcoConfig(
        samples=total,
        first=chunk,
        chunk=chunk,
        team=team,
        explorer=_explorer(),
        model=model_settings("default", spec),
        bonus="variance" if numbers else "standard-deviation",
        explorer_steps=30_000 if numbers else 50_000,
        demonstration_share=0.0 if gradients else 0.9,
        final_updates=final_updates,
        restarts=1 if gradients else 4,
    )


def _explorer() -> QLearner:
    """It sees the state and needs not be perfect: it is trained anew after every refit."""
    return QLearner(
        "vdn",
        factored=True,
        td_lambda=0.8,
        optimiser="adam",
        learning_rate=1e-3,
        epsilon_anneal_steps=10_000,
        episodes_per_update=64,
        buffer_size=1_024,
        batch_size=64,
        target_update_interval=20,
    )
