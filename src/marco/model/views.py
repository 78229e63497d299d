"""The three models of the paper's Figure 2 behind one interface: MARCO's own and its two rivals.

MARCO's model is *centralised*: it is of the central state. The *joint-observation* model (as MAMBPO's) takes
what all agents see now for the state; the *decentralised* one is a model per agent, of what that agent sees
and does alone. Each rival is the centralised model of a *view* of the same episodes, in which observations
play the part of the state, so that whatever fits and plays the one fits and plays the others.
"""

from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from marco.environments.base import Environment, Transition
from marco.model.components import Component, Model
from marco.model.early_stopping import ComponentFit
from marco.model.environment import LearnedEnvironment, LearnedWorld, ResampleMember
from marco.model.fit import ModelConfig, fit_one, model_of, to_learn
from marco.model.inputs import ComponentName
from marco.model.rows import Data, gather
from marco.model.uncertainty import BonusName, uncertainty
from marco.policies.base import Memory, Policy
from marco.sampling import draw_below
from marco.types import Episode, Feature, Spec, TimeStep, concatenate_observations, split_observations

ModelKind = Literal["centralised", "joint-observation", "decentralised"]

Reports = dict[ComponentName, ComponentFit]
"""How the training of one model's components went."""


def fit_world(
    key: PRNGKeyArray,
    kind: ModelKind,
    spec: Spec,
    episodes: Episode,
    settings: ModelConfig,
    capacity: int | None = None,
    known: dict[ComponentName, Any] | None = None,
    resample_member: ResampleMember = "step",
) -> tuple[Environment, tuple[Reports, ...]]:
    """A world learned from real episodes (axes T B), and how each of its models was learned."""
    data = view_and_gather(kind, spec, episodes, capacity)
    return fit_data(key, kind, spec, data, settings, known, resample_member)


def view_and_gather(
    kind: ModelKind, spec: Spec, episodes: Episode, capacity: int | None = None
) -> tuple[Data, ...]:
    """The rows that each model learns from, one `Data` per model. Runs on the host."""
    return tuple(gather(*view, capacity) for view in views(kind, spec, episodes))


def fit_data(
    key: PRNGKeyArray,
    kind: ModelKind,
    spec: Spec,
    data: tuple[Data, ...],
    settings: ModelConfig,
    known: dict[ComponentName, Any] | None = None,
    resample_member: ResampleMember = "step",
) -> tuple[Environment, tuple[Reports, ...]]:
    """The traced part of `fit_world`: seeds are one `vmap` over the key and stacked data.

    `spec` is the true world's. Known functions are of the central state, so only the centralised model
    takes any.
    """
    fitted = {
        part: fit_part(key, kind, spec, data, settings, part) for part in parts_of(kind, spec, known or {})
    }
    return learned_world(kind, spec, data, settings, fitted, known or {}, resample_member)


Part = tuple[int, ComponentName]
"""What is learned by itself: which of the models, and which of its components."""


def parts_of(kind: ModelKind, spec: Spec, known: dict[ComponentName, Any]) -> tuple[Part, ...]:
    """All that is to be learned."""
    _check_known(kind, known)
    names = to_learn(known if kind == "centralised" else ("observation",))
    return tuple((index, name) for index in range(len(model_specs(kind, spec))) for name in names)


def fit_part(
    key: PRNGKeyArray,
    kind: ModelKind,
    spec: Spec,
    data: tuple[Data, ...],
    settings: ModelConfig,
    part: Part,
) -> tuple[Component, ComponentFit]:
    """Learn one part, and how it went."""
    index, name = part
    specs = model_specs(kind, spec)
    if len(data) != len(specs):
        raise ValueError(f"the {kind} world of {spec.name} has {len(specs)} models, got {len(data)} Data.")
    return fit_one(jax.random.split(key, len(specs))[index], specs[index], data[index], settings, name)


