"""Be `python ARGUMENTS` by a process that has imported all it needs (`tests/warm.py`).

It lives as long as this one, is sent the signals that this one is sent, and this one ends as it does. Its
session is its own, and is the name of a file in the folder SESSIONS, if that is not "". Where Python is given
options or a program as a word, it is started as ever.

python -I -S tests/start.py SOCKET SESSIONS ARGUMENTS
"""

import array
import contextlib
import marshal
import os
import signal
import socket
import sys

if sys.argv[3].startswith("-") and sys.argv[3] != "-m":
    os.execv(sys.executable, [sys.executable, *sys.argv[3:]])
link = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
link.connect(sys.argv[1])
told = marshal.dumps((os.getcwd(), *sys.argv[2:3], sys.argv[3:], dict(os.environ)))  # noqa: PTH109
link.sendmsg([told], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", (0, 1, 2)))])
process = int(link.recv(32))


def hand_on(number, _):
    with contextlib.suppress(ProcessLookupError):  # its exit code is on the way
        os.kill(process, number)


for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
    signal.signal(number, hand_on)
code = int(link.recv(32))
if code < 0:
    if -code != signal.SIGKILL:
        signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
sys.exit(code)
