"""Seeded mutations of what a training writes: for each,
the file is as whole as before, and says something else."""

import hashlib
import json
import random
import sys

import tomli_w

from mpifl.run.folder import checkpoint

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ODD = [
    None, True, False, 0, -1, 7, 0.5, -0.0, 1e308, 1 << 63, "", "x", "\0", "é\u2028", "../..", [], {}, [[1]],
    {"a": {}},
    "0" * 64, float("nan"), float("inf"),
]  # fmt: skip
DEEP, LONG = "@deep@", "@long@"
"""Stand for JSON that the encoder would not write: brackets within brackets, and a number of 400 digits."""
BYTES = [
    b"\x00",
    b"\xff",
    b"\x00\x00\xc0\x7f",
    b"\x00\x00\x80\xff",
    b"{",
    b'"',
    b"\\",
    b"]",
    b"\r\n",
    b"9999999999",
]


def encoded(value):
    """Return JSON with what stands for more than the encoder would write put in."""
    text = json.dumps(value)
    return text.replace(f'"{DEEP}"', "[" * 100_000 + "]" * 100_000).replace(f'"{LONG}"', "9" * 400).encode()


def nodes(value, path=()):
    """Yield the path of every part of nested dicts and lists."""
    yield path
    for key, part in (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    ):
        yield from nodes(part, (*path, key))


def changed(value, draw):
    """Return a copy of a JSON value in which one part is gone, renamed, or something odd."""
    value = json.loads(json.dumps(value))
    path = draw.choice(list(nodes(value)))
    odd = draw.choice([*ODD, DEEP, LONG])
    if not path:
        return odd
    above = value
    for key in path[:-1]:
        above = above[key]
    how = draw.choice(["replace", "replace", "replace", "delete", "rename"])
    part = above.pop(path[-1]) if isinstance(above, dict) or how == "delete" else above[path[-1]]
    if how == "replace":
        above[path[-1]] = odd
    elif how == "rename":
        name = draw.choice(["", "x", "\0", "é", "w", "c", "0" * 400])
        above.append(part) if isinstance(above, list) else above.update({name: part})
    return value


def torn(content, draw):
    """Return bytes of which some are others, gone, or there twice."""
    at, many = draw.randrange(len(content) + 1), draw.choice([1, 4, 64])
    by = draw.choice(
        [*BYTES, bytes(draw.randrange(256) for _ in range(many)), b"", content[at : at + many] * 2]
    )
    return content[:at] + by + content[at + many :]


def lined(content, draw):
    """Return a file of JSON lines in which some lines say something else."""
    lines = content.splitlines()
    for nth in draw.sample(range(len(lines)), draw.randint(1, len(lines))):
        record = json.loads(lines[nth])
        for _ in range(draw.randint(1, 4)):
            record = changed(record, draw)
        lines[nth] = encoded(record)
    return b"\n".join(lines) + b"\n"


def tabled(content, draw):
    """Return TOML that says something else."""
    table = tomllib.loads(content.decode())
    for _ in range(draw.randint(1, 3)):
        table = changed(table, draw)
    try:
        written = tomli_w.dumps(table)
    except (TypeError, AttributeError):  # no TOML: null, or no table at the top
        written = json.dumps(table)
    return written.replace(f'"{DEEP}"', "[" * 5000 + "]" * 5000).replace(f'"{LONG}"', "9" * 400).encode()


def retold(content, draw):
    """Return JSON, or a safetensors file, that says something else."""
    if content.startswith(b"{"):
        return encoded(changed(json.loads(content), draw))
    length = int.from_bytes(content[:8], "little")
    header, data = json.loads(content[8 : 8 + length]), content[8 + length :]
    about = header.get("__metadata__", {})
    what = draw.choice(["header", "numbers", "data", "length"])
    if what == "numbers" and "numbers" in about:
        about["numbers"] = encoded(changed(json.loads(about["numbers"]), draw)).decode()
    elif what == "data" and data:
        data = torn(data, draw).ljust(len(data), b"\xff")[: len(data)]
    elif what == "length":
        length = draw.choice([0, 1, length - 1, length + 8, 1 << 62, (1 << 64) - 1])
        return length.to_bytes(8, "little") + content[8:]
    else:
        header = changed(header, draw)
    written = encoded(header)
    return len(written).to_bytes(8, "little") + written + data


def mutate_checkpoint(run, round, seed):
    """Change one file of a checkpoint so that all hashes agree with it; return what was done."""
    draw, folder = random.Random(seed), checkpoint.round_folder(run, round)
    path = draw.choice(sorted(folder.iterdir()))
    act = draw.choice([retold, retold, retold, torn])
    about = json.loads((folder / "checkpoint.json").read_bytes())
    if path.name == "checkpoint.json":
        body = {key: value for key, value in about.items() if key != "sha256"}
        body = changed(body, draw)
        about = {**body, "sha256": checkpoint._digest(body)} if isinstance(body, dict) else body
        if act is torn:
            path.write_bytes(torn(encoded(about), draw))
            return f"{seed}: {path.name} torn"
    else:
        path.write_bytes(act(path.read_bytes(), draw))
        digest, name = hashlib.sha256(path.read_bytes()).hexdigest(), path.stem
        if name == "server":
            about["server"] = digest
        else:
            about["silos"][str(int(name.removeprefix("silo_")))] = digest
        about["sha256"] = checkpoint._digest({key: value for key, value in about.items() if key != "sha256"})
    (folder / "checkpoint.json").write_bytes(encoded(about))
    return f"{seed}: {path.name} {act.__name__}"


def mutate_run(run, seed):
    """Change one of the files that tell of a run; return what was done."""
    draw = random.Random(seed)
    path = run / draw.choice(["metrics.jsonl", "metrics.jsonl", "environment.json", "job.toml"])
    act = {"metrics.jsonl": lined, "environment.json": retold, "job.toml": tabled}[path.name]
    act = draw.choice([act, act, act, torn])
    path.write_bytes(act(path.read_bytes(), draw))
    return f"{seed}: {path.name} {act.__name__}"