def learned_world(
    kind: ModelKind,
    spec: Spec,
    data: tuple[Data, ...],
    settings: ModelConfig,
    fitted: dict[Part, tuple[Component, ComponentFit]],
    known: dict[ComponentName, Any],
    resample_member: ResampleMember,
) -> tuple[Environment, tuple[Reports, ...]]:
    """The world of all parts, and how each of its models was learned."""
    worlds, reports = [], []
    for index, (own, rows) in enumerate(zip(model_specs(kind, spec), data, strict=True)):
        sight: dict[ComponentName, Any] = {"observation": SeesItsState(own)}
        mine = {name: learned for (model, name), learned in fitted.items() if model == index}
        components = {name: component for name, (component, _) in mine.items()}
        model = model_of(own, rows, settings, components, known if kind == "centralised" else sight)
        worlds.append(LearnedEnvironment(model, resample_member))
        reports.append({name: report for name, (_, report) in mine.items()})
    if kind == "decentralised":
        return DecentralisedEnvironment(tuple(worlds), viewed_spec(kind, spec)), tuple(reports)
    return worlds[0], tuple(reports)


def viewed_spec(kind: ModelKind, spec: Spec) -> Spec:
    """The shape of the learned world: the true one's, with what the kind takes for the state."""
    return spec if kind == "centralised" else joint_observation_spec(spec)


def model_specs(kind: ModelKind, spec: Spec) -> tuple[Spec, ...]:
    """The shape of each model: one, or in the decentralised world one per agent."""
    if kind == "decentralised":
        return tuple(one_agent_spec(spec, index) for index in range(spec.num_agents))
    return (viewed_spec(kind, spec),)


def views(kind: ModelKind, spec: Spec, episodes: Episode) -> list[tuple[Spec, Episode]]:
    """The same episodes as each model of a learned world sees them."""
    match kind:
        case "centralised":
            return [(spec, episodes)]
        case "joint-observation":
            return [joint_observation_view(spec, episodes)]
        case "decentralised":
            return [one_agent_view(spec, episodes, index) for index in range(spec.num_agents)]


def joint_observation_view(spec: Spec, episodes: Episode) -> tuple[Spec, Episode]:
    """The same episodes, with all agents' observations in a row for the state."""
    seen = concatenate_observations(spec, jnp.asarray(episodes.observation))
    return joint_observation_spec(spec), episodes._replace(state=seen)


def one_agent_view(spec: Spec, episodes: Episode, index: int) -> tuple[Spec, Episode]:
    """The same episodes as one agent alone lives them: it sees, does and is paid; its sight is the state."""
    agent = spec.agents[index]
    seen = episodes.observation[..., index : index + 1, : agent.observation_width]
    return one_agent_spec(spec, index), episodes._replace(
        observation=seen,
        state=seen[..., 0, :],
        available=episodes.available[..., index : index + 1, : agent.num_actions],
        actions=episodes.actions[..., index : index + 1],
    )


def joint_observation_spec(spec: Spec) -> Spec:
    """The same world, but its state is what all agents see now."""
    features: tuple[Feature, ...] = tuple(
        replace(feature, name=f"{agent.name}: {feature.name}")
        for agent in spec.agents
        for feature in agent.observation
    )
    return replace(spec, state=features)


def one_agent_spec(spec: Spec, index: int) -> Spec:
    """The world of one agent alone."""
    agent = spec.agents[index]
    return Spec(f"{spec.name}, agent {agent.name} alone", (agent,), agent.observation, spec.horizon)


@dataclass(frozen=True)
class SeesItsState:
    """The observation function of a view: what is seen is the state itself, agent by agent."""

    # A class and no closure: two of them are equal if their specs are, and nothing is compiled again.
    spec: Spec

    def __call__(
        self, key: PRNGKeyArray, s: Float[Array, " S"], previous: Int[Array, " N"]
    ) -> Float[Array, "N O"]:
        """Take the row apart."""
        return split_observations(self.spec, s)


class DecentralisedWorld(NamedTuple):
    """A moment in each agent's own world."""

    agents: tuple[LearnedWorld, ...]


