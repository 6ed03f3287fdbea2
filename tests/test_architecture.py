"""The rules of the house that no reviewer should have to look for:
who imports whom, what nobody does, how long."""

import ast
import functools
import re
from collections import Counter
from pathlib import Path

import pytest
from syntax_trees import TREES, walked

from scripts import file_map

ROOT = Path(__file__).parents[1]
MPIFL = sorted((ROOT / "mpifl").rglob("*.py"))
DATA_PREP = sorted((ROOT / "data_prep").rglob("*.py"))
FILES = MPIFL + DATA_PREP

FLOORS = [
    ["common"],
    ["wire", "data"],
    ["learning", "sums"],
    ["silo"],
    ["algorithms"],
    ["transforms"],
    ["run"],
    ["exchange", "report"],
    ["training"],
    ["wings"],
    ["cli"],
    ["__main__"],
]
"""From the ground; a room (a folder or a file of mpifl) imports only rooms on floors below its own."""
WINGS = [
    "site",
    "compression",
    "fast",
    "scoring",
    "privacy",
    "dpsgd",
    "masked",
    "robust",
    "attacks",
    "split",
    "analysis",
    "sites",
]
"""A wing imports only wings before it. No room of the core imports one."""
DATA_FLOORS = [
    ["dataset"],
    ["tables"],
    ["schemes", "write"],
    ["sources"],
    ["cut"],
    ["site", "check"],
    ["inspect"],
    ["commands"],
    ["cli"],
    ["__main__"],
]
FLOOR = {
    f"{package}.{room}": height
    for package, floors in (("mpifl", FLOORS), ("data_prep", DATA_FLOORS))
    for height, rooms in enumerate(floors)
    for room in rooms
}
OF_DATA_PREP = {"mpifl.common", "mpifl.data"}
"""What `data_prep` may import of mpifl."""
JOINED = {
    "mpifl.cli.align_command": {"data_prep.schemes", "data_prep.site"},
    "mpifl.cli.job_tools.inventory": {"data_prep.schemes", "data_prep.sources"},
    "mpifl.cli.job_tools.language_runs": {"data_prep.sources"},
    "mpifl.cli.texts.exporting": {"data_prep.sources"},
    "mpifl.cli.job_tools.predict_files": {"data_prep.sources", "data_prep.tables"},
    "mpifl.cli.job_tools.new_data": {"data_prep.sources", "data_prep.tables"},
    "mpifl.cli.job_tools.new_images": {"data_prep.sources"},
    "mpifl.cli.job_tools.beforehand": {"data_prep.dataset"},
}
"""What a command may import of `data_prep`: where a party's table meets the ranks, both are told of, a job
begins with a table or with masks, new examples are to become the numbers that a model has learned from, or
silos may differ in a unit."""
FORBIDDEN = {
    "mpifl.data": {"mpifl.wire", "torch"},
    "mpifl.sums": {"mpifl.data"},
    "mpifl.silo": {"mpifl.wire"},
    "mpifl.learning": {"mpifl.wire"},
    "mpifl.algorithms": {"mpifl.wire", "mpifl.sums"},
}
"""What a room may not import although it lies below; of the wire, everybody may import the messages."""
MESSAGES, WITH_TORCH = ("mpifl.wire.messages", "mpifl.wire.update"), {"mpifl.data.batches.batches"}
MOST_ROOMS, MOST_FLOORS = {"mpifl": 13, "data_prep": 12}, 12
MOST_FILES, CATALOGUES = 14, {"mpifl/algorithms", "data_prep/schemes", "data_prep/sources"}
NAMED_TWICE = {"__init__", "__main__"}

