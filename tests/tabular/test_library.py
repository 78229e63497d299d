import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import marco
from marco.environments.experts import SwitchProtocol
from marco.environments.switch import Switch
from marco.environments.tabular import Labels
from marco.evaluation import exact_value
from marco.policies.base import Policy
from marco.tabular.library import load
from marco.tabular.policies import random_team, value
from marco.tabular.problem import DecPOMDP
from marco.tabular.solver.search import solve


class Controllers(Policy):
    """A team of finite-state controllers as a policy for environments."""

    actions: list = eqx.field()
    successors: list = eqx.field()
    width: int = eqx.field(static=True)

    def start(self):
        return jnp.zeros(len(self.actions), jnp.int32), jnp.int32(0)

    def __call__(self, memory, timestep):
        nodes, t = memory
        seen = jnp.argmax(timestep.observation, -1)
        leads = jnp.stack(
            [each[t - 1, node, o] for each, node, o in zip(self.successors, nodes, seen, strict=True)]
        )
        nodes = jnp.where(t > 0, leads, nodes)
        does = jnp.stack([each[t, node] for each, node in zip(self.actions, nodes, strict=True)])
        return (nodes, t + 1), jax.nn.one_hot(does, self.width)


def controllers(team, width):
    """Tables padded to one size for all steps."""
    steps = len(team[0].actions)
    most = max(now.size for policy in team for now in policy.actions)
    actions, successors = [], []
    for policy in team:
        sees = policy.successors[0].shape[1]
        does, leads = np.zeros((steps, most), np.int32), np.zeros((steps, most, sees), np.int32)
        for t, now in enumerate(policy.actions):
            does[t, : now.size] = now
        for t, now in enumerate(policy.successors):
            leads[t, : len(now)] = now
        actions.append(jnp.asarray(does))
        successors.append(jnp.asarray(leads))
    return Controllers(actions, successors, width)


def test_tables_and_worlds_value_teams_alike():
    """The tables' exact evaluation, and that of the environment of the same tables (single precision)."""
    problem, rng = load("gridsmall"), np.random.default_rng(0)
    env = problem.environment(horizon=3)
    for _ in range(3):
        team = random_team(rng, (5, 5), (2, 2), 3)
        assert exact_value(env, controllers(team, 5)) == pytest.approx(
            value(problem.dynamics, team), abs=1e-6
        )


@pytest.mark.parametrize("horizon", [3, 4])
def test_the_riddle_as_a_table_has_the_optimum_of_the_world(horizon):
    problem = load("switch")
    found = solve(problem.dynamics, problem.steps(horizon))
    assert found.optimal
    assert found.lower == pytest.approx(Switch(3, horizon).optimum, abs=1e-9)
    assert exact_value(Switch(3, 4), SwitchProtocol(Switch(3, 4).spec)) == pytest.approx(4 / 9)


def test_the_riddles_table():
    """24 states of three prisoners, a start and an end; nobody outside the room can do anything."""
    problem = load("switch")
    assert problem.num_states == 26
    assert problem.observations[0] == ("nothing", "in-room", "in-room-light-on")
    start, end = 24, 25
    assert problem.d0[start] == problem.P[end, 5, end] == 1.0
    assert problem.terminal.tolist() == [False] * 25 + [True]
    assert problem.given.tolist() == [False] * 24 + [True, True]
    own = problem.canonical == np.arange(64)
    assert own.sum() == 24 * 4 + 2
    first = problem.P[start, 0]
    np.testing.assert_allclose(first[first > 0], 1 / 3)


def test_two_riddlers_behind_a_bridge_of_one_step():
    """One step to cross; then two prisoners, 4 steps: all have been there but with 1/8."""
    problem = load("bridge", agents=2, length=1)
    found = solve(problem.dynamics, problem.steps(5))
    assert found.optimal
    assert found.lower == pytest.approx(7 / 8)


def test_the_counterexample_by_hand():
    problem = load("counterexample")
    found = solve(problem.dynamics, 5)
    assert found.lower == pytest.approx(0.2 * 5 + 0.8 * 4)  # a b b b b
    assert [int(now[0]) for now in found.team[0].actions] == [0, 1, 1, 1, 1]


def test_settings_and_names():
    assert load("switch", agents=2).num_states == 2 * 2 * 2 + 2
    with pytest.raises(ValueError, match=r"unknown environment 'tiger': do you mean 'dectiger'\?"):
        load("tiger")
    with pytest.raises(ValueError, match="dectiger has no setting 'agents': it has none"):
        load("dectiger", agents=3)
    with pytest.raises(ValueError, match="needs a horizon of at least 1, got 0"):
        load("dectiger").steps(0)


def test_bad_tables_are_refused():
    good = {**vars(load("dectiger"))}
    good.pop("dynamics", None)
    with pytest.raises(ValueError, match=r"P must have the shape \(3, 9, 3\), got \(2, 9, 2\)"):
        DecPOMDP(**good | {"states": ("left", "right", "nowhere")})
    with pytest.raises(ValueError, match=r"a row of d0 misses a sum of 1 by 0\.5"):
        DecPOMDP(**good | {"d0": np.array([0.5, 0.0])})


def test_large_worlds_are_refused():
    from marco.tabular.convert import from_environment

    with pytest.raises(ValueError, match="switch has more than 20 states"):
        from_environment(Switch(), limit=20)
    with pytest.raises(ValueError, match="switch has 65536 joint actions and at least"):
        from_environment(Switch(8))


def test_the_tables_of_a_problem_are_those_of_its_world():
    tiger = load("dectiger")
    tables = {"actions": (3, 3), "observations": (2, 2), "horizon": 2, "name": "dectiger"}
    tables["labels"] = Labels(tiger.agents, tiger.states, tiger.actions, tiger.observations)
    world = marco.environments.from_tables(tiger.P, tiger.R, tiger.O, tiger.d0, **tables)
    assert world.spec == tiger.environment(2).spec
    both = [exact_value(each, marco.RandomPolicy()) for each in (world, tiger.environment(2))]
    assert both[0] == pytest.approx(both[1])
