"""A damaged file is either read or refused by the one error that names it, whatever was damaged."""

import gzip
import random
from pathlib import Path

import pytest

from marco.tabular.dpomdp.format import FormatError, read, text
from marco.tabular.library import load

VARIANTS = 100
TEXT = """# every kind of line
agents: 2
discount: 1
values: reward
states: good bad
start: good
actions:
go stay
2
observations:
1
dark light
T: * :
identity
T: go * : good :
0.25 0.75
O: * :
uniform
O: stay 1 : bad : 0 light : 1
O: stay 1 : bad : 0 dark : 0
R: stay * : bad : * : * : -2
R: go 0 : good : bad : * light : 8
R: 0 : bad :
1 1
2 4
"""


def damaged(rng: random.Random, whole: bytes) -> bytes:
    """A flipped bit, a wrong byte, a file cut short, a hole, or a piece twice."""
    data, at = bytearray(whole), rng.randrange(len(whole))
    match rng.randrange(5):
        case 0:
            data[at] ^= 1 << rng.randrange(8)
        case 1:
            data[at] = rng.randrange(256)
        case 2:
            del data[at:]
        case 3:
            del data[at : at + rng.randrange(1, 20)]
        case _:
            data[at:at] = data[rng.randrange(len(data)) :][:20]
    return bytes(data)


@pytest.mark.parametrize("suffix", ["dpomdp", "dpomdp.gz"])
@pytest.mark.filterwarnings("ignore:discount")
def test_damaged_files_are_read_or_refused_by_name(suffix, tmp_path):
    rng, path = random.Random(0), tmp_path / f"mine.{suffix}"
    whole = gzip.compress(TEXT.encode(), mtime=0) if suffix.endswith("gz") else TEXT.encode()
    refusals = []
    for _ in range(VARIANTS):
        path.write_bytes(damaged(rng, whole))
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
