"""Hand a job of the command line over to the fork server, see `fork_server`.

Every job of a workflow begins with this module, so it imports little, and nothing for annotations.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import socket
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from bayesmesh.running.fork_request import Request

ADDRESS = "BAYESMESH_FORK_SERVER"
"""Variable with the path of the server's socket; where a user sets it to ``off``, no server is started."""

LIGHT, OF_LIGHT = ("fetch", "shard"), "-light"
"""Verbs of stages that do not import JAX and have a server with its own socket, and the suffix of that socket's path."""

DECLINED = "declined\n"
"""The server's answer if the requesting process should do the work itself."""

READ_BY_IMPORTS = ("JAX_", "XLA_", "TF_", "PYTHON", "LD_", "SLURM_")
"""Variables with these prefixes must be the same for the server and for a job."""

STARTS_WITHIN = 10.0
"""Seconds within which a server whose folder exists begins to listen. The first job of a short plan may come before that."""

_PACKAGE = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP)
"""Signals that are passed on to the fork."""


def send(to: socket.socket, request: Request, files: Sequence[int]) -> None:
    """Send a request with open files, such as the streams of a job."""
    message = json.dumps(request).encode()
    socket.send_fds(to, [len(message).to_bytes(8, "big")], files)
    to.sendall(message)


def identity_of(environ: Mapping[str, str]) -> str:
    """Return a digest of what imports depend on: the interpreter, the package's source, some variables."""
    files = [
        (path, about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns)
        for path, about in sorted(_source(_PACKAGE))
    ]
    variables = sorted(item for item in environ.items() if item[0].startswith(READ_BY_IMPORTS))
    return hashlib.sha256(repr((os.path.realpath(sys.prefix), sys.version, files, variables)).encode()).hexdigest()


def _source(folder: str) -> Iterator[tuple[str, os.stat_result]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(".py"):
                yield entry.path, entry.stat()
            elif entry.is_dir() and entry.name != "__pycache__":
                yield from _source(entry.path)


def main() -> int:
    """Run one verb of the command `bayesmesh`, here if no fork does it, and return the exit code."""
    words = sys.argv[1:]
    # `run` starts the server.
    code = run_in_fork(words) if words[:1] != ["run"] else None
    if code is None:
        import importlib

        code = int(importlib.import_module("bayesmesh.cli").run_here(words))
    return code


def run_in_fork(words: Sequence[str]) -> int | None:
    """Run ``bayesmesh`` with these arguments in a fork of the server; killing this process kills the fork.

    Returns:
        Its exit code; None if this process should do the work itself.
    """
    environment = dict(os.environ)
    address = environment.pop(ADDRESS, "off")
    if address == "off":
        return None
    request: Request = {
        "identity": identity_of(environment), "words": [*words], "cwd": os.getcwd(), "environment": environment, "path": sys.path
    }  # fmt: skip
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            _connect(connection, f"{address}{OF_LIGHT}" if words[:1] and words[0] in LIGHT else address)
            send(connection, request, [0, 1, 2])
        except OSError:
            # Snakemake has ended and its server is ending, or the server is on another node.
            return None
        # A signal that nohup or a shell lets this process ignore does not reach the fork either.
        passed_on = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
        for number in passed_on:
            signal.signal(number, lambda number, _: connection.sendall(bytes([number])))
        with contextlib.suppress(ConnectionResetError), connection.makefile() as replies:
            reply = replies.readline()
        for number in passed_on:
            signal.signal(number, signal.SIG_DFL)
    if reply == DECLINED:
        if signal.SIGINT in passed_on:
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


def _connect(connection: socket.socket, address: str) -> None:
    """Connect to the server; wait for one that has been started on this machine but does not listen yet."""
    latest = time.monotonic() + STARTS_WITHIN
    while not os.path.exists(address) and os.path.isdir(os.path.dirname(address)) and time.monotonic() < latest:
        time.sleep(0.01)
    connection.connect(address)
