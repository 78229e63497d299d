"""Any JaxMARL environment as an Environment.

An instance is handed in, so JaxMARL is imported only if `make` is asked for one by name. JaxMARL's `step`
restarts a finished episode and hides its last state, so the instance is stepped by `step_env`.

Its `done` stands for two ends, kept apart here. Whether the step ended the episode by itself (terminated) is
asked of a copy whose time limit is lifted; whether time is up (truncated) is our own clock's to say. So a
Tell at the riddle's last step is a true end, and reaching that step is not. Where no limit can be lifted (in
an environment that wraps another), a `done` at our horizon counts as the clock's.
"""

import copy
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from marco.environments.adapters.common import (
    LIMIT_NAMES,
    RewardRule,
    action_components,
    array_features,
    check_reward,
    count,
    parts_of,
    time_limit,
)
from marco.environments.base import Environment, Guessed, Transition
from marco.types import ActionComponent, Agent, Categorical, Continuous, Feature, Spec, binary

MASKS = ("get_avail_actions", "get_legal_moves")
"""What JaxMARL environments call their masks: the second is Hanabi's."""
NEVER = 2**30
CLOCKS = frozenset({"step", "time", "t", "done", "terminal"})
"""Fields with the time or the end. Neither is part of a central state: the clock is ours."""

Central = Callable[[Any], Float[Array, " S"]]


class JaxMARLState(NamedTuple):
    """JaxMARL's own state, with what the agents see of it and how many steps were taken."""

    inner: Any
    observation: Float[Array, "N O"]
    time: Int[Array, ""]


