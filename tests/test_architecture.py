"""The rules of the house that no reviewer should have to look for: who imports whom, what nobody does, how long."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MPIFL = sorted((ROOT / "mpifl").rglob("*.py"))
DATA_PREP = sorted((ROOT / "data_prep").rglob("*.py"))
FILES = MPIFL + DATA_PREP

FLOORS = [
    ["errors", "files", "cache", "rng", "imports", "tuning", "interrupts", "placement", "naming", "__init__"],
    [
        "messages",
        "codecs",
        "flat",
        "settings",
        "toml",
        "machine_code",
        "hdf5",
        "hdf5_parser",
        "hdf5_process",
        "records",
        "plugins",
        "lock",
        "launcher",
    ],
    ["features", "hdf5_reading", "descent"],
    ["shards"],
    ["vertical", "batches", "compiled", "models", "server_optimizers", "checkpoint", "weights"],
    ["transport", "local", "writer"],
    ["aggregation", "silo"],
    ["server"],
    ["transforms", "algorithms"],
    ["worker", "job", "ledger", "workload", "admission", "membership", "faults"],
    ["cohort", "gathering"],
    ["federation", "run", "sampling"],
    ["tracking", "survival"],
    ["build", "recording", "saving", "rehearsal"],
    ["train", "report", "submit", "doctor"],
    ["sweep"],
    ["cli"],
    ["__main__"],
]
"""From the ground; a unit (a file or a package) imports of mpifl only what lies on floors below its own."""
FLOOR = {unit: height for height, units in enumerate(FLOORS) for unit in units}
WIRE = {"messages", "transport", "aggregation"}
SILO = {
    "flat",
    "settings",
    "descent",
    "hdf5",
    "hdf5_parser",
    "hdf5_process",
    "hdf5_reading",
    "records",
    "features",
    "shards",
    "vertical",
    "batches",
    "machine_code",
    "compiled",
    "local",
    "silo",
}
SHARED = {"messages", "errors", "files", "rng"}
FORBIDDEN = {
    **dict.fromkeys(WIRE, SILO),
    **dict.fromkeys(SILO, WIRE - SHARED),
    "algorithms": {"transport", "federation", "worker", "aggregation"},
    "models": {"flat", "transport"},
}
"""What a unit may not import although it lies below."""

PICKLES = {"pickle", "cPickle", "cloudpickle", "dill", "joblib", "marshal", "shelve", "multiprocessing"}
OBJECT_CALLS = {"send", "recv", "isend", "irecv", "ssend", "bsend", "issend", "ibsend", "sendrecv", "bcast", "ibcast"}
OBJECT_CALLS |= {"gather", "scatter", "allgather", "alltoall", "allreduce"}
ONLY_IN_TRANSPORT = {"reduce", "scan", "exscan"}  # elsewhere these are functools' and numpy's
SEEDS = {"manual_seed", "seed", "set_rng_state", "manual_seed_all"}
DRAWS = {"rand", "randn", "randint", "randperm", "normal", "bernoulli", "multinomial", "poisson"}
NUMPY_STREAMS = {"Generator", "PCG64", "Philox", "BitGenerator", "SeedSequence", "default_rng"}
LONGEST_FILE, LONGEST_FUNCTION = 300, 45


def name_of(path):
    return str(path.relative_to(ROOT))


def unit_of(path):
    """Return the file's name without its ending, or the package directly under mpifl that it lies in."""
    return path.relative_to(ROOT / "mpifl").parts[0].removesuffix(".py")


TREES = {path: ast.parse(path.read_text(), str(path)) for path in FILES}
UNITS = {unit_of(path) for path in MPIFL}
every_file = pytest.mark.parametrize("path", FILES, ids=name_of)


