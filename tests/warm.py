"""A process that has imported what a training needs, and forks one for each command: they start at once.

`tests/start.py` asks for them, and tells arguments, environment, folder and the three standard streams. It is
told the process, and its exit code in the end. A process whose asker is gone is killed. All are of one seed
of hashes: what must not depend on that starts by itself. Where the environment has WARM_PYTHON, that is
`sys.executable`: ranks that a command starts are forked, too. So are the programs that parse HDF5 for them:
from a process without torch, which listens at SOCKET.parser.

python tests/warm.py SOCKET    ends when its standard input does, and all that it has forked
"""

import array
import atexit
import contextlib
import functools
import gc
import importlib
import marshal
import os
import pkgutil
import runpy
import selectors
import signal
import socket
import sys
import threading
import weakref
from collections.abc import Callable
from pathlib import Path

import kept_commands


def listening(path: str) -> socket.socket:
    """Return a socket at which processes are asked for."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(path)
    listener.listen(64)
    return listener


gc.disable()
import h5py  # noqa: E402, F401

with contextlib.suppress(ImportError):
    import hdf5plugin  # noqa: F401

asked = listening(f"{sys.argv[1]}.parser")
if not (parses := not os.fork()):
    asked.close()
    import sklearn.datasets  # noqa: F401 - for the digits
    import torch._dynamo  # what traces a batched step would import it
    import torch.fx.experimental.proxy_tensor  # noqa: F401
    import torchmetrics.classification  # noqa: F401 - for metrics by name

    import data_prep.cli
    import mpifl.cli
    from mpifl.run.folder import environment

    for module in pkgutil.walk_packages(mpifl.__path__, "mpifl."):
        if not module.name.endswith("__main__") and ".observers." not in module.name:  # of other libraries
            importlib.import_module(module.name)
    for app in (mpifl.cli.app, data_prep.cli.app):
        kept_commands.command_of(app)
    environment._versions()  # which reads the metadata of all that was imported, and keeps what it found

    asked = listening(sys.argv[1])
    print("ready", flush=True)
for made in weakref.finalize._registry:  # type: ignore[attr-defined]
    made.atexit = False  # torch's take its libraries apart: that would take each process 0.04 s of its 0.09
gc.enable()
gc.freeze()
MOST = 1 << 20
"""Bytes of what a process is told."""
OWN = len(os.environ.get("PYTHONPATH", "").split(os.pathsep)) + 1
"""Where Python's own folders begin in `sys.path`, behind those of the script and of PYTHONPATH."""
events = selectors.DefaultSelector()
running: dict[int, socket.socket] = {}


def main() -> Callable[[], object]:
    """Fork processes until nobody is left to ask; return in each of them what it does."""
    events.register(asked, selectors.EVENT_READ)
    events.register(sys.stdin, selectors.EVENT_READ)
    while True:
        for key, _ in events.select():
            if key.fileobj is sys.stdin:
                for child in running:
                    os.kill(child, signal.SIGKILL)
                sys.exit()
            if key.fileobj is not asked:
                key.data()
            elif act := begin(asked.accept()[0]):
                return act


def begin(link: socket.socket) -> Callable[[], object] | None:
    """Fork the process that is asked for; return what it does, in that."""
    told, passed, *_ = link.recvmsg(MOST, socket.CMSG_SPACE(3 * 4))
    streams = array.array("i", passed[0][2]) if told else []
    if told and not (child := os.fork()):
        link.close()
        return become(streams, *marshal.loads(told))
    for stream in streams:
        os.close(stream)
    if not told:  # gone already
        link.close()
        return None
    running[child] = link
    say(link, child)
    ended = os.pidfd_open(child)
    events.register(ended, selectors.EVENT_READ, lambda: tell(child, ended))
    events.register(link, selectors.EVENT_READ, lambda: kill(child, link))
    return None


def tell(child: int, ended: int) -> None:
    """Tell a process's exit code to who asked for it."""
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    events.unregister(ended)
    os.close(ended)
    say(running.pop(child), code)


def say(link: socket.socket, number: int) -> None:
    """Tell a number to who may be gone by now."""
    with contextlib.suppress(OSError):
        link.send(b"%d" % number)


def kill(child: int, link: socket.socket) -> None:
    """Have a process that is still there end with who asked for it."""
    events.unregister(link)
    link.close()
    if child in running:
        os.kill(child, signal.SIGKILL)


def become(
    streams: array.array, folder: str, sessions: str, arguments: list[str], environment: dict[str, str]
) -> Callable[[], object]:
    """Have this process be as if it had been started with these arguments; return what it then does."""
    for key in [*events.get_map().values()]:
        os.close(key.fd) if isinstance(key.fileobj, int) else key.fileobj.close()
    events.close()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    if not parses:  # which leads a group of its own
        os.setsid()
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    if sessions:
        (Path(sessions) / str(os.getpid())).touch()
    sys.executable = environment.get("WARM_PYTHON", sys.executable)
    module = arguments[0] == "-m"
    sys.argv, sys.orig_argv = arguments[module:], [sys.executable, *arguments]
    first = folder if module else str(Path(sys.argv[0]).resolve().parent)
    more = environment.get("PYTHONPATH", "")
    sys.path[:] = [first, *filter(None, more.split(os.pathsep)), *sys.path[OWN:]]
    importlib.invalidate_caches()
    run = runpy.run_module if module else runpy.run_path
    return functools.partial(run, sys.argv[0], run_name="__main__", **{"alter_sys": True} if module else {})


def leave(code: object) -> None:
    """End this process as Python does, without taking down what the server has, too."""
    if isinstance(code, str):
        print(code, file=sys.stderr)
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    MPI = sys.modules.get("mpi4py.MPI")
    if MPI and MPI.Is_initialized() and not MPI.Is_finalized():  # what starts ranks is none itself
        MPI.Finalize()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else int(code is not None))


act = main()
try:
    act()
except SystemExit as end:
    leave(end.code)
except BaseException:
    sys.excepthook(*sys.exc_info())
    leave(1)
leave(None)
