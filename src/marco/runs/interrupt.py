"""Ctrl-C: once to stop soon, twice to stop at once."""

import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread


class Stop:
    """Whether the user has asked to stop."""

    asked = False


@contextmanager
def stopping(what_is_kept: str) -> Iterator[Stop]:
    """The first Ctrl-C asks; the second ends the process at once, which is as safe."""
    stop = Stop()
    reader, writer = socket.socketpair()
    writer.setblocking(False)

    def watch() -> None:
        if reader.recv(1):
            stop.asked = True
            print("\nStopping soon; Ctrl-C again stops at once.", flush=True)
        if reader.recv(1):
            # The cursor may have been hidden by what is shown live.
            print(f"\x1b[?25h\nStopped. {what_is_kept}", flush=True)
            os._exit(130)

    # A handler in Python waits for compiled code to end, which may take minutes: so a thread listens.
    before = signal.signal(signal.SIGINT, lambda number, frame: None)
    nobody = signal.set_wakeup_fd(writer.fileno())
    watcher = Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield stop
    finally:
        signal.set_wakeup_fd(nobody)
        signal.signal(signal.SIGINT, before)
        writer.close()  # the watcher reads the end, and ends
        watcher.join()
        reader.close()
