"""Pictures of single timesteps, drawn into matplotlib's axes. `render.draw_gif` makes them move.

Each function draws timestep `t` of one episode (with numpy arrays): the state, and the actions taken in it.
"""

import math
import re
import textwrap
from collections.abc import Iterator
from typing import Any

import numpy as np

from marco.environments.render import in_words, values_of
from marco.types import Categorical, Episode, Feature, Spec, blocks

COLOURS = ("#2f6db5", "#d1495b", "#3d9970", "#e0912f", "#7b5ea7", "#5c6b73", "#b5651d", "#17a2b8")
ARROWS = {"Left": "\u2190", "Right": "\u2192"}
SPEECH = {"Tell": "All of us\nhave been\nhere!", "On": "switch on", "Off": "switch off"}
MANY = 30
"""The most numbers of a continuous feature in a panel of text."""
INK, PAPER, FLOOR, GOOD, BAD, LIGHT = "#2b2b2b", "#f4f1ea", "#d9d2c3", "#2e8b57", "#c0392b", "#ffd34d"


def draw_riddle(spec: Spec, axes: Any, episode: Episode, t: int) -> None:
    """`switch` and `bridge`: the room with its light, who is in it, and where the others are."""
    state = _named(spec, episode, t)
    labels = [agent.name for agent in spec.agents]
    present = _visitor(spec, state)
    _scene(axes, 10.0, 8.0)
    _room(axes, light=bool(state["light on"]))
    crossing = "position of 0" in state and present is None
    places = _bridge(axes, spec, state) if crossing else _cells(axes, len(labels))
    does = _actions(spec, episode, t)
    for index, name in enumerate(labels):
        inside = index == present
        x, y = (4.1, 3.7) if inside else places[index]
        been = bool(state[f"been {name}"])
        _person(axes, x, y, COLOURS[index % len(COLOURS)], name)
        if not crossing:
            mark = "has been in the room" if been else "not yet in the room"
            axes.text(places[index][0], 0.12, mark, ha="center", fontsize=7.5, color=GOOD if been else "grey")
        if does and crossing and does[index] in ARROWS:
            axes.text(x, y + 1.45, ARROWS[does[index]], ha="center", fontsize=15, color=INK)
        elif does and (inside or crossing) and does[index] != "None":
            place = (x + 1.75, y + 1.2) if inside else (x, y + 1.9)
            _bubble(axes, *place, SPEECH.get(does[index], does[index]), large=does[index] == "Tell")
    _verdict(axes, episode, t, 5.0, 7.55)


def draw_reference(spec: Spec, axes: Any, episode: Episode, t: int) -> None:
    """`reference`: an agent wears the colour of the landmark it has to go to, and says a word."""
    state, colours = _named(spec, episode, t), (COLOURS[1], COLOURS[2], COLOURS[0])
    _scene(axes, 3.6, 3.15, left=-1.8, bottom=-1.575)
    _box(axes, -1.79, -1.56, 3.58, 3.12, "#fbfaf6", FLOOR)
    for landmark, colour in enumerate(colours):
        axes.scatter(*state[f"landmark {landmark}"], s=700, marker="s", c=colour, alpha=0.3, lw=0)
    for agent in range(spec.num_agents):
        colour = colours[state[f"goal {agent}"]]
        path = episode.state[: t + 1, _columns(spec, f"position {agent}")]
        axes.plot(*path.T, c=colour, lw=1.5, alpha=0.6)
        axes.scatter(*path[-1], s=170, c=colour, edgecolors=INK, zorder=3)
        said = state[f"message {agent}"]
        words = f"agent {agent}" if said == 0 else f'agent {agent}: "word {said - 1}"'
        axes.annotate(words, path[-1], xytext=(9, 9), textcoords="offset points", fontsize=8.5, color=INK)
    _corner(axes, f"return so far {episode.reward[:t].sum():+.2f}", -1.75, -1.52)


