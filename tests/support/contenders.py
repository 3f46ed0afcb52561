"""Contenders for tests of the harness: what each does is said by its options."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any


class Fake:
    """Writes what it is asked into a file, and sleeps, fails, takes memory or prints."""

    def __init__(self, name: str, record: str, seconds: float = 0.0, does: str = "") -> None:
        self.name, self.record, self.seconds, self.does = name, Path(record), seconds, does
        self.held: list[bytearray] = []

    def _note(self, what: str) -> None:
        with self.record.open("a") as handle:
            handle.write(f"{self.name} {what}\n")

    def prepare(self, case: dict[str, Any]) -> dict[str, Any]:
        self._note(f"prepare {case['n']}")
        self.n = case["n"]
        self.held = [bytearray(os.urandom(1 << 20)) for _ in range(self.n)] if self.does == "hold" else []
        return {"process": os.getpid()}

    def run(self, repeat: int) -> dict[str, Any]:
        self._note(f"run {repeat}")
        # `os._exit` discards buffered output.
        print("not an answer", flush=True)
        if self.does == "fail":
            raise ValueError("the wrong kind of data")
        if self.does == "exit":
            os._exit(7)
        if self.does == "killed":
            os.kill(os.getpid(), 9)
        if self.does == "grow":
            while True:
                self.held.append(bytearray(os.urandom(1 << 22)))
        time.sleep(self.seconds * self.n)
        return {"seconds": self.seconds * self.n, "repeat": repeat}
