"""The view of an environment with a memory: its state is that of the last few timesteps."""

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp

from marco.model.frames import begin, present, remember, stacked, with_frames
from marco.model.inputs import ComponentName
from marco.model.views import KnownFunctions, View
from marco.policies.base import Memory
from marco.types import NO_ACTION, Episode, Spec, TimeStep, total_width


@dataclass(frozen=True)
class Stacked(View):
    """One model of the central state of the last `frames` timesteps, and of the actions between them.

    For environments whose state is no more than the joint observation, which is seldom Markov by itself.
    """

    frames: int

    def spec(self, true_spec: Spec) -> Spec:
        return with_frames(true_spec, self.frames)

    def model_specs(self, true_spec: Spec) -> tuple[Spec, ...]:
        return (self.spec(true_spec),)

    def episodes(self, true_spec: Spec, episodes: Episode) -> tuple[Episode, ...]:
        return (self.for_team(true_spec, episodes),)

    def for_team(self, true_spec: Spec, episodes: Episode) -> Episode:
        return episodes._replace(state=stacked(self.spec(true_spec), episodes))

    def start(self, true_spec: Spec) -> Memory:
        return jnp.zeros(self.spec(true_spec).state_width)

    def timestep(self, true_spec: Spec, memory: Memory, timestep: TimeStep) -> tuple[Memory, TimeStep]:
        spec = self.spec(true_spec)
        actions, now = timestep.previous_actions, timestep.state
        first = jnp.all(actions == NO_ACTION)
        state = jnp.where(first, begin(spec, now), remember(spec, memory, actions, now))
        return state, timestep._replace(state=state)

    def known(self, model_spec: Spec, given: KnownFunctions) -> KnownFunctions:
        return {name: _OfPresent(name, function, model_spec) for name, function in given.items()}


@dataclass(frozen=True)
class _OfPresent:
    """A known function of the state as it is now, as one of the state with its memory."""

    name: ComponentName
    function: Any
    spec: Spec

    def __call__(self, *arguments: Any) -> Any:
        """The function's answer for what is now; a state that it gives is remembered with what was."""
        width = total_width(present(self.spec))
        match self.name, arguments:
            case "start", (key,):
                return begin(self.spec, self.function(key))
            case "dynamics", (key, s, a):
                return remember(self.spec, s, a, self.function(key, s[..., :width], a))
            case "observation", (key, s, previous):
                return self.function(key, s[..., :width], previous)
            case "available", (s,):
                return self.function(s[..., :width])
            case _, (s, a, next_s):
                return self.function(s[..., :width], a, next_s[..., :width])
        raise TypeError(f"{self.name} is given {len(arguments)} arguments.")
