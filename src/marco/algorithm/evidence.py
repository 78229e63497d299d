"""What a run goes by: its environment, its settings, and the real data so far."""

from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float, Int, Key, PRNGKeyArray

from marco.algorithm.collect import earns_more, promises_more, whole_return, whole_returns
from marco.algorithm.config import MarcoConfig
from marco.algorithm.descriptions import Descriptions
from marco.algorithm.fit import model_like, stack_data
from marco.algorithm.memory import MOST_SAMPLES, Memories, Memory, choose, lengths
from marco.algorithm.offline import offline_like
from marco.algorithm.planning import can_plan, few_enough, planned_like
from marco.algorithm.state import Stream
from marco.data.dataset import Dataset
from marco.environments.base import Environment, HostWorld, has_joint_state, known_of
from marco.learners.candidates import Best
from marco.learners.parallel import stack_seeds
from marco.learners.restarts import best_like
from marco.model.fit import ModelPlan
from marco.model.inputs import ComponentName
from marco.model.novelty import Novelty, novelty_of
from marco.model.rows import Data
from marco.model.stacked_view import Stacked
from marco.model.views import Centralised, Described, View, make_view
from marco.types import Episode, Spec
from marco.units import Units, real_units

TRIED = 0.1
"""The share of a chunk in which the team so far is tried."""


