"""The file of a sweep: what it means, and how its mistakes are told."""

import re
from pathlib import Path

import pytest

from marco.sweeps.cells import Maker
from marco.sweeps.file import Range, read_sweep

SEARCH = "[search]\ntrials = 3\n[search.settings]\n"


def written(tmp_path, text):
    path = tmp_path / "study.toml"
    path.write_text(text)
    return read_sweep(path)


def test_worlds_variants_and_grid_make_cells_in_order(tmp_path):
    file = written(
        tmp_path,
        'worlds = ["bridge", { name = "switch", samples = 500, env.agents = 4 }]\n'
        "seeds = { first = 200, count = 2 }\n"
        "[settings]\nsamples = 1000\nmodel.dynamics.hidden = [8, 8]\n"
        "[variants.ours]\n[variants.chance]\ncollector = 'random'\n"
        "[grid]\nlam = [0, 2.0]\n",
    )
    assert file.seeds == (200, 201)
    cells = Maker(file).grid()
    assert [cell.name for cell in cells] == [
        "bridge-ours-lam=0",
        "bridge-ours-lam=2.0",
        "bridge-chance-lam=0",
        "bridge-chance-lam=2.0",
        *(f"switch-samples=500-env.agents=4-{rest}" for rest in ("ours-lam=0", "ours-lam=2.0")),
        *(f"switch-samples=500-env.agents=4-{rest}" for rest in ("chance-lam=0", "chance-lam=2.0")),
    ]
    last = cells[-1]
    assert (last.config.algorithm.samples, cells[0].config.algorithm.samples) == (500, 1000)
    assert last.config.world_settings == {"agents": 4}
    assert last.config.algorithm.model.dynamics.hidden == (8, 8)
    assert last.varied == {"variant": "chance", "env.agents": 4, "collector": "random", "lam": 2.0}
    assert cells[0].varied == {"variant": "ours", "env.agents": 3, "collector": "explorer", "lam": 0.0}
    assert type(cells[0].config.algorithm.lam) is float


def test_a_search_has_ranges_and_choices(tmp_path):
    file = written(
        tmp_path,
        f'worlds = ["switch"]\n{SEARCH}lam = {{ low = 0.0, high = 4.0 }}\n'
        'bonus = ["variance", "standard-deviation"]\nteam.hidden = { low = 8, high = 64, log = true }\n',
    )
    assert file.search.settings == {
        "lam": Range(0.0, 4.0),
        "bonus": ("variance", "standard-deviation"),
        "team.hidden": Range(8, 64, True),
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("worlds = [", "study.toml is no TOML"),
        ("seeds = 2", "worlds is missing: name the environments"),
        ("worlds = []", r"worlds must be a list, got \[\]"),
        ("worlds = [3]", "each is a name, or a table with its name"),
        ("wolrds = ['switch']", "the file has no key 'wolrds': do you mean 'worlds'?"),
        ("worlds = ['switch']\nlam = 2", r"lam is no table of a sweep .*: is it for \[settings\]\?"),
        ("worlds = ['switch']\nseeds = 0", "seeds must be at least 1"),
        ("worlds = ['switch']\nseeds = [1, 1]", "seeds must be different whole numbers"),
        ("worlds = ['switch']\n[grid]\nlam = 2", r"\[grid\] lam must be a list of values to try"),
        ("worlds = ['switch']\n[grid]\nlam = [2, 2]", r"\[grid\] lam has a value twice"),
        (
            "worlds = ['switch']\n[variants.a]\nlam = 1\n[grid]\nlam = [2, 3]",
            r"lam is in \[grid\] and in \[variants.a\]: leave one out",
        ),
        (
            f"worlds = ['switch']\n{SEARCH}lam = 3",
            r"\[search.settings\] lam must be a list of values, or",
        ),
        (f"worlds = ['switch']\n{SEARCH}lam = {{ low = 3, high = 1 }}", "low must be below high"),
        (f"worlds = ['switch']\n[grid]\nlam = [1]\n{SEARCH}lam = [1, 2]", "both choose settings: leave one"),
        (f"worlds = ['switch', 'bridge']\n{SEARCH}lam = [1, 2]", r"\[search.scale\] must say for every env"),
        (
            "worlds = ['switch']\n[search]\ntrails = 3",
            r"\[search\] has no key 'trails': do you mean 'tri",
        ),
    ],
)
def test_mistakes_are_named_with_their_key(tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        written(tmp_path, text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[settings]\nlamm = 2", "study.toml, switch: there is no setting 'lamm': do you mean 'lam'?"),
        ("[grid]\nteam.learing_rate = [1.0]", "no setting 'team.learing_rate': do you mean 'learning_rate'?"),
        ("[grid]\nsamples = [500, 3]", "switch, samples=3: samples=3 is too few for switch"),
        ("[grid]\nlam = [2.0, 'much']", "switch, lam=much: .*lam must be a number, got 'much'"),
        ("[settings]\nmethod = 'modelfree'", "method must be one of marco, model-free, got 'modelfree'"),
        ("[settings]\nevaluate_every = 5", 'evaluate_every is for method = "model-free"'),
        ("[settings]\nenv.agent = 5", "switch has no setting 'agent': it has agents, horizon"),
        (
            "[variants.free]\nmethod = 'model-free'\n[grid]\nlam = [1.0]",
            "switch, free, lam=1.0: there is no",
        ),
    ],
)
def test_every_setting_is_checked_before_anything_is_run(tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        Maker(written(tmp_path, f"worlds = ['switch']\n{text}\n")).grid()


def test_code_that_a_file_names_is_not_imported(tmp_path):
    (tmp_path / "theirs.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    file = written(tmp_path, f"worlds = ['{tmp_path / 'theirs.py'}:make']\n")
    with pytest.raises(ValueError, match="is code that would be run"):
        Maker(file).grid()
    assert not (tmp_path / "ran").exists()


def test_the_same_cell_twice_is_refused(tmp_path):
    with pytest.raises(ValueError, match="switch is in the sweep 2 times"):
        Maker(written(tmp_path, "worlds = ['switch', 'switch']\n")).grid()


ROOT = Path(__file__).parents[2]


def test_the_example_and_the_files_of_the_document_are_good(tmp_path):
    assert len(Maker(read_sweep(ROOT / "examples" / "sweep.toml")).grid()) == 4
    blocks = re.findall(r"```toml\n(.*?)```", (ROOT / "docs" / "sweeps.md").read_text(), re.DOTALL)
    grid, search = (written(tmp_path, block) for block in blocks)
    assert len(Maker(grid).grid()) * len(grid.seeds) == 40
    assert search.search.trials == 20
    assert Maker(search).cell(search.worlds[0], "", {}, {"lam": 1.0}).config.algorithm.lam == 1.0