PICKLES = {"pickle", "cPickle", "cloudpickle", "dill", "joblib", "marshal", "shelve", "multiprocessing"}
OBJECT_CALLS = {
    "send",
    "recv",
    "isend",
    "irecv",
    "ssend",
    "bsend",
    "issend",
    "ibsend",
    "sendrecv",
    "bcast",
    "ibcast",
}
OBJECT_CALLS |= {"gather", "scatter", "allgather", "alltoall", "allreduce"}
ONLY_IN_TRANSPORT = {"reduce", "scan", "exscan"}  # elsewhere these are functools' and numpy's
SEEDS = {"manual_seed", "seed", "set_rng_state", "manual_seed_all"}
DRAWS = {"rand", "randn", "randint", "randperm", "normal", "bernoulli", "multinomial", "poisson"}
NUMPY_STREAMS = {"Generator", "PCG64", "Philox", "BitGenerator", "SeedSequence", "default_rng"}
LONGEST_FILE, LONGEST_FUNCTION = 295, 45  # of a file without its imports


def name_of(path):
    return str(path.relative_to(ROOT))


def module_of(path):
    """Return a file's dotted name: of a face that of its folder."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def room_of(module):
    """Return the folder or file directly under mpifl or data_prep that a module lies in."""
    return ".".join(module.split(".")[:2])


MODULES = {module_of(path) for path in FILES}
FOLDERS = {module_of(path) for path in FILES if path.name == "__init__.py"}
ROOMS = {room_of(module) for module in MODULES} - {"mpifl", "data_prep"}


def stub_of(folder):
    """Return the names of a folder's face, and the module that each comes from."""
    stub = ROOT.joinpath(*folder.split("."), "__init__.pyi")
    names = {}
    for node in ast.parse(stub.read_text()).body if stub.exists() else []:
        if isinstance(node, ast.ImportFrom):
            source = ".".join(filter(None, [folder, node.module]))
            names |= {alias.name: source if node.module else f"{source}.{alias.name}" for alias in node.names}
    return names


FACES = {folder: stub_of(folder) for folder in FOLDERS}


def imports(path, tree=None):
    """Return (line, dotted name) of everything a file imports, wherever and however late in it."""
    return _imports(path, tree or TREES[path])


@functools.cache
def _imports(path, tree):
    return tuple(_imported(path, tree))


