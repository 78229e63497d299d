import re

import gymnasium
import jax
import jax.numpy as jnp
import jaxtyping
import mpe2.simple_reference_v3
import mpe2.simple_speaker_listener_v4
import mpe2.simple_spread_v3
import numpy as np
import pytest
from gymnasium import spaces
from pettingzoo.test.example_envs import generated_agents_env_action_mask_info_v0 as masks_in_infos
from pettingzoo.test.example_envs import generated_agents_env_action_mask_obs_v0 as masks_in_observations
from pettingzoo.test.example_envs import generated_agents_parallel_v0
from pettingzoo.utils import wrappers
from pettingzoo.utils.conversions import aec_to_parallel

from helpers.zoo_toys import Central, Toy, act, toy
from marco.environments.adapters.pettingzoo import PettingZooWorld, WorldError
from marco.policies.base import RandomPolicy
from marco.rollout import play
from marco.types import NO_ACTION, Continuous


@pytest.fixture
def unchecked():
    """Without beartype, as outside of tests: there a wrong type must meet our own message."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


# Real environments, through the host loop.


@pytest.mark.parametrize(
    ("module", "num_actions", "widths", "state_width"),
    [
        (mpe2.simple_reference_v3, [50, 50], [21, 21], 42),
        (mpe2.simple_spread_v3, [5, 5, 5], [18, 18, 18], 54),
        (mpe2.simple_speaker_listener_v4, [3, 5], [3, 11], 14),
    ],
)
def test_mpe_is_played_to_its_own_time_limit(module, num_actions, widths, state_width):
    world = PettingZooWorld(module.parallel_env, max_cycles=6)
    episode = play(jax.random.key(0), world, RandomPolicy())
    count, most, widest = len(widths), max(num_actions), max(widths)
    assert [agent.num_actions for agent in world.spec.agents] == num_actions
    assert [agent.observation_width for agent in world.spec.agents] == widths
    assert world.spec.state == (Continuous("state", state_width),)
    assert world.spec.horizon == 6
    assert episode.observation.shape == (7, count, widest)
    assert episode.state.shape == (7, state_width)
    assert episode.available.shape == (7, count, most)
    assert episode.available.sum(axis=-1).tolist() == [num_actions] * 7
    assert episode.length == 6
    assert episode.truncated.tolist() == [False] * 5 + [True]
    assert not episode.terminated.any()
    assert (episode.actions < np.array(num_actions)).all()


def test_what_mpe_shows_is_what_mpe_returns():
    raw = mpe2.simple_speaker_listener_v4.parallel_env(max_cycles=3)
    world = PettingZooWorld(mpe2.simple_speaker_listener_v4.parallel_env(max_cycles=3))
    observations, _ = raw.reset(seed=7)
    shown = world.reset(7)
    for actions in ([0, 4], [2, 1], [1, 3]):
        np.testing.assert_array_equal(shown.observation[0, :3], observations["speaker_0"])
        np.testing.assert_array_equal(shown.observation[0, 3:], np.zeros(8))
        np.testing.assert_array_equal(shown.observation[1], observations["listener_0"])
        np.testing.assert_array_equal(shown.state, raw.state())
        observations, rewards, *_ = raw.step(dict(zip(raw.possible_agents, actions, strict=True)))
        shown = world.step(act(*actions))
        assert shown.reward == np.float32(sum(rewards.values()) / 2)
    # The last moment is shown too, though PettingZoo's agents are gone by then.
    np.testing.assert_array_equal(shown.observation[1], observations["listener_0"])
    assert bool(shown.truncated)


def test_the_same_key_plays_the_same_episode_and_another_one_does_not():
    world = PettingZooWorld(mpe2.simple_spread_v3.parallel_env, max_cycles=4)
    first, again, other = (play(jax.random.key(seed), world, RandomPolicy()) for seed in (1, 1, 2))
    jax.tree.map(np.testing.assert_array_equal, first, again)
    assert not np.array_equal(first.state[0], other.state[0])


def test_arrays_have_the_shapes_and_types_of_the_contract():
    world = toy(Central, state="state")
    for shown in (world.reset(3), world.step(act(1, 2))):
        assert (shown.observation.shape, shown.observation.dtype) == ((2, 2), np.float32)
        assert (shown.state.shape, shown.state.dtype) == ((3,), np.float32)
        assert (shown.available.shape, shown.available.dtype) == ((2, 3), np.bool_)
        assert (shown.previous_actions.shape, shown.previous_actions.dtype) == ((2,), np.int32)
        assert isinstance(shown.reward, np.float32)
        assert isinstance(shown.terminated, np.bool_)
        assert isinstance(shown.truncated, np.bool_)


class Growing(generated_agents_parallel_v0.parallel_env):
    """PettingZoo's own test of agents that come and go, with the names and spaces it may need known."""

    possible_agents = [f"type{kind}_{count}" for kind in range(3) for count in range(20)]  # noqa: RUF012

    def add_type(self):
        if len(self.types) == 3:
            return self.types[-1]
        kind = f"type{len(self.types)}"
        self._obs_spaces[kind] = spaces.Box(0, 1, (2 + len(self.types),))
        self._act_spaces[kind] = spaces.Discrete(3 + len(self.types))
        self.types.append(kind)
        self._agent_counters[kind] = 0
        return kind