@dataclass(frozen=True)
class Evidence:
    """An environment, a configuration, seeds, and the dataset of all real samples."""

    env: Environment | HostWorld
    config: MarcoConfig
    seeds: tuple[int, ...]
    dataset: Dataset
    known: tuple[tuple[ComponentName, Any], ...] = ()
    """Components of the model that are known functions."""
    capacity: int | None = None
    """For how many samples to make room, if not for the budget: what is compiled depends on it."""
    descriptions: Descriptions = field(default_factory=Descriptions)
    """What the environment's columns mean, where its spec is a guess."""
    memories: Memories = field(default_factory=Memories)
    """How much the model remembers, where the state is only the joint observation."""

    @property
    def room(self) -> int:
        """For how many samples there is room."""
        return self.capacity or self.config.samples

    def episodes(self, samples: int, since: int = 0) -> list[Episode]:
        """The real episodes of each seed."""
        return [self.dataset.episodes(index, samples, since) for index in range(len(self.seeds))]

    def view(self, samples: int) -> View:
        """How the model sees the environment, as its first `samples` steps, or else its spec, describe it."""
        return self._view(samples, self.memory(samples).frames)

    def memory(self, samples: int) -> Memory:
        """How much the model remembers; something only where the state is no more than what is observed."""
        if self.config.view != "centralised" or not has_joint_state(self.env):
            return Memory()
        if self.config.memory:
            return Memory(self.config.memory)
        return self.memories.at(self._reached(samples), self._choose_memory)

    def memory_warnings(self, before: int, samples: int) -> tuple[str, ...]:
        """That the state alone is not Markov, when it is found out, and at the end."""
        now = self.memory(samples)
        news = now != self.memory(before) or samples == self.config.schedule[-1]
        return now.warnings() if news else ()

    def spec(self, samples: int) -> Spec:
        """The spec of the environment that is learned from the first `samples` steps."""
        return self.view(samples).spec(self.env.spec)

    def plan(self, samples: int = 0) -> ModelPlan:
        """Which model is fitted to the first `samples` steps, and how."""
        return self._plan(self.view(samples))

    def to_fit(self, samples: int) -> tuple[tuple[Data, ...], ModelPlan]:
        """D as rows, stacked over seeds, and the plan without what there is nothing to learn of.

        The shape of the rows depends on the capacity alone.
        """
        plan = self.plan(samples)
        rows = [plan.gather(episodes, self.room) for episodes in self.episodes(samples)]
        return stack_data(rows), plan.with_certain(rows)

    def model_like(self, samples: int) -> tuple[Any, Any]:
        """The shapes of the model and its fits."""
        return model_like(self.keys(0, Stream.FIT), *self.to_fit(samples))

    def units(self, samples: int) -> Units:
        """What all real data so far are measured in; the learners that train in their model keep to it."""
        spec = self.spec(samples)
        return stack_seeds([real_units(spec, episodes) for episodes in self.as_learned(samples)])

    @property
    def floor(self) -> Float[np.ndarray, " S"]:
        """What random play earns: the mean return of each seed's first chunk."""
        return np.array([whole_return(own) or 0.0 for own in self.episodes(self.config.first_chunk)])

    def as_learned(self, samples: int) -> list[Episode]:
        """The real episodes of each seed in the columns of the environment that is learned from them."""
        view = self.view(samples)
        return [view.for_team(self.env.spec, episodes) for episodes in self.episodes(samples)]

    def novelty(self, samples: int) -> Novelty:
        """How new steps are beside the first `samples`."""
        return stack_seeds([novelty_of(episodes) for episodes in self.as_learned(samples)])

    def plans(self, samples: int) -> bool:
        """Whether a planner takes part: it needs the central state as it is, in a model that was learned."""
        plan = self.plan(samples)
        learned = isinstance(plan.view, Centralised) and not plan.known
        return bool(self.config.planning) and learned and can_plan(self.spec(samples))

    def planner_collects(self, samples: int) -> bool:
        """Whether planned teams may take part in the collection after so many samples."""
        return bool(self.config.team_share) and self.config.collector == "explorer" and self.plans(samples)

    def best_like(self, samples: int) -> tuple[Best, ...]:
        """The shapes of the candidates."""
        spec, keys = self.spec(samples), self.keys(0, Stream.FINAL)
        planned = (planned_like(spec, len(self.seeds)),) if self.plans(samples) else ()
        offline = (offline_like(keys, learner, spec) for learner in self.config.offline)
        return (*best_like(keys, self.config.final_learners, spec), *planned, *offline)

    def trains_teams(self, samples: int) -> bool:
        """Whether a team is trained after a refit. Not where it would only collect, and the states are few.

        There the planner knows soon what is best, or else the exploration policy gets about by itself.
        """
        if not self.config.team_steps:
            return False
        only_collects = bool(self.config.team_share and self.config.candidates)
        return not (
            only_collects and self.plans(samples) and few_enough(self.spec(samples), self.episodes(samples))
        )

    def team_until(self, iteration: int, promised: Float[np.ndarray, " S"]) -> Int[np.ndarray, " S"]:
        """Up to which sample the team so far, trained in the model, collects in a chunk.

        A few episodes of it are tried in every chunk. It gets all its share where it is `promised` more in
        the model than was earned so far, or where it earned more in the last chunk than all before it: a team
        that has learned nothing yet only repeats itself. A promise that is kept is a reward found; one that
        is broken is where the model has most to learn.
        """
        before, end = self.config.schedule[iteration - 1 : iteration + 1]
        earned = [whole_returns(own) for own in self.episodes(before)]
        pays = [promises_more(one, own) for one, own in zip(promised.tolist(), earned, strict=True)]
        if iteration > 1:
            last = self.config.schedule[iteration - 2]
            pays = [one or self._earned_more(seed, last, before) for seed, one in enumerate(pays)]
        most = self.config.team_share
        return before + (np.where(pays, most, min(TRIED, most)) * (end - before)).astype(int)

    def _earned_more(self, seed: int, begin: int, end: int) -> bool:
        """Whether the team so far, tried at the begin of a chunk, earned more than all before it."""
        tried = begin + int(min(TRIED, self.config.team_share) * (end - begin))
        if tried == begin:
            return False
        own, others = self.dataset.episodes(seed, tried, begin), self.dataset.episodes(seed, begin)
        return earns_more(whole_returns(own), whole_returns(others))

    def keys(self, iteration: int, stream: Stream) -> Key[Array, " S"]:
        """A key per seed for one use."""
        return stack_seeds([stream_key(seed, iteration, stream) for seed in self.seeds])

    def _reached(self, samples: int) -> list[int]:
        """The fits up to so many samples."""
        return [point for point in self.config.schedule if point <= samples]

    def _view(self, samples: int, frames: int) -> View:
        view = make_view(self.config.view) if frames == 1 else Stacked(frames)
        found = self.descriptions.at(self.env, self._reached(samples), self.episodes)
        return view if found is None else Described(view, found)

    def _plan(self, view: View) -> ModelPlan:
        config, known = self.config, dict(self.known)
        if config.view == "centralised":
            known = known_of(self.env) | known
        return ModelPlan(view, config.model, self.env.spec, config.resample_member, tuple(known.items()))

    def _choose_memory(self, samples: int) -> Memory:
        """By the data up to a fit."""
        spec = self._view(samples, 1).spec(self.env.spec)
        tried = lengths(spec)
        plan = self._plan(self._view(samples, tried[-1]))
        keys = self.keys(self.config.schedule.index(samples), Stream.MEMORY)
        most = min(self.room, MOST_SAMPLES)
        return choose(keys, plan, tried, self.episodes(min(samples, most)), most)


def stream_key(seed: int, iteration: int, stream: Stream) -> PRNGKeyArray:
    """The key of one use of randomness."""
    return jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), iteration), stream)