def imports(path, tree=None):
    """Yield (line, dotted name) of everything a file imports, wherever and however late in it."""
    for node in ast.walk(tree or TREES[path]):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = list(path.relative_to(ROOT).parent.parts)
            package = above[: len(above) - node.level + 1] if node.level else []
            source = ".".join([*package, *([node.module] if node.module else [])])
            yield from ((node.lineno, f"{source}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Call) and dotted(node.func) in ("importlib.import_module", "__import__"):
            yield from ((node.lineno, arg.value) for arg in node.args if isinstance(arg, ast.Constant))


def own_imports(path, tree=None):
    """Yield (line, unit of mpifl) of what a file imports of mpifl."""
    for line, name in imports(path, tree):
        package, *rest = name.split(".")
        if package == "mpifl":
            yield line, rest[0] if rest and rest[0] in UNITS else "__init__"


def dotted(node):
    """Return `a.b.c` for such an expression, with `?` for what is no name."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else "?"


def calls(tree):
    """Yield (line, dotted name, node) of every call."""
    return ((node.lineno, dotted(node.func), node) for node in ast.walk(tree) if isinstance(node, ast.Call))


def complain(path, found):
    assert not found, "\n".join(f"{name_of(path)}:{line}: {what}" for line, what in sorted(found))


def wrong_imports(path, tree=None):
    unit = unit_of(path)
    return [
        (line, f"{unit} (floor {FLOOR[unit]}) imports {other} (floor {FLOOR[other]})")
        for line, other in own_imports(path, tree)
        if other != unit and (FLOOR[other] >= FLOOR[unit] or other in FORBIDDEN.get(unit, ()))
    ]


def test_every_unit_has_a_floor_and_every_floor_its_units():
    assert set(FLOOR) == UNITS, "give it a floor in FLOORS, or take its floor away"


@pytest.mark.parametrize("path", MPIFL, ids=name_of)
def test_imports_run_down_only(path):
    complain(path, wrong_imports(path))


def test_the_wire_and_the_silo_share_nothing_but_messages():
    for path in (path for path in MPIFL if unit_of(path) in WIRE | SILO):
        mine, theirs = (WIRE, SILO) if unit_of(path) in WIRE else (SILO, WIRE)
        found = [(line, f"imports {other}") for line, other in own_imports(path) if other in theirs - mine - SHARED]
        complain(path, found)


@pytest.mark.parametrize("path", DATA_PREP, ids=name_of)
def test_data_prep_imports_the_ground_and_shards_of_mpifl_and_no_torch(path):
    found = [
        (line, unit)
        for line, unit in own_imports(path)
        if unit not in ("shards", "vertical", "hdf5", "files", "rng", "errors")
    ]
    complain(path, found + [(line, name) for line, name in imports(path) if name.split(".")[0] in ("torch", "mpi4py")])


@pytest.mark.parametrize("path", MPIFL, ids=name_of)
def test_mpifl_imports_neither_data_prep_nor_tests(path):
    complain(path, [(line, name) for line, name in imports(path) if name.split(".")[0] in ("data_prep", "tests")])


def test_transport_alone_joins_the_world_and_the_launcher_asks_whose_it_is():
    found = {name_of(path) for path in FILES for _, name in imports(path) if name.split(".")[0] == "mpi4py"}
    within = {f"mpifl/transport/{name}.py" for name in ("deaths", "facts", "nodes", "post", "world")}
    assert found == within | {"mpifl/launcher.py"}
    asked = {name for _, name, _ in calls(TREES[ROOT / "mpifl" / "launcher.py"]) if name.startswith("MPI.")}
    assert asked == {"MPI.get_vendor"}


def allows_pickles(keyword):
    return keyword.arg == "allow_pickle" and getattr(keyword.value, "value", True) is not False


def pickled(path, tree=None):
    tree = tree or TREES[path]
    found = [(line, f"imports {name}") for line, name in imports(path, tree) if name.split(".")[0] in PICKLES]
    in_transport = path.parent.name == "transport"
    for line, name, node in calls(tree):
        method, owner = name.rpartition(".")[2], name.rpartition(".")[0]
        if name in ("torch.load", "torch.save") or any(map(allows_pickles, node.keywords)):
            found.append((line, f"{name} pickles"))
        if owner and owner != "torch" and method in OBJECT_CALLS | (ONLY_IN_TRANSPORT if in_transport else set()):
            found.append((line, f".{method}( pickles; mpi4py's {method.capitalize()} moves buffers"))
    return found


@every_file
def test_nothing_is_pickled(path):
    complain(path, pickled(path))


def forks(tree):
    """Return the line ranges of blocks in which torch's global randomness is put back afterwards."""
    blocks = [node for node in ast.walk(tree) if isinstance(node, ast.With)]
    return [
        range(block.lineno, block.end_lineno + 1)
        for block in blocks
        if any(isinstance(i.context_expr, ast.Call) and "fork_rng" in dotted(i.context_expr.func) for i in block.items)
    ]


def globally_random(path, tree=None):
    tree = tree or TREES[path]
    found = [(line, "imports random") for line, name in imports(path, tree) if name.split(".")[0] == "random"]
    found += [
        (line, f"imports {n}") for line, n in imports(path, tree) if n.startswith(("torch.random", "numpy.random."))
    ]
    may_fork = name_of(path) in ("mpifl/rng.py", "mpifl/models/__init__.py")
    for line, name, node in calls(tree):
        library, method = name.partition(".")[0], name.rpartition(".")[2]
        given = {keyword.arg for keyword in node.keywords}
        if library == "torch" and method in SEEDS:
            if not (may_fork and any(line in block for block in forks(tree))):
                found.append((line, f"{name} outside of fork_rng"))
        elif name.startswith(("np.random.", "numpy.random.")) and (
            method not in NUMPY_STREAMS or (method != "Generator" and not node.args)
        ):
            found.append((line, f"{name} is global or not seeded"))
        elif library == "torch" and method in DRAWS and "generator" not in given:
            found.append((line, f"{name} without a generator"))
    return found


@every_file
def test_no_randomness_is_global(path):
    complain(path, globally_random(path))


def repeated(tree):
    """Find what the one local training loop and the one weighted mean are for."""
    found = []
    for node in ast.walk(tree):
        loops = [node] if isinstance(node, ast.For) else getattr(node, "generators", [])
        for loop in loops:
            words = {word.id for word in ast.walk(loop.target) if isinstance(word, ast.Name)}
            words |= {n.attr for n in ast.walk(loop.iter) if isinstance(n, ast.Attribute)}
            words |= {n.id for n in ast.walk(loop.iter) if isinstance(n, ast.Name)}
            if any(re.search("batch|epoch|shuffled|in_order|^x$", word) for word in words):
                found.append((loop.iter.lineno, "a loop over batches; take silo.train_locally or silo.gradient"))
        if isinstance(node, ast.Call) and dotted(node.func) in ("sum", "math.fsum"):
            inside = [*ast.walk(node)][1:]
            words = {n.id for n in inside if isinstance(n, ast.Name)} | {
                n.attr for n in inside if isinstance(n, ast.Attribute)
            }
            if any(isinstance(n, ast.Mult) for n in inside) or any("weight" in word for word in words):
                found.append((node.lineno, "a sum of weights; take cohort.mean"))
    return found


@pytest.mark.parametrize("path", [p for p in MPIFL if unit_of(p) == "algorithms"], ids=name_of)
def test_an_algorithm_loops_over_no_batches_and_sums_no_weights(path):
    complain(path, repeated(TREES[path]))


def undocumented(tree):
    """Find public functions, classes and methods without a docstring, and the file if it has none."""
    found = [] if ast.get_docstring(tree) or not tree.body else [(1, "the file has no docstring")]

    def visit(body, inside):
        for node in body:
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) or node.name.startswith("_"):
                continue
            setter = any(isinstance(d, ast.Attribute) and d.attr == "setter" for d in node.decorator_list)
            if not ast.get_docstring(node) and not setter:
                found.append((node.lineno, f"{inside}{node.name} has no docstring"))
            if isinstance(node, ast.ClassDef):
                visit(node.body, f"{node.name}.")

    visit(tree.body, "")
    return found


@every_file
def test_everything_public_has_a_docstring(path):
    complain(path, undocumented(TREES[path]))


def too_long(tree):
    kinds = ast.FunctionDef | ast.AsyncFunctionDef
    functions = [node for node in ast.walk(tree) if isinstance(node, kinds)]
    lengths = [(node.lineno, node.name, node.end_lineno - node.lineno + 1) for node in functions]
    return [
        (line, f"{name} has {n} lines, {LONGEST_FUNCTION} at most") for line, name, n in lengths if n > LONGEST_FUNCTION
    ]


@every_file
def test_files_and_functions_stay_short(path):
    lines = len(path.read_text().splitlines())
    over = [(lines, f"{lines} lines, {LONGEST_FILE} at most")] if lines > LONGEST_FILE else []
    complain(path, over + too_long(TREES[path]))


def tree_block(text):
    """Return the lines of the fenced block whose first line is `mpifl/`, or none."""
    blocks = re.findall(r"^```[^\n]*\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    return next((block.splitlines() for block in blocks if re.match(r"mpifl/(\s|$)", block)), None)


def listed(lines):
    """Yield the paths of a tree: names before two spaces, several by commas, indented under their folder."""
    above = []
    for line in lines:
        plain = re.sub("[│├└─]", " ", line)
        if not plain.strip():
            continue
        indent = len(plain) - len(plain.lstrip())
        above = [(depth, folder) for depth, folder in above if depth < indent]
        folder = above[-1][1] if above else ""
        for name in re.split(r"\s{2,}", plain.strip())[0].split(","):
            yield folder + name.strip()
        first = plain.split()[0]
        if first.endswith("/"):
            above.append((indent, folder + first))


def tree_faults(lines):
    """Find what a tree lists that does not exist, and what of mpifl it does not list."""
    paths = set(listed(lines))
    missing = [f"{path} is listed and does not exist" for path in sorted(paths) if not (ROOT / path).exists()]
    entries = {path.relative_to(ROOT / "mpifl").parts[0] for path in MPIFL} - {"__init__.py"}
    wanted = {f"mpifl/{name}" if name.endswith(".py") else f"mpifl/{name}/" for name in entries}
    return missing + [f"{path} exists and is not listed" for path in sorted(wanted - paths)]


def test_the_documented_tree_is_the_tree():
    documents = [path for path in (ROOT / "README.md", ROOT / "ARCHITECTURE.md") if path.exists()]
    trees = {path.name: block for path in documents if (block := tree_block(path.read_text()))}
    assert trees, "neither README.md nor ARCHITECTURE.md has a fenced block that starts with a line 'mpifl/'"
    assert {name: tree_faults(block) for name, block in trees.items()} == {name: [] for name in trees}


# The checks themselves: each must be able to fail.


def tree_of(text):
    return ast.parse(text)


@pytest.mark.parametrize(
    ("where", "text"),
    [
        ("silo.py", "from mpifl.federation import Federation"),
        ("silo.py", "from mpifl import train"),
        ("silo.py", "import mpifl.worker"),
        ("silo.py", "def f():\n    from mpifl.server import Server"),
        ("silo.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from mpifl.job import Job"),
        ("silo.py", "from .worker import Worker"),
        ("silo.py", "import importlib\nimportlib.import_module('mpifl.worker')"),
        ("flat.py", "from mpifl.shards import Shard"),
        ("silo.py", "from mpifl.transport import Transport"),
        ("aggregation/mean.py", "from mpifl.flat import FlatModel"),
        ("algorithms/fedavg.py", "from mpifl.transport import Transport"),
        ("algorithms/fedavg.py", "from ..federation import Federation"),
        ("transforms/base.py", "from mpifl.algorithms.base import Algorithm"),
    ],
)
def test_an_arrow_that_runs_up_is_found(where, text):
    assert wrong_imports(ROOT / "mpifl" / where, tree_of(text))
    assert not wrong_imports(ROOT / "mpifl" / "train.py", tree_of("from mpifl import rng\nfrom mpifl.job import Job"))


@pytest.mark.parametrize(
    "text",
    [
        "import pickle",
        "from multiprocessing import Pool",
        "comm.bcast(x)",
        "self._comm.send(x, 0)",
        "MPI.COMM_WORLD.allreduce(1)",
        "torch.load(path)",
        "np.load(path, allow_pickle=True)",
    ],
)
def test_a_pickle_is_found(text):
    assert pickled(ROOT / "mpifl" / "train.py", tree_of(text))
    assert not pickled(
        ROOT / "mpifl" / "train.py", tree_of("comm.Isend(x, 0)\ntorch.gather(x, 1, y)\nnp.load(p, allow_pickle=False)")
    )


@pytest.mark.parametrize(
    "text",
    [
        "import random",
        "np.random.seed(0)",
        "np.random.rand(3)",
        "np.random.default_rng()",
        "from numpy.random import rand",
        "torch.manual_seed(0)",
        "torch.cuda.manual_seed_all(0)",
        "torch.randperm(3)",
    ],
)
@pytest.mark.parametrize("where", ["mpifl/rng.py", "mpifl/train.py"])
def test_global_randomness_is_found(where, text):
    assert globally_random(ROOT / where, tree_of(text))


def test_seeding_inside_a_fork_is_for_two_files_only():
    text = tree_of("with torch.random.fork_rng(devices=[]):\n    torch.manual_seed(3)")
    assert not globally_random(ROOT / "mpifl" / "rng.py", text)
    assert globally_random(ROOT / "mpifl" / "worker.py", text)
    assert not globally_random(ROOT / "mpifl" / "rng.py", tree_of("g.manual_seed(3)"))


@pytest.mark.parametrize(
    "text",
    [
        "for batch in silo.examples: pass",
        "for x, y in data: pass",
        "for a in batches.shuffled(3, g): pass",
        "sum(w * v for w, v in updates)",
        "[f(b) for b in silo.batches]",
        "sum(update.weight for update in updates)",
    ],
)
def test_a_second_loop_or_mean_is_found(text):
    assert repeated(tree_of(text))
    assert not repeated(tree_of("for name in names: pass\nsum(len(v) for v in vectors)"))


def test_a_missing_docstring_and_a_long_function_are_found():
    bare = (
        '"""A file."""\nclass A:\n    """A class."""\n    def b(self):\n        pass\n    def _c(self):\n        pass\n'
    )
    assert undocumented(tree_of(bare)) == [(4, "A.b has no docstring")]
    assert undocumented(tree_of("x = 1")) == [(1, "the file has no docstring")]
    assert too_long(tree_of("def f():\n" + "    pass\n" * LONGEST_FUNCTION))
    assert not too_long(tree_of("def f():\n" + "    pass\n" * (LONGEST_FUNCTION - 1)))


def test_a_tree_that_is_not_the_tree_is_found():
    block = tree_block("Text.\n\n```\nmpifl/\n  cli.py, nosuch.py   the commands\n  models/   the papers'\n```\n")
    assert set(listed(block)) == {"mpifl/", "mpifl/cli.py", "mpifl/nosuch.py", "mpifl/models/"}
    faults = tree_faults(block)
    assert "mpifl/nosuch.py is listed and does not exist" in faults
    assert "mpifl/silo.py exists and is not listed" in faults
    assert not any("cli.py" in fault or "models" in fault for fault in faults)
    assert tree_block("```\ndata_prep/\n```") is None
    assert set(listed(["mpifl/", "├── silo.py   a silo", "└── models/", "    └── images.py"])) >= {
        "mpifl/models/images.py"
    }
