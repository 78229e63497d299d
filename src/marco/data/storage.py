"""Files that are written whole or not at all; damaged ones are refused by name."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any
from zipfile import BadZipFile

import numpy as np


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file; when this returns it is on the disk."""
    _write(path, lambda file: file.write(content))


def save_arrays(path: Path, arrays: dict[str, Any]) -> None:
    """Write arrays by name; when this returns they are on the disk."""
    _write(path, lambda file: np.savez(file, **arrays))


def load_arrays(path: Path) -> dict[str, Any]:
    """What `save_arrays` wrote."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except (OSError, ValueError, KeyError, BadZipFile, EOFError) as error:
        raise ValueError(f"{path} is damaged, or no file of arrays: {error}") from error


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Say which file could not be written: the disk may be full."""
    try:
        yield
    except OSError as error:
        why = f"{error.strerror}. Nothing written before it is lost: make room, and resume."
        raise OSError(f"{path} could not be written: {why}") from error


def _write(path: Path, write: Callable[[IO[bytes]], Any]) -> None:
    """Write under another name, flush to the disk, rename, and flush the folder."""
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with naming(path), temporary.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    with naming(path):
        temporary.replace(path)
        if os.name == "nt":  # Windows opens no folders, and needs none to be flushed
            return
        folder = os.open(path.parent, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)