def draw_foraging(spec: Spec, axes: Any, episode: Episode, t: int) -> None:
    """`foraging`: apples and agents with their levels, and an arrow or a ring for what each agent does."""
    state, does = _named(spec, episode, t), _actions(spec, episode, t)
    rows, columns = (_feature(spec, f"agent 0 {axis}").width for axis in ("row", "column"))
    size = 10.0 / max(rows, columns)
    _scene(axes, columns * size + 0.4, rows * size + 0.4, left=-0.2, bottom=-0.2)
    arrows = {"North": (0, 1), "South": (0, -1), "West": (-1, 0), "East": (1, 0)}
    for cell in range(rows * columns):
        row, column = divmod(cell, columns)
        _box(axes, column * size, row * size, size, size, PAPER, FLOOR)
    for name in (key.removesuffix(" row") for key in state if key.endswith(" row")):
        if state[f"{name} row"] == 0:
            continue  # eaten
        kind, number = name.split()
        colour = COLOURS[int(number) % len(COLOURS)] if kind == "agent" else GOOD
        x, y = (state[f"{name} column"] - 0.5) * size, (rows - state[f"{name} row"] + 0.5) * size
        action = does[int(number)] if does and kind == "agent" else ""
        right, up = arrows.get(action, (0, 0))
        if right or up:
            ends = {"xy": (x + size * right, y + size * up), "xytext": (x, y)}
            axes.annotate("", **ends, arrowprops={"arrowstyle": "-|>", "lw": 2.5, "color": colour})
        look = {"c": colour, "edgecolors": BAD if action == "Load" else INK, "zorder": 3}
        marker = "o" if kind == "food" else "s"
        axes.scatter(x, y, s=450 * size, marker=marker, lw=3 if action == "Load" else 1, **look)
        level = str(state[f"{name} level"])
        axes.text(x, y, level, ha="center", va="center", color="white", zorder=4, fontsize=11)
    _corner(axes, f"return so far {episode.reward[:t].sum():+.2f}", 0.1, -0.15)


def grid_of(spec: Spec) -> list[tuple[int, ...]] | None:
    """The cells of all agents in each state of a table, if its names say that they move in a square grid."""
    feature = spec.state[0]
    moves = {"up", "down", "left", "right"}
    if not (isinstance(feature, Categorical) and feature.labels):
        return None
    if any(not moves <= set(agent.actions[0].labels) for agent in spec.agents):
        return None
    pattern = "-".join([r"\d+"] * spec.num_agents)
    if any(re.fullmatch(pattern, label) is None for label in feature.labels):
        return None
    cells = [tuple(map(int, label.split("-"))) for label in feature.labels]
    side = math.isqrt(1 + max(map(max, cells)))
    return cells if side**2 == 1 + max(map(max, cells)) else None


def draw_grid(spec: Spec, cells: list[tuple[int, ...]], axes: Any, episode: Episode, t: int) -> None:
    """Agents in a square grid, with an arrow for where each one goes."""
    (state,) = values_of(spec.state, episode.state[t])
    side = math.isqrt(1 + max(map(max, cells)))
    _scene(axes, side * 1.15, float(side), left=-0.075 * side)
    here, does = cells[state], _actions(spec, episode, t)
    arrows = {"up": (0, 1), "down": (0, -1), "left": (-1, 0), "right": (1, 0)}
    for row in range(side):
        for column in range(side):
            met = here.count(row * side + column) == spec.num_agents > 1
            y = side - 1 - row
            _box(axes, column + 0.03, y + 0.03, 0.94, 0.94, "#dff0df" if met else PAPER, FLOOR)
    for index, cell in enumerate(here):
        row, column = divmod(cell, side)
        apart = 0.0 if here.count(cell) == 1 else 0.17
        angle = 2 * math.pi * index / spec.num_agents
        x = column + 0.5 - apart * math.cos(angle)
        y = side - 1 - row + 0.5 - apart * math.sin(angle)
        colour = COLOURS[index % len(COLOURS)]
        right, up = arrows.get(does[index], (0, 0)) if does else (0, 0)
        if right or up:
            ends = {"xy": (x + 0.36 * right, y + 0.36 * up), "xytext": (x, y)}
            axes.annotate("", **ends, arrowprops={"arrowstyle": "-|>", "lw": 3, "color": colour})
        axes.scatter(x, y, s=1800 / side, c=colour, edgecolors=INK, zorder=3)
        axes.text(
            x, y, spec.agents[index].name, ha="center", va="center", color="white", zorder=4, fontsize=12
        )
    _corner(axes, f"return so far {episode.reward[:t].sum():+.2f}", 0.08, 0.08)


