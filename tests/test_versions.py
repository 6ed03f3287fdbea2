"""What versions below this Python's and these libraries' refuse, seen without them."""

import ast

from conftest import ROOT
from test_architecture import FOLDERS, TREES, complain


def bare(tree):
    """Find annotations that are `ClassVar` and no more."""
    for node in ast.walk(tree):
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.annotation).endswith("ClassVar"):
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