def test_agents_that_come_later_take_their_own_rows():
    world = PettingZooWorld(Growing(max_cycles=20), state="joint", reward="sum")
    episode = play(jax.random.key(3), world, RandomPolicy())
    counts = np.array([agent.num_actions for agent in world.spec.agents])
    present = np.stack(
        [episode.state[:, block] for block, feature in columns_of(world) if feature.endswith("present")], 1
    )
    assert present[0].sum() == 5
    assert present[-1].sum() > 5
    # Whoever is there has all of its actions, whoever is not has the first alone and sees nothing.
    assert (episode.available.sum(axis=-1) == np.where(present > 0, counts, 1)).all()
    assert (episode.observation.sum(axis=-1)[present == 0] == 0).all()
    assert episode.reward.tolist() == [1.0] * 20
    assert episode.length == 20
    assert episode.truncated[-1]
    # The state shows what all agents see: the observation is known, and need not be learned.
    observe = world.known["observation"]
    nobody = jnp.zeros(len(counts), jnp.int32)
    shown = jax.vmap(lambda s: observe(jax.random.key(0), s, nobody))(jnp.asarray(episode.state))
    np.testing.assert_array_equal(shown, episode.observation)


def columns_of(world):
    column = 0
    for feature in world.spec.state:
        yield column, feature.name
        column += feature.width


class Calm:
    """Chance under which PettingZoo's mask environments keep their agents and their spaces."""

    def __init__(self, rng):
        self.choice = rng.choice

    def random(self):
        return 1.0

    def integers(self, low, high):
        return low + 2


def calm(raw_env, **overrides):
    def _seed(self, seed=None):
        self.np_random = Calm(gymnasium.utils.seeding.np_random(seed)[0])

    names = [f"type{kind}_{count}" for kind in range(3) for count in range(5)]
    fixed = {
        "possible_agents": names,
        "_seed": _seed,
        "metadata": {"name": "calm", "is_parallelizable": True},
    }
    return type("Calm", (raw_env,), {**fixed, **overrides})


def test_masks_in_infos_are_obeyed():
    # The wrapper ends the episode with a reward of -1 at the first action outside the mask.
    env = wrappers.TerminateIllegalWrapper(calm(masks_in_infos.raw_env)(max_cycles=8), illegal_reward=-1)
    world = PettingZooWorld(aec_to_parallel(env), reward="sum", horizon=8)
    episode = play(jax.random.key(0), world, RandomPolicy())
    assert [agent.num_actions for agent in world.spec.agents] == [5] * 15
    assert (episode.available.sum(axis=-1) == 1).all()
    assert episode.length == 8
    assert episode.reward.min() >= 0.0
    chosen = np.take_along_axis(episode.available[:-1], episode.actions[..., None], -1)
    assert chosen.all()
    assert len(np.unique(episode.actions)) == 5


