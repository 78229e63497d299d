"""Results of runs from anywhere that fsspec reads: s3://, gs://, memory://.

Only files with names that a run has are fetched, into a temporary folder that ends with the process. So a
store of someone else's writes nowhere else, and what is read is read by the rules for any folder.
"""

import tempfile
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

from marco.optional import require

FILES = ("config.json", "result.json", "metrics.jsonl")


def is_url(location: str) -> bool:
    """Whether this is no path of this machine."""
    return "://" in location


def local_run(location: str) -> Path:
    """The folder of a run as a path; of one that lies elsewhere a copy of its results."""
    if not is_url(location):
        return Path(location)
    system, root = _system(location)
    folder = Path(_scratch()) / f"{len(list(Path(_scratch()).iterdir()))}-{PurePosixPath(root).name}"
    folder.mkdir()
    for name in FILES:
        if system.exists(f"{root}/{name}"):
            (folder / name).write_bytes(system.cat_file(f"{root}/{name}"))
    return folder


def read_bytes(location: str) -> bytes:
    """What a file holds, here or elsewhere."""
    if not is_url(location):
        return Path(location).read_bytes()
    system, root = _system(location)
    return bytes(system.cat_file(root))


def exists(location: str) -> bool:
    """Whether there is such a file, here or elsewhere."""
    if not is_url(location):
        return Path(location).is_file()
    system, root = _system(location)
    return bool(system.isfile(root))


def join(location: str, name: str) -> str:
    """A file in a folder."""
    return f"{location.rstrip('/')}/{name}" if is_url(location) else str(Path(location) / name)


def _system(location: str) -> tuple[Any, str]:
    fsspec = require("fsspec", "cloud")
    try:
        system, root = fsspec.core.url_to_fs(location)
    except ImportError as error:  # fsspec itself is there, the package of this store is not
        raise ImportError(f"{location} cannot be read: {error}.") from error
    return system, str(root).rstrip("/")


@cache
def _kept() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="marco-")


def _scratch() -> str:
    return _kept().name
