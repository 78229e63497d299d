"""Episodes for the eye: as a table in the terminal, and `reference` as a moving picture."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import ArrayLike
from rich.table import Table

from marco.types import Categorical, Episode, Feature, Spec, blocks


def episode_table(spec: Spec, episode: Episode, title: str) -> Table:
    """One row per moment: the state, and what each agent sees and does."""
    table = Table(title=title, title_justify="left", title_style="bold", show_lines=spec.num_agents > 4)
    table.add_column("t", justify="right")
    table.add_column("state")
    for agent in spec.agents:
        table.add_column(f"agent {agent.name.removeprefix('agent ').removeprefix('agent_')}")
    table.add_column("reward", justify="right")
    steps = int(np.asarray(episode.mask).sum())
    for t in range(steps + 1):
        reward = f"{episode.reward[t]:+.2f}" if t < steps else ""
        doings = [_agent_cell(spec, episode, t, index, t < steps) for index in range(spec.num_agents)]
        table.add_row(str(t), in_words(spec.state, episode.state[t]), *doings, reward)
    how = "terminated" if episode.terminated.any() else "stopped by the clock"
    table.caption = f"{how} after {steps} steps, return {float(np.asarray(episode.reward).sum()):+.2f}"
    table.caption_justify = "left"
    return table


def in_words(features: Sequence[Feature], vector: ArrayLike) -> str:
    """What the columns say, feature by feature; a plain 'no' is left out."""
    words, vector = [], np.asarray(vector)
    for feature, block in zip(features, blocks(features), strict=True):
        if not isinstance(feature, Categorical):
            words.append(f"{feature.name} ({', '.join(f'{x:.2f}' for x in vector[block])})")
            continue
        index = int(feature.decode(jnp.asarray(vector[block])))
        if feature.labels == ("no", "yes"):
            words.extend([feature.name] * index)
        else:
            words.append(f"{feature.name} {feature.label(index)}")
    return ", ".join(words)


def _agent_cell(spec: Spec, episode: Episode, t: int, index: int, acts: bool) -> str:
    agent = spec.agents[index]
    seen = in_words(agent.observation, episode.observation[t, index, : agent.observation_width])
    done = f"[bold]{agent.action_label(int(episode.actions[t, index]))}[/bold]" if acts else ""
    return "\n".join(filter(None, [seen, done]))


def reference_gif(spec: Spec, episodes: Sequence[Episode], path: Path) -> None:
    """Draw episodes of `reference`: an agent wears the colour of the landmark it has to go to."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.animation import FuncAnimation, PillowWriter

    frames = [(number, t) for number, episode in enumerate(episodes) for t in range(len(episode.state))]
    figure, axes = pyplot.subplots(figsize=(4.5, 4.8))

    def draw(frame: tuple[int, int]) -> None:
        number, t = frame
        _draw_reference(axes, spec, episodes[number], t)
        axes.set_title(f"episode {number + 1}, step {t}", fontsize=10)

    animation = FuncAnimation(figure, draw, frames=frames, blit=False)
    animation.save(path, writer=PillowWriter(fps=6))
    pyplot.close(figure)


def _draw_reference(axes: Any, spec: Spec, episode: Episode, t: int) -> None:
    shown = _reference_features(spec, np.asarray(episode.state[t]))
    so_far = [_reference_features(spec, np.asarray(state)) for state in episode.state[: t + 1]]
    colours = ("tab:red", "tab:green", "tab:blue")
    axes.clear()
    for landmark, colour in enumerate(colours):
        axes.scatter(*shown[f"landmark {landmark}"], s=500, marker="s", c=colour, alpha=0.35)
    for agent in range(2):
        colour = colours[shown[f"goal {agent}"]]
        path = np.array([step[f"position {agent}"] for step in so_far])
        axes.plot(*path.T, c=colour, lw=1, alpha=0.6)
        axes.scatter(*path[-1], s=120, c=colour, edgecolors="black", zorder=3)
        said = shown[f"message {agent}"]
        words = f"{agent}" if said == 0 else f"{agent}: word {said - 1}"
        axes.annotate(words, path[-1], xytext=(8, 8), textcoords="offset points", fontsize=9)
    axes.set(xlim=(-1.6, 1.6), ylim=(-1.6, 1.6), xticks=[], yticks=[], aspect="equal")


def _reference_features(spec: Spec, state: np.ndarray) -> dict[str, Any]:
    return {
        feature.name: int(feature.decode(jnp.asarray(state[block])))
        if isinstance(feature, Categorical)
        else state[block]
        for feature, block in zip(spec.state, blocks(spec.state), strict=True)
    }
