"""Keep the measurements of a benchmark as its cases end, so that a run that was killed continues with the next case."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bayesmesh.files import hash_file, write_text
from bayesmesh.store.machine import machine_name
from bayesmesh_reproduction.benchmarks.process import Contender

_SOURCE = Path(__file__).resolve().parents[2]
"""Folder of both packages."""


class Journal:
    """Measurements of finished cases, one line of JSON each.

    A case is found again if its values, its contenders, its limits, the code of both packages and the machine are the same.

    Args:
        path: the file; `forget` removes it when the benchmark is complete.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: dict[str, list[dict[str, Any]]] = {}
        for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
            try:
                entry = json.loads(line)
            except json.JSONDecodeError:
                continue  # A killed run may have left half a line.
            self._known[entry["key"]] = entry["measured"]

    def find(
        self, case: Mapping[str, object], contenders: Sequence[Contender], limits: Mapping[str, object]
    ) -> list[dict[str, Any]] | None:
        """Return the measurements of a case, one for each contender; None if it was not measured."""
        return self._known.get(_key(case, contenders, limits))

    def add(
        self, case: Mapping[str, object], contenders: Sequence[Contender], limits: Mapping[str, object],
        measured: list[dict[str, Any]],
    ) -> None:  # fmt: skip
        """Keep the measurements of a case."""
        self._known[_key(case, contenders, limits)] = measured
        lines = [json.dumps({"key": k, "measured": v}, default=str) for k, v in self._known.items()]
        write_text(self._path, "\n".join(lines) + "\n")

    def forget(self) -> None:
        """Remove the file: the next run measures anew."""
        self._path.unlink(missing_ok=True)


def _key(case: Mapping[str, object], contenders: Sequence[Contender], limits: Mapping[str, object]) -> str:
    about = {
        "case": dict(case),
        "contenders": [(*c[:2], dict(c.options), c.python, dict(c.variables)) for c in contenders],
        "limits": dict(limits),
        "code": [hash_file(path) for path in sorted(_SOURCE.rglob("*.py"))],
        "machine": machine_name(),
    }
    return hashlib.sha256(json.dumps(about, sort_keys=True, default=str).encode()).hexdigest()[:16]
