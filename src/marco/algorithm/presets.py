"""The presets of Algorithm 1: `paper`, number by number, and `default`, the best settings we know."""

from dataclasses import fields, is_dataclass, replace
from difflib import get_close_matches
from math import log
from typing import Any, NamedTuple, get_args

from marco.algorithm.config import LEAST_EPISODES, MarcoConfig, PresetName
from marco.checks import LARGEST, check_numbers, check_types
from marco.learners.base import Learner
from marco.learners.mappo import MAPPO
from marco.learners.presets import LearnerName, make_learner
from marco.learners.q_learning import QLearner
from marco.model.components import layouts
from marco.model.config import FitConfig, ModelConfig, PredictorConfig
from marco.model.inputs import ComponentName, Inputs
from marco.types import Spec

Changes = dict[str, Any]


class Given(NamedTuple):
    """What a preset derives other settings from; None where the preset chooses."""

    learner: LearnerName | None
    of_team: Changes
    mixer: bool = False
    """Whether the mixer of the team was chosen by hand."""
    samples: int | None = None
    final_updates: int | None = None

    def changed(self, team: Learner) -> Learner:
        """A team's learner with what was changed by hand."""
        whole: Learner = self.of_team.get("team", team)
        parts = {name: value for name, value in self.of_team.items() if name != "team"}
        return apply_changes(whole, {name.removeprefix("team."): parts[name] for name in parts}, "team.")

    def changed_where_known(self, candidate: Learner) -> Learner:
        """One of several different learners with those changes that concern it."""
        return change_where_known(candidate, self.of_team)


def make_config(preset: PresetName, spec: Spec, changes: Changes) -> MarcoConfig:
    """The configuration of a preset with changes by (dotted) name."""
    if preset not in get_args(PresetName):
        raise ValueError(f"unknown preset {preset!r}: there are {', '.join(get_args(PresetName))}.")
    if not isinstance(spec, Spec):
        raise ValueError(f"a preset is made for the spec of an environment, env.spec, got {spec!r}.")
    build = _paper if preset == "paper" else _default
    optional = ("samples", "learner")
    changes = {name: value for name, value in changes.items() if value is not None or name not in optional}
    check_types("MarcoConfig", changes, {field.name: field.type for field in fields(MarcoConfig)})
    check_numbers("MarcoConfig", changes)
    learner = changes.pop("learner", None)
    by_hand = bool({"team", "team.mixer"} & set(changes)) or learner is not None
    of_team = {name: value for name, value in changes.items() if name.split(".")[0] == "team"}
    given = Given(learner, of_team, by_hand, changes.get("samples"), changes.get("final_updates"))
    return apply_changes(build(spec, given), changes)


def change_where_known(candidate: Learner, of_team: Changes) -> Learner:
    """A candidate with the changes of the team's learner (`team.NAME`) that it has a setting for."""
    parts = {name.removeprefix("team."): value for name, value in of_team.items() if name != "team"}
    known = {name: value for name, value in parts.items() if hasattr(candidate, name.split(".")[0])}
    changed: Learner = apply_changes(candidate, known, "team.")
    return changed


def apply_changes(config: Any, changes: Changes, within: str = "") -> Any:
    """A configuration with fields changed by (dotted) name, all at once, so that their order does not matter.

    A near miss is answered by the name meant.
    """
    direct: Changes = {}
    nested: dict[str, Changes] = {}
    known = [field.name for field in fields(config)] if is_dataclass(config) else []
    for name, value in changes.items():
        first, _, rest = name.partition(".")
        if first not in known:
            meant = get_close_matches(first, known, 1, cutoff=0.5)
            hint = f"do you mean {meant[0]!r}?" if meant else f"there are {', '.join(known) or 'none'}."
            raise ValueError(f"there is no setting {within + name!r}: {hint}")
        if rest:
            nested.setdefault(first, {})[rest] = value
        else:
            direct[first] = value
    for first, inner in nested.items():
        direct[first] = apply_changes(direct.get(first, getattr(config, first)), inner, f"{within}{first}.")
    try:
        return replace(config, **direct)
    except ValueError as error:
        raise ValueError(f"{within.removesuffix('.')}: {error}" if within else str(error)) from error