class DecentralisedEnvironment(Environment):
    """The agents' own models side by side: each world starts and moves by itself.

    The team is paid the mean of what the models say. Whether the episode ends is the verdict of one agent,
    drawn anew at every step: they cannot agree, since none knows what the others do.
    """

    worlds: tuple[LearnedEnvironment, ...]
    team: Spec = eqx.field(static=True)

    @property
    def spec(self) -> Spec:
        """The shape of the team's world; its state is the joint observation."""
        return self.team

    def initial(self, key: PRNGKeyArray) -> DecentralisedWorld:
        """A start for each agent, independently drawn."""
        keys = jax.random.split(key, len(self.worlds))
        return DecentralisedWorld(
            tuple(world.initial(key) for world, key in zip(self.worlds, keys, strict=True))
        )

    def transition(
        self, key: PRNGKeyArray, world: DecentralisedWorld, actions: Int[Array, " N"]
    ) -> Transition:
        """Every agent's world takes a step with that agent's action."""
        key_judge, *keys = jax.random.split(key, len(self.worlds) + 1)
        steps = [
            own.transition(key, moment, actions[index : index + 1])
            for index, (own, key, moment) in enumerate(zip(self.worlds, keys, world.agents, strict=True))
        ]
        judge = draw_below(key_judge, jnp.int32(len(self.worlds)))
        return Transition(
            DecentralisedWorld(tuple(step.world for step in steps)),
            jnp.mean(jnp.stack([step.reward for step in steps])),
            jnp.stack([step.terminated for step in steps])[judge],
        )

    def observe(self, world: DecentralisedWorld) -> Float[Array, "N O"]:
        """What each agent sees in its own world."""
        return split_observations(self.spec, self.central(world))

    def available(self, world: DecentralisedWorld) -> Bool[Array, "N A"]:
        """What each agent's own model holds to be available."""
        masks = [moment.available[0] for moment in world.agents]
        return jnp.stack([jnp.pad(mask, (0, self.spec.num_actions - mask.size)) for mask in masks])

    def central(self, world: DecentralisedWorld) -> Float[Array, " S"]:
        """What all agents see, in a row."""
        return jnp.concatenate([moment.state for moment in world.agents])


def models_of(environment: Environment) -> tuple[Model, ...]:
    """The models that a learned world plays: one, or one per agent."""
    match environment:
        case LearnedEnvironment():
            return (environment.model,)
        case DecentralisedEnvironment():
            return tuple(world.model for world in environment.worlds)
        case _:
            raise TypeError(f"{type(environment).__name__} is no learned world: it has no model.")


def uncertainty_of(
    environment: Environment,
    kind: BonusName,
    world: Any,
    actions: Int[Array, " N"],
    following: Any,
) -> Float[Array, ""]:
    """r-tilde of a step from one moment of a learned world to the next; summed over the agents' models."""
    models = models_of(environment)
    if isinstance(environment, LearnedEnvironment):
        return uncertainty(models[0], kind, world.state, actions, following.state, following.observation)
    total = jnp.float32(0.0)
    for index, (model, old, new) in enumerate(zip(models, world.agents, following.agents, strict=True)):
        own = actions[index : index + 1]
        total += uncertainty(model, kind, old.state, own, new.state, new.observation)
    return total


class ViewedPolicy(Policy):
    """Plays, in the true world, a policy that was trained on a view's state: it is shown that state there."""

    inner: Policy
    kind: ModelKind = eqx.field(static=True)
    true_spec: Spec = eqx.field(static=True)

    def start(self) -> Memory:
        """The inner policy's memory."""
        return self.inner.start()

    def __call__(self, memory: Memory, timestep: TimeStep) -> tuple[Memory, Float[Array, "N A"]]:
        """What the inner policy does where the state is what the kind takes for it."""
        if self.kind != "centralised":
            timestep = timestep._replace(state=concatenate_observations(self.true_spec, timestep.observation))
        return self.inner(memory, timestep)


def _check_known(kind: ModelKind, known: dict[ComponentName, Any]) -> None:
    if known and kind != "centralised":
        raise ValueError(
            f"{', '.join(known)} cannot be given to a {kind} model: known functions are of the central "
            "state, which it does not have. Leave them out, or take the centralised model."
        )
