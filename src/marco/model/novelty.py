"""How new a step is: by how often each agent has taken its action in that very state.

A model that sees relations predicts what it has never met, and its members agree on it: so they should, for a
team to be trained in it, but then disagreement no longer leads to where nobody has been. Counts do: a step is
worth 1 over the root of one plus the visits, the mean over agents. It asks for no training.

Counts mean something only where states come back. So all of it is weighted by how often they do: by the share
of the later half of the real steps whose state the earlier half had met. Where every state is another one, as
where it has numbers, that is 0, and nothing is gained by calling everything new.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, UInt32

from marco.types import Episode

PLACES = 2**18
"""Of the table of counts: two steps that share a place are counted as one."""


class Novelty(eqx.Module):
    """The counts of real steps, at the place of their hash."""

    visits: Int[Array, " places"]
    weight: Float[Array, ""]
    """How often states come back."""

    def __call__(self, s: Float[Array, " S"], a: Int[Array, " N"]) -> Float[Array, ""]:
        """How new it is to take these actions in this state."""
        visits = self.visits[_places(s, a)]
        return self.weight * jnp.mean(jax.lax.rsqrt(1.0 + visits))


def novelty_of(episodes: Episode) -> Novelty:
    """The novelty of steps beside those of real episodes (axes T B), which are in their order."""
    taken = np.asarray(episodes.mask).T  # B T: one episode after the other
    state, actions = (np.asarray(leaf).swapaxes(0, 1) for leaf in (episodes.state[:-1], episodes.actions))
    places = _all_places(jnp.asarray(state[taken]), jnp.asarray(actions[taken]))
    visits = np.bincount(np.asarray(places).ravel(), minlength=PLACES).astype(np.int32)
    return Novelty(jnp.asarray(visits), jnp.float32(_return_rate(state[taken])))


def _return_rate(states: Float[np.ndarray, "rows S"]) -> float:
    """The share of the later half of some states that are among the earlier half."""
    half = len(states) // 2
    if not half:
        return 0.0
    known = {row.tobytes() for row in states[:half]}
    return float(np.mean([row.tobytes() in known for row in states[half:]]))


def _places(s: Float[Array, " S"], a: Int[Array, " N"]) -> UInt32[Array, " N"]:
    """Where each agent's action in a state is counted."""
    bits = jax.lax.bitcast_convert_type(s.astype(jnp.float32) + 0.0, jnp.uint32)
    of_state = jnp.sum(_mixed(bits + _mixed(jnp.arange(1, bits.shape[0] + 1, dtype=jnp.uint32))))
    agents = jnp.arange(1, a.shape[0] + 1, dtype=jnp.uint32)
    return _mixed(of_state ^ _mixed(agents * jnp.uint32(0x10001) + a.astype(jnp.uint32))) % PLACES


_all_places = jax.jit(jax.vmap(_places))


def _mixed(x: UInt32[Array, "*any"]) -> UInt32[Array, "*any"]:
    """Bits that depend on all bits of x: the finaliser of MurmurHash3."""
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        x = (x ^ (x >> shift)) * jnp.uint32(factor)
    return x ^ (x >> 16)