def _paper(spec: Spec, given: Given) -> MarcoConfig:
    """The paper's numbers: 10k samples on the riddle, 50k elsewhere; lambda 2; one team from refit to refit.

    The paper trains the team for 10k (50k) model steps per refit and shows it up to 250k (1M): the rest is
    done in the last model. On `switch` it goes on for about twice as long as shown: model steps cost nothing
    real, and IQL is still learning there.
    """
    small = spec.name == "switch"
    chunk, total = (5_000, 10_000) if small else (10_000, 50_000)
    total = total if given.samples is None else given.samples
    chunk = min(chunk, total)
    continuous = spec.state_has_numbers
    return MarcoConfig(
        samples=total,
        first_chunk=chunk,
        chunk=chunk,
        team=given.changed(make_learner("paper", spec, given.learner)),
        explorer=QLearner("qmix" if continuous else "vdn"),
        model=paper_model(spec),
        memory=1,
        explorer_steps=50_000 if continuous else 100_000,
        team_steps=10_000 if small else 50_000,
        final_updates=given.final_updates or (100_000 if small else 40_000),
    )


def _default(spec: Spec, given: Given) -> MarcoConfig:
    """Few samples in a few chunks; the best of several teams trained in the last model.

    A standard deviation falls as one over the square root of the visits, a variance faster: in a discrete
    environment it soon weighs nothing beside a reward of 1, and `bridge` is not explored to its end. Long
    episodes teach more each, and cost more: fewer refits and updates will do.
    """
    continuous, long = spec.state_has_numbers, spec.horizon > LONG
    total = (20_000 if continuous else 2_000) if given.samples is None else given.samples
    chunk = total // 4 if long else max(500, total // 10)
    chunk = min(total, max(chunk, LEAST_EPISODES * spec.horizon))
    final_updates = given.final_updates or (3_000 if long else 4_000)
    candidates = _candidates(spec, given, final_updates)
    steps = 30_000 if long else 50_000
    explorer_steps = min(EXPLORER_UPDATES * _side_by_side(spec) * spec.horizon, MOST_EXPLORER_STEPS)
    return MarcoConfig(
        samples=total,
        first_chunk=chunk,
        chunk=chunk,
        team=given.changed(_on_the_way(candidates[0] if given.mixer else None, spec)),
        explorer=replace(
            _explorer(), episodes_per_update=_side_by_side(spec), epsilon_anneal_steps=explorer_steps // 5
        ),
        model=default_model(spec),
        bonus="variance" if continuous else "standard-deviation",
        explorer_steps=explorer_steps,
        team_share=0.5,
        team_steps=steps,
        demonstrations=0.0 if continuous else 0.9,
        final_updates=final_updates,
        candidates=candidates,
        offline=(_offline(),),
        trial_samples=min(total // 5, max(total // 20, TRIAL_EPISODES * spec.horizon)),
        planning=20_000,
    )


LONG = 20
"""Episodes of more steps are long."""

EXPLORER_UPDATES = 400
"""Updates of the exploration policy after every refit, or more, if episodes end early. With a hundred it does
not get to the end of `bridge` at 3,000 samples: two of four runs never crossed it, with these all four."""

MOST_EXPLORER_STEPS = 400_000
"""Model steps that train the exploration policy after every refit, where episodes are very long."""

TRIAL_EPISODES = 4
"""Episodes of the trial at the end, at least, unless they were more than a fifth of the budget."""


def _candidates(spec: Spec, given: Given, updates: int) -> tuple[Learner, ...]:
    """The teams of the last model: each learner fails somewhere, and which, is cheap to find out there.

    QMIX represents what VDN cannot, and gets stuck where VDN does not; policy gradients solve `reference`
    many times as fast as either. Where episodes are short and states discrete they take no part: an update of
    theirs costs as much as several of Q-learning, and they never had the best team (five runs on `switch`
    and Dec-Tiger). VDN explores for a third as long: demonstrations replace long random exploration,
    and random teammates make a riddle's light uninformative. A learner that was chosen by hand has all teams.
    """
    if given.mixer:
        own = given.of_team.get("team") or _imagined(spec, given.learner, updates)
        chosen = given.changed(own)
        return (chosen,) if isinstance(chosen, MAPPO) else (chosen,) * 4
    names: tuple[LearnerName, ...] = ("qmix", "vdn") * 2
    if spec.state_has_numbers or spec.horizon > LONG:
        names = ("mappo", "qmix", "vdn", "qmix")
    return tuple(given.changed_where_known(_imagined(spec, name, updates)) for name in names)


def _offline() -> QLearner:
    """A team without a model: VDN, which asks least of few data, on batches of real episodes."""
    return replace(_explorer(), episodes_per_update=32, buffer_size=256, batch_size=32, td_lambda=0.5)


def _batch(horizon: int) -> int:
    """Episodes of an update of policy gradients: 128 or, where they are long, some 3,200 steps of them."""
    return max(32, min(128, 3_200 // horizon // 4 * 4))


def _imagined(spec: Spec, name: LearnerName | None, updates: int) -> Learner:
    """A learner in a learned model, where it trains for so many updates."""
    learner = make_learner("free-samples", spec, name)
    if isinstance(learner, MAPPO):
        return replace(learner, episodes_per_update=_batch(spec.horizon))
    assert isinstance(learner, QLearner)
    learner = replace(learner, episodes_per_update=32, buffer_size=512, batch_size=64)
    tenths = 1 if learner.mixer == "vdn" else 3
    steps = tenths * updates * spec.horizon * learner.episodes_per_update // 10
    return replace(learner, epsilon_anneal_steps=min(max(1, steps), LARGEST))


def _on_the_way(chosen: Learner | None, spec: Spec) -> Learner:
    """The team that collects: like the exploration policy, it is trained on after every refit.

    Long episodes teach more each, and fewer of them make up an update.
    """
    if isinstance(chosen, MAPPO):
        return replace(chosen, episodes_per_update=32)
    episodes = 8 if spec.horizon > LONG else 64
    mixer = chosen.mixer if isinstance(chosen, QLearner) else "vdn"
    return replace(_explorer(), mixer=mixer, episodes_per_update=episodes)


def _side_by_side(spec: Spec) -> int:
    """Imagined episodes of an update: a model step costs little, and an update less the fewer there are."""
    return 8 if spec.horizon > LONG else 16


def _explorer() -> QLearner:
    """It observes the state and need not be perfect: it is trained again after every refit."""
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
        units="scaled",
    )


def paper_model(spec: Spec) -> ModelConfig:
    """Two hidden layers of 500 each; a GRU for discrete dynamics; the ensembles that the paper has."""
    single = PredictorConfig("factored", (500, 500), members=1)
    training = FitConfig(
        batch_size=1_000,
        max_epochs=700,
        min_steps_per_epoch=1,
        patience=20,
        min_delta=0.0,
        holdout=0.3,
        ema_decay=0.0,
    )
    if spec.state_has_numbers:
        three = PredictorConfig("factored", (500, 500), members=3)
        return ModelConfig(three, three, single, single, single, training, distances=False)
    dynamics = PredictorConfig("recurrent", (500,), members=5)
    return ModelConfig(dynamics, single, single, single, single, training, distances=False)


BETA = 0.5
"""Half-way between the likelihood (0), by which hard values are never learned beside easy ones, and squared
errors (1), by which easy ones are never learned precisely."""

SPARSITY = 0.3
"""Networks begin sparse, and find which inputs are of use: a rule of three columns is else drowned by chance
in what else was seen with it. From 3,000 random samples of `reference` 0.04 of the variance of the reward is
unexplained instead of 0.19 (seed 0)."""

MOST_CHAINED = 2_000_000
"""Weights of the input layers of a chain: they grow with the square of the features."""


def default_model(spec: Spec) -> ModelConfig:
    """Small networks, one per feature; everything that can be uncertain is an ensemble.

    On `bridge` a reward may be earned 8 times in 7,000 steps: to learn it, five epochs without a gain of
    0.001 nats per row are too few. So they are for what Dec-Tiger's agents hear: 0.75 to 0.85 right in the
    model for 0.85 in truth, and then it does not pay to listen. Many inputs get sparse networks, which find
    those of use. Rare events need care (`surprises`, `most_nats`, `trained`): that a food is eaten, three
    times in 10,000 steps of foraging, got a chance of 0.00 even on the rows that were trained on.
    """
    inputs = Inputs(spec, distances=True, relations=True)
    careful = FitConfig(
        min_delta=3e-4, sparsity=SPARSITY, beta=BETA, surprises=0.5, most_nats=log(100.0), trained=0.25
    )
    patient = replace(careful, patience=20, min_delta=1e-4)
    return ModelConfig(
        dynamics=_networks(inputs, "dynamics", 5),
        reward=replace(_networks(inputs, "reward", 5), training=patient),
        observation=replace(
            _networks(inputs, "observation", 1), training=replace(patient, learning_rate=4e-3)
        ),
        termination=replace(_networks(inputs, "termination", 5), training=patient),
        available=PredictorConfig("factored", (64, 64), members=1),
        training=careful,
        relations=True,
        changes=True,
    )


def _networks(inputs: Inputs, name: ComponentName, members: int) -> PredictorConfig:
    """Wider ones where numbers are among the inputs; one for all features, where one for each is too much.

    Rules about classes need few hidden units: in foraging 128 gain nothing over 64. 500 yes-or-no features in
    a chain have 100 million weights, most of them for what came before.
    """
    numeric, layout = inputs.numeric(name), layouts(inputs.spec, continuous_reward=False)[name]
    columns, size = len(numeric), min(64 + 2 * sum(numeric), 128)
    weights = layout.num_slots * (columns + layout.num_categorical * layout.num_classes) * size
    if weights > MOST_CHAINED:
        return PredictorConfig("factored", (256, 256), members)
    return PredictorConfig("chain", (size, size), members)