def test_an_action_outside_the_mask_ends_that_environment_so_the_test_above_can_fail():
    env = wrappers.TerminateIllegalWrapper(calm(masks_in_infos.raw_env)(max_cycles=8), illegal_reward=-1)
    parallel = aec_to_parallel(env)
    _, infos = parallel.reset(seed=0)
    wrong = {agent: int(np.argmin(infos[agent]["action_mask"])) for agent in parallel.agents}
    with pytest.raises(Exception, match="expected agent"):
        parallel.step(wrong)


def test_masks_in_the_observation_are_obeyed():
    def observe(self, agent):
        mask = (np.arange(5) + self.num_steps + int(agent[-1])) % 5 < 2
        return {"observation": np.full(12, 0.5, np.float32), "action_mask": mask.astype(np.int8)}

    world = PettingZooWorld(
        aec_to_parallel(calm(masks_in_observations.raw_env, observe=observe)(max_cycles=8))
    )
    episode = play(jax.random.key(0), world, RandomPolicy())
    assert world.spec.agents[0].observation == (Continuous("observation", 12),)
    here = episode.observation[..., 0] == 0.5
    assert here.sum(axis=-1).tolist() == [5] * 9
    assert (episode.available.sum(axis=-1) == np.where(here, 2, 1)).all()
    assert np.take_along_axis(episode.available[:-1], episode.actions[..., None], -1).all()


# Agents that leave or come late, and how an episode ends.


def test_an_agent_that_left_sees_zeros_earns_nothing_and_gets_no_action():
    world = toy(terminate={"a": 2}, reward="sum")
    world.reset(4)
    shown = [world.step(act(1, 2)), world.step(act(1, 2)), world.step(act(0, 2))]
    assert [float(step.reward) for step in shown] == [3.0, 3.0, 2.0]
    np.testing.assert_array_equal(shown[1].observation, np.float32([[0, 0], [0.2, 0.4]]))
    assert shown[1].available.tolist() == [[True, False, False], [True, True, True]]
    assert not bool(shown[1].last)
    assert world._env.sent == [{"a": 1, "b": 2}, {"a": 1, "b": 2}, {"b": 2}]
    assert shown[2].previous_actions.tolist() == [0, 2]


def test_the_mean_is_over_all_possible_agents_so_that_it_stays_stationary():
    world = toy(terminate={"a": 1})
    world.reset(0)
    assert [float(world.step(act(0, 0)).reward) for _ in range(2)] == [1.5, 1.0]


def test_an_action_for_an_agent_that_left_is_refused():
    world = toy(terminate={"a": 1})
    world.reset(0)
    world.step(act(2, 2))
    with pytest.raises(
        ValueError, match=re.escape("agent 'a' cannot take action 2 (action 2). Choose one of [0]")
    ):
        world.step(act(2, 2))


def test_an_agent_that_comes_late_acts_from_then_on():
    world = toy(join={"b": 2}, reward="sum")
    assert world.reset(0).available.sum(axis=-1).tolist() == [3, 1]
    steps = [world.step(act(1, 0)), world.step(act(1, 0)), world.step(act(1, 2))]
    assert [step.available.sum(axis=-1).tolist() for step in steps] == [[3, 1], [3, 3], [3, 3]]
    assert world._env.sent == [{"a": 1}, {"a": 1}, {"a": 1, "b": 2}]
    assert [float(step.reward) for step in steps] == [1.0, 1.0, 3.0]


@pytest.mark.parametrize(
    ("terminate", "truncate", "length", "terminated"),
    [
        ({"a": 2, "b": 2}, {}, 2, True),
        ({"a": 1, "b": 3}, {}, 3, True),
        ({}, {"a": 2, "b": 2}, 2, False),
        ({"a": 2}, {"b": 2}, 2, False),
        ({"b": 3}, {"a": 1}, 3, True),
        ({"a": 1}, {}, 5, False),
        ({"a": 5, "b": 5}, {}, 5, True),
    ],
)
def test_an_episode_ends_with_its_last_agents_and_as_they_did(terminate, truncate, length, terminated):
    episode = play(jax.random.key(0), toy(terminate=terminate, truncate=truncate), RandomPolicy())
    assert episode.length == length
    assert episode.terminated.sum() == terminated
    assert episode.truncated.sum() == (not terminated)


