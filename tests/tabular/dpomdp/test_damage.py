"""A damaged file is either read or refused by the one error that names it, whatever was damaged."""

import gzip
import random
from pathlib import Path

import pytest

from helpers.damage import damaged
from helpers.dpomdp_text import BODY, HEADER
from marco.tabular.dpomdp.format import FormatError, read, text
from marco.tabular.library import load

VARIANTS = 100
REWARDS = """R: stay * : bad : * : * : -2
R: go 0 : good : bad : * light : 8
R: 0 : bad :
1 1
2 4
"""
TEXT = HEADER + BODY + REWARDS


@pytest.mark.parametrize("suffix", ["dpomdp", "dpomdp.gz"])
@pytest.mark.filterwarnings("ignore:discount")
def test_damaged_files_are_read_or_refused_by_name(suffix, tmp_path):
    rng, path = random.Random(0), tmp_path / f"mine.{suffix}"
    whole = gzip.compress(TEXT.encode(), mtime=0) if suffix.endswith("gz") else TEXT.encode()
    refusals = []
    for _ in range(VARIANTS):
        path.write_bytes(damaged(whole, rng, "bytes"))
        try:
            read(path)
        except FormatError as error:
            refusals.append(str(error))
    assert all(str(path) in words and "\n" not in words for words in refusals)
    assert len(refusals) > VARIANTS / 2


def test_flipped_bytes_inside_a_gzipped_file(tmp_path):
    path, data = tmp_path / "tiger.dpomdp.gz", bytearray(gzip.compress(text(load("dectiger")).encode()))
    data[200] ^= 0xFF
    data[210] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(
        FormatError, match=r"tiger.dpomdp.gz cannot be read .* \(Error -3 .*\): get a whole copy"
    ):
        read(path)


def zipped(folder: Path, content: bytes) -> Path:
    (folder / "bomb.dpomdp.gz").write_bytes(gzip.compress(content))
    return folder / "bomb.dpomdp.gz"


def test_a_small_file_that_holds_a_text_without_end(tmp_path, monkeypatch):
    monkeypatch.setattr("marco.tabular.dpomdp.format.MOST_BYTES", 1_000)
    with pytest.raises(FormatError, match=r"bomb.dpomdp.gz holds more than 1,000 bytes of text"):
        read(zipped(tmp_path, b"#" * 10_000))


def test_a_line_without_end(tmp_path, monkeypatch):
    monkeypatch.setattr("marco.tabular.dpomdp.tokens.LONGEST", 1_000)
    with pytest.raises(
        FormatError, match=r"bomb.dpomdp.gz:2: the line has 2,007 characters, over the limit of 1,000"
    ):
        read(zipped(tmp_path, b"# a\nagents:" + b" a" * 1_000))
