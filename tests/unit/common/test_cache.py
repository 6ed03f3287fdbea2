"""The user's own cache: what lies there is run, so that nobody else may have put it there."""

import os
import shutil
import subprocess

import pytest
import torch

from mpifl.sums import kernels
from mpifl.wings.fast import codegen

PLANTED = """
#include <stdio.h>
__attribute__((constructor)) static void run(void) {
    FILE *file = fopen("MARK", "w");
    if (file) fclose(file);
}
"""
needs_compiler = pytest.mark.skipif(kernels.compiled() is None, reason="no C compiler here")


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A cache folder of this test's own; the user's is put back afterwards."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "mpifl"


def load():
    """Load the compiled loops as a new process does; return whether they work."""
    library = kernels.compiled.__wrapped__()
    if library is None:
        return False
    total, vector = torch.zeros(3, dtype=torch.float64), torch.arange(3.0)
    library.mpifl_add(total.data_ptr(), vector.data_ptr(), 2.0, 1.5, 0, 3)
    return total.tolist() == [0.0, 2.0, 4.0]


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """The path of the loops' own library in a cache, where a process has built it."""
    folder = tmp_path_factory.mktemp("own")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder))
        assert load()
    [path] = (folder / "mpifl").glob("kernels-*.so")
    return path


def plant(own, tmp_path, monkeypatch):
    """Put another library where the loops' own would lie;
    return the file that it writes when run, and its path."""
    mark = tmp_path / "was run"
    (tmp_path / "planted.c").write_text(PLANTED.replace("MARK", str(mark)))
    path = tmp_path / "new" / "mpifl" / own.name  # which this process has not loaded yet
    path.parent.mkdir(parents=True, mode=0o700)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", path, tmp_path / "planted.c"], check=True)
    path.chmod(0o700)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "new"))
    return mark, path


def writable_file(path):
    path.chmod(0o777)


def writable_folder(path):
    path.parent.chmod(0o777)


def link(path):
    shutil.move(path, path.parent.parent / "elsewhere.so")
    path.symlink_to(path.parent.parent / "elsewhere.so")


def folder_is_a_link(path):
    shutil.move(path.parent, path.parent.parent / "elsewhere")
    path.parent.symlink_to(path.parent.parent / "elsewhere")


def of_another(path):
    os.chown(path, 12345, 12345)


def folder_of_another(path):
    os.chown(path.parent, 12345, 12345)


AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
WAYS = [writable_file, writable_folder, link, folder_is_a_link]
WAYS += [pytest.param(way, marks=AS_ROOT) for way in (of_another, folder_of_another)]


@needs_compiler
@pytest.mark.parametrize("way", WAYS)
def test_a_planted_library_is_not_run_and_the_loops_are(own, tmp_path, monkeypatch, way):
    mark, path = plant(own, tmp_path, monkeypatch)
    way(path)
    assert load()
    assert not mark.exists()


@needs_compiler
def test_the_users_own_library_is_loaded_and_not_built_again(own, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(own.parent.parent))
    made = own.stat().st_mtime_ns
    assert load()
    assert own.stat().st_mtime_ns == made
    assert own.parent.stat().st_mode & 0o777 == 0o700


@needs_compiler
@pytest.mark.parametrize("umask", [0o002, 0o000, 0o077])
def test_what_is_built_under_any_umask_is_loaded_the_next_time(home, umask):
    before = os.umask(umask)
    try:
        assert load()
        [path] = home.glob("kernels-*.so")
        made = path.stat().st_mtime_ns
        assert load()
    finally:
        os.umask(before)
    assert path.stat().st_mtime_ns == made


@needs_compiler
def test_without_a_home_the_loops_are_built_for_this_process_alone(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert load()
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr("pathlib.Path.home", lambda: (_ for _ in ()).throw(RuntimeError("no home")))
    assert load()


def step(x):
    x.mul_(3.0)
    return ()


def test_a_cache_that_others_may_write_to_holds_no_machine_code(home):
    home.mkdir(mode=0o700)
    home.chmod(0o777)
    x = torch.arange(3.0)
    with pytest.raises(codegen.NotCompiled, match=r"mpifl: others may have written to it; .*chmod go-w"):
        codegen.compile_graph(codegen.trace(step, [x]), [x], x.device)
