"""PettingZoo: any ParallelEnv as a HostWorld, checked at every step.

What PettingZoo leaves open is settled here: one team reward, one central state, a known horizon, and a
fixed row for every agent that may ever be there.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

from marco.environments.adapters.common import RewardRule, check_choice, check_reward
from marco.environments.adapters.gymnasium_spaces import MASK, Value
from marco.environments.adapters.pettingzoo_spec import (
    AgentId,
    AgentSlot,
    ParallelEnv,
    StateSource,
    build,
    horizon_of,
    joint_features,
    joint_observation,
    slots_of,
    state_columns,
)
from marco.environments.adapters.team_reward import TeamReward
from marco.environments.base import Guessed, WorldError
from marco.environments.user_code import noted
from marco.types import NO_ACTION, Spec, TimeStep

__all__ = ["PettingZooWorld", "RewardRule", "StateSource", "WorldError"]


class Outcome(NamedTuple):
    """What `ParallelEnv.step` returns, by name."""

    observations: Mapping[AgentId, Value]
    rewards: Mapping[AgentId, Value]
    terminations: Mapping[AgentId, Value]
    truncations: Mapping[AgentId, Value]
    infos: Mapping[AgentId, Value]


class PettingZooWorld:
    """A ParallelEnv as a `HostWorld`. `settings` are the keyword arguments of an `env` given as a factory.

    An absent agent sees zeros, earns nothing and has only action 0, which is not sent. At the
    end of the episode whoever acted last is still present, so that the true last observation is not lost.
    """

    optimum: float | None = None
    """The value of the best team is not known."""
    guessed = Guessed(state=True, observation=True)
    """A Box has a shape and no meaning; what other spaces say is kept."""

    def __init__(
        self,
        env: ParallelEnv | Callable[..., ParallelEnv],
        *,
        horizon: int | None = None,
        reward: RewardRule = "mean",
        state: StateSource = "auto",
        **settings: Any,
    ) -> None:
        check_choice("state", state, StateSource)
        self._env = build(env, settings)
        self._name = str(self._env)
        self._slots = slots_of(self._env, self._name)
        names = tuple(str(slot.id) for slot in self._slots)
        self._team_reward = TeamReward(self._name, names, check_reward(reward, names))
        self._state_columns = None if state == "joint" else state_columns(self._env, self._name, state)
        self.spec = Spec(
            name=self._name,
            agents=tuple(slot.agent for slot in self._slots),
            state=self._state_columns.features if self._state_columns else joint_features(self._slots),
            horizon=horizon_of(self._env, self._name) if horizon is None else horizon,
        )
        self.known = {} if self._state_columns else {"observation": joint_observation(self.spec)}
        """The joint observation as the state shows what every agent sees: there is nothing to learn."""
        self.joint_state = self._state_columns is None
        self._time, self._seed = 0, 0
        self._live: list[AgentId] = []
        # None while no episode is under way: before the first, after the end, and after an error in a step.
        self._available: Bool[np.ndarray, "N A"] | None = None

    def reset(self, seed: int) -> TimeStep:
        """Begin an episode; the seed is passed on to the environment."""
        self._available, self._time, self._seed = None, 0, seed
        with noted(f"reset(seed={seed}) of {self._name}"):
            returned = self._env.reset(seed=seed)
            observations, infos = _unpack(returned, ("observations", "infos"), self._where("reset"))
            self._live = self._known_agents()
            if not self._live:
                raise WorldError(f"{self._where()}: no agents after reset. Set `agents` in reset.")
            nobody_acted = np.full(len(self._slots), NO_ACTION, np.int32)
            return self._timestep(self._live, observations, infos, previous_actions=nobody_acted)

    def step(self, actions: Shaped[np.ndarray, "..."]) -> TimeStep:
        """Take one real step with one action index per agent, in the order of `spec.agents`."""
        chosen = self._check_actions(actions)
        acted, self._available = self._live, None
        sent = {
            slot.id: slot.actions.native(int(action))
            for slot, action in zip(self._slots, chosen, strict=True)
            if slot.id in acted
        }
        self._time += 1
        when = f"step {self._time} after reset(seed={self._seed}) of {self._name}"
        with noted(f"{when}, with the actions {sent}"):
            returned = self._env.step(sent)
            outcome = Outcome(*_unpack(returned, Outcome._fields, self._where("step")))
            return self._settle(acted, chosen, outcome)

    def close(self) -> None:
        """Let the environment give back what it holds."""
        self._env.close()

    def _check_actions(self, actions: Shaped[np.ndarray, "..."]) -> Int[np.ndarray, " N"]:
        if self._available is None:
            raise RuntimeError(f"{self._where()}: no episode is under way. Call reset(seed) before step.")
        array = np.asarray(actions)
        if array.shape != (len(self._slots),) or array.dtype.kind not in "iu":
            raise ValueError(
                f"{self._where()}: actions must be {len(self._slots)} integers, one per agent, "
                f"got {array.dtype} of shape {array.shape}: {array}."
            )
        for agent, action, open_ in zip(self.spec.agents, array.tolist(), self._available, strict=True):
            if not (0 <= action < agent.num_actions and open_[action]):
                label = agent.action_label(action) if 0 <= action < agent.num_actions else "no such action"
                raise ValueError(
                    f"{self._where()}: agent {agent.name!r} cannot take action {action} ({label}). "
                    f"Choose one of {np.flatnonzero(open_).tolist()}."
                )
        return array.astype(np.int32)

    def _settle(self, acted: list[AgentId], chosen: Int[np.ndarray, " N"], outcome: Outcome) -> TimeStep:
        """Who is left, what the team earned, and whether and how the episode ended."""
        for field in ("rewards", "terminations", "truncations"):
            self._require(acted, field, getattr(outcome, field))
        here = self._known_agents()
        terminated = {agent for agent in {*acted, *here} if outcome.terminations.get(agent)}
        ended = terminated | {agent for agent in {*acted, *here} if outcome.truncations.get(agent)}
        # An agent that has ended is gone, even where the environment forgets to strike it from its list.
        self._live = [agent for agent in here if agent not in ended]
        over = not self._live or ended.issuperset(acted)
        last_to_end = ended.intersection(acted)
        by_itself = over and bool(last_to_end) and terminated.issuperset(last_to_end)
        # At the end all leave at once, and what they then saw is the true last observation.
        present = [agent for agent in acted if outcome.observations.get(agent) is not None]
        timestep = self._timestep(
            present if over else self._live,
            outcome.observations,
            outcome.infos,
            previous_actions=chosen,
            reward=self._team_reward(self._earned({*acted, *self._live}, outcome.rewards)),
            terminated=by_itself,
            truncated=not by_itself and (over or self._time >= self.spec.horizon),
        )
        if timestep.last:
            self._team_reward.judge()
        return timestep

    def _known_agents(self) -> list[AgentId]:
        possible = {slot.id for slot in self._slots}
        if unknown := [agent for agent in self._env.agents if agent not in possible]:
            raise WorldError(
                f"{self._where()}: unknown agent {unknown[0]!r} appeared. "
                "Name every agent that may ever appear in the environment's possible_agents."
            )
        return list(self._env.agents)

    def _earned(self, earners: Collection[AgentId], rewards: Mapping[AgentId, Value]) -> list[float]:
        """What each agent earned, in the order of the slots; nothing where it is not there."""
        earned = [rewards.get(slot.id, 0.0) if slot.id in earners else 0.0 for slot in self._slots]
        for slot, reward in zip(self._slots, earned, strict=True):
            array = np.asarray(reward)
            if array.size != 1 or array.dtype.kind not in "biuf" or not np.isfinite(array).all():
                raise WorldError(
                    f"{self._where()}: agent {slot.id!r} got the reward {reward!r}, which is no finite "
                    "number. Correct the environment's rewards."
                )
        return [float(np.asarray(reward).item()) for reward in earned]

    def _timestep(
        self,
        present: list[AgentId],
        observations: Mapping[AgentId, Value],
        infos: Mapping[AgentId, Value],
        *,
        previous_actions: Int[np.ndarray, " N"],
        reward: float = 0.0,
        terminated: bool = False,
        truncated: bool = False,
    ) -> TimeStep:
        self._require(present, "observations", observations)
        last = terminated or truncated
        observation = np.zeros((len(self._slots), self.spec.observation_width), np.float32)
        available = np.zeros((len(self._slots), self.spec.num_actions), np.bool_)
        available[:, 0] = True
        for row, slot in enumerate(self._slots):
            if slot.id in present:
                where, seen = self._where(agent=slot.id), observations[slot.id]
                encoded = slot.columns.encode(seen, where)
                observation[row, : encoded.size] = encoded
                mask = _mask(slot, seen, infos.get(slot.id), where, last=last)
                available[row, : mask.size] = mask
        arrays: dict[str, Any] = {
            "observation": observation,
            "state": self._central(present, observation),
            "available": available,
            "previous_actions": previous_actions,
            "reward": np.float32(reward),
            "terminated": np.bool_(terminated),
            "truncated": np.bool_(truncated),
        }
        self._available = None if last else available
        return TimeStep(**arrays)

    def _require(self, agents: list[AgentId], field: str, given: Mapping[AgentId, Value]) -> None:
        if missing := [agent for agent in agents if agent not in given]:
            raise WorldError(
                f"{self._where()}: agent {missing[0]!r} is missing from the {field}, which name "
                f"{list(given)}. Return an entry for every agent that acted or is now in `agents`."
            )

    def _central(
        self, present: list[AgentId], observation: Float[np.ndarray, "N O"]
    ) -> Float[np.ndarray, " S"]:
        if self._state_columns:
            with noted(f"state() at step {self._time} after reset(seed={self._seed}) of {self._name}"):
                value = self._env.state()
            return self._state_columns.encode(value, self._where("state()"))
        parts = []
        for row, agent in enumerate(self.spec.agents):
            there = np.full(1, self._slots[row].id in present, np.float32)
            parts += [there, observation[row, : agent.observation_width]]
        return np.concatenate(parts)

    def _where(self, call: str = "", agent: AgentId | None = None) -> str:
        words = f"{self._name}, step {self._time}"
        return words + (f", {call}" if call else "") + (f", agent {agent!r}" if agent is not None else "")


def _mask(slot: AgentSlot, seen: Value, info: Value, where: str, *, last: bool) -> Bool[np.ndarray, " A"]:
    raw = seen.get(MASK) if slot.columns.mask_key else (info or {}).get(MASK)
    if raw is None and slot.columns.mask_key:
        raise WorldError(f"{where}: the observation has no {MASK!r}, which its space promises. Return one.")
    if raw is None:
        return np.ones(slot.agent.num_actions, np.bool_)
    mask = slot.actions.mask(raw, where)
    if not mask.any() and not last:
        raise WorldError(
            f"{where}: the action mask leaves no action. Offer at least one, or end the agent's episode."
        )
    # After the end nobody acts, but a row without any action would make the maximum over it infinite.
    return mask if mask.any() else np.arange(mask.size) == 0


def _unpack(returned: Value, fields: tuple[str, ...], where: str) -> tuple[Mapping[AgentId, Value], ...]:
    if not isinstance(returned, tuple) or len(returned) != len(fields):
        raise WorldError(f"{where}: must return the dicts ({', '.join(fields)}), got {returned!r}.")
    for field, given in zip(fields, returned, strict=True):
        if not isinstance(given, Mapping):
            raise WorldError(f"{where}: {field} must be a dict keyed by agent, got {given!r}.")
    return returned
