"""A process that has imported what commands need and forks one for each: a start takes no seconds.

The package under test is not among the imports: every command takes it from its own workspace. What a command is not
told by its arguments, environment and folder is as in a process that was started anew.

Whoever asks, a test or a command ``bayesmesh`` that it starts, connects to a socket, hands over what
the command is to be, and waits. A connection that breaks kills the command: so killing who asked kills it.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

PRELOADED = (
    "snakemake.cli",
    "pandas",
    "jax.numpy",
    "tensorflow_probability.substrates.jax",
    "zarr",
    "matplotlib.figure",
)
"""What commands spend most of their start on."""

CLIENT = Path(__file__).with_name("client.py")


class Zygote:
    """Runs commands in forks of one process.

    Args:
        environment: of that process; JAX reads some of it when it is imported.

    Attributes:
        bin: of an environment that is this Python's but for ``bayesmesh`` and ``snakemake``, which ask this process.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="zygote-")
        self.bin, self._address = Path(self._folder.name, "bin"), str(Path(self._folder.name, "socket"))
        self.bin.mkdir()
        for part in ("pyvenv.cfg", "lib"):
            Path(self._folder.name, part).symlink_to(Path(sys.prefix, part))
        python = self.bin / "python"
        python.symlink_to(sys.executable)
        text = CLIENT.read_text(encoding="utf-8")
        for name, module in (("bayesmesh", "bayesmesh.cli"), ("snakemake", "snakemake")):
            command = self.bin / name
            # Isolated and without site-packages: it starts in milliseconds.
            call = f"main({self._address!r}, {sys.executable!r}, {module!r})"
            command.write_text(f"#!{sys.executable} -IS\n{text}\n{call}\n")
            command.chmod(0o755)
        listening = socket.socket(socket.AF_UNIX)
        listening.bind(self._address)
        listening.listen(64)
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(listening.fileno()), str(python)],
            env=dict(environment), stdin=subprocess.PIPE, pass_fds=[listening.fileno()],
        )  # fmt: skip
        listening.close()
        atexit.register(self._end)

    def _end(self) -> None:
        self._process.kill()
        self._folder.cleanup()

    def run(
        self, command: Sequence[str], cwd: Path, environment: Mapping[str, str]
    ) -> subprocess.CompletedProcess[str]:
        """Run ``python -m command`` in a folder; returns what it wrote and its exit code."""
        request = {"command": list(command), "cwd": str(cwd), "environment": dict(environment), "path": [str(cwd)]}
        with (
            Path(os.devnull).open() as nothing, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err,
            socket.socket(socket.AF_UNIX) as connection,
        ):  # fmt: skip
            connection.connect(self._address)
            message = json.dumps(request).encode()
            socket.send_fds(
                connection, [len(message).to_bytes(8, "big")], [file.fileno() for file in (nothing, out, err)]
            )
            connection.sendall(message)
            code = int(connection.makefile().readline())
            texts = []
            for file in (out, err):
                file.seek(0)
                texts.append(file.read().decode(errors="replace"))
        return subprocess.CompletedProcess(list(command), code, *texts)


@functools.cache
def zygote() -> Zygote:
    """Return the zygote of this process; it ends with it."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("JAX_", "XLA_", "PYTHON")) or k == "JAX_PLATFORMS"}
    return Zygote(kept)


def serve(listening: socket.socket, python: str) -> None:
    """Fork for every connection, until the process that started this one is gone.

    Args:
        python: what forks take for their interpreter: the commands beside it are those that Snakemake's jobs find.
    """
    base = [entry for entry in sys.path[1:] if entry]
    for module in PRELOADED:
        importlib.import_module(module)
    # Forks then need not collect or copy imported modules.
    gc.freeze()
    sys.executable = python
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        ready, _, _ = select.select([listening, sys.stdin], [], [])
        if sys.stdin in ready:
            return
        connection, _ = listening.accept()
        if os.fork() == 0:
            listening.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _watch(connection, base)
        connection.close()


def _watch(connection: socket.socket, base: list[str]) -> None:
    """Fork the command that is asked for, pass signals on to it, and answer with its exit code."""
    length, files, _, _ = socket.recv_fds(connection, 8, 3)
    request = json.loads(connection.recv(int.from_bytes(length, "big"), socket.MSG_WAITALL))
    child = os.fork()
    if child == 0:
        connection.close()
        _become(request, files, base)
    for file in files:
        os.close(file)
    handle = os.pidfd_open(child)
    while handle not in (ready := select.select([connection, handle], [], [])[0]):
        assert connection in ready
        said = connection.recv(1)
        os.kill(child, said[0] if said else signal.SIGKILL)
        if not said:
            break
    _, status = os.waitpid(child, 0)
    with contextlib.suppress(BrokenPipeError):
        connection.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())
    os._exit(0)


def _become(request: dict[str, Any], files: Sequence[int], base: list[str]) -> None:
    """Be the process of a command, to its end."""
    for descriptor, file in enumerate(files):
        os.dup2(file, descriptor)
        os.close(file)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 - for the rest of this process
    code: Any = 1
    try:
        os.chdir(request["cwd"])
        os.environ.clear()
        os.environ.update(request["environment"])
        paths = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
        sys.path[:] = [*request["path"], *paths, *base]
        importlib.invalidate_caches()
        sys.argv = request["command"]
        runpy.run_module(request["command"][0], run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as ended:
        code = ended.code
    except BaseException:  # noqa: BLE001 - as the interpreter does at its end
        traceback.print_exc()
    if isinstance(code, str):
        print(code, file=sys.stderr)
        code = 1
    threading._shutdown()  # type: ignore[attr-defined] - waits for threads, as the interpreter does
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code or 0)


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])), sys.argv[2])
