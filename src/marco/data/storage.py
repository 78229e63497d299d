"""Files that are written whole or not at all; damaged ones are refused by name."""

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np

from marco.policies.deploy import read_arrays


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file; when this returns it is on the disk."""
    _write(path, lambda file: file.write(content))


def save_arrays(path: Path, arrays: dict[str, Any]) -> None:
    """Write arrays by name; when this returns they are on the disk."""
    _write(path, lambda file: np.savez(file, **arrays))


def load_arrays(path: Path, cure: str) -> dict[str, Any]:
    """What `save_arrays` wrote; a damaged file is refused by name, with the cure."""
    try:
        return read_arrays(path)
    except ValueError as error:
        raise ValueError(f"{path} is damaged, or no file of arrays: {error}. {cure}") from error


def read_json(path: Path, cure: str) -> dict[str, Any]:
    """The JSON object in a file; a damaged one is refused by name, with the cure."""
    try:
        facts = json.loads(path.read_bytes(), parse_constant=_refuse)
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}. {cure}") from error
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is damaged: {error}. {cure}") from error
    if not isinstance(facts, dict):
        raise ValueError(f"{path} is damaged: it holds no JSON object. {cure}")
    return facts


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


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
        with naming(path):
            # Made anew, never through a link that lies there: the folder may be someone else's.
            temporary.unlink(missing_ok=True)
        with naming(path), temporary.open("xb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    with naming(path):
        temporary.replace(path)
        flush_folder(path.parent)


def flush_folder(folder: Path) -> None:
    """Have the names of new files on the disk."""
    if os.name == "nt":  # Windows opens no folders, and needs none to be flushed
        return
    opened = os.open(folder, os.O_RDONLY)
    os.fsync(opened)
    os.close(opened)
