"""Simulators side by side, on the command line."""

from dataclasses import asdict, dataclass
from typing import Annotated, Any

import tyro

from marco.simulators.config import Workers


@dataclass(frozen=True, kw_only=True)
class WorkerOptions:
    """Options of the commands that play in a host environment."""

    workers: int | None = None
    """Host environments: so many simulators side by side, each in a process of its own; 0 for none. They
    change nothing but the time."""
    ray: Annotated[str | None, tyro.conf.arg(metavar="[ADDRESS]")] = None
    """The workers are actors of the Ray cluster at this address; of the one that is found, or of one started
    here, if none is given."""
    step_timeout: float | None = None
    """Seconds after which a worker that does not answer is replaced; it is waited for, if not given."""
    attempts: int | None = None
    """How many workers may fail in an episode, one after the other, before the run stops; 3, if not given."""


def with_address(arguments: list[str]) -> list[str]:
    """The arguments, with an address after --ray."""
    words: list[str] = []
    for number, word in enumerate(arguments, start=1):
        alone = word == "--ray" and (arguments[number:] or ["-"])[0].startswith("-")
        words += [word, "auto"] if alone else [word]
    return words


def workers_of(options: WorkerOptions, before: Workers | None, trust: bool) -> Workers | None:
    """The workers that the options ask for; what they leave open is as `before`, which a file says.

    A file may be anyone's: to its cluster, which would run code, nobody is connected who does not say so.
    """
    asked = {
        "count": options.workers,
        "ray": options.ray,
        "step_timeout": options.step_timeout,
        "attempts": options.attempts,
    }
    given: dict[str, Any] = {name: value for name, value in asked.items() if value is not None}
    if options.workers == 0 or (before is None and not given):
        return None
    if before is not None and before.ray is not None and options.ray is None and not trust:
        raise ValueError(
            f"its workers are on a Ray cluster ({before.ray!r}): name that (--ray {before.ray}), trust it "
            "(--trust), or use none (--workers 0). Nothing was connected."
        )
    if before is None and options.workers is None:
        name = next(iter(given)).replace("_", "-")
        raise ValueError(f"--{name} is for workers: say how many, as in --workers 8.")
    return Workers(**({} if before is None else asdict(before)) | given)