def test_the_last_observation_is_shown_though_all_agents_are_gone():
    world = toy(terminate={"a": 1, "b": 2})
    world.reset(3)
    world.step(act(0, 0))
    last = world.step(act(0, 0))
    np.testing.assert_array_equal(last.observation, np.float32([[0, 0], [0.2, 0.3]]))
    np.testing.assert_array_equal(last.state, np.float32([0, 0, 0, 1, 0.2, 0.3]))
    assert last.available.tolist() == [[True, False, False], [True, True, True]]


def test_an_agent_that_ended_is_gone_though_the_environment_still_lists_it():
    def keep_listing(*returned):
        env.agents = ["a", "b"]
        return returned

    env = Toy(terminate={"a": 1}, truncate={"b": 1}, tamper=keep_listing)
    world = PettingZooWorld(env, state="joint")
    world.reset(0)
    assert bool(world.step(act(0, 0)).truncated)


def test_a_shorter_horizon_truncates():
    world = toy(horizon=2)
    world.reset(0)
    assert not bool(world.step(act(0, 0)).last)
    last = world.step(act(0, 0))
    assert (bool(last.terminated), bool(last.truncated)) == (False, True)
    np.testing.assert_array_equal(last.state, np.float32([1, 0.2, 0, 1, 0.2, 0]))


def test_a_termination_at_the_horizon_is_no_truncation():
    world = toy(terminate={"a": 2, "b": 2}, horizon=2)
    world.reset(0)
    world.step(act(0, 0))
    last = world.step(act(0, 0))
    assert (bool(last.terminated), bool(last.truncated)) == (True, False)


def test_after_the_end_and_before_the_start_a_step_is_an_error():
    world = toy(horizon=1)
    with pytest.raises(
        RuntimeError, match=re.escape("no episode is under way. Call reset(seed) before step.")
    ):
        world.step(act(0, 0))
    world.reset(0)
    world.step(act(0, 0))
    with pytest.raises(RuntimeError, match="toy_v0, step 1: no episode is under way"):
        world.step(act(0, 0))
    assert world.reset(0).previous_actions.tolist() == [NO_ACTION, NO_ACTION]


def test_the_seed_reaches_the_environment():
    world = toy(Central, state="state")
    assert world.reset(17).state.tolist() == [0, 17, -1]
    assert world.reset(18).state.tolist() == [0, 18, -1]


def test_agents_may_have_names_that_are_no_strings():
    class Numbered(Toy):
        possible_agents = [0, 1]  # noqa: RUF012

    world = toy(Numbered, terminate={0: 1})
    world.reset(0)
    assert [agent.name for agent in world.spec.agents] == ["0", "1"]
    world.step(act(1, 2))
    world.step(act(0, 2))
    assert world._env.sent == [{0: 1, 1: 2}, {1: 2}]


# Spaces and masks.


def test_composite_actions_reach_the_environment_as_arrays():
    class Composite(Toy):
        done = spaces.MultiDiscrete([2, 3])

    world = toy(Composite)
    world.reset(0)
    world.step(act(3, 4))
    assert {agent: action.tolist() for agent, action in world._env.sent[0].items()} == {
        "a": [1, 1],
        "b": [0, 2],
    }
    assert world.spec.agents[0].action_label(3) == "action.0 1, action.1 1"


def test_discrete_actions_are_sent_from_their_start():
    class Shifted(Toy):
        done = spaces.Discrete(3, start=-1)

    world = toy(Shifted)
    world.reset(0)
    world.step(act(0, 2))
    assert world._env.sent == [{"a": -1, "b": 1}]
    with pytest.raises(
        ValueError, match=re.escape("cannot take action 3 (no such action). Choose one of [0, 1, 2]")
    ):
        world.step(act(0, 3))


