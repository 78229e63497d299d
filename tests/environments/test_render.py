import jax
import numpy as np
import pytest
from PIL import Image
from rich.console import Console

from helpers.zoo_toys import toy
from marco.environments.base import expert_of
from marco.environments.pictures import grid_of
from marco.environments.registry import make
from marco.environments.render import draw_gif, episode_table, in_words
from marco.environments.tabular import Labels, from_tables
from marco.policies.base import RandomPolicy
from marco.rollout import play
from marco.types import Continuous, binary


def shown(env, episode, width=300):
    console = Console(width=width)
    with console.capture() as capture:
        console.print(episode_table(env.spec, episode, "one"))
    return capture.get()


def episode_of(env, seed=0):
    return play(jax.random.key(seed), env, expert_of(env) or RandomPolicy())


def test_a_table_names_states_observations_and_actions():
    env = make("dectiger", horizon=2)
    text = shown(env, episode_of(env))
    assert "state tiger-" in text
    assert "seen nothing" in text
    assert "listen" in text or "open-" in text


def test_many_numbers_are_summarised_and_a_wide_state_is_left_out():
    env = make("mpe2.simple_spread_v3:parallel_env", max_cycles=2)
    text = shown(env, episode_of(env))
    assert "observation (" in text
    assert "... 16 more)" in text
    assert "(0.00, 0.00, ... 52 more)" in text  # short: it has room
    reference = make("reference", horizon=2)
    text = shown(reference, episode_of(reference))
    assert "the state (40 columns) is too wide to show" in text
    assert "velocity (" in text


def test_words_for_features():
    features = (Continuous("place", 6), binary("open"), Continuous("speed", 2))
    vector = np.array([0, 1, 2, 3, 4, 5, 1, 0.125, -1])
    assert in_words(features, vector, few=4) == "place (0.00, 1.00, ... 4 more), open, speed (0.12, -1.00)"
    assert in_words(features, vector).startswith("place (0.00, 1.00, 2.00, 3.00, 4.00, 5.00)")


def test_a_wall_of_features_and_of_agents_is_cut():
    many = tuple(Continuous(f"sensor {i}", 2) for i in range(40))
    words = in_words(many, np.zeros(80), long=60)
    assert words == "sensor 0 (0.00, 0.00), sensor 1 (0.00, 0.00), ... 38 more"
    env = make("switch", agents=9)
    text = shown(env, episode_of(env))
    assert "agent 5" in text
    assert "agent 6" not in text
    assert "of 9 agents the first 6 are shown" in text


@pytest.mark.parametrize(
    "name", ["switch", "bridge", "reference", "gridsmall", "dectiger", "delayed", "foraging"]
)
def test_every_environment_can_be_drawn(name, tmp_path):
    short = {"horizon": 5} if name in ("reference", "delayed", "foraging") else {}
    env, path = make(name, **short), tmp_path / "a.gif"
    episodes = [episode_of(env, seed) for seed in range(2)]
    draw_gif(env, episodes, path)
    with Image.open(path) as image:
        assert image.size == (480, 420)
        assert 1 < image.n_frames <= sum(int(episode.length) + 1 for episode in episodes)
    assert path.stat().st_size < 300_000


def test_host_environments_and_odd_names_can_be_drawn(tmp_path):
    env = toy()
    draw_gif(env, [episode_of(env)], tmp_path / "a.gif")
    names = Labels(("$", "b"), ("[x]$y$",), (("$", "[/]"), ("_", "^")), (("$$",), ("o",)))
    odd = from_tables(
        np.ones((1, 4, 1)), np.zeros((1, 4)), np.ones((4, 1, 1)), [1.0],
        actions=(2, 2), observations=(1, 1), horizon=1, labels=names,
    )  # fmt: skip
    episode = episode_of(odd)
    draw_gif(odd, [episode], tmp_path / "b.gif")
    assert "[x]$y$" in shown(odd, episode)


def test_grids_are_known_by_the_names_of_states_and_actions():
    assert grid_of(make("gridsmall").spec)[6] == (1, 2)
    for name in ("dectiger", "recycling", "switch"):
        assert grid_of(make(name).spec) is None


def test_a_bad_path_is_refused(tmp_path):
    env = make("switch")
    with pytest.raises(ValueError, match=r"writes a \.gif file, got 'a\.png'"):
        draw_gif(env, [], type(tmp_path)("a.png"))
    with pytest.raises(ValueError, match="there is no folder"):
        draw_gif(env, [], tmp_path / "none" / "a.gif")