def draw_as_text(spec: Spec, axes: Any, episode: Episode, t: int) -> None:
    """Any environment: a panel for the state, and one for each agent with what it sees and does."""
    _scene(axes, 10.0, 8.0)
    does = _actions(spec, episode, t)
    words = in_words(spec.state, episode.state[t], few=MANY)
    _panel(axes, (0.1, 6.35, 9.8, 1.55), INK, "central state", words)
    for index, place in enumerate(_places(spec.num_agents)):
        agent = spec.agents[index]
        seen = episode.observation[t, index, : agent.observation_width]
        _panel(
            axes,
            place,
            COLOURS[index % len(COLOURS)],
            f"agent {agent.name.removeprefix('agent ').removeprefix('agent_')}",
            in_words(agent.observation, seen, few=MANY),
            does[index] if does else "",
        )
    _corner(axes, f"return so far {episode.reward[:t].sum():+.2f}", 0.15, 0.1)


def _panel(
    axes: Any, place: tuple[float, float, float, float], colour: str, title: str, words: str, action: str = ""
) -> None:
    x, y, width, height = place
    _box(axes, x, y, width, height, "white", colour)
    fits, lines = int(7.2 * width), max(1, int(height / 0.31) - (4 if action else 2))
    look = {"va": "top", "color": INK, "fontsize": 8.5, "parse_math": False}
    axes.text(x + 0.15, y + height - 0.12, title, **(look | {"color": colour}), fontweight="bold")
    axes.text(x + 0.15, y + height - 0.6, _wrapped(words, fits, lines), **look)
    look |= {"va": "bottom", "fontsize": 10, "fontweight": "bold"}
    axes.text(x + 0.15, y + 0.15, _wrapped(action, fits, 1), **look)


def _named(spec: Spec, episode: Episode, t: int) -> dict[str, Any]:
    names = [feature.name for feature in spec.state]
    return dict(zip(names, values_of(spec.state, episode.state[t]), strict=True))


def _actions(spec: Spec, episode: Episode, t: int) -> list[str]:
    """The action of each agent in words; none after the end."""
    if t >= len(episode.mask) or not episode.mask[t]:
        return []
    return [agent.action_label(int(a)) for agent, a in zip(spec.agents, episode.actions[t], strict=True)]


def _columns(spec: Spec, name: str) -> slice:
    return blocks(spec.state)[[feature.name for feature in spec.state].index(name)]


def _feature(spec: Spec, name: str) -> Feature:
    return next(feature for feature in spec.state if feature.name == name)


def _visitor(spec: Spec, state: dict[str, Any]) -> int | None:
    """Who is in the room; behind the bridge class 0 is nobody."""
    room = next(feature for feature in spec.state if feature.name == "in room")
    nobody = int(isinstance(room, Categorical) and room.blank)
    return None if state["in room"] < nobody else state["in room"] - nobody


def _room(axes: Any, light: bool) -> None:
    _box(axes, 2.6, 3.1, 4.8, 4.1, "#fff6d6" if light else "#b9bcc4", INK)
    axes.plot([5.0, 5.0], [7.2, 6.75], c=INK, lw=1.5)
    if light:
        for angle in np.linspace(0, 2 * np.pi, 12, endpoint=False):
            ray = np.array([0.42, 0.62])
            axes.plot(5 + ray * np.cos(angle), 6.45 + ray * np.sin(angle), c="#e6b422", lw=1.5)
    axes.scatter(5.0, 6.45, s=330, c=LIGHT if light else "#6b6e76", edgecolors=INK, zorder=3)


