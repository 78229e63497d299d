"""A problem estimated from real steps: by hand, against the truth, and with a model to smooth it."""

import jax
import numpy as np
import pytest

from marco.policies.base import RandomPolicy
from marco.rollout import rollouts
from marco.tabular.estimate import Prior, count, estimate, prior_share
from marco.tabular.library import load
from marco.tabular.policies import value
from marco.tabular.solver import solve
from marco.types import Episode

TIGER = load("dectiger")
ENV = TIGER.environment(4)


def played(episodes, seed=0):
    return jax.tree.map(np.asarray, rollouts(jax.random.key(seed), ENV, RandomPolicy(), episodes))


@pytest.fixture(scope="module")
def counts():
    return count(ENV.spec, played(2_000))


def by_hand():
    """Fifteen episodes of one step in dectiger: the first state, both listen (-2), the growls, and again."""
    steps, begun = 4, 15
    mask = np.arange(steps)[:, None] < np.full(begun, 2)
    state = np.zeros((steps + 1, begun, 2), np.float32)
    state[..., 0] = 1.0
    observation = np.zeros((steps + 1, begun, 2, 2), np.float32)
    observation[1:, :, :, 0] = 1.0
    observation[1, :5, 1] = [0.0, 1.0]  # in five of them the second agent hears the other growl at first
    return Episode(
        observation=observation,
        state=state,
        available=np.ones((steps + 1, begun, 2, 3), bool),
        actions=np.zeros((steps, begun, 2), np.int32),
        reward=np.where(mask, -2.0, 0.0).astype(np.float32),
        terminated=np.zeros((steps, begun), bool),
        truncated=np.zeros((steps, begun), bool),
        mask=mask,
    )


def test_counts_by_hand():
    found = count(ENV.spec, by_hand())
    assert found.states.tolist() == [[1.0, 0.0]]
    assert found.num_observations == (2, 3)  # nothing and one growl; nothing and two
    assert found.visits[0].tolist() == [30.0, *[0.0] * 8]
    assert sorted(found.n[0, 0][found.n[0, 0] > 0].tolist()) == [5.0, 25.0]
    assert found.starts.sum() == 15.0
    assert found.low == -2.0  # no episode ended: nobody knows of a reward of 0


def test_what_was_never_tried_pays_the_lowest_reward_for_ever():
    dynamics = estimate(count(ENV.spec, by_hand()))
    unknown = 2
    tried, untried = dynamics.G[0, 0], dynamics.G[0, 1]
    assert tried[dynamics.next_state == 0].sum() == pytest.approx(1.0)
    assert untried[dynamics.next_state == unknown].sum() == 1.0
    assert dynamics.R[0].tolist() == [-2.0] * 9
    assert dynamics.R[unknown].tolist() == [-2.0] * 9
    assert dynamics.G[unknown, :, dynamics.next_state == unknown].sum() == 9.0


def test_the_start_shows_the_first_observation():
    dynamics = estimate(count(ENV.spec, by_hand()))
    start = int(np.argmax(dynamics.d0))
    (column,) = np.flatnonzero(dynamics.G[start, 0])
    assert dynamics.next_state[column] == 0
    assert dynamics.R[start].tolist() == [0.0] * 9


def test_from_8000_random_steps_the_plan_is_optimal_in_truth(counts):
    team = solve(estimate(counts), 5).team
    names = [{tuple(row): i for i, row in enumerate(rows.tolist())} for rows in counts.observations]
    assert counts.num_observations == (3, 3)
    # The table's observations 0 and 1, as the estimate numbers them; "nothing" is only seen at the start.
    heard = [[own[(1.0, 0.0)], own[(0.0, 1.0)]] for own in names]
    nothing = [own[(0.0, 0.0)] for own in names]
    true = tuple(
        agent._replace(
            actions=tuple(
                now if t else now[[agent.successors[0][0, nothing[i]]]]
                for t, now in enumerate(agent.actions[1:])
            ),
            successors=tuple(
                (leads if t else leads[[agent.successors[0][0, nothing[i]]]])[:, heard[i]]
                for t, leads in enumerate(agent.successors[1:])
            ),
        )
        for i, agent in enumerate(team)
    )
    assert value(TIGER.dynamics, true) == pytest.approx(4.8027562)


def test_a_true_prior_counts_for_many_visits_and_a_wrong_one_for_few():
    counts = count(ENV.spec, played(100, seed=1))
    exact = estimate(count(ENV.spec, played(20_000, seed=2)))
    true = Prior(exact.G[: counts.end], exact.R[: counts.end])
    wrong = Prior(np.roll(true.G, 3, axis=-1), true.R)
    assert prior_share(counts, true).mean() > 0.5  # more than the 22 visits of a pair
    assert prior_share(counts, wrong).mean() < 0.15  # less than 4 visits


def test_a_prior_wrong_about_one_pair_is_believed_about_the_others():
    """As networks are: right about the many opened doors, and half deaf where both listen."""
    counts = count(ENV.spec, played(500, seed=3))
    exact = estimate(count(ENV.spec, played(20_000, seed=2)))
    said = exact.G[: counts.end].copy()
    both_listen = 0
    stays = counts.after == np.arange(counts.end)[:, None]
    heard = stays & (counts.n.sum((0, 1)) > 0.0) & (counts.seen > 0)
    said[:, both_listen] = heard / heard.sum(-1, keepdims=True)  # every growl as likely as any other
    deaf = Prior(said, exact.R[: counts.end])
    share = prior_share(counts, deaf)
    assert share[:, both_listen].max() < 0.1
    assert share[:, 1:].min() > 0.5
    right = exact.G[: counts.end, both_listen].max(-1)  # both hear the growl from where the tiger is: 0.7225
    assert estimate(counts, deaf).G[: counts.end, both_listen].max(-1) == pytest.approx(right, abs=0.1)


def test_a_pair_visited_once_is_told_by_the_others():
    """One visit says nothing of a prior: how good it is elsewhere, decides."""
    one, many = np.array([[1.0, 0.0]]), np.array([[20.0, 20.0]])
    said = np.array([[0.5, 0.5]])

    def share(n, said):
        visits = np.zeros((len(n), 1))
        shape = count(ENV.spec, by_hand())._replace(n=n[:, None], states=np.zeros((len(n), 1)))
        return prior_share(shape, Prior(said[:, None], visits))[:, 0]

    good = share(np.concatenate([one, *[many] * 20]), np.repeat(said, 21, axis=0))
    bad = share(np.concatenate([one, *[many] * 20]), np.repeat([[0.95, 0.05]], 21, axis=0))
    assert good[0] > 0.9
    assert bad[0] < good[0] - 0.2


def test_many_states_are_not_counted():
    few = by_hand()
    state = np.random.default_rng(0).normal(size=few.state.shape).astype(np.float32)
    assert count(ENV.spec, few._replace(state=state)) is None
