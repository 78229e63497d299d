"""Algorithm 1 of the paper: MARCO, multi-agent RL with centralised models and exploration.

`phases` lists its lines, `Marco.run` goes through them, and a method of `Marco` does each. All seeds of a run
are trained at once (axis S). Everything real goes through `Marco.collect`.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Key

from marco.algorithm.collect import (
    chunk_metrics,
    collect_until,
    collectors,
    promise_warnings,
    uncertainty_warnings,
    whole_return,
)
from marco.algorithm.config import MarcoConfig
from marco.algorithm.demonstrations import demonstrations_from, with_demonstrations
from marco.algorithm.events import NO_JOURNAL, Event, Journal, PhaseName
from marco.algorithm.evidence import Evidence
from marco.algorithm.exploration import exploration_environments, exploration_spec, exploration_units
from marco.algorithm.fit import fit_models, fit_warnings
from marco.algorithm.gain import gain, shortened
from marco.algorithm.limits import (
    check_collected,
    check_data_and_model,
    check_finite,
    check_known,
    check_memory_of_state,
    check_samples,
)
from marco.algorithm.offline import train_offline
from marco.algorithm.planning import (
    PlansAhead,
    evaluate_plans,
    pays,
    planned_beside,
    planned_collectors,
)
from marco.algorithm.state import MarcoState, Stream
from marco.algorithm.trial import Trial, candidate_names
from marco.learners.candidates import Best, chosen_by, winner, winning_value
from marco.learners.parallel import (
    beside,
    check_memory,
    check_seeds_of,
    clear_replay,
    init_all,
    stack_seeds,
    with_units,
)
from marco.learners.restarts import (
    EnvironmentsAt,
    evaluate_again,
    imagined_like,
    race,
    restart_keys,
    train_for,
)
from marco.learners.training import TrainingState
from marco.policies.base import Policy
from marco.simulators.pool import Simulators
from marco.trees import squeezed
from marco.types import Spec
from marco.units import Units


class Phase(NamedTuple):
    """One line of Algorithm 1 at work."""

    name: PhaseName
    iteration: int
    samples: int
    """Real samples per seed at its end."""


def phases(config: MarcoConfig, ended_early: bool = False) -> Iterator[Phase]:
    """The lines of Algorithm 1 in their order. That a run ends early is known when its team was trained."""
    for iteration, samples in enumerate(config.schedule):
        yield Phase("collect", iteration, samples)  # lines 4 and 9: at random, later with pi_phi
        yield Phase("fit", iteration, samples)  # line 6
        last = samples == config.schedule[-1]
        if not last or ended_early:
            yield Phase("team", iteration, samples)  # line 7
        if last:
            break
        yield Phase("explore", iteration, samples)  # line 8
    yield Phase("final", iteration, samples)  # what is left of the budget is for the trial
    if samples < config.samples:
        yield Phase("trial", iteration, config.samples)


Events = Iterator[tuple[Event, MarcoState]]


@dataclass(frozen=True)
class Marco(Evidence):
    """MARCO in a true environment: a configuration, seeds, and the dataset of all real samples."""

    journal: Journal = NO_JOURNAL
    ended_early: bool = False
    """Whether the configuration is that of a run which ended before its budget was spent."""
    plans_ahead: PlansAhead = field(default_factory=PlansAhead, compare=False)

    def check(self) -> None:
        """Refuse what cannot be run, before anything is compiled or played."""
        check_seeds_of(self.env, self.seeds)
        check_samples(self.config, self.env.spec)
        check_memory_of_state(self.config, self.env)
        check_known(self.plan(), self.known)
        spec = self.spec(0)
        check_memory((*self.config.final_learners, *self.config.offline), spec, len(self.seeds))
        check_memory((self.config.explorer,), exploration_spec(spec), len(self.seeds))
        self.descriptions.check(self.env.spec)
        check_data_and_model(self.plan(), self.config, len(self.seeds))

    def run(self) -> Events:
        """Algorithm 1. Phases that the journal has kept are not done again."""
        self.dataset.recover(again=isinstance(self.env, Simulators))
        done, ended = self.journal.latest, list(self.journal.events)
        state = self.restore() if done else self.init()
        run = self.shortened(ended)
        while remaining := list(islice(phases(run.config, run.ended_early), done, None)):
            phase, done = remaining[0], done + 1
            for event, after in run.do(phase, state):
                state = after
                self._keep(done, state, event)
                yield event, state
            ended.append(event)
            run = self.shortened(ended)
            run.plan_ahead(phase, state)
        *_, last = phases(run.config)
        yield Event("done", last.iteration, last.samples, {}), state

    def plan_ahead(self, phase: Phase, state: MarcoState) -> None:
        """Begin to plan for the next chunk as soon as there is a model."""
        samples, last = phase.samples, self.config.schedule[-1]
        if phase.name == "fit" and samples < last and self.planner_collects(samples):
            self.plans_ahead.begin(samples, state.model, self.episodes(samples), self.config.planning)

    def shortened(self, ended: Iterable[Event]) -> "Marco":
        """The same run, which ends earlier if the phases that have ended say so."""
        config = shortened(self.config, ended)
        if config == self.config:
            return self
        return replace(self, config=config, capacity=self.room, ended_early=True)

    def do(self, phase: Phase, state: MarcoState) -> Events:
        """Carry out one phase, reporting as it goes."""
        lines: dict[PhaseName, Callable[[Phase, MarcoState], Events]] = {
            "collect": self.collect,
            "fit": self.fit,
            "team": self.train_team,
            "explore": self.train_explorer,
            "final": self.train_final,
            "trial": self.try_candidates,
        }
        return lines[phase.name](phase, state)

    def init(self, samples: int = 0) -> MarcoState:
        """Line 2: nothing has been learned, there is no model. The samples describe the state."""
        keys = jax.vmap(jax.random.split)(self.keys(0, Stream.INIT))
        spec = self.spec(samples)
        return MarcoState(
            team=self._fresh(keys[:, 0], self.config.team, spec),
            explorer=self._fresh(keys[:, 1], self.config.explorer, exploration_spec(spec)),
            promised=jnp.full(len(self.seeds), -jnp.inf),
        )

    def restore(self) -> MarcoState:
        """What had been learned after the last phase that the journal has kept."""
        run = self.shortened(self.journal.events)
        *_, phase = islice(phases(run.config, run.ended_early), self.journal.latest)
        check_collected(self.dataset, phase.samples)
        return self.journal.restore(run._template(phase))

    def collect(self, phase: Phase, state: MarcoState) -> Events:
        """Fill D up to the phase's samples, not one more; every batch is stored before it is used."""
        config, iteration = self.config, phase.iteration
        before = config.schedule[iteration - 1] if iteration else 0
        who = config.collector if iteration else "random"
        view = self.view(before)
        policy = collectors(who, config, self.env.spec, view, state.team, state.explorer)
        everybody = np.full(len(self.seeds), phase.samples)
        keys_of = partial(self.keys, stream=Stream.COLLECT)
        parts = [*self._teams(phase, before, state), (policy, everybody)]
        for acting, until in parts:
            for done in collect_until(keys_of, self.env, acting, self.dataset, until, config.chunk):
                progress = max(0, done - before) / (phase.samples - before)
                yield Event("collect", iteration, int(self.dataset.samples.min()), {}, progress), state
        chunk = self.episodes(phase.samples, since=before)
        metrics = chunk_metrics(config, self.env.spec, view, state.model, chunk)
        if teams := [until for _, until in parts[:-1]]:
            played = [
                self.dataset.episodes(index, int(until), before) if until > before else None
                for index, until in enumerate(np.max(teams, axis=0))
            ]
            metrics["team_return"] = [None if own is None else whole_return(own) for own in played]
        warnings = uncertainty_warnings(metrics, self.seeds) + self.memory_warnings(before, phase.samples)
        if teams and self.trains_teams(before):
            everything = self.episodes(phase.samples)
            warnings += promise_warnings(np.asarray(state.promised), played, everything, self.seeds)
        yield _event(phase, metrics)._replace(warnings=warnings), self._described(phase, before, state)

    def _teams(
        self, phase: Phase, before: int, state: MarcoState
    ) -> Iterator[tuple[Policy, Int[np.ndarray, " S"]]]:
        """The teams so far, and up to which sample they collect: planned ones, where there are any.

        The exploration policy sees the state, and never does what only agents who do not see it need to do:
        listen, ask, go and look. And it may lead away from what a team will meet.
        """
        config = self.config
        if not before or not config.team_share or config.collector != "explorer":
            return
        if self.planner_collects(before):
            real = self.episodes(before)
            plans = self.plans_ahead.get(before, state.model, real, config.planning)
            half = before + int(config.team_share * (phase.samples - before))
            planned = np.where([pays(one, own) for one, own in zip(plans, real, strict=True)], half, before)
            yield planned_collectors(self.env.spec, plans, config.epsilon), planned
        if self.trains_teams(before):
            view, spec = self.view(before), self.env.spec
            policy = collectors("team", config, spec, view, state.team, state.explorer)
            yield policy, self.team_until(phase.iteration, np.asarray(state.promised))

    def fit(self, phase: Phase, state: MarcoState) -> Events:
        """Line 6: fit the model to all of D, from scratch."""
        yield _event(phase, {}, 0.0), state
        keys = self.keys(phase.iteration, Stream.FIT)
        model, fits = fit_models(keys, *self.to_fit(phase.samples))
        losses: dict[str, list[Any]] = {
            name: np.asarray(fit.loss).sum(-1).mean(-1).tolist() for name, fit in fits[0].items()
        }
        warnings = fit_warnings(fits, self.seeds)
        yield _event(phase, losses)._replace(warnings=warnings), state._replace(model=model, fits=fits)

    def train_team(self, phase: Phase, state: MarcoState) -> Events:
        """Line 7: train Q_theta inside the model."""
        config = self.config
        if not self.trains_teams(phase.samples):
            yield _event(phase, self._planned_return(phase, state)), state
            return
        yield _event(phase, {}, 0.0), state
        keys = self.keys(phase.iteration, Stream.TEAM)
        team = clear_replay(config.team, state.team, self.spec(phase.samples))
        team = with_units(config.team, team, self.units(phase.samples))
        envs = self._demonstrated(phase, state.model)
        for segment in train_for(keys, envs, config.team, team, config.team_steps):
            metrics = {"imagined_return": segment.returns.tolist(), "model_steps": segment.steps.tolist()}
            promised = jnp.asarray(segment.returns, jnp.float32)
            after = state._replace(team=segment.states, promised=promised)
            if segment.progress == 1.0 and phase.iteration:
                chunk = phase.samples - config.schedule[phase.iteration - 1]
                metrics["gain_per_1000"] = gain(state.promised, promised, chunk)
            yield _event(phase, metrics, segment.progress), after

    def _planned_return(self, phase: Phase, state: MarcoState) -> dict[str, list[Any]]:
        """What the planned teams earn in their tables, where that says when to stop."""
        if not self.config.until_gain_below or not self.plans(phase.samples):
            return {}
        real = self.episodes(phase.samples)
        plans = self.plans_ahead.get(phase.samples, state.model, real, self.config.planning)
        return {"planned_return": [None if one is None else one.value for one in plans]}

    def train_explorer(self, phase: Phase, state: MarcoState) -> Events:
        """Line 8: train Q_phi inside the model on the reward of Equation 1; it observes the state."""
        config, spec = self.config, exploration_spec(self.spec(phase.samples))
        if config.collector != "explorer":
            yield _event(phase, {}), state
            return
        yield _event(phase, {}, 0.0), state
        explorer = state.explorer
        if not config.warm_explorer:
            fresh = jax.vmap(jax.random.split)(self.keys(phase.iteration, Stream.FRESH_EXPLORER))
            explorer = self._fresh(fresh[:, 1], config.explorer, spec)
        explorer = clear_replay(config.explorer, explorer, spec)
        units = self.units(phase.samples)
        explorer = with_units(config.explorer, explorer, jax.vmap(exploration_units)(units))
        scale = units.reward_scale if config.scales_bonus else None
        novelty = self.novelty(phase.samples) if config.novelty else None
        models = exploration_environments(state.model, config.lam, config.bonus, scale, novelty)
        envs = self._demonstrated(phase, models)
        keys = self.keys(phase.iteration, Stream.EXPLORER)
        for segment in train_for(keys, envs, config.explorer, explorer, config.explorer_steps):
            metrics = {"exploration_return": segment.returns.tolist(), "model_steps": segment.steps.tolist()}
            yield _event(phase, metrics, segment.progress), state._replace(explorer=segment.states)

    def train_final(self, phase: Phase, state: MarcoState) -> Events:
        """Train teams in the last model, and keep the best there was, evaluated in the model."""
        config, learners = self.config, self.config.final_learners
        yield _event(phase, {}, 0.0), state
        keys = restart_keys(self.keys(phase.iteration, Stream.FINAL), len(learners))
        spec = self.spec(phase.samples)
        continued = None if config.candidates else clear_replay(config.team, state.team, spec)
        envs, units = self._demonstrated(phase, state.model), self.units(phase.samples)
        with (
            self._planning(phase, state.model) as plans,
            beside(self._train_offline, phase, units) as offline,
        ):
            for standing in race(
                keys, envs, state.model, learners, config.final_updates, continued, units, self.floor
            ):
                state = state._replace(best=standing.best)
                metrics = {
                    "imagined_return": winning_value(standing.best).tolist(),
                    "model_steps": standing.steps.tolist(),
                }
                yield _event(phase, metrics, 0.9 * standing.progress), state
            if plans is not None:
                planned = evaluate_plans(keys, state.model, plans.result())
                state = state._replace(best=(*state.best, planned))
                metrics["planned_return"] = [v if np.isfinite(v) else None for v in planned.value.tolist()]
            state = state._replace(best=(*state.best, *offline.result()))
        imagined = evaluate_again(keys, state.model, learners, state.best)
        state = state._replace(imagined=imagined, best=chosen_by(state.best, imagined.cautious))
        yield _event(phase, metrics | {"imagined_return": state.imagined_return.mean.tolist()}), state

    def _train_offline(self, phase: Phase, units: Units) -> tuple[Best, ...]:
        """Teams that never saw the model."""
        config, spec, real = self.config, self.spec(phase.samples), self.as_learned(phase.samples)
        return tuple(
            train_offline(
                self.keys(number, Stream.OFFLINE), learner, spec, real, units, config.offline_updates
            )
            for number, learner in enumerate(config.offline)
        )

    def try_candidates(self, phase: Phase, state: MarcoState) -> Events:
        """Let the candidates play for real; the team that is expected to earn most is kept."""
        trial = self.trial(state)
        keys_of = partial(self.keys, stream=Stream.TRIAL)
        yield _event(phase, {}, 0.0), state
        for policy, until in trial.turns():
            for done in collect_until(keys_of, self.env, policy, self.dataset, until, self.config.chunk):
                yield _event(phase, {}, trial.progress(done)), state
        found = trial.expected()
        state = state._replace(best=chosen_by(state.best, np.stack([one.cautious for one in found], 1)))
        told = _event(phase, trial.metrics(winner(state.best)))
        yield told._replace(warnings=self.trial(state).warnings(self.seeds)), state

    def trial(self, state: MarcoState) -> Trial:
        """The trial of the candidates at the end."""
        config, begin = self.config, self.config.schedule[-1]
        return Trial(
            names=candidate_names(config.final_learners, self.plans(begin), config.offline),
            best=state.best,
            imagined=state.imagined,
            dataset=self.dataset,
            begin=begin,
            end=config.samples,
            horizon=self.env.spec.horizon,
            offline=len(config.offline),
            floor=self.floor,
        )

    def _template(self, phase: Phase) -> MarcoState:
        """The shapes of what has been learned at the end of a phase."""
        samples = min(phase.samples, self.config.schedule[-1])
        model, fits = self.model_like(samples)
        state = self.init(samples)._replace(model=model, fits=fits)
        if phase.name not in ("final", "trial"):
            return state
        best = self.best_like(samples)
        return state._replace(best=best, imagined=imagined_like(model, best))

    def _described(self, phase: Phase, before: int, state: MarcoState) -> MarcoState:
        """Begin anew with the learners, if new data describe the state in other columns."""
        if self.spec(phase.samples) == self.spec(before):
            return state
        return self.init(phase.samples)

    def _demonstrated(self, phase: Phase, envs: Any) -> EnvironmentsAt:
        """The environments in the course of a training: at first some episodes begin with real actions."""
        share = self.config.demonstrations
        if not share:
            return lambda progress: envs
        real = [demonstrations_from(episodes, self.room) for episodes in self.episodes(phase.samples)]
        stacked = stack_seeds(real)
        return lambda progress: with_demonstrations(envs, stacked, share * max(0.0, 1.0 - 2.0 * progress))

    def _planning(self, phase: Phase, models: Any) -> AbstractContextManager[Any]:
        """The planner at work beside the last training; None where it cannot or need not plan."""
        if not self.plans(phase.samples):
            return nullcontext()
        return planned_beside(models, self.episodes(phase.samples), self.config.planning)

    def _keep(self, step: int, state: MarcoState, event: Event) -> None:
        check_finite(event, self.seeds)
        if not event.over:
            return
        if event.phase == "collect":  # the dataset has it, and nothing was learned
            self.journal.note(step, event)
        else:
            self.journal.keep(step, state, event)

    def _fresh(self, keys: Key[Array, " S"], learner: Any, spec: Spec) -> TrainingState:
        states = init_all(keys[:, None], learner, spec)
        return squeezed(states)


def _event(phase: Phase, metrics: dict[str, list[Any]], progress: float = 1.0) -> Event:
    return Event(phase.name, phase.iteration, phase.samples, metrics, progress)
