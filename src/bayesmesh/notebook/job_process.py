"""A process that runs the jobs of one call one after another, so that they share their imports.

It is not the caller's own process, whose JAX may have other devices, precision or flags than the jobs.
"""

from __future__ import annotations

import json
import select
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from bayesmesh.sampling.loop.progress import FILE


class JobProcess:
    """The process, as its caller sees it; a context manager that ends it.

    Args:
        environment: of the process.

    Attributes:
        progress: file with the progress of the job, see `sampling.loop.progress`.
        returncode: exit code of the last job; None while it runs; negative if a signal has ended the process.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="bayesmesh-")
        self.progress, self._output = Path(self._folder.name, "progress"), Path(self._folder.name, "output")
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-c", "from bayesmesh.cli import run_jobs; run_jobs()"],
                env={**environment, FILE: str(self.progress)},
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=output,
            )  # fmt: skip
        self.returncode: int | None = None

    @property
    def printed(self) -> str:
        """What the jobs have printed."""
        return self._output.read_text(encoding="utf-8", errors="replace").strip()

    def start(self, words: Sequence[str]) -> None:
        """Start a job with these arguments of ``bayesmesh``."""
        assert self._process.stdin is not None
        self.progress.unlink(missing_ok=True)
        self.returncode = None
        self._process.stdin.write(f"{json.dumps([*words])}\n".encode())
        self._process.stdin.flush()

    def poll(self, timeout: float | None = 0.0) -> int | None:
        """Return the exit code of the job, None if it is still running after some seconds."""
        assert self._process.stdout is not None
        if self.returncode is None and select.select([self._process.stdout], [], [], timeout)[0]:
            reply = self._process.stdout.readline()
            self.returncode = int(reply) if reply else self._process.wait()
        return self.returncode

    def stop(self) -> None:
        """Ask the job to stop."""
        self._process.terminate()

    def __enter__(self) -> JobProcess:
        return self

    def __exit__(self, *raised: object) -> None:
        self._process.kill()
        self._process.communicate()
        self._folder.cleanup()
