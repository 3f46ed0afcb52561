"""A process that has imported what stages need, and forks each job of a workflow: imports are made once.

The workflow starts it while it plans, and it ends with the workflow. A job stays the command in its log: where the variable
`ADDRESS` names a server, ``bayesmesh`` hands over its arguments, folder, environment, files and signals, and ends as the
fork does. Without a server, or with one whose forks would differ from a new process, it does the work itself. The
server only imports: JAX's backends, and their threads, start in the forks.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import gc
import hashlib
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
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import NoReturn, TypedDict

from bayesmesh.errors import UserError

ADDRESS = "BAYESMESH_FORK_SERVER"
"""Variable with the path of the server's socket; where a user sets it to ``off``, no server is started."""

PREPARED = (
    "bayesmesh.stages.job", "bayesmesh.config.experiment:experiment_class", "bayesmesh.cli:make_parser",
    "bayesmesh.planning.stage_code:read_stages", "bayesmesh.stages.fetch", "bayesmesh.stages.shard", "jax.numpy", "bayesmesh.stages.compile",
    "tensorflow_probability.substrates.jax.distributions", "bayesmesh.stages.sample", "bayesmesh.stages.assemble",
    "pandas", "bayesmesh.stages.diagnose", "jinja2", "bayesmesh.stages.report", "bayesmesh.stages.analyse",
)  # fmt: skip
"""Modules to import, and functions to call for what they remember, in the order in which a new experiment needs them; a
job forked before the last one does the others itself."""

PACKAGE = Path(__file__).resolve().parents[1]

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP)

READ_BY_IMPORTS = ("JAX_", "XLA_", "TF_", "PYTHON", "LD_", "SLURM_")
"""Variables with these beginnings must be the same for the server and for a job."""

_DECLINED, _NUM_THREADS, _PR_SET_PDEATHSIG = "declined\n", "OPENBLAS_NUM_THREADS", 1


class _Request(TypedDict):
    """What a fork is to be: `identity` is compared with the server's, the rest makes it like a new process."""

    identity: str
    words: list[str]
    cwd: str
    environment: dict[str, str]
    path: list[str]


def fork_name(job: int) -> str:
    """Return the name, in lists of processes, of the fork that works for a process."""
    return f"job-{job}"


def _identity(environ: Mapping[str, str]) -> str:
    """Return a digest of what imports depend on: the interpreter, the package's source, some variables."""
    files = [(path, about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns) for path, about in _source()]
    variables = sorted(item for item in environ.items() if item[0].startswith(READ_BY_IMPORTS))
    return hashlib.sha256(repr((sys.prefix, sys.version, files, variables)).encode()).hexdigest()


def _source() -> Iterator[tuple[str, os.stat_result]]:
    return ((str(path), path.stat()) for path in sorted(PACKAGE.rglob("*.py")))


def run_in_fork(words: Sequence[str]) -> int | None:
    """Let a fork of the server be ``bayesmesh`` with these arguments; killing this process kills it.

    Returns:
        Its exit code; None if this process should do the work itself.
    """
    environment = dict(os.environ)
    address = environment.pop(ADDRESS, "off")
    if address == "off":
        return None
    request: _Request = {
        "identity": _identity(environment), "words": [*words], "cwd": os.getcwd(), "environment": environment, "path": sys.path
    }  # fmt: skip
    message = json.dumps(request).encode()
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(address)
            socket.send_fds(connection, [len(message).to_bytes(8, "big")], [0, 1, 2])
            connection.sendall(message)
        except OSError:
            # Snakemake has gone, and its server ends, or is on another node.
            return None
        for number in _SIGNALS:
            signal.signal(number, lambda number, _: connection.sendall(bytes([number])))
        with contextlib.suppress(ConnectionResetError), connection.makefile() as replies:
            reply = replies.readline()
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_DFL)
    if reply == _DECLINED:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        return None
    if not reply:
        print(
            "error: the process that forks jobs has ended, and with it this job\n  remedy: run it again",
            file=sys.stderr,
        )
        return 1
    code = int(reply)
    if code < 0:
        # Whoever waits for this process sees the signal that ended the fork.
        os.kill(os.getpid(), -code)
    return code


def start_server(environ: MutableMapping[str, str] = os.environ) -> subprocess.Popen[bytes] | None:
    """Start a server, and write its address into the environment of jobs; None if that has one already.

    It ends with this process, or once its ``stdin`` is closed.

    Args:
        environ: environment of the jobs, and of the server.
    """
    if ADDRESS in environ or sys.platform != "linux":
        return None
    folder = tempfile.mkdtemp(prefix="bayesmesh-")
    command = [sys.executable, "-m", "bayesmesh.running.fork_server", folder]
    # Threads of OpenBLAS would be missing in forks.
    environment = {**environ, _NUM_THREADS: "1"}
    environ[ADDRESS] = str(Path(folder, "socket"))
    return subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, start_new_session=True)


