"""Seed defects into a copy of the source, one at a time, and list which of them the tests detect.

    python tests/mutants/run.py --jobs 4
    python tests/mutants/run.py --table samplers   # the eight defects that `make verify-samplers` must detect

The tables beside this file hold the mutants: what each breaks, one replacement in one file, and the tests that must fail.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import os
import queue
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
LEFT_OUT = shutil.ignore_patterns(".git", ".venv*", "results", "__pycache__", ".snakemake", ".*_cache")
COLUMNS = ("id", "outcome", "seconds", "seen_by")
SECONDS = 900
"""Processor time: a mutant may loop for ever; it is then seen, by whoever waits for the tests. A busy machine ends no test."""


@dataclasses.dataclass(frozen=True)
class Mutant:
    """One defect: in `file` the one occurrence of `old` becomes `new`, and one of `tests` is to fail."""

    id: str
    breaks: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    def mutate(self, tree: Path) -> str:
        """Return the file's text with the defect.

        Raises:
            ValueError: the text to replace is not there exactly once.
        """
        text = (tree / self.file).read_text(encoding="utf-8")
        if text.count(self.old) != 1:
            raise ValueError(f"mutant {self.id}: {self.file} has {text.count(self.old)} times: {self.old}")
        return text.replace(self.old, self.new)


def read_mutants(table: str = "*") -> list[Mutant]:
    """Return the mutants in the order of the tables; those of one table if it is named."""
    entries = (
        e for path in sorted(HERE.glob(f"{table}.yaml")) for e in yaml.safe_load(path.read_text(encoding="utf-8"))
    )
    return [Mutant(**{**entry, "tests": tuple(entry["tests"])}) for entry in entries]


class Copies:
    """Copies of a tree in which one process at a time mutates and tests."""

    def __init__(self, tree: Path, folder: Path, count: int) -> None:
        self._free: queue.SimpleQueue[Path] = queue.SimpleQueue()
        # Python takes a module anew whose time of change differs from the one it noted.
        self._clock = iter(range(10**9, 2 * 10**9, 10))
        for number in range(count):
            copy = folder / f"copy-{number}"
            shutil.copytree(tree, copy, symlinks=True, ignore=LEFT_OUT)
            self._free.put(copy)

    def run(self, tests: Sequence[str], mutant: Mutant | None = None) -> dict[str, Any]:
        """Run tests with a mutant, or with none; returns a row of the table."""
        copy = self._free.get()
        try:
            if mutant is None:
                return _test(copy, tests, "clean")
            path = copy / mutant.file
            whole, text = path.read_text(encoding="utf-8"), mutant.mutate(copy)
            try:
                self._write(path, text)
                return _test(copy, tests, mutant.id)
            finally:
                self._write(path, whole)
        finally:
            self._free.put(copy)

    def _write(self, path: Path, text: str) -> None:
        path.write_text(text, encoding="utf-8")
        moment = next(self._clock)
        os.utime(path, (moment, moment))


def _test(copy: Path, tests: Sequence[str], name: str) -> dict[str, Any]:
    environment = {k: v for k, v in os.environ.items() if k not in ("CI", "PYTEST_ADDOPTS")}
    # Plugins of libraries, which no test asks for, would take four fifths of a start.
    environment |= {
        "PYTHONPATH": str(copy / "src"),
        "JAX_PLATFORMS": "cpu",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "BAYESMESH_VERIFY": "1",
    }
    pytest = [sys.executable, "-m", "pytest", "-x", "-q", "--tb=no", "-rfE", *tests]
    limited = ["sh", "-c", f'ulimit -S -t {SECONDS} && exec "$@"', "sh", *pytest]
    begun = time.monotonic()
    try:
        done = subprocess.run(
            limited, cwd=copy, env=environment, capture_output=True, text=True, check=False, timeout=4 * SECONDS,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return dict(zip(COLUMNS, (name, "did not end", 4 * SECONDS, ""), strict=True))
    if done.returncode == -signal.SIGXCPU:
        return dict(zip(COLUMNS, (name, "seen", round(time.monotonic() - begun, 1), "no test ends"), strict=True))
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
    # 0: all passed; 1 and 2: a test failed, or a module of tests could not be imported.
    outcome = {0: "survived", 1: "seen", 2: "seen"}.get(done.returncode, f"pytest ended with {done.returncode}")
    seen_by = failed[1] if failed else "" if done.returncode == 0 else (done.stdout + done.stderr)[-300:]
    return dict(zip(COLUMNS, (name, outcome, round(time.monotonic() - begun, 1), seen_by), strict=True))


def run_all(tree: Path, mutants: Sequence[Mutant], jobs: int, out: Path) -> int:
    """Write the table; returns how many mutants survived or could not be judged.

    Raises:
        ValueError: a mutant does not fit the tree.
    """
    for mutant in mutants:
        mutant.mutate(tree)
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder, ThreadPoolExecutor(jobs) as pool:
        copies = Copies(tree, Path(folder), jobs)
        # A test that fails without a mutant would seem to see every one.
        clean = {tests: pool.submit(copies.run, tests) for tests in sorted({m.tests for m in mutants})}
        rows = [pool.submit(copies.run, m.tests, m) for m in mutants]
        with out.open("w", newline="", encoding="utf-8") as file:
            table = csv.DictWriter(file, COLUMNS)
            table.writeheader()
            failures = 0
            for mutant, running in zip(mutants, rows, strict=True):
                row, unmutated = running.result(), clean[mutant.tests].result()
                if unmutated["outcome"] != "survived":
                    row |= {"outcome": "fails without it", "seen_by": unmutated["seen_by"]}
                failures += row["outcome"] != "seen"
                table.writerow(row)
                file.flush()
                print(f"{row['outcome']:10} {row['seconds']:6.1f} s  {mutant.id}: {row['seen_by']}", flush=True)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = used.ru_utime + used.ru_stime
    print(f"{len(mutants) - failures} of {len(mutants)} seen, {seconds:.0f} s of processor time")
    return failures


def main(words: Iterable[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[], metavar="ID")
    parser.add_argument("--table", default="*", metavar="NAME", help="only the mutants of NAME.yaml")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("mutants.csv"), help="the table")
    given = parser.parse_args(None if words is None else list(words))
    mutants = [m for m in read_mutants(given.table) if not given.only or m.id in given.only]
    return int(run_all(ROOT, mutants, given.jobs, given.out) > 0)


if __name__ == "__main__":
    sys.exit(main())