class Masked(Toy):
    """The toy with the mask of agent a in its infos: in step t only action t % 3 is there."""

    def reset(self, seed=None, options=None):
        observations, infos = super().reset(seed, options)
        infos["a"]["action_mask"] = np.arange(3) == 0
        return observations, infos

    def step(self, actions):
        *returned, infos = super().step(actions)
        if "a" in infos:
            infos["a"]["action_mask"] = (np.arange(3) == self.steps % 3).astype(np.int8)
        return *returned, infos


def test_a_mask_in_the_infos_is_kept_and_its_breach_named():
    world = toy(Masked)
    assert world.reset(0).available.tolist() == [[True, False, False], [True, True, True]]
    assert world.step(act(0, 2)).available.tolist() == [[False, True, False], [True, True, True]]
    message = "toy_v0, step 1: agent 'a' cannot take action 0 (action 0). Choose one of [1]."
    with pytest.raises(ValueError, match=re.escape(message)):
        world.step(act(0, 0))
    # The environment was not touched, so the right action can still be given.
    assert world.step(act(1, 0)).available[0].tolist() == [False, False, True]


class MaskedSight(Toy):
    """The toy with the masks beside the observations."""

    seen = spaces.Dict({"observation": Toy.seen, "action_mask": spaces.MultiBinary(3)})
    mask = (0, 1, 1)

    def observations(self):
        return {
            agent: {"observation": array, "action_mask": np.array(self.mask)}
            for agent, array in super().observations().items()
        }


def test_a_mask_beside_the_observation_is_kept_and_no_part_of_it():
    world = toy(MaskedSight)
    shown = world.reset(3)
    assert world.spec.observation_width == 2
    assert shown.observation.tolist() == [[0, np.float32(0.3)], [0, np.float32(0.3)]]
    assert shown.available.tolist() == [[False, True, True], [False, True, True]]


def test_a_mask_without_an_action_is_refused_unless_it_is_the_end():
    class Blocked(MaskedSight):
        @property
        def mask(self):
            return (0, 0, 0) if self.steps == 2 else (0, 1, 1)

    world = toy(Blocked)
    world.reset(0)
    world.step(act(1, 1))
    with pytest.raises(WorldError, match="toy_v0, step 2, agent 'a': the action mask leaves no action"):
        world.step(act(1, 1))
    world = toy(Blocked, horizon=2)
    world.reset(0)
    world.step(act(1, 1))
    assert world.step(act(1, 1)).available.tolist() == [[True, False, False]] * 2


def test_a_promised_mask_must_be_there():
    def forget(observations, *rest):
        del observations["b"]["action_mask"]
        return observations, *rest

    world = toy(MaskedSight, tamper=forget)
    world.reset(0)
    with pytest.raises(WorldError, match="agent 'b': the observation has no 'action_mask', which its space"):
        world.step(act(1, 1))


def test_a_mask_of_the_wrong_length_is_refused():
    class Short(MaskedSight):
        mask = (1, 1)

    message = "agent 'a': the action mask has the shape (2,), but there are 3 actions"
    with pytest.raises(WorldError, match=re.escape(message)):
        toy(Short).reset(0)


# Bad input.


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("actions", "message"),
    [
        (np.array([0.0, 1.0]), "must be 2 integers, one per agent, got float64 of shape (2,): [0. 1.]"),
        (np.array([0, 1, 2]), "must be 2 integers, one per agent, got int64 of shape (3,): [0 1 2]"),
        (np.array([[0, 1]]), "got int64 of shape (1, 2): [[0 1]]"),
        (np.array([0, -1]), "agent 'b' cannot take action -1 (no such action). Choose one of [0, 1, 2]"),
    ],
)
def test_actions_of_the_wrong_kind_are_refused(actions, message):
    world = toy()
    world.reset(0)
    with pytest.raises(ValueError, match=re.escape(message)):
        world.step(actions)


def spoil(index, agent, value):
    """Put a bad value into one of the five dicts that a step returns, or take the entry out."""

    def tamper(*returned):
        if value is KeyError:
            del returned[index][agent]
        else:
            returned[index][agent] = value
        return returned

    return tamper


