"""The descriptions of an environment in the course of a run: found in its real data, kept in its folder."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from marco.data.storage import read_json, write_atomically
from marco.environments.base import Environment, HostWorld, guessed_of
from marco.model.describe import describe, fits, numbers
from marco.model.description import Description
from marco.model.description_file import GivenDescription, as_json, from_json
from marco.types import Episode, Spec

FORMAT = 1


@dataclass(frozen=True)
class Descriptions:
    """What the columns of an environment mean after so many samples; nothing, where its spec says it all.

    A description is made from all data at a fit, and kept as long as it describes new data without loss.
    """

    file: Path | None = None
    """Where they are kept, so that a run that is resumed has the same."""
    given: GivenDescription | None = None
    """What the user says; the rest is found out."""
    found: dict[int, Description] = field(default_factory=dict, compare=False)

    def check(self, spec: Spec) -> None:
        """Refuse what the user says if it does not fit the environment."""
        if self.given is not None:
            self.given.over(Description.of(spec), spec)

    def at(
        self,
        env: Environment | HostWorld,
        reached: Sequence[int],
        episodes: Callable[[int], list[Episode]],
    ) -> Description | None:
        """The description at the last of the fits `reached`, each after so many samples; None: the spec's."""
        guessed = guessed_of(env)
        if not any(guessed) and self.given is None:
            return None
        if not reached:
            return None if self.given is None else self.given.over(Description.of(env.spec), env.spec)
        samples = reached[-1]
        if samples not in self.found:
            self.found.update(self._kept(env.spec))
        if samples not in self.found:
            self.found[samples] = self._made(env, reached, episodes)
            self._keep(env.spec)
        return self.found[samples]

    def _made(
        self,
        env: Environment | HostWorld,
        reached: Sequence[int],
        episodes: Callable[[int], list[Episode]],
    ) -> Description:
        """That of the fit before, if it describes all data and no more numbers turn out to be classes."""
        *before, samples = reached
        real = episodes(samples)
        fresh = describe(env.spec, real, guessed_of(env))
        if self.given is not None:
            fresh = self.given.over(fresh, env.spec)
        last = self.at(env, before, episodes) if before else None
        if last is not None and numbers(last) <= numbers(fresh) and fits(last, env.spec, real):
            return last
        return fresh

    def _kept(self, spec: Spec) -> dict[int, Description]:
        if self.file is None or not self.file.exists():
            return {}
        cure = "Delete it and the checkpoint beside it, and resume: they are made again from the samples."
        facts = read_json(self.file, cure)
        after = facts.get("after")
        if facts.get("format") != FORMAT or not isinstance(after, dict):
            raise ValueError(f"{self.file} has another format than this MARCO reads. {cure}")
        stated = Description.of(spec)
        try:
            return {int(samples): from_json(own).over(stated, spec) for samples, own in after.items()}
        except ValueError as error:
            raise ValueError(f"{self.file} is damaged, or of another environment: {error} {cure}") from error

    def _keep(self, spec: Spec) -> None:
        if self.file is None:
            return
        after = {str(samples): as_json(own, spec) for samples, own in sorted(self.found.items())}
        text = json.dumps({"format": FORMAT, "after": after}, indent=1) + "\n"
        write_atomically(self.file, text.encode())
