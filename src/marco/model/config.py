"""The settings of a model: which networks each component has, and how these are trained."""

from dataclasses import dataclass
from typing import Literal

from marco.checks import check_fields, check_not_negative, check_positive
from marco.model.inputs import ComponentName, Inputs
from marco.types import Spec

PredictorName = Literal["chain", "factored", "recurrent"]


@dataclass(frozen=True)
class FitConfig:
    """How long and on what the networks are trained.

    An epoch is as many gradient steps as would pass over the training rows once, but at least
    `min_steps_per_epoch`; rows are drawn at random. After each epoch the likelihood of the held-out rows is
    computed. A unit that has gained less than `min_delta` in `patience` epochs stops; the best of each unit
    is kept.
    """

    learning_rate: float = 1e-3
    batch_size: int = 128
    max_epochs: int = 200
    min_steps_per_epoch: int = 30
    patience: int = 5
    min_delta: float = 1e-3
    """In nats per row."""
    holdout: float = 0.3
    """The share of the episodes that a member never trains on; each member holds out others."""
    bootstrap: bool = False
    """Whether each member trains on rows drawn with replacement."""
    weight_decay: float = 0.0
    sparsity: float = 0.0
    """How strongly the input weights of a `chain` are drawn to 0, as a share of the learning rate: Adam moves
    a weight by about the learning rate where all gradients agree, and one on which they do not vanishes."""
    beta: float = 0.0
    """The loss of a value is weighted by its predicted variance to this power, so that among values that
    share a network those which are easily predicted do not outweigh the others; 0 is the plain likelihood."""
    surprises: float = 0.0
    """The share of the draws that goes to rows by how badly their classes were predicted when last drawn.
    Weights make up for it: rare events are in every batch, and count no more than they did."""
    most_nats: float | None = None
    """A held-out row counts as no worse than this, or than ln 2 more than by the frequencies of classes, if
    that is more. Without a bound, events of which a few rows are known are not learned: to be sure where they
    do not happen costs more on the held-out rows where they do, and nobody could know it, than it gains."""
    trained: float = 0.0
    """The weight in early stopping of what rows trained on miss, beside 1 of the loss on held-out rows: an
    event that is not among these is seen there alone. Of such a row counts what it is worse than a chance of
    one in ten, so that chance among few classes does not speak here: to know it by heart is no gain."""
    ema_decay: float = 0.98
    """The networks kept are exponential moving averages of those trained; 0 keeps the networks themselves."""

    def __post_init__(self) -> None:
        check_fields(self)
        check_positive(
            "FitConfig",
            learning_rate=self.learning_rate,
            batch_size=self.batch_size,
            max_epochs=self.max_epochs,
            min_steps_per_epoch=self.min_steps_per_epoch,
            patience=self.patience,
        )
        shares = {"holdout": self.holdout, "ema_decay": self.ema_decay, "surprises": self.surprises}
        for name, value in shares.items():
            if not 0.0 <= value < 1.0:
                raise ValueError(f"FitConfig: {name} must be at least 0 and below 1, got {value}.")
        check_not_negative(
            "FitConfig",
            min_delta=self.min_delta,
            weight_decay=self.weight_decay,
            sparsity=self.sparsity,
            beta=self.beta,
            most_nats=self.most_nats or 0.0,
            trained=self.trained,
        )
        if self.holdout == 0.0:
            raise ValueError("FitConfig: holdout=0 leaves nothing to stop by: hold out a share of the rows.")


@dataclass(frozen=True)
class PredictorConfig:
    """The networks of one component: which, how large, and how many of them make the ensemble."""

    kind: PredictorName = "chain"
    hidden: tuple[int, ...] = (64, 64)
    members: int = 5
    training: FitConfig | None = None
    """How this component is trained, if not as the others of its model are."""

    def __post_init__(self) -> None:
        check_fields(self)
        if not self.hidden or min(self.hidden) < 1:
            raise ValueError(f"hidden sizes must be positive and at least one, got {self.hidden}.")
        if self.members < 1:
            raise ValueError(f"an ensemble needs at least 1 member, got members={self.members}.")


@dataclass(frozen=True)
class ModelConfig:
    """The networks of each component, and how they are trained."""

    dynamics: PredictorConfig
    reward: PredictorConfig
    observation: PredictorConfig
    termination: PredictorConfig
    available: PredictorConfig
    training: FitConfig
    """Of every component that has no `training` of its own."""
    distances: bool = True
    """Whether distances within the state are inputs of the networks too."""
    relations: bool = False
    """Whether differences between the classes of like features of the state are inputs too."""
    changes: bool = False
    """Whether the networks of the dynamics also score classes by how far they are from the present one."""

    def __post_init__(self) -> None:
        check_fields(self)
        if self.available.kind != "factored":
            raise ValueError(
                f"ModelConfig: available must be factored, got {self.available.kind!r}: all actions are "
                "predicted at once, so none can be conditioned on those before it."
            )

    def inputs(self, spec: Spec) -> Inputs:
        """What the networks see of an environment."""
        return Inputs(spec, self.distances, self.relations)

    def predictor(self, name: ComponentName) -> PredictorConfig:
        """The networks of a component."""
        predictor: PredictorConfig = getattr(self, name)
        return predictor

    def training_of(self, name: ComponentName) -> FitConfig:
        """How a component is trained."""
        return self.predictor(name).training or self.training