@pytest.mark.parametrize(
    ("tamper", "message"),
    [
        (spoil(0, "b", KeyError), "agent 'b' is missing from the observations, which name ['a']"),
        (spoil(1, "a", KeyError), "agent 'a' is missing from the rewards, which name ['b']"),
        (spoil(2, "a", KeyError), "agent 'a' is missing from the terminations, which name ['b']"),
        (spoil(3, "b", KeyError), "agent 'b' is missing from the truncations, which name ['a']"),
        (spoil(1, "a", np.nan), "agent 'a' got the reward nan, which is no finite number"),
        (spoil(1, "b", -np.inf), "agent 'b' got the reward -inf, which is no finite number"),
        (spoil(1, "b", [1.0, 2.0]), "agent 'b' got the reward [1.0, 2.0], which is no finite number"),
        (spoil(1, "b", None), "agent 'b' got the reward None, which is no finite number"),
        (spoil(0, "a", [np.nan, 0]), "agent 'a', 'observation': got [nan  0.], but NaN and infinity"),
        (spoil(0, "a", [0, 1.5]), "agent 'a', 'observation': got 1.5, outside Box(-1.0, 1.0, (2,), float32)"),
        (spoil(0, "b", [0.0] * 3), "agent 'b', 'observation': got the shape (3,), but Box(-1.0, 1.0, (2,)"),
        (lambda *returned: returned[:4], "step: must return the dicts (observations, rewards, terminations,"),
        (lambda *returned: (*returned[:4], None), "step: infos must be a dict keyed by agent, got None"),
    ],
)
def test_what_the_environment_gets_wrong_is_named_with_its_step_and_agent(tamper, message):
    world = toy(tamper=tamper)
    world.reset(0)
    with pytest.raises(WorldError, match=re.escape(message)) as caught:
        world.step(act(0, 0))
    assert str(caught.value).startswith("toy_v0, step 1")
    called = "MARCO called: step 1 after reset(seed=0) of toy_v0, with the actions {'a': 0, 'b': 0}"
    assert caught.value.__notes__ == [called]
    with pytest.raises(RuntimeError, match="no episode is under way"):
        world.step(act(0, 0))


def test_an_unknown_agent_is_refused_with_the_cure():
    world = toy(join={"stranger": 1})
    world.reset(0)
    message = (
        "toy_v0, step 1: unknown agent 'stranger' appeared. Name every agent that may ever appear in the"
    )
    with pytest.raises(WorldError, match=message):
        world.step(act(0, 0))


def test_a_reset_without_agents_or_infos_is_refused():
    with pytest.raises(WorldError, match="toy_v0, step 0: no agents after reset"):
        toy(join={"a": 1, "b": 1}).reset(0)
    world = toy()
    world._env.reset = lambda seed: {"a": 0}
    with pytest.raises(
        WorldError, match=re.escape("reset: must return the dicts (observations, infos), got {'a'")
    ):
        world.reset(0)


def test_an_error_inside_the_environment_says_in_which_step_and_after_which_actions():
    def crash(*returned):
        raise ZeroDivisionError("the simulator crashed")

    world = toy(tamper=crash)
    world.reset(7)
    with pytest.raises(ZeroDivisionError, match="the simulator crashed") as caught:
        world.step(act(2, 1))
    called = "MARCO called: step 1 after reset(seed=7) of toy_v0, with the actions {'a': 2, 'b': 1}"
    assert caught.value.__notes__ == [called]


@pytest.mark.parametrize("kind", [ValueError, KeyError, NotImplementedError, RuntimeError])
def test_every_error_of_reset_and_state_propagates_with_a_note(kind):
    class Broken(Central):
        fails = ()

        def reset(self, seed=None, options=None):
            if "reset" in self.fails:
                raise kind("own mistake")
            return super().reset(seed, options)

        def state(self):
            if "state" in self.fails:
                raise kind("own mistake")
            return super().state()

    for call, note in {
        "reset": "reset(seed=3) of toy_v0",
        "state": "state() at step 0 after reset(seed=3) of toy_v0",
    }.items():
        world = toy(Broken, state="state")
        world._env.fails = (call,)
        with pytest.raises(kind, match="own mistake") as caught:
            world.reset(3)
        assert caught.value.__notes__ == [f"MARCO called: {note}"]