class JaxMARLWorld(Environment):
    """A JaxMARL `MultiAgentEnv`, given as an instance: `JaxMARLWorld(jaxmarl.make("switch_riddle"))`.

    `horizon` is the instance's own limit unless given; `reward` is the mean or the sum over agents, or the
    name of the one agent whose reward counts. The central state is read off the fields of JaxMARL's state: an
    array of the shape (n, d) is n features of d numbers, truth values are yes or no; or by `central`, a
    function of that state, with the `central_features` of its columns.
    """

    env: Any = eqx.field(static=True)
    horizon: int = eqx.field(static=True)
    reward: RewardRule = eqx.field(static=True)
    read: Central | None = eqx.field(static=True)
    features: tuple[Feature, ...] = eqx.field(static=True)

    def __init__(
        self,
        env: Any,
        *,
        horizon: int | None = None,
        reward: RewardRule = "mean",
        central: Central | None = None,
        central_features: tuple[Feature, ...] = (),
    ) -> None:
        _check(env, central, central_features)
        self.env = env
        self.horizon = _own_limit(env) if horizon is None else horizon
        self.reward = check_reward(reward, [str(name) for name in env.agents])
        self.read = central
        self.features = central_features or _state_features(env)
        # A wrong space, mask or horizon is refused now, not when something is first compiled.
        _ = self.spec, _mask_method(env)

    @property
    def spec(self) -> Spec:
        """The agents' own spaces; unequal ones are padded."""
        return _spec(self.env, self.features, self.horizon)

    @property
    def guessed(self) -> Guessed:
        """Arrays have shapes and no meaning, unless `central_features` give one."""
        return Guessed(state=self.read is None, observation=True)

    def initial(self, key: PRNGKeyArray) -> JaxMARLState:
        """JaxMARL's own `reset`."""
        seen, inner = self.env.reset(key)
        return JaxMARLState(_typed(inner, inner), self._encode(seen), jnp.int32(0))

    def transition(self, key: PRNGKeyArray, world: JaxMARLState, actions: Int[Array, " N"]) -> Transition:
        """JaxMARL's own `step_env`, which shows the true next state."""
        chosen = self._decode(actions)
        seen, inner, rewards, dones, _ = self.env.step_env(key, world.inner, chosen)
        paid = jnp.stack([jnp.reshape(rewards[name], ()) for name in self.env.agents])
        unlimited = _unlimited(self.env)
        if unlimited is not None:
            # The same draw again: all but what `done` depends on is dead code to the compiler.
            terminated = unlimited.step_env(key, world.inner, chosen)[3]["__all__"]
        else:
            terminated = jnp.logical_and(dones["__all__"], world.time + 1 < self.horizon)
        return Transition(
            world=JaxMARLState(_typed(inner, world.inner), self._encode(seen), world.time + 1),
            reward=self._team_reward(paid).astype(jnp.float32),
            terminated=jnp.reshape(terminated, ()).astype(bool),
        )

    def observe(self, world: JaxMARLState) -> Float[Array, "N O"]:
        """What `reset` or `step_env` returned, class indices shown as columns, short ones padded."""
        return world.observation

    def available(self, world: JaxMARLState) -> Bool[Array, "N A"]:
        """What the environment's masks say, or every action where it has none."""
        method = _mask_method(self.env)
        if method is None:
            return jnp.asarray(self.spec.actions_exist)
        masks = getattr(self.env, method)(world.inner)
        width = self.spec.num_actions
        return jnp.stack([_pad(jnp.ravel(masks[name]) != 0, width) for name in self.env.agents])

    def central(self, world: JaxMARLState) -> Float[Array, " S"]:
        """The columns of the state."""
        if self.read is not None:
            return self.read(world.inner).astype(jnp.float32)
        leaves = jax.tree_util.tree_flatten_with_path(world.inner)[0]
        shown = [leaf for path, leaf in leaves if not _tells_time(path, leaf)]
        return jnp.concatenate([jnp.ravel(leaf).astype(jnp.float32) for leaf in shown])

    def _team_reward(self, paid: Float[Array, " N"]) -> Float[Array, ""]:
        if self.reward in ("mean", "sum"):
            return paid.mean() if self.reward == "mean" else paid.sum()
        return paid[[agent.name for agent in self.spec.agents].index(self.reward)]

    def _encode(self, seen: dict[str, Any]) -> Float[Array, "N O"]:
        rows = [
            _columns(agent.observation, jnp.asarray(seen[name]))
            for name, agent in zip(self.env.agents, self.spec.agents, strict=True)
        ]
        return jnp.stack([_pad(row, self.spec.observation_width) for row in rows])

    def _decode(self, actions: Int[Array, " N"]) -> dict[str, Array]:
        chosen = {}
        for i, (name, agent) in enumerate(zip(self.env.agents, self.spec.agents, strict=True)):
            values = agent.components_of(actions[i])
            many = type(self.env.action_space(name)).__name__ == "MultiDiscrete"
            chosen[name] = jnp.stack(values) if many else values[0]
        return chosen


def _check(env: Any, central: Central | None, central_features: tuple[Feature, ...]) -> None:
    if not callable(getattr(env, "step_env", None)):
        raise TypeError(
            f"{env!r} has no step_env: give an instance of a JaxMARL environment, as jaxmarl.make returns it."
        )
    if (central is None) != (not central_features):
        raise ValueError(
            "give central and central_features together: the function and what its columns show."
        )


def _own_limit(env: Any) -> int:
    if (limit := time_limit(env)) is not None:
        return limit
    raise ValueError(
        f"{type(env).__name__} names no time limit (looked for {', '.join(LIMIT_NAMES)}): give horizon=."
    )


@lru_cache
def _unlimited(env: Any) -> Any | None:
    """The same environment without its time limit, where it keeps that limit itself."""
    limit = time_limit(env)
    names = [name for name in LIMIT_NAMES if name in vars(env) and vars(env)[name] == limit]
    if not names:
        return None
    twin = copy.copy(env)
    for name in names:
        setattr(twin, name, NEVER)
    return twin


@lru_cache
def _spec(env: Any, features: tuple[Feature, ...], horizon: int) -> Spec:
    seen, _ = _shapes(env)
    agents = [
        Agent(str(name), _components(env, name), _sight(env.observation_space(name), name, seen[name]))
        for name in env.agents
    ]
    return Spec(type(env).__name__, tuple(agents), features, horizon)


