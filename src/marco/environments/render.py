"""Episodes to look at: as a table in the terminal, and as a moving picture."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import ArrayLike
from rich.markup import escape
from rich.table import Table

from marco.environments.base import Environment, HostWorld
from marco.types import Categorical, Episode, Feature, Spec, blocks

AGENTS, LONG = 6, 160
"""The most agents in a table, and the most characters of a cell."""
FEW = 4
"""The most numbers of a continuous feature in a table; of a longer one the first two are printed."""
WIDE = 60
"""The most characters of a state in a table; states that take more are left out."""
SIZE, DPI = (4.8, 4.2), 100
"""The size of a picture in inches, and its dots per inch."""
WHOLE, SHORTEST, LONGEST, LAST = 6_000, 150, 900, 2_000
"""Milliseconds: of an episode about, of a timestep at least and at most, and of the last timestep more."""


def episode_table(spec: Spec, episode: Episode, title: str) -> Table:
    """One row per timestep: the state, and what each agent sees and does."""
    steps = int(np.asarray(episode.mask).sum())
    states = [in_words(spec.state, episode.state[t], few=FEW, long=LONG) for t in range(steps + 1)]
    shows_state = max(map(len, states)) <= WIDE or all(isinstance(f, Categorical) for f in spec.state)
    table = Table(title=title, title_justify="left", title_style="bold", show_lines=spec.num_agents > 4)
    table.add_column("t", justify="right")
    if shows_state:
        table.add_column("state")
    for agent in spec.agents[:AGENTS]:
        table.add_column(f"agent {agent.name.removeprefix('agent ').removeprefix('agent_')}")
    table.add_column("reward", justify="right")
    for t, state in enumerate(states):
        reward = f"{episode.reward[t]:+.2f}" if t < steps else ""
        shown = range(min(spec.num_agents, AGENTS))
        cells = [_agent_cell(spec, episode, t, index, t < steps) for index in shown]
        table.add_row(str(t), *([escape(state)] if shows_state else []), *cells, reward)
    how = "terminated" if episode.terminated.any() else "stopped by the clock"
    table.caption = f"{how} after {steps} steps, return {float(np.asarray(episode.reward).sum()):+.2f}"
    if not shows_state:
        table.caption += f"; the state ({spec.state_width} columns) is too wide to show"
    if spec.num_agents > AGENTS:
        table.caption += f"; of {spec.num_agents} agents the first {AGENTS} are shown"
    table.caption_justify = "left"
    return table


def in_words(
    features: Sequence[Feature], vector: ArrayLike, few: int | None = None, long: int | None = None
) -> str:
    """The columns feature by feature; a plain 'no' is left out.

    So is what is beyond a `few` numbers of a feature, and whole features beyond so `long` a text.
    """
    words = []
    for feature, value in zip(features, values_of(features, vector), strict=True):
        if not isinstance(feature, Categorical):
            words.append(f"{feature.name} ({_numbers(value, few)})")
        elif feature.labels == ("no", "yes"):
            words.extend([feature.name] * int(value))
        else:
            words.append(f"{feature.name} {feature.label(int(value))}")
    kept = len(words)
    while long is not None and kept > 1 and len(", ".join(words[:kept])) > long:
        kept -= 1
    return ", ".join(words[:kept] + [f"... {len(words) - kept} more"] * (kept < len(words)))


def values_of(features: Sequence[Feature], vector: ArrayLike) -> list[Any]:
    """The class of each categorical feature, the numbers of each continuous one."""
    columns = np.asarray(vector)
    return [
        int(feature.decode(jnp.asarray(columns[block])))
        if isinstance(feature, Categorical)
        else columns[block]
        for feature, block in zip(features, blocks(features), strict=True)
    ]


def draw_gif(env: Environment | HostWorld, episodes: Sequence[Episode], path: Path) -> None:
    """Draw episodes of any environment into a GIF; as text where it has no picture of its own."""
    check_gif(path)
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from PIL import Image

    from marco.environments.pictures import draw_as_text

    draw: Callable[..., None] = getattr(env, "draw_timestep", partial(draw_as_text, env.spec))
    figure = Figure(SIZE, DPI)
    canvas = FigureCanvasAgg(figure)
    axes = figure.add_axes((0.02, 0.02, 0.96, 0.88))
    usual = int(np.clip(WHOLE / env.spec.horizon, SHORTEST, LONGEST))
    images, durations = [], []
    for number, episode in enumerate(episodes, 1):
        episode = jax.tree.map(np.asarray, episode)
        steps = int(episode.mask.sum())
        for t in range(steps + 1):
            axes.clear()
            axes.set_axis_off()
            draw(axes, episode, t)
            title = f"episode {number}, step {t} of {steps}" if len(episodes) > 1 else f"step {t} of {steps}"
            axes.set_title(f"{env.spec.name}: {title}", fontsize=10, parse_math=False)
            canvas.draw()
            image = Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")
            images.append(image.quantize(32, dither=Image.Dither.NONE))
            durations.append(LAST if t == steps else usual)
    images[0].save(path, save_all=True, append_images=images[1:], duration=durations, loop=0, optimize=True)


def check_gif(path: Path) -> None:
    """Refuse a path that no GIF can be written to, before anything is played."""
    if path.suffix.lower() != ".gif":
        raise ValueError(f"--gif writes a .gif file, got {str(path)!r}.")
    if not path.absolute().parent.is_dir():
        raise ValueError(f"--gif: there is no folder {str(path.absolute().parent)!r}: make it first.")


def _numbers(values: np.ndarray, few: int | None) -> str:
    every = few is None or len(values) <= few
    # Adding 0 makes a rounded -0.001 a plain 0.00.
    words = [f"{round(float(x), 2) + 0.0:.2f}" for x in (values if every else values[:2])]
    return ", ".join(words if every else [*words, f"... {len(values) - 2} more"])


def _agent_cell(spec: Spec, episode: Episode, t: int, index: int, acts: bool) -> str:
    agent = spec.agents[index]
    seen = in_words(
        agent.observation, episode.observation[t, index, : agent.observation_width], few=FEW, long=LONG
    )
    done = f"[bold]{escape(agent.action_label(int(episode.actions[t, index])))}[/bold]" if acts else ""
    return "\n".join(filter(None, [escape(seen), done]))
