"""A server that imports once what the stages need, and forks a process for each job of a workflow.

The workflow starts the server while it plans, and the server ends with the workflow; on a cluster, the Snakemake within a job
of several stages starts it. A job remains the command in its log: where the variable `ADDRESS` names a server, ``bayesmesh``
hands over its arguments, folder, environment, files and signals, and ends as the fork does. Without a server, or with one whose
forks would differ from a new process, it does the work itself. The server only imports: JAX's backends, and their threads,
start in the forks.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import dataclasses
import functools
import gc
import importlib
import json
import os
import re
import selectors
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import traceback
import warnings
from collections.abc import Collection, MutableMapping, Sequence
from pathlib import Path
from typing import NoReturn

from bayesmesh.running.fork_client import ADDRESS, DECLINED, OF_LIGHT, SIGNALS, identity_of
from bayesmesh.running.fork_request import Request
from bayesmesh.running.prepared_imports import FIRST_OF_JAX, FIRST_OF_PAGES, has_cores, prepare, what_to_prepare

_NUM_THREADS, _PR_SET_PDEATHSIG = "OPENBLAS_NUM_THREADS", 1
FIRST_JOB_SECONDS = 1.0
"""How long imports that the first stages do not need wait for the first job."""

_SOCKET = "socket"


@dataclasses.dataclass(eq=False)
class _Fork:
    """A fork, and the connection to the client that waits for it: none once that has hung up."""

    process: int
    handle: int
    connection: socket.socket | None


def fork_name(job: int) -> str:
    """Return the name, in process lists, of the fork that works for a process."""
    return f"job-{job}"


def start_server(
    environ: MutableMapping[str, str] = os.environ, stages: Collection[str] = ()
) -> subprocess.Popen[bytes] | None:
    """Start a server, and write its address into the environment of jobs; None if that has one already.

    It ends with this process, or once its ``stdin`` is closed.

    Args:
        environ: environment of the jobs, and of the server.
        stages: those that will run, by their verbs, to prepare only what they need; all if empty.
    """
    if ADDRESS in environ or sys.platform != "linux":
        return None
    folder = tempfile.mkdtemp(prefix="bayesmesh-")
    command = [sys.executable, "-m", "bayesmesh.running.fork_server", folder, *sorted(stages)]
    # Threads of OpenBLAS would be missing in forks.
    environment = {**environ, _NUM_THREADS: "1"}
    environ[ADDRESS] = str(Path(folder, _SOCKET))
    return subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, start_new_session=True)


class Server:
    """Forks a process for each connection, passes signals on to it, and answers with its exit code.

    Args:
        folder: for the socket; removed at the end.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._identity, self._num_jobs = folder, identity_of(os.environ), 0
        self._variables = list(os.environ)
        self._listening = [_listen(folder / name) for name in (_SOCKET, f"{_SOCKET}{OF_LIGHT}")]
        self._is_open, self.has_forked, self.asked = True, False, set[str]()
        self._begin()

    def _begin(self) -> None:
        self._events = selectors.DefaultSelector()
        for listening in self._listening:
            self._events.register(listening, selectors.EVENT_READ, functools.partial(self._answer, listening))
        self._events.register(sys.stdin, selectors.EVENT_READ, self._leave)

    @property
    def is_needed(self) -> bool:
        """Whether Snakemake or a job is running."""
        return self._is_open or self._num_jobs > 0

    def serve(self, timeout: float | None = None) -> None:
        """Handle the events that have arrived, after waiting at most `timeout` seconds for one."""
        for key, _ in self._events.select(timeout):
            # An earlier event may have ended this connection.
            if self._events.get_map().get(key.fd) is key:
                key.data()

    def split(self) -> bool:
        """Leave the `LIGHT` stages to a fork of this server; return whether this process is that fork.

        The fork has all that they import, and so answers at once, while this one imports what the others need. Once a job has
        been forked this server goes on alone, because two cannot wait for one fork.
        """
        if self.has_forked:
            return False
        self._events.close()
        is_light = os.fork() == 0
        self._listening.pop(0 if is_light else 1).close()
        self._begin()
        return is_light

    def _leave(self) -> None:
        """Take no more jobs, because Snakemake has ended; running jobs continue, as without a server."""
        self._is_open = False
        for file in (*self._listening, sys.stdin):
            self._events.unregister(file)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _answer(self, listening: socket.socket) -> None:
        connection, _ = listening.accept()
        request, files = _receive(connection, 3)
        if request is None or request["identity"] != self._identity:
            with contextlib.suppress(BrokenPipeError):
                connection.sendall(DECLINED.encode())
            connection.close()
        else:
            self.asked.update(request["words"][:1])
            self._fork(request, connection, files)
        for file in files:
            os.close(file)

    def _fork(self, request: Request, connection: socket.socket, files: Sequence[int]) -> None:
        self.has_forked = True
        if (process := os.fork()) == 0:
            for number in SIGNALS:
                signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
            for key in self._events.get_map().values():
                os.close(key.fd)
            # Variables that imports have set are kept.
            for name in self._variables:
                del os.environ[name]
            _become(request, files, connection)
        fork = _Fork(process, os.pidfd_open(process), connection)
        self._events.register(fork.handle, selectors.EVENT_READ, functools.partial(self._end, fork))
        self._num_jobs += 1
        self._events.register(connection, selectors.EVENT_READ, functools.partial(self._pass_on, fork))

    def _pass_on(self, fork: _Fork) -> None:
        """Pass a signal on to the fork; SIGKILL if its client was killed."""
        said = b""
        with contextlib.suppress(ConnectionResetError):
            assert fork.connection is not None
            said = fork.connection.recv(1)
        signal.pidfd_send_signal(fork.handle, signal.Signals(said[0]) if said else signal.SIGKILL)
        if not said:
            self._end(fork)

    def _hang_up(self, fork: _Fork) -> None:
        if fork.connection is not None:
            self._events.unregister(fork.connection)
            fork.connection.close()
            fork.connection = None
            self._num_jobs -= 1

    def _end(self, fork: _Fork) -> None:
        _, status = os.waitpid(fork.process, 0)
        if fork.connection is not None:
            with contextlib.suppress(BrokenPipeError):
                fork.connection.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())
        self._hang_up(fork)
        self._events.unregister(fork.handle)
        os.close(fork.handle)


