"""A process that has imported what commands need and forks one for each: a start takes no seconds.

The package under test is not among the imports: every command takes it from its own workspace. What a command is not
told by its arguments, environment and folder is as in a process that was started anew.
"""

from __future__ import annotations

import atexit
import functools
import importlib
import json
import os
import runpy
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


class Zygote:
    """Runs commands in forks of one process.

    Args:
        environment: of that process; JAX reads some of it when it is imported.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__], env=dict(environment), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        atexit.register(self._process.kill)

    def run(
        self, command: Sequence[str], cwd: Path, environment: Mapping[str, str]
    ) -> subprocess.CompletedProcess[str]:
        """Run ``python -m command`` in a folder; returns what it wrote and its exit code."""
        with tempfile.TemporaryDirectory() as folder:
            files = [str(Path(folder, name)) for name in ("stdout", "stderr")]
            request = {"command": list(command), "cwd": str(cwd), "environment": dict(environment), "files": files}
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            code = int(self._process.stdout.readline())
            out, err = (Path(file).read_text(encoding="utf-8", errors="replace") for file in files)
        return subprocess.CompletedProcess(list(command), code, out, err)


@functools.cache
def zygote() -> Zygote:
    """Return the zygote of this process; it ends with it."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("JAX_", "XLA_", "PYTHON")) or k == "JAX_PLATFORMS"}
    return Zygote(kept)


def serve() -> None:
    """Fork for every request on stdin, and answer with the exit code."""
    base = [entry for entry in sys.path[1:] if entry]
    for module in PRELOADED:
        importlib.import_module(module)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            _become(json.loads(line), base)
        _, status = os.waitpid(child, 0)
        answers.write(f"{os.waitstatus_to_exitcode(status)}\n")
        answers.flush()


def _become(request: dict[str, Any], base: list[str]) -> None:
    """Be the process of a command, to its end."""
    for descriptor, file in enumerate([os.devnull, *request["files"]]):
        flags = os.O_RDONLY if descriptor == 0 else os.O_WRONLY | os.O_CREAT | os.O_APPEND
        os.dup2(os.open(file, flags, 0o600), descriptor)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 - for the rest of this process
    code: Any = 1
    try:
        os.chdir(request["cwd"])
        os.environ.clear()
        os.environ.update(request["environment"])
        sys.path[:] = [request["cwd"], *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)), *base]
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
    serve()
