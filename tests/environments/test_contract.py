import jax
import jax.numpy as jnp
import numpy as np
import pytest

from helpers.contract import check_contract
from marco.environments.adapters.jaxmarl import JaxMARLWorld
from marco.environments.bridge import make_bridge as bridge
from marco.environments.delayed import Delayed
from marco.environments.foraging import Foraging
from marco.environments.reference import Reference
from marco.environments.registry import make
from marco.environments.switch import Switch
from marco.environments.tabular import from_tables
from marco.policies.base import RandomPolicy
from marco.rollout import rollout, rollouts


def random_table(seed=0, states=5, actions=(2, 3), observations=(3, 2), horizon=4):
    rng = np.random.default_rng(seed)
    joint, seen = int(np.prod(actions)), int(np.prod(observations))
    terminal = np.arange(states) == states - 1
    return from_tables(
        rng.dirichlet(np.ones(states), (states, joint)),
        rng.normal(size=(states, joint)),
        rng.dirichlet(np.ones(seen), (joint, states)),
        rng.dirichlet(np.where(terminal, 1e-3, 1.0)),
        actions=actions,
        observations=observations,
        horizon=horizon,
        terminal=terminal,
    )


ENVIRONMENTS = {
    "switch": Switch(),
    "switch, 5 agents": Switch(5, 10),
    "bridge": bridge(),
    "bridge, 2 agents, length 1": bridge(agents=2, length=1, horizon=6),
    "delayed": Delayed(),
    "delayed by 1": Delayed(agents=3, delay=1, horizon=7),
    "foraging": Foraging(),
    "foraging, 4 agents": Foraging(rows=5, columns=7, agents=4, foods=3, sight=2, penalty=0.1),
    "reference": Reference(),
    "tabular, unequal agents": random_table(),
    "dectiger": make("dectiger"),
}


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_environment_keeps_the_contract(name):
    check_contract(ENVIRONMENTS[name])


@pytest.mark.parametrize("name", ["switch_riddle", "MPE_simple_reference_v3"])
def test_a_jaxmarl_environment_keeps_the_contract(name):
    import jaxmarl

    check_contract(JaxMARLWorld(jaxmarl.make(name)))


def test_a_true_world_holds_only_static_fields():
    for world in (Switch(), bridge(), Delayed(), Foraging(), Reference()):
        assert jax.tree.leaves(world) == []


def test_rollout_vmaps_over_worlds_and_seeds():
    """Two different tables of one shape, three seeds each: one call, as if played one by one."""
    worlds = [random_table(seed) for seed in (0, 1)]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *worlds)
    keys = jax.random.split(jax.random.key(0), 3)
    over_seeds = jax.vmap(rollout, (0, None, None))
    together = jax.jit(jax.vmap(over_seeds, (None, 0, None)))(keys, stacked, RandomPolicy())
    assert together.reward.shape == (2, 3, 4)
    play = jax.jit(rollout)
    for world in range(2):
        for seed in range(3):
            alone = play(keys[seed], worlds[world], RandomPolicy())
            np.testing.assert_allclose(together.reward[world, seed], alone.reward, rtol=1e-6)


def test_another_world_of_the_same_shape_is_not_compiled_again():
    rollouts(jax.random.key(0), random_table(0), RandomPolicy(), 2)
    compiled = rollouts._cache_size()
    rollouts(jax.random.key(1), random_table(1), RandomPolicy(), 2)
    assert rollouts._cache_size() == compiled
