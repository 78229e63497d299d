"""The command `marco`: one module per sub-command, imported only when it is used.

So `marco --help`, `marco worlds` and a mistyped word answer at once, without starting JAX.
"""

import os
import sys
import warnings
from difflib import get_close_matches
from importlib import import_module
from typing import Any

COMMANDS = {
    "train": "Learn a team with MARCO, or model-free as the baseline",
    "resume": "Go on with a run that was stopped",
    "evaluate": "Evaluate the teams of a run in the true environment",
    "play": "Show episodes of an environment, or of a trained team",
    "model": "Report how good the model of a run is",
    "worlds": "List the environments there are, and how to name your own",
    "sweep": "Run worlds x settings x seeds from a file, or search for settings",
    "compare": "Compare runs: means and intervals, samples to a threshold, who is better",
    "reproduce": "Run the paper's experiments again, and draw its figures",
    "solve": "Find the best team of a finite Dec-POMDP exactly",
    "rmax": "Learn a finite Dec-POMDP by Adapted R-MAX",
    "bound": "Compute the numbers of R-MAX's theorem",
}
"""The sub-commands; `marco.cli.NAME` has a function `main(arguments)`."""

_plainly = warnings.showwarning


def main() -> None:
    """Run the command. A user's mistake gives one line and exit status 2, not a traceback."""
    try:
        _run()
        sys.stdout.flush()
    except BrokenPipeError:  # who reads the output, as `head` does, has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


def _run() -> None:
    # XLA's alarms about slow compilation alarm only users; JAX reads this when it is imported.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    arguments = sys.argv[1:]
    name = arguments[0] if arguments else "--help"
    if name in ("-h", "--help"):
        print(_help())
        return
    if name in ("--version", "-V"):
        from marco import __version__

        print(f"marco {__version__}")
        return
    if name not in COMMANDS:
        meant = get_close_matches(name, COMMANDS, 1)
        hint = f"do you mean {meant[0]!r}?" if meant else f"there are {', '.join(COMMANDS)}."
        _fail(f"there is no command {name!r}: {hint}")
    warnings.showwarning = _show_warning
    try:
        import_module(f"marco.cli.{name}").main(arguments[1:])
    except BrokenPipeError:
        raise
    except Exception as error:
        if not _is_a_mistake(error):
            raise
        cause = "the memory is not enough: take something smaller. " if isinstance(error, MemoryError) else ""
        _fail("\n".join([(cause + str(error)).strip(), *getattr(error, "__notes__", ())]))


def _is_a_mistake(error: Exception) -> bool:
    """Whether MARCO refuses something. Errors of the user's own code keep their traceback."""
    from marco.environments.base import WorldError
    from marco.environments.user_code import is_noted

    refused = isinstance(error, ValueError | ImportError | OSError | MemoryError) and not is_noted(error)
    return refused or isinstance(error, WorldError)


def _show_warning(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
    """A warning of ours is a line, without the place in the code; others are shown as ever."""
    if category.__module__.split(".")[0] == "marco":
        print(f"marco: warning: {_printable(str(message))}", file=sys.stderr)
    else:
        _plainly(message, category, *place, **more)


def _fail(message: str) -> None:
    print(f"marco: {_printable(message)}", file=sys.stderr)
    sys.exit(2)


def _printable(message: str) -> str:
    """What a file says may be in it: a terminal would obey its control characters."""
    return "".join(c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in message)


def _help() -> str:
    width = max(map(len, COMMANDS))
    commands = "\n".join(f"  {name:<{width}}  {summary}" for name, summary in COMMANDS.items())
    return (
        "usage: marco COMMAND [OPTIONS]\n\n"
        "MARCO: learn a team's policy from few real interactions.\n\n"
        f"commands:\n{commands}\n\n"
        "options:\n  -h, --help     show this, or after a command its options\n"
        "  -V, --version  show the version\n\n"
        "A first run, about five minutes on two cores: marco train switch"
    )
