"""The parser of .dpomdp files, line by line."""

from dataclasses import dataclass, field

import numpy as np

from marco.tabular.dpomdp.tokens import COUNT, NUMBER, Line, Lines, short
from marco.tabular.problem import ENTRIES, TOLERANCE, DecPOMDP, gigabytes

HEADER = ("agents", "discount", "values", "states", "start", "actions", "observations")
MOST_AGENTS = 32
"""Arrays have an axis per agent, and numpy has a limit."""


@dataclass
class Reader:
    """Parses a file from the header to the last reward."""

    name: str
    lines: Lines
    agents: tuple[str, ...] = ()
    states: tuple[str, ...] = ()
    actions: list[tuple[str, ...]] = field(default_factory=list)
    observations: list[tuple[str, ...]] = field(default_factory=list)
    sizes: dict[str, int] = field(default_factory=lambda: {"state": 1, "action": 1, "observation": 1})
    """The numbers of states, joint actions and joint observations, as far as the header is read."""
    uses_outcomes: int | None = None
    """The line number of the first reward that depends on T or O."""

    def problem(self) -> DecPOMDP:
        """Parse the whole file."""
        self._header()
        states, joint, seen = self.sizes.values()
        self.T, self.R = np.zeros((joint, states, states)), np.zeros((joint, states))
        self.O = np.zeros((joint, states, seen))
        self.last_line = {"T": np.zeros((joint, states), int), "O": np.zeros((joint, states), int)}
        while (line := self.lines.take()) is not None:
            self._entry(line)
        self._check("T")
        self._check("O")
        if self.costs:
            self.R = -self.R
        P = self.T.transpose(1, 0, 2)
        return DecPOMDP(
            name=self.name,
            agents=self.agents,
            states=self.states,
            actions=tuple(self.actions),
            observations=tuple(self.observations),
            P=P / P.sum(-1, keepdims=True),
            R=np.ascontiguousarray(self.R.T),
            O=self.O / self.O.sum(-1, keepdims=True),
            d0=self.start / self.start.sum(),
            discount=self.discount,
        )

    # --- The header ----------------------------------------------------------------------------------------

    def _header(self) -> None:
        self.agents = self._names(self._field("agents"), "agent")
        line = self._field("discount")
        self.discount = self.lines.number(line, line.text)
        if not 0.0 <= self.discount <= 1.0:
            self.lines.fail(line, f"a discount is from 0 to 1, got {line.text}")
        line = self._field("values")
        if line.text not in ("reward", "cost"):
            self.lines.fail(line, f"values must be reward or cost, got {short(line.text)}")
        self.costs = line.text == "cost"
        self.states = self._names(self._field("states"), "state")
        self.start = self._start()
        for key, into in (("actions", self.actions), ("observations", self.observations)):
            self._field(key)
            for agent in self.agents:
                into.append(self._names(self.lines.next(f"the {key} of {agent}"), key[:-1]))

    def _field(self, key: str) -> Line:
        """The rest of a header line, after its keyword and colon."""
        line = self.lines.next(f"'{key}:'")
        found, colon, rest = line.text.partition(":")
        if not colon or found.split()[:1] != [key]:
            order = ", ".join(HEADER)
            self.lines.fail(
                line, f"expected '{key}:', got {short(line.text)}; a file begins with {order}, in this order"
            )
        return Line(line.number, " ".join([*found.split()[1:], *rest.split()]))

    def _names(self, line: Line, kind: str) -> tuple[str, ...]:
        words = line.text.replace(",", " ").split()
        number = int(words[0]) if len(words) == 1 and COUNT.fullmatch(words[0]) else 0
        if number == 0 and (not words or words[0].isdigit()):
            self.lines.fail(
                line, f"expected a number of {kind}s, at least 1, or their names, got {short(line.text)}"
            )
        self._check_size(line, kind, number or len(words))
        if number:
            return tuple(str(index) for index in range(number))
        if len(set(words)) < len(words):
            self.lines.fail(line, f"two {kind}s have the same name in {short(line.text)}")
        return tuple(words)

    def _check_size(self, line: Line, kind: str, number: int) -> None:
        """Refuse tables that are too large before names or tables are made."""
        if kind == "agent":
            if number > MOST_AGENTS:
                self.lines.fail(line, f"there are {number:,} agents, over the limit of {MOST_AGENTS}")
            return
        self.sizes[kind] *= number
        states, joint, seen = self.sizes.values()
        entries, widest = states * joint * max(states, seen), "T" if states >= seen else "O"
        if entries > ENTRIES:
            self.lines.fail(
                line,
                f"by the sizes up to here, the table {widest} has at least {entries:,} numbers, which take "
                f"{gigabytes(entries)}; the limit is {gigabytes(ENTRIES)}: give a smaller problem",
            )

    def _start(self) -> np.ndarray:
        line = self._field("start")
        chance, words = np.zeros(len(self.states)), line.words
        if words[:1] in (["include"], ["exclude"]):
            listed = [i for word in words[1:] for i in self.lines.one(line, word, self.states, "state")]
            chance[listed] = 1.0
            chance = chance if words[0] == "include" else 1.0 - chance
            if not chance.any():
                self.lines.fail(line, f"start {short(line.text)} leaves no state")
            return chance
        if not words:
            line = self.lines.next("the start distribution")
            words = line.words
        if words == ["uniform"]:
            return chance + 1.0
        if len(words) == 1 and len(self.states) > 1:
            chance[self.lines.one(line, words[0], self.states, "state")] = 1.0
            return chance
        chance = self.lines.row(line, len(self.states))
        self._check_row(line.number, "start", chance)
        return chance

    # --- T, O and R ----------------------------------------------------------------------------------------

    def _entry(self, line: Line) -> None:
        parts = [part.strip() for part in line.text.split(":")]
        kind, joint = parts[0], self._joint_of(line, parts)
        if kind == "R":
            return self._reward(line, parts, joint)
        if self.uses_outcomes is not None:
            self.lines.fail(
                line,
                f"{kind} comes after the reward in line {self.uses_outcomes}, which depends on it: "
                "put all T and O lines before the R lines",
            )
        table = self.T if kind == "T" else self.O
        rows = self._states(line, parts[2]) if len(parts) > 2 and parts[2] else list(range(len(self.states)))
        fields = [part for part in parts[1:] if part]
        if len(fields) == 1:
            table[np.ix_(joint, rows)] = self.lines.matrix(kind, table.shape[1:])
        elif len(fields) == 2:
            row = self.lines.next(f"a row of {table.shape[2]} numbers")
            table[np.ix_(joint, rows)] = self.lines.row(row, table.shape[2])
        elif len(fields) == 4:
            columns = self._states(line, parts[3]) if kind == "T" else self._seen(line, parts[3])
            table[np.ix_(joint, rows, columns)] = self.lines.number(line, fields[3])
        else:
            self.lines.fail(
                line, f"{kind} takes a joint action, then a state, then what follows, then a number"
            )
        self.last_line[kind][np.ix_(joint, rows)] = line.number

    def _reward(self, line: Line, parts: list[str], joint: list[int]) -> None:
        fields = [part for part in parts[1:] if part]
        if not 2 <= len(fields) <= 5:
            self.lines.fail(
                line, "R takes a joint action, a state, a next state, a joint observation and a number"
            )
        rows = self._states(line, fields[1])
        short = len(fields) == 3 and bool(parts[-1]) and bool(NUMBER.fullmatch(fields[2]))
        if short or (len(fields) == 5 and fields[2] == "*" and self._all_seen(line, fields[3])):
            self.R[np.ix_(joint, rows)] = self.lines.number(line, fields[-1])
            return
        # A reward that depends on s' or o is an expectation over T and O, which must be complete by now.
        if self.uses_outcomes is None:
            self._check("T", "before rewards that depend on the next state")
            self._check("O", "before rewards that depend on the observation")
            self.uses_outcomes = line.number
        states, seen = len(self.states), self.O.shape[2]
        if len(fields) == 2:
            table = self.lines.matrix("R", (states, seen))
        else:
            table = np.zeros((states, seen))
            following = self._states(line, fields[2])
            if len(fields) == 3:
                table[following] = self.lines.row(self.lines.next(f"a row of {seen} numbers"), seen)
            else:
                columns = self._seen(line, fields[3])
                table[np.ix_(following, columns)] = self.lines.number(line, fields[-1])
        for action in joint:
            expected = (self.O[action] * table).sum(-1)
            self.R[action, rows] += self.T[action, rows] @ expected

    # --- Indices and checks --------------------------------------------------------------------------------

    def _joint_of(self, line: Line, parts: list[str]) -> list[int]:
        if parts[0] not in ("T", "O", "R") or len(parts) < 2:
            self.lines.fail(line, f"expected a line that begins with T:, O: or R:, got {short(line.text)}")
        return self.lines.joint(line, parts[1], self.actions, "action")

    def _seen(self, line: Line, text: str) -> list[int]:
        return self.lines.joint(line, text, self.observations, "observation")

    def _all_seen(self, line: Line, text: str) -> bool:
        return len(self._seen(line, text)) == self.O.shape[2]

    def _states(self, line: Line, text: str) -> list[int]:
        return self.lines.one(line, text, self.states, "state")

    def _check(self, kind: str, when: str = "") -> None:
        """Check that every row of T or O is a distribution."""
        table = self.T if kind == "T" else self.O
        off = np.abs(table.sum(-1) - 1.0)
        bad = np.argwhere((off > TOLERANCE) | (table.min(-1) < 0.0))
        if bad.size:
            action, state = bad[0]
            parts = np.unravel_index(action, [len(names) for names in self.actions])
            words = " ".join(names[i] for names, i in zip(self.actions, parts, strict=True))
            what = f"{kind}: {words} : {self.states[state]}"
            number = int(self.last_line[kind][action, state])
            if not number:
                cure = f"give its {kind} lines {when}".strip()
                self.lines.fail(self.lines.last, f"there is no line for {what}: {cure}")
            self._check_row(number, what, table[action, state])

    def _check_row(self, number: int, what: str, row: np.ndarray) -> None:
        if row.min() < 0.0:
            self.lines.fail(number, f"{what} has the entry {row.min()}: a probability cannot be negative")
        if abs(row.sum() - 1.0) > TOLERANCE:
            self.lines.fail(number, f"{what} sums to {row.sum():.6g}: probabilities must sum to 1")
