"""What versions below this Python's and these libraries' refuse, seen without them."""

import ast

from conftest import ROOT
from syntax_trees import TREES, walked
from test_architecture import FOLDERS, complain, dotted


def bare(tree):
    """Find annotations that are `ClassVar` and no more."""
    for node in walked(tree):
        if isinstance(node, ast.AnnAssign) and dotted(node.annotation).endswith("ClassVar"):
            yield node.lineno, "Python 3.10 refuses a bare ClassVar where annotations are text; say of what"


def test_no_class_variable_is_bare():
    complain(lambda path: list(bare(TREES[path])))
    wrong = "class A:\n    a: ClassVar[int] = 1\n    b: ClassVar = 1\n    c: typing.ClassVar = 1"
    assert [line for line, _ in bare(ast.parse(wrong))] == [3, 4]


def modules_names(stub):
    """Find names that are their own module's: whoever imports the module first makes it the name."""
    imports = (node for node in ast.walk(stub) if isinstance(node, ast.ImportFrom))
    return [node.module for node in imports if node.module in {alias.name for alias in node.names}]


def test_no_name_of_a_face_is_its_modules_too():
    faces = [ROOT.joinpath(*folder.split("."), "__init__.pyi") for folder in FOLDERS]
    found = {str(face): modules_names(ast.parse(face.read_text())) for face in faces if face.exists()}
    assert not {face: names for face, names in found.items() if names}
    wrong = "from .ahead import ahead as ahead, x as x\nfrom . import rng as rng"
    assert modules_names(ast.parse(wrong)) == ["ahead"]


EXTRAS = {
    *("PIL", "cryptography", "dp_accounting", "hdf5plugin", "matplotlib", "mlflow", "nacl", "nibabel"),
    *("optuna", "pandas", "peft", "pyarrow", "pydicom", "sklearn", "tensorboard", "tokenizers", "wandb"),
    "transformers",
}
"""What an installation without extras lacks."""
ASKED = ("mpifl/report/observers/mlflow.py", "mpifl/report/observers/weights_and_biases.py")
"""Modules that are imported by who asked for their library."""


def imported_at_once(tree):
    """Find the extras that a module imports as soon as it is imported itself."""
    for node in tree.body:
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
        for name in names:
            if name.partition(".")[0] in EXTRAS:
                yield node.lineno, f"{name} comes with an extra; import it where it is used"


def test_what_comes_with_an_extra_is_imported_where_it_is_used():
    complain(lambda path: [] if str(path).endswith(ASKED) else list(imported_at_once(TREES[path])))
    wrong = "import pyarrow as pa\nfrom sklearn.x import y\ndef f():\n    import PIL\nimport numpy"
    assert [line for line, _ in imported_at_once(ast.parse(wrong))] == [1, 2]