class Server:
    """Forks a process for each connection, passes signals on to it, and answers with its exit code.

    Args:
        folder: for the socket; removed at the end.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._identity, self._num_forks = folder, _identity(os.environ), 0
        self._variables = list(os.environ)
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(str(folder / "socket"))
        self._listening.listen(64)
        self._events = selectors.DefaultSelector()
        self._events.register(self._listening, selectors.EVENT_READ, self._answer)
        self._events.register(sys.stdin, selectors.EVENT_READ, self._leave)
        self._is_open = True

    @property
    def is_needed(self) -> bool:
        """Whether Snakemake runs, or a job."""
        return self._is_open or self._num_forks > 0

    def serve(self, timeout: float | None = None) -> None:
        """Handle what has come, waiting for it, but at most `timeout` seconds."""
        for key, _ in self._events.select(timeout):
            # An earlier event may have ended this connection.
            if key.fd in self._events.get_map():
                key.data()

    def _leave(self) -> None:
        """Take no more jobs, because Snakemake has gone; those that run go on, as without a server."""
        self._is_open = False
        for file in (self._listening, sys.stdin):
            self._events.unregister(file)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _answer(self) -> None:
        connection, _ = self._listening.accept()
        length, files, _, _ = socket.recv_fds(connection, 8, 3)
        num_bytes = int.from_bytes(length, "big")
        received = connection.recv(num_bytes, socket.MSG_WAITALL)
        # Less of it, if who asked was killed meanwhile.
        request: _Request | None = json.loads(received) if 0 < num_bytes == len(received) else None
        if request is None or request["identity"] != self._identity:
            with contextlib.suppress(BrokenPipeError):
                connection.sendall(_DECLINED.encode())
            connection.close()
        elif (process := os.fork()) == 0:
            for key in self._events.get_map().values():
                os.close(key.fd)
            (asking,) = struct.unpack("i8x", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
            Path("/proc/self/comm").write_text(fork_name(asking))
            connection.close()
            # What imports have set is kept.
            for name in self._variables:
                del os.environ[name]
            _become(request, files)
        else:
            handle = os.pidfd_open(process)
            end = functools.partial(self._end, process, handle, connection)
            self._events.register(handle, selectors.EVENT_READ, end)
            self._events.register(
                connection, selectors.EVENT_READ, functools.partial(self._pass_on, end, handle, connection)
            )
            self._num_forks += 1
        for file in files:
            os.close(file)

    def _pass_on(self, end: Callable[[], None], handle: int, connection: socket.socket) -> None:
        """Send the fork a signal; the last one where who asked for it was killed."""
        said = b""
        with contextlib.suppress(ConnectionResetError):
            said = connection.recv(1)
        signal.pidfd_send_signal(handle, signal.Signals(said[0]) if said else signal.SIGKILL)
        if not said:
            end()

    def _end(self, process: int, handle: int, connection: socket.socket) -> None:
        _, status = os.waitpid(process, 0)
        with contextlib.suppress(BrokenPipeError):
            connection.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())
        for file in (handle, connection):
            self._events.unregister(file)
        connection.close()
        os.close(handle)
        self._num_forks -= 1


def _become(request: _Request, files: Sequence[int]) -> NoReturn:
    """Be the process of a job, to its end."""
    # A server that is killed cannot tell how its forks end: they end with it.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
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
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads, as the interpreter does
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(BrokenPipeError):
            stream.flush()
    # Without the interpreter's walk through all modules.
    os._exit(code if isinstance(code, int) else code is not None)


def _set_blas_threads(number: int) -> None:
    """Give every OpenBLAS the threads that it would have taken from the environment, on which its sums depend."""
    libraries = set(re.findall(r"/\S*openblas\S*", Path("/proc/self/maps").read_text()))
    for library in map(ctypes.CDLL, libraries):
        for name in ("scipy_openblas_set_num_threads64_", "scipy_openblas_set_num_threads", "openblas_set_num_threads"):
            if hasattr(library, name):
                getattr(library, name)(number)


def prepare(named: str) -> None:
    """Import a module; if a function follows its name, after a colon, call that."""
    module, _, function = named.partition(":")
    imported = importlib.import_module(module)
    # A file that is not valid is the business of the jobs that read it.
    with contextlib.suppress(UserError):
        if function:
            getattr(imported, function)()


def main() -> None:
    """Serve while importing and afterwards, to the end of Snakemake and of the last job."""
    server = Server(Path(sys.argv[1]))
    # The one thread is that of Arrow's allocator, which restores itself in forks.
    warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    # Imported modules live to the end, so no garbage collection need walk through them.
    gc.disable()
    waiting = list(PREPARED)
    while server.is_needed:
        server.serve(0 if waiting else None)
        if waiting:
            prepare(waiting.pop(0))
            gc.freeze()


if __name__ == "__main__":
    main()
