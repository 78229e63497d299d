"""`marco bound`."""

import json
from dataclasses import dataclass

from rich.table import Table

from marco.cli.common import console
from marco.cli.settings import parse
from marco.tabular.rmax import Guarantee, printed, repaired, verdict


@dataclass(frozen=True)
class Bound:
    """Compute the bounds of the theorem: visits per pair and bad episodes, as printed and as repaired."""

    states: int
    """The number of states."""
    joint_actions: int
    """The number of joint actions."""
    horizon: int
    """The number of steps in an episode."""
    epsilon: float
    """Good episodes are within 2 epsilon of the best team; rewards are in [0, 1]."""
    delta: float
    """The probability of failure."""
    gamma: float = 0.99
    """The discount in the conditions as printed."""
    joint_observations: int = 1
    """The number of joint observations, if they are not a function of the next state."""
    json: bool = False
    """Print one JSON object, and nothing else."""

    def run(self) -> None:
        """Compute and print the bounds."""
        guarantees = {
            "printed": printed(self.states, self.joint_actions, self.epsilon, self.delta, self.gamma),
            "repaired": repaired(
                self.states,
                self.joint_actions,
                self.horizon,
                self.epsilon,
                self.delta,
                self.joint_observations,
            ),
        }
        verdicts = {
            name: verdict(guarantee, self.epsilon, self.horizon) for name, guarantee in guarantees.items()
        }
        if self.json:
            facts = {name: {**each._asdict(), "verdict": verdicts[name]} for name, each in guarantees.items()}
            print(json.dumps(facts))
            return
        table = Table("", "m_R", "m_P", "m", "bad episodes, at most")
        for name, guarantee in guarantees.items():
            table.add_row(name, *_cells(guarantee))
        console.print(table)
        for name, words in verdicts.items():
            console.print(f"{name}: {words}.", highlight=False)
        console.print(
            f"printed: gamma {self.gamma:g}; it proves 3 epsilon and 2 delta only, see docs/theory.md.",
            highlight=False,
        )


def main(arguments: list[str]) -> None:
    """Compute and show."""
    try:
        parse(Bound, arguments, "marco bound").run()
    except ArithmeticError as error:
        raise ValueError(
            "the bounds are too large to be computed: give a larger epsilon or delta, or smaller sizes."
        ) from error


def _cells(guarantee: Guarantee) -> list[str]:
    return [
        f"{number:.3g}"
        for number in (guarantee.m_reward, guarantee.m_transition, guarantee.m, guarantee.episodes)
    ]
