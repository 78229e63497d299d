"""What is run for the paper's figures: every curve is a cell, measured with all seeds at once.

Thresholds, budgets and margins are fixed here, not after a look at the results.
"""

from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

from marco.algorithm.config import MarcoConfig, PresetName
from marco.algorithm.model_free import ModelFreeConfig
from marco.environments.registry import make
from marco.learners.base import Learner
from marco.learners.mappo import MAPPO
from marco.learners.presets import make_learner
from marco.learners.q_learning import QLearner
from marco.model.config import FitConfig, ModelConfig, PredictorConfig
from marco.tabular.rmax import Method, PosteriorSampling, RandomExploration, RMax
from marco.types import Spec

StudyName = Literal["results", "exploration", "bonus", "visitation", "models", "tabular"]
STUDIES: tuple[StudyName, ...] = get_args(StudyName)
WORLDS = ("switch", "reference", "bridge")
"""In the order of the paper's columns."""

THRESHOLDS = {
    "switch": (0.55, 0.65, 0.70, 0.73),
    "bridge": (0.55, 0.65, 0.70, 0.73),
    "reference": (-18.0, -17.5, -7.7),
}
"""Returns by which samples are compared. On `reference`: where model-free settles, a team that walks to the
middle of the landmarks, and the hand-written team that speaks (-7.5) but for a little."""

RANGE = {
    "switch": (-0.5, 0.7407),
    "bridge": (-0.1, 0.7407),
    "reference": (-28.3, -7.5),
    "delayed": (-10.0, 2.0),
}
"""About the return of random play, and the best known: what counts as 0 and as 1 of a score."""
SAME = 0.01
"""Returns that differ by less than this share of the range count as the same."""
MATCH = 0.05
"""Two methods match if the whole interval of their difference is above minus this share of the range."""
LEAST_SEEDS = 5
"""No verdict from fewer."""

POINTS = 50
"""Evaluations of a model-free curve."""


BATCH = 8
"""Imagined episodes that the paper's learners play side by side, with as many updates after them."""


