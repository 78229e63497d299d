"""A tiny run of MARCO, shared by tests, and by the processes that the crash test kills."""

import sys
from pathlib import Path

from marco.algorithm import Marco
from marco.dataset import Dataset
from marco.environments.switch import Switch
from marco.experiments.journal import RunJournal, alone
from marco.learners.q_learning import QLearner
from marco.model.fit import FitSettings, ModelSettings
from marco.model.predictors import PredictorSettings
from marco.plan import MarcoSettings

WORLD = Switch(agents=2, horizon=3)
ONE = PredictorSettings("factored", (8,), 1)
TWO = PredictorSettings("chain", (8,), 2)
MODEL = ModelSettings(TWO, ONE, ONE, ONE, ONE, FitSettings(rounds=3, updates=5, batch=16))
TINY = QLearner("vdn", hidden=8, episodes_per_update=4, batch=4, replay=16, epsilon_samples=100)
SEEDS = (3, 4)


def settings(**changes):
    plan = {"samples": 50, "first": 20, "chunk": 16, "explorer_steps": 20, "final_updates": 3}
    return MarcoSettings(team=TINY, explorer=TINY, model=MODEL, **(plan | changes))


def begin(folder, plan, world=WORLD, seeds=SEEDS):
    dataset = Dataset(folder / "data", world.spec, len(seeds))
    return Marco(world, plan, seeds, dataset, RunJournal(folder))


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(exist_ok=True)
    with alone(folder):
        for event, _ in begin(folder, settings()).run():
            print(event.phase, event.samples, flush=True)
