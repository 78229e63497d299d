"""A run's metrics for TensorBoard: RUN/tensorboard/seed-S, over real samples."""

from pathlib import Path
from typing import Any

from marco.algorithm.events import Event
from marco.optional import require


def summary_writer() -> Any:
    """The class that writes, or which extra brings it."""
    return require("tensorboardX", "tensorboard").SummaryWriter


class TensorBoard:
    """Writes the numbers of every phase as it ends; a resumed run goes on in files beside the old ones."""

    def __init__(self, folder: Path, seeds: tuple[int, ...]) -> None:
        make = summary_writer()
        self._writers = [make(str(folder / "tensorboard" / f"seed-{seed}")) for seed in seeds]

    def add(self, event: Event) -> None:
        """The metrics of a phase."""
        for name, values in event.metrics.items():
            self.add_scalars(f"{event.phase}/{name}", values, event.samples)

    def add_scalars(self, name: str, values: list[Any], samples: int) -> None:
        """One number per seed; None is left out."""
        for writer, value in zip(self._writers, values, strict=True):
            if value is not None:
                writer.add_scalar(name, value, samples)
                writer.flush()

    def close(self) -> None:
        """Nothing more comes."""
        for writer in self._writers:
            writer.close()