def _cells(axes: Any, number: int) -> list[tuple[float, float]]:
    width = 9.0 / number
    for index in range(number):
        _box(axes, 0.5 + index * width + 0.15, 0.5, width - 0.3, 2.3, PAPER, "#8d8778")
    return [(0.5 + (index + 0.5) * width, 0.8) for index in range(number)]


def _bridge(axes: Any, spec: Spec, state: dict[str, Any]) -> list[tuple[float, float]]:
    positions = [state[f"position of {agent.name}"] for agent in spec.agents]
    last = next(f for f in spec.state if f.name == "position of 0").width - 1
    step = 7.0 / last
    axes.fill_between([0, 10], 0.0, 0.55, color="#9fc9e0", lw=0)
    axes.plot([0.4, 9.6], [0.75, 0.75], c="#8a5a2b", lw=7, solid_capstyle="round")
    for place in range(last + 1):
        axes.plot([1.5 + place * step] * 2, [0.1, 0.7], c="#8a5a2b", lw=3)
    spread = [0.75 * (index - (len(positions) - 1) / 2) for index in range(len(positions))]
    return [(1.5 + place * step + offset, 0.95) for place, offset in zip(positions, spread, strict=True)]


def _person(axes: Any, x: float, y: float, colour: str, name: str) -> None:
    from matplotlib.patches import Circle, FancyBboxPatch

    body = FancyBboxPatch((x - 0.27, y), 0.54, 0.75, "round,pad=0.05,rounding_size=0.2", fc=colour, ec=INK)
    axes.add_patch(body)
    axes.add_patch(Circle((x, y + 1.15), 0.3, fc="#f3d3b5", ec=INK, zorder=3))
    axes.text(x, y + 0.36, name, ha="center", va="center", color="white", fontsize=11, fontweight="bold")


def _bubble(axes: Any, x: float, y: float, words: str, large: bool) -> None:
    look = {"boxstyle": "round,pad=0.35", "fc": "#ffe9a8" if large else "white", "ec": INK}
    weight = "bold" if large else "normal"
    axes.text(x, y, words, ha="center", va="center", fontsize=9.5, bbox=look, fontweight=weight, zorder=5)


def _verdict(axes: Any, episode: Episode, t: int, x: float, y: float) -> None:
    """How the episode ended, at its last timestep."""
    if t < int(episode.mask.sum()):
        return
    total = float(episode.reward.sum())
    words = f"return {total:+.0f}" if episode.terminated.any() else "time is up: return 0"
    colour = GOOD if total > 0 else BAD if total < 0 else INK
    axes.text(x, y, words, ha="center", va="center", fontsize=13, color=colour, fontweight="bold", zorder=6)


def _places(number: int) -> Iterator[tuple[float, float, float, float]]:
    """A rectangle for each agent, up to three in a row."""
    columns = min(3, number)
    lines = math.ceil(number / columns)
    width, height = 9.8 / columns, 5.65 / lines
    for index in range(number):
        row, column = divmod(index, columns)
        yield 0.1 + column * width, 6.2 - (row + 1) * height + 0.05, width - 0.12, height - 0.15


def _wrapped(words: str, width: int, lines: int) -> str:
    return "\n".join(textwrap.wrap(words, width, max_lines=lines, placeholder=" ..."))


def _box(axes: Any, x: float, y: float, width: float, height: float, face: str, edge: str) -> None:
    from matplotlib.patches import Rectangle

    axes.add_patch(Rectangle((x, y), width, height, fc=face, ec=edge, lw=1.5))


def _corner(axes: Any, words: str, x: float, y: float) -> None:
    axes.text(x, y, words, fontsize=8.5, color=INK, zorder=6)


def _scene(axes: Any, width: float, height: float, left: float = 0.0, bottom: float = 0.0) -> None:
    axes.set(xlim=(left, left + width), ylim=(bottom, bottom + height), aspect="equal")
