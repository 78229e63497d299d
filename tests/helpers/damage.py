"""Damaged files: bytes changed blindly, and JSON and arrays changed so that they can still be read."""

import io
import json
import zipfile

import numpy as np

STRANGE = (
    None,
    True,
    -1,
    0,
    2.5,
    1e999,
    10**30,
    "",
    "x",
    "\ud800\n\x1b[31m",
    [],
    [[]],
    {},
    {"x": 1},
    [None],
    "34",
)
"""In place of a value."""


def damaged(content, luck, kind):
    """One damaged variant of a file's content."""
    ways = [_bytes] if kind == "bytes" else [_bytes, _json_lines if kind == "lines" else _json]
    return luck.choice([_bytes, _arrays] if kind == "npz" else ways)(content, luck)


def _bytes(content, luck):
    at, other = luck.randrange(len(content)), luck.randrange(len(content))
    low, high = sorted((at, other))
    bit = bytes([content[at] ^ 1 << luck.randrange(8)])
    return luck.choice(
        (
            *(content[:at] + bit + content[at + 1 :],) * 5,
            b"",
            content[:at],
            content[:-1],
            content[at:],
            content[:low] + content[high:],
            content[:low] + bytes(high - low) + content[high:],
            content[:at] + luck.randbytes(9) + content[at:],
            content + content,
            luck.randbytes(len(content)),
            b"[" * 100_000,
            b"\xff\xfe{}",
        )
    )


def _json(content, luck):
    facts = json.loads(content)
    _change(facts, luck)
    return json.dumps(facts).encode()


def _json_lines(content, luck):
    lines = content.splitlines()
    at = luck.randrange(len(lines))
    lines[at] = luck.choice((_json(lines[at], luck), luck.randbytes(20).replace(b"\n", b""), b"3", b"{}"))
    return b"\n".join(lines) + b"\n"


def _change(facts, luck):
    """Change one value somewhere inside: leave it out, rename it or put another in its place."""
    places = list(_places(facts))
    if not places:
        return
    inside, key = luck.choice(places)
    what = luck.choice(("drop", "rename", "replace", "replace", "replace"))
    if what == "replace":
        inside[key] = luck.choice(STRANGE)
        return
    value = inside.pop(key)
    if what == "rename" and isinstance(inside, dict):
        inside[f"{key}x"] = value


def _places(facts):
    for key, value in list(facts.items() if isinstance(facts, dict) else enumerate(facts)):
        yield facts, key
        if isinstance(value, dict | list):
            yield from _places(value)


def _arrays(content, luck):
    with np.load(io.BytesIO(content)) as archive:
        arrays = {name: archive[name] for name in archive.files}
    name = luck.choice(list(arrays))
    if name == "facts":
        facts = json.loads(str(arrays[name]))
        _change(facts, luck)
        arrays[name] = np.array(json.dumps(facts))
        return npz(arrays)
    array = arrays.pop(name)
    others = (
        array[..., None],
        array.ravel()[:-1],
        array.astype(complex),
        array.astype(object),
        np.array("x"),
        array.astype(np.float32) * np.nan,
        np.zeros((0, 3, 0)),
    )
    match luck.randrange(4):
        case 0:  # it is missing
            return npz(arrays)
        case 1:
            return npz(arrays | {f"{name}x": array})
        case 2:
            return npz(arrays | {name: array}, luck.choice((zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA)))
    return npz(arrays | {name: luck.choice(others)})


def npz(arrays, compression=zipfile.ZIP_STORED):
    """The content of a file of arrays; pickled, where there is no other way."""
    return zipped({name: npy(array) for name, array in arrays.items()}, compression)


def npy(array, shape=None):
    """The content of one array's file; with another shape its header lies."""
    stream = io.BytesIO()
    np.lib.format.write_array(stream, np.asarray(array), allow_pickle=True)
    content = stream.getvalue()
    if shape is None:
        return content
    header = (
        str({"descr": array.dtype.str, "fortran_order": False, "shape": shape}).encode().ljust(117) + b"\n"
    )
    return content[:8] + len(header).to_bytes(2, "little") + header + array.tobytes()


def zipped(files, compression=zipfile.ZIP_STORED):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", compression) as archive:
        for name, content in files.items():
            archive.writestr(f"{name}.npy", content)
    return stream.getvalue()


def overlapping(files, times=100):
    """One content under many names: every entry of the directory leads to the same bytes."""
    content = zipped(files)
    directory = content.rindex(b"PK\x01\x02")
    end = content.rindex(b"PK\x05\x06")
    entries = content[directory:end] * times
    count, size = (number.to_bytes(width, "little") for number, width in ((times, 2), (len(entries), 4)))
    return content[:directory] + entries + content[end : end + 8] + count * 2 + size + content[end + 16 :]