def side_by_side(config: MarcoConfig) -> MarcoConfig:
    """The same number of updates per imagined episode, in batches: so a GPU takes minutes and not hours.

    A policy is up to eight updates old when it plays. The paper does not say how it plays.
    """

    def batched(learner: Learner) -> Learner:
        assert isinstance(learner, QLearner)
        interval = max(1, learner.target_update_interval // BATCH)
        return replace(
            learner, episodes_per_update=BATCH, gradient_steps=BATCH, target_update_interval=interval
        )

    return replace(
        config,
        team=batched(config.team),
        explorer=batched(config.explorer),
        candidates=tuple(map(batched, config.candidates)),
        final_updates=max(1, config.final_updates // BATCH),
    )


@dataclass(frozen=True)
class MarcoCell:
    """MARCO with one preset, one budget and some changes."""

    name: str
    world: str
    preset: PresetName
    samples: int
    title: str
    """What a legend says."""
    changes: dict[str, Any] = field(default_factory=dict)
    visits: bool = False
    """Whether it is recorded which pairs (s, a) the team meets, and which the data hold."""

    method = "marco"

    def config(self, spec: Spec) -> MarcoConfig:
        """All settings."""
        config = MarcoConfig.preset(self.preset, spec, samples=self.samples, **self.changes)
        return side_by_side(config) if self.preset == "paper" else config

    def quick(self, spec: Spec) -> MarcoConfig:
        """So little of everything that it takes seconds: the path is the same, the numbers mean nothing."""
        full = self.config(spec)
        chunk = 10 * spec.horizon
        small = {"hidden": 8, "episodes_per_update": 4, "buffer_size": 64, "batch_size": 8}
        return replace(
            full,
            samples=2 * chunk,
            first_chunk=chunk,
            chunk=chunk,
            team=_small(full.team, small),
            explorer=_small(full.explorer, small),
            candidates=tuple(_small(one, small) for one in full.candidates[:2]),
            offline=tuple(_small(one, small) for one in full.offline),
            offline_updates=5,
            trial_samples=min(full.trial_samples, 4 * spec.horizon),
            model=_small_model(full.model),
            explorer_steps=chunk,
            team_steps=chunk if full.team_steps else 0,
            final_updates=10,
        )


@dataclass(frozen=True)
class ModelFreeCell:
    """A learner in the true environment."""

    name: str
    world: str
    learner: Learner
    samples: int
    title: str
    preset: str = "tuned"
    cut: bool = False
    """Whether its budget is too small for a comparison that it does not win."""

    method = "model-free"

    def config(self, spec: Spec) -> ModelFreeConfig:
        """All settings."""
        return ModelFreeConfig(self.learner, self.samples, max(1, self.samples // POINTS))

    def quick(self, spec: Spec) -> ModelFreeConfig:
        """So little of everything that it takes seconds."""
        few = {"hidden": 8, "episodes_per_update": 4, "buffer_size": 64, "batch_size": 8}
        return ModelFreeConfig(_small(self.learner, few), 100 * spec.horizon, 50 * spec.horizon)


@dataclass(frozen=True)
class TabularCell:
    """Adapted R-MAX, or what it is compared with, in a finite Dec-POMDP."""

    name: str
    world: str
    horizon: int
    episodes: int
    title: str
    how: Method

    preset = "theory"
    method = "tabular"


Cell = MarcoCell | ModelFreeCell | TabularCell


def _small(learner: Any, changes: dict[str, Any]) -> Any:
    own = {name: value for name, value in changes.items() if hasattr(learner, name)}
    return replace(learner, **own)


def _small_model(model: ModelConfig) -> ModelConfig:
    def small(predictor: PredictorConfig) -> PredictorConfig:
        return replace(predictor, hidden=(8,) * len(predictor.hidden), training=None)

    names = ("dynamics", "reward", "observation", "termination", "available")
    parts: dict[str, Any] = {name: small(getattr(model, name)) for name in names}
    return replace(model, **parts, training=FitConfig(max_epochs=2, min_steps_per_epoch=5))


PAPER_BUDGET = {"switch": 10_000, "reference": 50_000, "bridge": 50_000}
DEFAULT_BUDGETS = {"switch": (1_000, 2_000), "reference": (5_000, 20_000), "bridge": (5_000, 10_000)}
FREE_BUDGET = {"switch": 250_000, "reference": 1_000_000, "bridge": 1_000_000}
CLAIMED = {"switch": (10_000, 200_000), "reference": (50_000, 1_000_000), "bridge": (50_000, 600_000)}
"""The paper: samples of MARCO, and those of model-free, for the same return."""

RATIOS = {4: 1, 16: 4}
"""Gradient steps per episode, beside one, of the tuned model-free learners; and by how much their budget is
smaller. Sixteen take so much arithmetic that they are cut off at a quarter."""


def _tuned(world: str) -> Learner:
    return make_learner("sample-efficient", make(world).spec)


def _results() -> list[Cell]:
    cells: list[Cell] = []
    for world in WORLDS:
        name = make_learner("paper", make(world).spec)
        assert isinstance(name, QLearner)
        learner, free = name.mixer.upper(), FREE_BUDGET[world]
        cells += [
            MarcoCell(
                f"{world}-paper",
                world,
                "paper",
                PAPER_BUDGET[world],
                "MARCO, paper",
                visits=world == "bridge",
            ),
            *(
                MarcoCell(f"{world}-default-{budget}", world, "default", budget, "MARCO, default")
                for budget in DEFAULT_BUDGETS[world]
            ),
            ModelFreeCell(f"{world}-free-paper", world, name, free, f"{learner}, paper", "paper"),
        ]
        tuned = _tuned(world)
        if isinstance(tuned, MAPPO):
            cells.append(ModelFreeCell(f"{world}-free-mappo", world, tuned, free, "MAPPO, tuned"))
            tuned = make_learner("sample-efficient", make(world).spec, name.mixer)
            assert isinstance(tuned, QLearner)
            tuned = replace(tuned, factored=True)
        cells.append(ModelFreeCell(f"{world}-free-tuned", world, tuned, free, f"{learner}, tuned"))
        assert isinstance(tuned, QLearner)
        for ratio, part in RATIOS.items():
            more = replace(
                tuned,
                gradient_steps=ratio,
                target_update_interval=max(1, tuned.target_update_interval // ratio),
                epsilon_anneal_steps=tuned.epsilon_anneal_steps // part,
            )
            title = f"{learner}, tuned, {ratio} updates per episode"
            cells.append(
                ModelFreeCell(f"{world}-free-tuned-{ratio}", world, more, free // part, title, cut=part > 1)
            )
    return cells


def _ablations(preset: PresetName, samples: int) -> dict[str, MarcoCell]:
    """Of the exploration policy on `bridge`: the team collects, chance collects, lambda is 0."""
    team_steps = {} if preset == "paper" else {"team_steps": 50_000}
    changes: dict[str, tuple[str, dict[str, Any]]] = {
        "team": ("the team collects", {"collector": "team", **team_steps}),
        "random": ("chance collects", {"collector": "random", "first_chunk": samples, "chunk": samples}),
        "lam-0": ("lambda = 0", {"lam": 0.0}),
    }
    return {
        name: MarcoCell(
            f"bridge-{preset}-{name}", "bridge", preset, samples, title, changed, preset == "paper"
        )
        for name, (title, changed) in changes.items()
    }


def _views(world: str, preset: PresetName, samples: int) -> list[MarcoCell]:
    """Other models than the centralised one."""
    views = {"joint-observation": "joint observations", "decentralised": "a model for each agent"}
    return [
        MarcoCell(f"{world}-{preset}-{view}", world, preset, samples, title, {"view": view})
        for view, title in views.items()
    ]


def _readings() -> list[MarcoCell]:
    """Other readings of what the paper leaves open, on `switch`, where they are cheap."""
    of: dict[str, tuple[str, dict[str, Any]]] = {
        "patience-5": ("patience of 5 epochs", {"model.training.patience": 5}),
        "cold-explorer": ("a fresh exploration policy after every refit", {"warm_explorer": False}),
        "short": ("10,000 updates in the last model", {"final_updates": 10_000}),
        "from-scratch": ("a fresh team in the last model", {"candidates": (QLearner("iql"),)}),
    }
    samples = PAPER_BUDGET["switch"]
    return [
        MarcoCell(f"switch-paper-{name}", "switch", "paper", samples, title, changes)
        for name, (title, changes) in of.items()
    ]


def _tabular() -> list[Cell]:
    """Samples to within 5% of the optimum, by method."""
    problems = {"recycling": (4, 2_000, 2.0), "gridsmall": (3, 10_000, 2.0)}
    cells: list[Cell] = []
    for problem, (horizon, episodes, seconds) in problems.items():
        methods: dict[str, tuple[str, Method]] = {
            "rmax-1": ("Adapted R-MAX, m = 1", RMax(1, "absorbing", seconds)),
            "rmax-5": ("Adapted R-MAX, m = 5", RMax(5, "absorbing", seconds)),
            "random": ("random exploration", RandomExploration(seconds)),
            "psrl": ("posterior sampling", PosteriorSampling(seconds=seconds)),
        }
        cells += [
            TabularCell(f"tabular-{problem}-{name}", problem, horizon, episodes, title, how)
            for name, (title, how) in methods.items()
        ]
    return cells


PAPER_BRIDGE = _ablations("paper", PAPER_BUDGET["bridge"])
DEFAULT_BRIDGE = _ablations("default", DEFAULT_BUDGETS["bridge"][-1])
RESULTS = _results()
_BY_NAME = {cell.name: cell for cell in RESULTS}
_MARCO_ON_BRIDGE: list[Cell] = [
    _BY_NAME["bridge-paper"],
    _BY_NAME[f"bridge-default-{DEFAULT_BUDGETS['bridge'][-1]}"],
]
DELAYED_BUDGET = 3_000

CELLS_OF: dict[StudyName, list[Cell]] = {
    "results": [*RESULTS, *_readings()],
    "exploration": [
        *_MARCO_ON_BRIDGE,
        *(ablations[name] for ablations in (PAPER_BRIDGE, DEFAULT_BRIDGE) for name in ("team", "random")),
    ],
    "bonus": [*_MARCO_ON_BRIDGE, PAPER_BRIDGE["lam-0"], DEFAULT_BRIDGE["lam-0"]],
    "visitation": [_BY_NAME["bridge-paper"], PAPER_BRIDGE["team"]],
    "models": [
        *_MARCO_ON_BRIDGE,
        *_views("bridge", "paper", PAPER_BUDGET["bridge"]),
        *_views("bridge", "default", DEFAULT_BUDGETS["bridge"][-1]),
        MarcoCell("delayed-default", "delayed", "default", DELAYED_BUDGET, "MARCO, default"),
        *_views("delayed", "default", DELAYED_BUDGET),
    ],
    "tabular": _tabular(),
}


QUICK = (
    *("switch-paper", "switch-default-1000", "switch-free-paper", "switch-free-tuned"),
    *("bridge-paper", "bridge-paper-team", "bridge-paper-lam-0"),
    *("delayed-default", "delayed-default-joint-observation"),
    *("tabular-recycling-rmax-1", "tabular-recycling-random"),
)
"""One cell of each kind: what --quick runs."""


def cells_of(
    studies: tuple[StudyName, ...], preset: PresetName | None = None, quick: bool = False
) -> list[Cell]:
    """The cells of some studies, each once; of MARCO's only those of a preset, if one is given."""
    found = {cell.name: cell for study in studies for cell in CELLS_OF[study]}
    return [
        cell
        for cell in found.values()
        if (preset is None or not isinstance(cell, MarcoCell) or cell.preset == preset)
        and (not quick or cell.name in QUICK)
    ]


def cell_named(name: str) -> Cell:
    """A cell by its name."""
    found = {cell.name: cell for cell in cells_of(STUDIES)}
    if name not in found:
        raise ValueError(f"there is no cell {name!r}: there are {', '.join(found)}.")
    return found[name]