@lru_cache
def _shapes(env: Any) -> Any:
    """The shapes of the first observations and of the state, without computing them."""
    return jax.eval_shape(env.reset, jax.random.key(0))


def _components(env: Any, name: Any) -> tuple[ActionComponent, ...]:
    space = env.action_space(name)
    match type(space).__name__:
        case "Discrete" | "MultiDiscrete":
            return action_components(space)
        case kind:
            raise ValueError(
                f"agent {name!r} has the action space {kind}, but only Discrete and MultiDiscrete can be "
                "learned here: make the environment with discrete actions (in MPE: action_type='Discrete')."
            )


def _sight(space: Any, name: Any, seen: Any) -> tuple[Feature, ...]:
    if not hasattr(seen, "shape"):
        raise ValueError(
            f"agent {name!r} observes {type(seen).__name__}, not an array: flatten it in the environment."
        )
    kind = type(space).__name__
    # Some environments (Hanabi) call a vector of n columns Discrete(n): then the array itself is believed.
    indices = (kind == "Discrete" and seen.shape == ()) or (
        kind == "MultiDiscrete" and seen.shape == tuple(space.shape)
    )
    if not indices:
        return array_features("observation", seen.shape, seen.dtype, apart=False)
    parts = parts_of(space, "observation")
    return tuple(Categorical(name, size) if size != 2 else binary(name) for name, _, size in parts)


@lru_cache
def _state_features(env: Any) -> tuple[Feature, ...]:
    features: list[Feature] = []
    for path, leaf in jax.tree_util.tree_flatten_with_path(_shapes(env)[1])[0]:
        name = ".".join(map(_entry, path))
        if _tells_time(path, leaf):
            continue
        if leaf.dtype == bool or jnp.issubdtype(leaf.dtype, jnp.number):
            features += array_features(name, leaf.shape, leaf.dtype, apart=True)
        else:
            raise ValueError(
                f"the state's field {name} of {type(env).__name__} holds {leaf.dtype}, which has no columns: "
                "give central= and central_features=."
            )
    return tuple(features)


def _tells_time(path: tuple[Any, ...], leaf: Any) -> bool:
    """Whether a leaf is a clock. One `done` per agent is none: who is out is part of the state."""
    return leaf.shape == () and _entry(path[-1]) in CLOCKS


def _entry(key: Any) -> str:
    """A step of a path into a pytree: a field's name, a dictionary's key or an index."""
    return str(next(getattr(key, kind) for kind in ("name", "key", "idx") if hasattr(key, kind)))


@lru_cache
def _mask_method(env: Any) -> str | None:
    for method in MASKS:
        try:
            masks = jax.eval_shape(getattr(env, method), _shapes(env)[1])
        except (NotImplementedError, AttributeError):
            continue
        for name in env.agents:
            size, actions = masks[name].size, count(_components(env, name))
            if size != actions:
                raise ValueError(
                    f"{method} of {type(env).__name__} gives {size} entries for agent {name!r}, which has "
                    f"{actions} actions: override it in a subclass."
                )
        return method
    return None


def _columns(features: tuple[Feature, ...], seen: Array) -> Float[Array, " O"]:
    raw = jnp.ravel(seen)
    if all(isinstance(feature, Continuous) or feature == binary(feature.name) for feature in features):
        return raw.astype(jnp.float32)  # numbers and truth values are their own columns
    shown = [f.encode(raw[i].astype(jnp.int32)) for i, f in enumerate(features) if isinstance(f, Categorical)]
    return jnp.concatenate(shown)


def _pad(row: Array, width: int) -> Array:
    return jnp.pad(row, (0, width - row.shape[0]))


def _typed(state: Any, like: Any) -> Any:
    """The state with the dtypes of another: a loop must carry what it began with."""
    return jax.tree.map(
        lambda leaf, old: jax.lax.convert_element_type(leaf, jnp.result_type(old)), state, like
    )