def _listen(path: Path) -> socket.socket:
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(path))
    listening.listen(64)
    return listening


def _receive(source: socket.socket, num_files: int) -> tuple[Request | None, list[int]]:
    """Return a request with its files; None if the sender has gone or was killed meanwhile."""
    length, files, _, _ = socket.recv_fds(source, 8, num_files)
    num_bytes = int.from_bytes(length, "big")
    received = source.recv(num_bytes, socket.MSG_WAITALL)
    return json.loads(received) if 0 < num_bytes == len(received) else None, files


def _become(request: Request, files: Sequence[int], connection: socket.socket) -> NoReturn:
    """Act as the process of a job until it ends."""
    # A server that is killed cannot tell how its forks end: they end with it.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    (asking,) = struct.unpack("i8x", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    Path("/proc/self/comm").write_text(fork_name(asking))
    code = _do(request, files)
    _finish()
    status = code if isinstance(code, int) else code is not None
    # Without the interpreter's walk through all modules.
    os._exit(status)


def _finish() -> None:
    """Do what the interpreter does at exit for imported modules: wait for threads, and call the exit handlers."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    _flush()


def _do(request: Request, files: Sequence[int]) -> object:
    """Do one job as a new process would, and return its exit code."""
    for descriptor, file in enumerate(files):
        os.dup2(file, descriptor)
        os.close(file)
    code: object = 1
    try:
        os.chdir(request["cwd"])
        os.environ.update(request["environment"])
        sys.path[:], sys.argv[1:] = request["path"], request["words"]
        importlib.invalidate_caches()
        _set_blas_threads(int(os.environ.get(_NUM_THREADS) or len(os.sched_getaffinity(0))))
        gc.enable()
        code = importlib.import_module("bayesmesh.cli").main()
    except SystemExit as ended:
        code = ended.code
    except BaseException:  # noqa: BLE001 - as the interpreter does at its end
        traceback.print_exc()
    _flush()
    return code


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(BrokenPipeError):
            stream.flush()


def _set_blas_threads(number: int) -> None:
    """Give every OpenBLAS the threads that it would have taken from the environment, on which its sums depend."""
    libraries = set(re.findall(r"/\S*openblas\S*", Path("/proc/self/maps").read_text()))
    for library in map(ctypes.CDLL, libraries):
        for name in ("scipy_openblas_set_num_threads64_", "scipy_openblas_set_num_threads", "openblas_set_num_threads"):
            if hasattr(library, name):
                getattr(library, name)(number)


def main() -> None:
    """Serve while importing and afterwards, until Snakemake and the last job have ended."""
    for number in SIGNALS:
        # A scheduler sends these signals to all processes of its job. The server ends with Snakemake and the last fork.
        signal.signal(number, lambda _number, _frame: None)
    server = Server(Path(sys.argv[1]))
    # The one thread is that of Arrow's allocator, which restores itself in forks.
    warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    # Imported modules live to the end, so no garbage collection need walk through them.
    gc.disable()
    waiting = what_to_prepare(sys.argv[2:])
    while server.is_needed:
        server.serve(0 if waiting else None)
        if not server.is_needed:
            break
        if waiting[:1] == [FIRST_OF_JAX] and server.split():
            waiting = []
        if waiting[:1] == [FIRST_OF_PAGES] and not server.has_forked:
            # Otherwise the first job that computes would wait for what it does not need.
            server.serve(FIRST_JOB_SECONDS)
        if waiting and not has_cores(waiting[0], server.asked):
            server.serve()
        elif waiting:
            prepare(waiting.pop(0))
            gc.freeze()


if __name__ == "__main__":
    main()