def _imported(path, tree):
    for node in walked(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = list(path.relative_to(ROOT).parent.parts)
            package = above[: len(above) - node.level + 1] if node.level else []
            source = ".".join([*package, *([node.module] if node.module else [])])
            yield from ((node.lineno, f"{source}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Call) and dotted(node.func) in ("importlib.import_module", "__import__"):
            yield from ((node.lineno, arg.value) for arg in node.args if isinstance(arg, ast.Constant))


def resolved(name):
    """Return (the module that a dotted name comes from, the folder whose face it was asked of or None)."""
    folder, _, last = name.rpartition(".")
    if last in FACES.get(folder, {}):
        source = FACES[folder][last]
        return (resolved(f"{source}.{last}")[0] if source in FOLDERS and source != name else source), folder
    if name in MODULES:
        return name, name if name in FOLDERS else None
    return (folder, folder if folder in FOLDERS else None) if folder in MODULES else (name, None)


def own_imports(path, tree=None):
    """Yield (line, module, face) of what a file imports of mpifl and data_prep."""
    for line, name in imports(path, tree):
        if name.split(".")[0] in ("mpifl", "data_prep"):
            yield (line, *resolved(name))


def dotted(node):
    """Return `a.b.c` for such an expression, with `?` for what is no name."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else "?"


def calls(tree):
    """Yield (line, dotted name, node) of every call."""
    return ((node.lineno, dotted(node.func), node) for node in walked(tree) if isinstance(node, ast.Call))


def complain(look, files=FILES):
    found = [f"{name_of(path)}:{line}: {what}" for path in files for line, what in sorted(look(path))]
    assert not found, "\n".join(found)


def wrong_imports(path, tree=None):
    mine = room_of(module_of(path))
    if mine in ("mpifl", "data_prep"):  # the face of the house, which holds nothing
        return []
    found = []
    for line, module, _ in own_imports(path, tree):
        other = room_of(module)
        if other == mine or other in ("mpifl", "data_prep"):
            continue
        if mine.startswith("data_prep") and other.startswith("mpifl"):
            if other not in OF_DATA_PREP or module in WITH_TORCH:
                found.append((line, f"{mine} imports {module}"))
        elif FLOOR.get(other, 99) >= FLOOR[mine]:
            found.append((line, f"{mine} (floor {FLOOR[mine]}) imports {other} (floor {FLOOR.get(other)})"))
        elif other in FORBIDDEN.get(mine, ()) and module not in MESSAGES:
            found.append((line, f"{mine} imports {module}"))
    return found


def past_a_face(path, tree=None):
    """Find imports of a folder's inside from outside of it, and of names that its face does not have."""
    mine = module_of(path) if path.name == "__init__.py" else module_of(path).rpartition(".")[0]
    found = []
    for line, name in imports(path, tree):
        if name.split(".")[0] not in ("mpifl", "data_prep"):
            continue
        module, face = resolved(name)
        folder = module if module in FOLDERS else module.rpartition(".")[0]
        if folder not in ("mpifl", "data_prep", mine) and face is None:
            found.append((line, f"{name} is inside {folder}; import it from there, and list it in its face"))
    return found


def test_every_room_has_a_floor_and_every_floor_its_rooms():
    assert set(FLOOR) == ROOMS, "give it a floor in FLOORS, or remove its floor"
    assert max(len(FLOORS), len(DATA_FLOORS)) <= MOST_FLOORS
    for package, most in MOST_ROOMS.items():
        entries = {room for room in ROOMS if room.startswith(package)}
        assert len(entries - {f"{package}.cli", f"{package}.__main__"}) <= most


def test_imports_run_down_only():
    complain(wrong_imports)


def wing_of(module):
    """Return the wing that a module is in, or None."""
    parts = module.split(".")
    return parts[2] if parts[:2] == ["mpifl", "wings"] and len(parts) > 2 else None


def later_wings(path, tree=None):
    """Find what a wing imports of a later one."""
    mine = wing_of(module_of(path))
    if mine not in WINGS:
        return []
    arrows = [(line, module) for line, module, _ in own_imports(path, tree) if wing_of(module) in WINGS]
    return [
        (line, f"{mine} imports {module}")
        for line, module in arrows
        if WINGS.index(wing_of(module)) > WINGS.index(mine)
    ]


def test_every_wing_has_a_place_among_wings_and_a_line_on_the_page():
    folders = {path.parent.name for path in (ROOT / "mpifl" / "wings").glob("*/__init__.py")}
    assert folders == {*WINGS}
    names = [line.split("/")[0].strip() for line in tree_block((ROOT / "ARCHITECTURE.md").read_text())]
    assert [name for name in names if name in folders] == WINGS


def test_a_wing_imports_only_wings_before_it():
    complain(later_wings, MPIFL)


OF_RUNS_OVER_SITES = {"mpifl/cli/sites_commands.py", "mpifl/wings/registry.py"}
"""What begins a run over sites: a command, or a training in a run folder that names a link."""


def of_sites(path, tree=None):
    """Find imports of the wing `sites` in files that other trainings read, or at once."""
    tree = tree or TREES[path]
    late = [node for node in walked(tree) if isinstance(node, ast.FunctionDef)]
    inside = {line for node in late for line in range(node.lineno, node.end_lineno + 1)}
    return [
        (line, f"imports {name}")
        for line, name in imports(path, tree)
        if wing_of(name) == "sites" and not (name_of(path) in OF_RUNS_OVER_SITES and line in inside)
    ]


def test_a_training_without_sites_imports_nothing_of_them():
    complain(of_sites, [path for path in MPIFL if wing_of(module_of(path)) != "sites"])
    late, at_once = "def f():\n    from mpifl.wings.sites import join", "from mpifl.wings.sites import join"
    assert of_sites(ROOT / "mpifl/training/loop.py", tree_of(late))
    assert of_sites(ROOT / "mpifl/cli/sites_commands.py", tree_of(at_once))
    assert not of_sites(ROOT / "mpifl/cli/sites_commands.py", tree_of(late))


def test_every_file_has_a_name_of_its_own_and_no_folder_is_long():
    names = Counter(path.stem for path in FILES)
    assert [name for name, count in names.items() if count > 1 and name not in NAMED_TWICE] == []
    folders = Counter(str(path.parent.relative_to(ROOT)) for path in FILES if path.stem != "__init__")
    long = {folder: count for folder, count in folders.items() if count > MOST_FILES}
    assert long.keys() <= CATALOGUES, long


def test_every_class_has_a_name_of_its_own():
    found = Counter(
        node.name for path in FILES for node in walked(TREES[path]) if isinstance(node, ast.ClassDef)
    )
    assert [name for name, count in found.items() if count > 1] == []


def test_nobody_imports_past_a_face():
    complain(past_a_face)


@pytest.mark.parametrize("folder", sorted(FOLDERS))
def test_a_face_says_what_its_folder_is_for_and_holds_no_code(folder):
    tree = TREES[ROOT.joinpath(*folder.split("."), "__init__.py")]
    assert ast.get_docstring(tree).count("\n") == 0
    assert all(isinstance(node, ast.Expr | ast.Import | ast.ImportFrom | ast.Assign) for node in tree.body)
    assert [name for name, module in FACES[folder].items() if module not in MODULES | FOLDERS] == []


def heavy(path):
    return [(line, name) for line, name in imports(path) if name.split(".")[0] in ("torch", "mpi4py")]


def test_data_prep_imports_no_torch_and_no_mpi():
    complain(heavy, DATA_PREP)


def of_data_prep(path, tree=None):
    """Find imports of data_prep, or of tests, that no file of mpifl but the joined ones may have."""
    joined = JOINED.get(module_of(path), set())
    names = [
        (line, name) for line, name in imports(path, tree) if name.split(".")[0] in ("data_prep", "tests")
    ]
    return [(line, name) for line, name in names if room_of(name) not in joined]


def test_mpifl_imports_neither_data_prep_nor_tests():
    complain(of_data_prep, MPIFL)


def test_the_wire_alone_joins_the_world_and_its_library_is_asked_whose_it_is():
    found = {name_of(path) for path in FILES for _, name in imports(path) if name.split(".")[0] == "mpi4py"}
    names = ("rank_platform", "launching/libraries", "launching/mpi_facts")
    assert found == {f"mpifl/wire/{name}.py" for name in names}
    asked = {
        name
        for _, name, _ in calls(TREES[ROOT / "mpifl/wire/launching/libraries.py"])
        if name.startswith("mpi.")
    }
    assert asked == {"mpi.get_vendor"}


GENERATOR = "self._method"
"""A silo's half of a dialogue, whose `send` hands over a value in the process."""


def allows_pickles(keyword):
    return keyword.arg == "allow_pickle" and getattr(keyword.value, "value", True) is not False


def reads_only_weights(path, node):
    """Whether a call is the one of `mpifl convert`, which a training never makes."""
    told = {keyword.arg: getattr(keyword.value, "value", None) for keyword in node.keywords}
    return name_of(path) == "mpifl/run/folder/conversion.py" and told.get("weights_only") is True


def pickled(path, tree=None):
    tree = tree or TREES[path]
    found = [(line, f"imports {name}") for line, name in imports(path, tree) if name.split(".")[0] in PICKLES]
    in_transport = path.parent.name == "wire"
    for line, name, node in calls(tree):
        method, owner = name.rpartition(".")[2], name.rpartition(".")[0]
        of_torch = name == "torch.save" or (name == "torch.load" and not reads_only_weights(path, node))
        if of_torch or any(map(allows_pickles, node.keywords)):
            found.append((line, f"{name} pickles"))
        if (
            owner
            and owner not in ("torch", GENERATOR)
            and method in OBJECT_CALLS | (ONLY_IN_TRANSPORT if in_transport else set())
        ):
            found.append((line, f".{method}( pickles; mpi4py's {method.capitalize()} moves buffers"))
    return found


def test_nothing_is_pickled():
    complain(pickled)


def locked(tree):
    """Find HDF5 files that are opened with a lock, which some shared file systems have not."""
    opened = [(line, node) for line, name, node in calls(tree) if name == "h5py.File"]
    return [
        (line, "h5py.File without locking=False")
        for line, node in opened
        if not any(word.arg == "locking" and ast.unparse(word.value) == "False" for word in node.keywords)
    ]


def test_no_hdf5_file_is_opened_with_a_lock():
    complain(lambda path: locked(TREES[path]))


def forks(tree):
    """Return the line ranges of blocks in which torch's global randomness is put back afterwards."""
    blocks = [node for node in walked(tree) if isinstance(node, ast.With)]
    return [
        range(block.lineno, block.end_lineno + 1)
        for block in blocks
        if any(
            isinstance(i.context_expr, ast.Call) and "fork_rng" in dotted(i.context_expr.func)
            for i in block.items
        )
    ]


def globally_random(path, tree=None):
    tree = tree or TREES[path]
    found = [(line, "imports random") for line, name in imports(path, tree) if name.split(".")[0] == "random"]
    found += [
        (line, f"imports {n}")
        for line, n in imports(path, tree)
        if n.startswith(("torch.random", "numpy.random."))
    ]
    lends = (
        name_of(path) == "mpifl/common/global_streams.py"
    )  # derived streams in the place of the global ones
    found = [] if lends else found
    may_fork = name_of(path) in ("mpifl/common/rng.py", "mpifl/learning/models/building.py")
    for line, name, node in calls(tree):
        library, method = name.partition(".")[0], name.rpartition(".")[2]
        given = {keyword.arg for keyword in node.keywords}
        if library == "torch" and method in SEEDS:
            if not (may_fork and any(line in block for block in forks(tree))):
                found.append((line, f"{name} outside of fork_rng"))
        elif (
            name.startswith(("np.random.", "numpy.random."))
            and not lends
            and (method not in NUMPY_STREAMS or (method != "Generator" and not node.args))
        ):
            found.append((line, f"{name} is global or not seeded"))
        elif library == "torch" and method in DRAWS and "generator" not in given:
            found.append((line, f"{name} without a generator"))
    return found


def test_no_randomness_is_global():
    complain(globally_random)


def repeated(tree):
    """Find what the one local training loop and the one weighted mean are for."""
    found = []
    for node in walked(tree):
        loops = [node] if isinstance(node, ast.For) else getattr(node, "generators", [])
        for loop in loops:
            words = {word.id for word in ast.walk(loop.target) if isinstance(word, ast.Name)}
            words |= {n.attr for n in ast.walk(loop.iter) if isinstance(n, ast.Attribute)}
            words |= {n.id for n in ast.walk(loop.iter) if isinstance(n, ast.Name)}
            if any(re.search("batch|epoch|shuffled|in_order|^x$", word) for word in words):
                found.append(
                    (loop.iter.lineno, "a loop over batches; use silo.train_locally or silo.gradient")
                )
        if isinstance(node, ast.Call) and dotted(node.func) in ("sum", "math.fsum"):
            inside = [*ast.walk(node)][1:]
            words = {n.id for n in inside if isinstance(n, ast.Name)} | {
                n.attr for n in inside if isinstance(n, ast.Attribute)
            }
            if any(isinstance(n, ast.Mult) for n in inside) or any("weight" in word for word in words):
                found.append((node.lineno, "a sum of weights; use cohort.mean"))
    return found


# A dialogue says a line for each batch, so that split networks go over batches at the server.
AVERAGING = [p for p in MPIFL if p.parent.name == "algorithms" and p.name != "splitnn.py"]


def test_an_algorithm_loops_over_no_batches_and_sums_no_weights():
    complain(lambda path: repeated(TREES[path]), AVERAGING)


TAG = re.compile(
    r"(?<!\?)(?<!\?P)<(!|/|(a|b|i|p|u|br|code|col|dd|details|div|dl|dt|em|figure|form|g|h[1-6]|head|header|hr|html|image|img|"
    r"input|li|line|link|main|meta|ol|option|path|pre|rect|script|section|select|small|span|strong|style|"
    r"summary|svg|table|tbody|td|text|th|thead|title|tr|ul)[\s/>])"
)
TEMPLATES = sorted((ROOT / "mpifl/common/pages/templates").iterdir())
"""What writes pages, and alone may have tags."""


def docstrings(tree):
    """Return the nodes of texts that only people read."""
    return {id(node.value) for node in walked(tree) if isinstance(node, ast.Expr)}


def tags(tree):
    """Find texts in which a tag begins."""
    texts = [node for node in walked(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    unread = docstrings(tree)
    return [
        (node.lineno, "writes a tag; a template of common/pages does")
        for node in texts
        if TAG.search(node.value) and id(node) not in unread
    ]


def test_only_templates_write_tags():
    complain(lambda path: tags(TREES[path]))
    assert tags(ast.parse("f'<td{x}>{y}</td>'"))
    assert tags(ast.parse("x = '<svg viewBox>'"))
    assert not tags(ast.parse("'name the folder: --out <path of it>, <name>'; a < b"))


def test_templates_escape_all_but_our_own_style_and_program():
    found = [
        (path.name, word) for path in TEMPLATES for word in re.findall(r"(\w+) \| safe", path.read_text())
    ]
    assert found == [("base.html", "style"), ("base.html", "program")]
    pages = "".join(path.read_text() for path in TEMPLATES if path.suffix == ".html")
    assert not re.search(r"\bstyle=|\bon[a-z]+=|autoescape|Markup", pages)
    assert "innerHTML" not in (ROOT / "mpifl/common/pages/templates/page.js").read_text()


def undocumented(tree):
    """Find public functions, classes and methods without a docstring, and the file if it has none."""
    found = [] if ast.get_docstring(tree) or not tree.body else [(1, "the file has no docstring")]

    def visit(body, inside):
        for node in body:
            if not isinstance(
                node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
            ) or node.name.startswith("_"):
                continue
            setter = any(isinstance(d, ast.Attribute) and d.attr == "setter" for d in node.decorator_list)
            if not ast.get_docstring(node) and not setter:
                found.append((node.lineno, f"{inside}{node.name} has no docstring"))
            if isinstance(node, ast.ClassDef):
                visit(node.body, f"{node.name}.")

    visit(tree.body, "")
    return found


def test_everything_public_has_a_docstring():
    complain(lambda path: undocumented(TREES[path]))


def too_long(tree):
    kinds = ast.FunctionDef | ast.AsyncFunctionDef
    functions = [node for node in walked(tree) if isinstance(node, kinds)]
    lengths = [(node.lineno, node.name, node.end_lineno - node.lineno + 1) for node in functions]
    return [
        (line, f"{name} has {n} lines, {LONGEST_FUNCTION} at most")
        for line, name, n in lengths
        if n > LONGEST_FUNCTION
    ]


def too_long_file(path):
    statements = [node for node in TREES[path].body if isinstance(node, ast.Import | ast.ImportFrom)]
    imported = sum(node.end_lineno - node.lineno + 1 for node in statements)
    lines = len(path.read_text().splitlines()) - imported
    over = [(lines, f"{lines} lines, {LONGEST_FILE} at most")] if lines > LONGEST_FILE else []
    return over + too_long(TREES[path])


def test_files_and_functions_stay_short():
    complain(too_long_file)


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
    entries = {path.relative_to(ROOT / "mpifl").parts[0] for path in MPIFL} - {"__init__.py", "__pycache__"}
    wanted = {f"mpifl/{name}" if name.endswith(".py") else f"mpifl/{name}/" for name in entries}
    return missing + [f"{path} exists and is not listed" for path in sorted(wanted - paths)]


def lost_imports(path):
    """Find imports of mpifl that lead nowhere, in code, in programs that are text, and in documents."""
    text = path.read_text("utf-8")
    found = []
    for match in re.finditer(r"\bfrom (mpifl\.[\w.]+) import ([\w, ]+|\([^)]*\))", text):
        source, line = match[1], text.count("\n", 0, match.start()) + 1
        names = [name.split()[0] for name in match[2].strip("()").split(",") if name.strip()]
        if source not in MODULES:
            found.append((line, f"{source} is not a module"))
        elif source in FOLDERS:
            known = {
                *FACES[source],
                *(m.rpartition(".")[2] for m in MODULES if m.rpartition(".")[0] == source),
            }
            found += [(line, f"{source} has no {name}") for name in names if name not in known]
    return found


def test_every_import_leads_somewhere_in_texts_as_well():
    kinds = ("*.py", "*.md", "*.sh", "*.ipynb")
    tops = [ROOT / name for name in ("mpifl", "data_prep", "tests", "scripts", "docs", "jobs")]
    paths = [path for top in tops for kind in kinds for path in top.rglob(kind)]
    paths = [path for path in paths if path != Path(__file__).resolve()]  # it has wrong ones on purpose
    complain(lost_imports, [*paths, *ROOT.glob("*.md")])


def test_the_page_of_files_is_of_these_files():
    assert file_map.PAGE.read_text() == file_map.page(), "run: python -m scripts.file_map"


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
        ("silo/silo.py", "from mpifl.exchange import Federation"),
        ("silo/silo.py", "from mpifl import training"),
        ("silo/silo.py", "import mpifl.exchange.worker_side.worker"),
        ("silo/silo.py", "def f():\n    from mpifl.algorithms import Server"),
        (
            "silo/silo.py",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from mpifl.run.job import Job",
        ),
        ("silo/silo.py", "from ..exchange.worker_side.worker import Worker"),
        ("silo/silo.py", "import importlib\nimportlib.import_module('mpifl.exchange.worker_side.worker')"),
        ("silo/silo.py", "from mpifl.wire import Transport"),
        ("sums/mean.py", "from mpifl.silo import Silo"),
        ("algorithms/fedavg.py", "from mpifl.wire import Transport"),
        ("algorithms/fedavg.py", "from ..exchange import Federation"),
        ("transforms/transform.py", "from mpifl.run.job import Job"),
        ("silo/silo.py", "from mpifl.wings.fast import chain"),
        ("common/files.py", "from mpifl.wire import Update"),
    ],
)
def test_an_arrow_that_runs_up_is_found(where, text):
    assert wrong_imports(ROOT / "mpifl" / where, tree_of(text))
    down = tree_of("from mpifl.common import rng\nfrom mpifl.run.job import Job")
    assert not wrong_imports(ROOT / "mpifl/training/loop.py", down)
    assert not wrong_imports(ROOT / "mpifl/silo/silo.py", tree_of("from mpifl.wire import Update"))


@pytest.mark.parametrize(
    "text",
    [
        "from mpifl.common.errors import InputError",
        "import mpifl.common.errors",
        "from mpifl.cli.doctor.findings import Finding",
    ],
)
def test_a_way_past_a_face_is_found(text):
    assert past_a_face(ROOT / "mpifl/training/loop.py", tree_of(text))
    assert not past_a_face(
        ROOT / "mpifl/training/loop.py", tree_of("from mpifl.common import InputError, rng")
    )
    assert not past_a_face(
        ROOT / "mpifl/common/files.py", tree_of("from mpifl.common.errors import InputError")
    )


def test_data_prep_in_mpifl_is_found():
    text = tree_of("from data_prep.site import PartyTable")
    assert of_data_prep(ROOT / "mpifl/cli/slurm/submit.py", text)
    assert not of_data_prep(ROOT / "mpifl/cli/align_command.py", text)
    assert of_data_prep(ROOT / "mpifl/cli/align_command.py", tree_of("from data_prep.cut import partition"))


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
    assert pickled(ROOT / "mpifl/training/loop.py", tree_of(text))
    assert not pickled(
        ROOT / "mpifl/training/loop.py",
        tree_of("comm.Isend(x, 0)\ntorch.gather(x, 1, y)\nnp.load(p, allow_pickle=False)"),
    )


def test_a_lock_is_found():
    assert len(locked(tree_of("h5py.File(path, 'w')\nh5py.File(path, 'w', locking=True)"))) == 2
    assert not locked(tree_of("h5py.File(path, 'w', locking=False)"))


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
@pytest.mark.parametrize("where", ["mpifl/common/rng.py", "mpifl/training/loop.py"])
def test_global_randomness_is_found(where, text):
    assert globally_random(ROOT / where, tree_of(text))


def test_seeding_inside_a_fork_is_for_two_files_only():
    text = tree_of("with torch.random.fork_rng(devices=[]):\n    torch.manual_seed(3)")
    assert not globally_random(ROOT / "mpifl/common/rng.py", text)
    assert globally_random(ROOT / "mpifl/exchange/worker_side/worker.py", text)
    assert not globally_random(ROOT / "mpifl/common/rng.py", tree_of("g.manual_seed(3)"))


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
        '"""A file."""\nclass A:\n    """A class."""\n    def b(self):\n   '
        "     pass\n    def _c(self):\n        pass\n"
    )
    assert undocumented(tree_of(bare)) == [(4, "A.b has no docstring")]
    assert undocumented(tree_of("x = 1")) == [(1, "the file has no docstring")]
    assert too_long(tree_of("def f():\n" + "    pass\n" * LONGEST_FUNCTION))
    assert not too_long(tree_of("def f():\n" + "    pass\n" * (LONGEST_FUNCTION - 1)))


def test_a_tree_that_is_not_the_tree_is_found():
    block = tree_block(
        "Text.\n\n```\nmpifl/\n  __main__.py, nosuch.py   the commands\n  learning/   the papers'\n```\n"
    )
    assert set(listed(block)) == {"mpifl/", "mpifl/__main__.py", "mpifl/nosuch.py", "mpifl/learning/"}
    faults = tree_faults(block)
    assert "mpifl/nosuch.py is listed and does not exist" in faults
    assert "mpifl/silo/ exists and is not listed" in faults
    assert not any("__main__" in fault or "learning" in fault for fault in faults)
    assert tree_block("```\ndata_prep/\n```") is None
    assert set(listed(["mpifl/", "├── silo.py   a silo", "└── models/", "    └── images.py"])) >= {
        "mpifl/models/images.py"
    }


MOST_POSITIONAL = 6
VARIADIC = {
    "struct.pack",
    "nn.Sequential",
    "library.mpifl_mean",
    "_run",
    "Progress",
    "partial",
    "functools.partial",
}
"""Calls that take as many things of one kind as there are."""


def long_calls(path, tree=None):
    """Find calls in which nobody can tell which argument is which."""
    calls = (node for node in walked(tree or TREES[path]) if isinstance(node, ast.Call))
    return [
        (call.lineno, f"{ast.unparse(call.func)} is called with {len(call.args)} arguments without names")
        for call in calls
        if len(call.args) > MOST_POSITIONAL and ast.unparse(call.func) not in VARIADIC
    ]


def test_no_call_has_more_than_six_arguments_without_names():
    complain(long_calls)
    assert long_calls(ROOT / "mpifl/training/loop.py", tree_of("train(1, 2, 3, 4, 5, 6, 7)"))
    assert not long_calls(ROOT / "mpifl/training/loop.py", tree_of("train(1, 2, 3, 4, 5, 6, force=7)"))
