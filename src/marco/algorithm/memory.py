"""How much a model remembers, where the state is no more than what all agents observe.

Such a state is seldom Markov: it shows a position and no velocity. With the timesteps before it, it may be.
How many are of use, the real data say: models of one, two and four timesteps are fitted to the same episodes,
and judged by how well they predict those that they never saw.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from marco.algorithm.fit import fit_parts, stack_data
from marco.data.storage import read_json, write_atomically
from marco.model.components import Component
from marco.model.config import ModelConfig
from marco.model.early_stopping import Examples
from marco.model.fit import ModelPlan, Part, examples
from marco.model.frames import forget, with_frames
from marco.model.report.held_out import out_of_bag
from marco.model.rows import Data
from marco.types import Episode, Spec

FORMAT = 1

LENGTHS = (1, 2, 4)
"""The numbers of timesteps that are tried."""
MOST_COLUMNS = 1_000
"""Of a state with its memory: with more, only what is set by hand is remembered."""
MOST_SAMPLES = 5_000
"""Of each seed, which are enough to choose by: a longer comparison would only cost time."""
LEAST_EPISODES = 4
"""From fewer nothing is concluded: one episode says nothing of the others."""
MEMBERS = 3
"""Networks of each component that is compared."""
BEYOND_NOISE = 3.0
"""More is remembered where some feature gains so many standard errors..."""
SHARE = 0.25
"""... this share of what was not known of it: another fit of the same inputs may gain a little, too..."""
LEAST_GAIN = 1e-3
"""... and so many nats a step."""
RARE = 1e-3
"""A probability below which a surprise is not counted any higher: a single one must not decide."""
PRECISE = 0.1
"""A number that is predicted to this share of its spread counts as known."""


class Gain(NamedTuple):
    """By how many nats a step a memory predicts better than the present alone, on episodes held out."""

    frames: int
    nats: float
    error: float
    """The standard error, over episodes."""


class Memory(NamedTuple):
    """Of how many timesteps a state consists, and why."""

    frames: int = 1
    gains: tuple[Gain, ...] = ()
    """Of all that were compared, the longest last; none where it was set by hand."""

    def warnings(self) -> tuple[str, ...]:
        """A line if the state alone was found not to be Markov, and how far from it."""
        by_frames = {gain.frames: gain for gain in self.gains}
        if self.frames not in by_frames:
            return ()
        gain = by_frames[self.frames]
        line = (
            f"the state is the joint observation, of the last {self.frames} steps: remembering them predicts "
            f"the next step better by {gain.nats:.2g} nats (standard error {gain.error:.1g}) than the last "
            "alone. What is still hidden is not measured"
        )
        if self.frames == self.gains[-1].frames:
            *_, before, last = Gain(1, 0.0, 0.0), *self.gains
            more = f"{last.nats - before.nats:.2g}"
            line += f"; {last.frames} steps are better than {before.frames} by {more} nats, so it may be much"
        return (f"{line}.",)


@dataclass(frozen=True)
class Memories:
    """What a run has chosen to remember, after so many samples; kept in its folder.

    It is chosen at the first fit, and as long as the samples are few again whenever they have doubled: with
    more data more is found out. Where the state has other columns, the learners that see it begin anew.
    """

    file: Path | None = None
    found: dict[int, Memory] = field(default_factory=dict, compare=False)

    def at(self, reached: Sequence[int], choose: Callable[[int], Memory]) -> Memory:
        """The memory at the last of the fits `reached`, each after so many samples."""
        due: list[int] = []
        for samples in reached:
            if not due or 2 * due[-1] <= samples <= MOST_SAMPLES:
                due.append(samples)
        if not due:
            return Memory()
        if due[-1] not in self.found:
            self.found.update(self._kept())
        if due[-1] not in self.found:
            self.found[due[-1]] = choose(due[-1])
            self._keep()
        return self.found[due[-1]]

    def _kept(self) -> dict[int, Memory]:
        if self.file is None or not self.file.exists():
            return {}
        cure = "Delete it and the checkpoint beside it, and resume: they are made again from the samples."
        facts = read_json(self.file, cure)
        if facts.get("format") != FORMAT or not isinstance(facts.get("after"), dict):
            raise ValueError(f"{self.file} has another format than this MARCO reads. {cure}")
        try:
            return {int(samples): _from_json(own) for samples, own in facts["after"].items()}
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(f"{self.file} is damaged: {error!r}. {cure}") from error

    def _keep(self) -> None:
        if self.file is None:
            return
        after = {str(samples): _as_json(own) for samples, own in sorted(self.found.items())}
        text = json.dumps({"format": FORMAT, "after": after}, indent=1) + "\n"
        write_atomically(self.file, text.encode())


def lengths(spec: Spec) -> tuple[int, ...]:
    """The memories that are compared for a state: no longer than an episode, and not too wide."""
    fitting = [n for n in LENGTHS[1:] if n <= spec.horizon and _width(spec, n) <= MOST_COLUMNS]
    return (1, *fitting)


def choose(
    keys: Key[Array, " S"],
    plan: ModelPlan,
    tried: Sequence[int],
    episodes: Sequence[Episode],
    capacity: int,
) -> Memory:
    """The shortest memory of those `tried` that no longer one beats beyond noise; `plan` is of the longest.

    The shorter ones have the same columns, of which what is forgotten is blank: so all are one program, begin
    with the same weights, and are judged by the same steps.
    """
    begun = sum(int(np.asarray(own.mask).any(0).sum()) for own in episodes)
    if begun < LEAST_EPISODES or len(tried) == 1:
        return Memory()
    plan = replace(plan, config=_quick(plan.config))
    rows = [plan.gather(own, capacity) for own in episodes]
    parts, plan, data = _compared(plan, rows), plan.with_certain(rows), stack_data(rows)
    losses = {frames: _losses(keys, plan, parts, _forgotten(plan, data, frames)) for frames in tried}
    best = 1
    for frames in tried[1:]:
        if better(losses[best], losses[frames]):
            best = frames
    gains = [Gain(frames, *gain(losses[1], losses[frames])) for frames in tried[1:]]
    return Memory(best, tuple(gains))


class Losses(NamedTuple):
    """What a component did not know of the real steps that it was not trained on, feature by feature."""

    nats: Float[np.ndarray, "rows features"]
    """0 where a class was certain, or a number known well enough."""
    episode: Int[np.ndarray, " rows"]


def better(base: Sequence[Losses], other: Sequence[Losses]) -> bool:
    """Whether some feature is predicted far better, beyond noise, and all together no worse."""
    found = False
    for before, after in zip(base, other, strict=True):
        nats, error = _by_episode(before.nats - after.nats, before.episode)
        least = np.maximum(BEYOND_NOISE * error, SHARE * before.nats.mean(0))
        found |= bool((nats > np.maximum(least, LEAST_GAIN)).any())
    return found and gain(base, other)[0] > 0.0


def gain(base: Sequence[Losses], other: Sequence[Losses]) -> tuple[float, float]:
    """By how many nats a step all components together gain, and the standard error over episodes."""
    parts = [
        _by_episode((before.nats - after.nats).sum(-1, keepdims=True), before.episode)
        for before, after in zip(base, other, strict=True)
    ]
    nats, errors = (np.concatenate(part) for part in zip(*parts, strict=True))
    return float(nats.sum()), float(np.sqrt(np.square(errors).sum()))


def _by_episode(
    gained: Float[np.ndarray, "rows columns"], episode: Int[np.ndarray, " rows"]
) -> tuple[Float[np.ndarray, " columns"], Float[np.ndarray, " columns"]]:
    """Means and their standard errors: steps of one episode are no independent evidence, episodes are."""
    steps = np.bincount(episode)
    sums = np.zeros((len(steps), gained.shape[1]))
    np.add.at(sums, episode, gained)
    mean, many = gained.mean(0), int((steps > 0).sum())
    off = np.square(sums - steps[:, None] * mean).sum(0) / len(gained) ** 2
    return mean, np.sqrt(off * many / max(many - 1, 1))


def _losses(keys: Key[Array, " S"], plan: ModelPlan, parts: Sequence[Part], data: Any) -> list[Losses]:
    """How well held-out steps are predicted by a model of its own, component by component."""
    (spec,) = plan.view.model_specs(plan.spec)
    found = []
    for (_, name), (component, fit) in fit_parts(keys, data, plan, parts).items():
        each, begun = [], 0
        for index in range(len(keys)):
            own, (rows,), held = jax.tree.map(lambda leaf, i=index: leaf[i], (component, data, fit.held_out))
            example = examples(plan.config.inputs(spec), name, own.layout, rows)
            each.append(_held_out_nats(own, example, held, begun))
            begun += int(rows.num_starts)
        found.append(Losses(*(np.concatenate(part) for part in zip(*each, strict=True))))
    return found


def _held_out_nats(
    component: Component, rows: Examples, held_out: Bool[Array, "members rows"], begun: int
) -> Losses:
    """Of one seed; its episodes are numbered on from `begun`."""
    found, count = out_of_bag(component, rows, held_out), int(rows.number)
    classes = np.asarray(rows.targets.classes)[:count]
    chosen = np.take_along_axis(found.probability, classes[..., None], axis=-1)[..., 0]
    varies = np.asarray(component.values.scale) > 0.0
    precise = np.log(PRECISE * np.sqrt(2.0 * np.pi))
    numbers = np.where(varies, np.clip(found.loss - precise, 0.0, -np.log(RARE)), 0.0)
    nats = np.concatenate([-np.log(np.maximum(chosen, RARE)), numbers], axis=-1)
    return Losses(nats[found.held_out], begun + np.asarray(rows.episode)[:count][found.held_out])


def _forgotten(plan: ModelPlan, data: Any, frames: int) -> Any:
    """The rows of all seeds, with a shorter memory."""
    (spec,), (own,) = plan.view.model_specs(plan.spec), data
    state, after = (forget(spec, rows, frames) for rows in (own.steps.state, own.steps.next_state))
    return (own._replace(steps=own.steps._replace(state=state, next_state=after)),)


def _compared(plan: ModelPlan, rows: Sequence[tuple[Data, ...]]) -> tuple[Part, ...]:
    """What a step leads to: the next state, and reward and end where these ever vary."""
    varies = {"dynamics"}
    for name, column in (("reward", "reward"), ("termination", "terminated")):
        values = [np.asarray(getattr(own.steps, column))[: int(own.num_steps)] for (own,) in rows]
        if len(np.unique(np.concatenate(values))) > 1:
            varies.add(name)
    return tuple(part for part in plan.components() if part[1] in varies)


def _quick(config: ModelConfig) -> ModelConfig:
    """The same networks, but fewer."""
    parts = ("dynamics", "reward", "termination")
    fewer: dict[str, Any] = {name: replace(getattr(config, name), members=MEMBERS) for name in parts}
    return replace(config, **fewer)


def _width(spec: Spec, frames: int) -> int:
    return with_frames(spec, frames).state_width


def _as_json(memory: Memory) -> dict[str, Any]:
    gains = [{"frames": gain.frames, "nats": gain.nats, "error": gain.error} for gain in memory.gains]
    return {"frames": memory.frames, "gains": gains}


def _from_json(facts: Mapping[str, Any]) -> Memory:
    frames = int(facts["frames"])
    if frames < 1:
        raise ValueError(f"frames must be at least 1, got {frames}")
    gains = [Gain(int(one["frames"]), float(one["nats"]), float(one["error"])) for one in facts["gains"]]
    return Memory(frames, tuple(gains))
