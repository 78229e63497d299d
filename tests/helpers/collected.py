"""Random episodes of the riddle outside JAX, collected by workers or in this process."""

import jax
import numpy as np

from helpers.simulated import NAME
from marco import RandomPolicy, make
from marco.algorithm.collect import collect_missing, collect_side_by_side
from marco.data.dataset import Dataset
from marco.simulators.pool import Simulators, opened

HORIZON, TOTAL = 6, 40


def key_of(place):
    return jax.random.key(place)


def collect(folder, workers, total=TOTAL, **settings):
    """The dataset with so many workers, or of this process with none; it goes on with what is there."""
    env = make(NAME, horizon=HORIZON, **settings)
    dataset = Dataset(folder, env.spec, 1)
    dataset.recover(again=workers is not None)
    if workers is None:
        while (missing := total - dataset.samples[0]) > 0:
            keys = key_of(dataset.chunks)[None]
            collect_missing(keys, env, RandomPolicy(), dataset, np.array([missing]), HORIZON)
        return dataset
    with opened(Simulators(env, workers)) as simulators:
        for _ in collect_side_by_side(key_of, simulators, RandomPolicy(), dataset, total):
            pass
    return dataset


def chunks(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.glob("chunk-*"))}
