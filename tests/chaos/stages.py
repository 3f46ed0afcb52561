"""Kills each stage at seeded moments, with and without earlier results, and compares all values with an undisturbed run.

    python tests/chaos/stages.py --kills 120 --seed 1

Runs in a folder with finished results, which are as before when it ends. Half of the kills come at a moment of the clock,
half right before a change of the folder: a file that is opened for writing, renamed, linked or removed. After three kills
a stage runs to its end.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib
import itertools
import os
import random
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from chaos.values import differing, values_of

RESULTS, WHOLE = Path("results"), Path("whole")
AT_ONCE = 3
"""Kills before a stage is let finish."""

CASES = [
    *itertools.product(("fetch", "shard", "compile", "sample", "assemble", "diagnose"), ("digits", "films")),
    ("average", "digits"), ("recommend", "films"), ("report", "digits"), ("report", "films"), ("index", ""),
]  # fmt: skip
"""Stages and experiments."""

CHANGES = ("os.link", "os.mkdir", "os.remove", "os.rename", "os.rmdir")
"""Events by which Python announces a change of a folder; that of an opened file tells by its flags."""

PRELOADED = ("jax.numpy", "tensorflow_probability.substrates.jax", "zarr", "pandas")


class Measured(NamedTuple):
    """An undisturbed run of a stage: its seconds, and the changes that it made below the results."""

    seconds: float
    num_changes: int


def words_of(stage: str, name: str) -> list[str]:
    """Return the command of a stage, with as many cores for sampling as two cores leave each chain group."""
    from bayesmesh.workflow.plan import Plan

    if stage == "index":
        return ["index"]
    words = [stage, "--experiment", name]
    return [*words, "--group", "group-000", "--cores", str(Plan().threads(name, 2))] if stage == "sample" else words


def count_changes(reached: Callable[[int], object]) -> None:
    """Call `reached` with the number of each change of the results that this process is about to make."""
    numbers = itertools.count(1)

    def hear(event: str, told: tuple[object, ...]) -> None:
        if event == "open":
            is_change = isinstance(told[2], int) and bool(told[2] & (os.O_WRONLY | os.O_RDWR))
        else:
            is_change = event in CHANGES
        if is_change and isinstance(told[0], str | Path) and f"{RESULTS}/" in str(told[0]):
            reached(next(numbers))

    sys.addaudithook(hear)


def begin(words: list[str], prepare: Callable[[], None] = lambda: None) -> int:
    """Fork a process that runs a command; returns its number. What it says is in the file ``said``."""
    child = os.fork()
    if child == 0:
        code = 254
        with open("said", "w") as said:
            os.dup2(said.fileno(), 1)
            os.dup2(said.fileno(), 2)
        try:
            from bayesmesh.cli import main

            prepare()
            code = main(words)
        finally:
            sys.stdout.flush()
            os._exit(code)
    return child


def finish(words: list[str]) -> str:
    """Run a command to its end; returns what is wrong with that."""
    _, status = os.waitpid(begin(words), 0)
    return f"{' '.join(words)} ended with {status}: {Path('said').read_text()[-1500:]}" if status else ""


def measure(words: list[str]) -> Measured:
    """Run a command to its end, and count."""
    reader, writer = os.pipe()
    start = time.monotonic()
    _, status = os.waitpid(begin(words, lambda: count_changes(lambda _: os.write(writer, b"."))), 0)
    os.close(writer)
    with open(reader, "rb") as counted:
        num_changes = len(counted.read())
    if status:
        raise SystemExit(f"{' '.join(words)} ended with {status}: {Path('said').read_text()[-1500:]}")
    return Measured(time.monotonic() - start, num_changes)


def kill_once(words: list[str], measured: Measured, chance: random.Random) -> str:
    """Kill a command somewhere in its run; returns how, empty if it had ended before."""
    if chance.random() < 0.5:
        number = chance.randint(1, max(1, measured.num_changes))

        def die(now: int) -> None:
            if now == number:
                os.kill(os.getpid(), signal.SIGKILL)

        child, how = begin(words, lambda: count_changes(die)), "before a change"
    else:
        child, how = begin(words), "at a moment"
        time.sleep(chance.random() * measured.seconds)
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    return how if os.WIFSIGNALED(status) else ""


@contextlib.contextmanager
def as_before() -> Iterator[None]:
    """Put back the finished results afterwards, with the times of files."""
    try:
        yield
    finally:
        shutil.rmtree(RESULTS)
        shutil.copytree(WHOLE, RESULTS, symlinks=True)


class Case:
    """A stage of an experiment, its job, and what an undisturbed run takes.

    Args:
        stage, name: of the job; no name for the index.
    """

    def __init__(self, stage: str, name: str) -> None:
        from bayesmesh.workflow.jobs import Job
        from bayesmesh.workflow.plan import Plan

        self.stage, self.words = stage, words_of(stage, name)
        if name:
            group = "group-000" if stage == "sample" else ""
            self.job = Plan(results=str(RESULTS)).job(stage, name).of_group(group)
        else:
            self.job = Job(stage="index", experiment="index", results=RESULTS, config={})

    def forget(self) -> None:
        """Remove what the job has made."""
        for path in (*self.job.outputs, self.job.record):
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        if self.job.is_sampling:
            for group in self.job.declared.parent.glob("*/group-000"):
                shutil.rmtree(group)

    def unnoticed(self, expected: dict[str, str]) -> list[str]:
        """Return outputs with other values than expected that no reader of the record would notice."""
        from bayesmesh.workflow.reruns import find_damage

        if find_damage(self.job) or not self.job.record.exists():
            # It says so, or nothing is there.
            return []
        found = values_of(RESULTS)
        ours = [p.relative_to(RESULTS).as_posix() for p in self.job.outputs]
        return [n for n in differing(expected, found) if any(f"{n}/".startswith(f"{o}/") for o in ours)]


def try_case(case: Case, kills: int, expected: dict[str, str], chance: random.Random, done: Counter[str]) -> list[str]:
    """Kill a stage some times and let it finish; returns what is wrong with what it left."""
    wrong: list[str] = []
    is_first, is_cold = chance.random() < 0.6, chance.random() < 0.15
    measured = measured_of(case, is_first=is_first)
    with as_before():
        if is_cold:
            shutil.rmtree(RESULTS / ".cache", ignore_errors=True)
        if is_first:
            case.forget()
        while kills:
            if how := kill_once(case.words, measured, chance):
                kills, done[f"{case.stage} {how}"] = kills - 1, done[f"{case.stage} {how}"] + 1
                wrong += [f"after a kill of {' '.join(case.words)}: {n}" for n in case.unnoticed(expected)]
            elif is_first:
                case.forget()
        if said := finish(case.words):
            return [*wrong, said]
        wrong += [f"after {' '.join(case.words)}: {name}" for name in differing(expected, values_of(RESULTS))]
    return wrong


_measured: dict[str, Measured] = {}


def measured_of(case: Case, *, is_first: bool) -> Measured:
    """Return what an undisturbed run of a stage takes, without or with earlier results; the first call runs it."""
    key = f"{' '.join(case.words)} {is_first}"
    if key not in _measured:
        with as_before():
            if is_first:
                case.forget()
            _measured[key] = measure(case.words)
    return _measured[key]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=120)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    # Forks then need not import, collect or copy modules; no device is opened before.
    for module in PRELOADED:
        importlib.import_module(module)
    gc.freeze()
    shutil.copytree(RESULTS, WHOLE, symlinks=True)
    expected, chance, done = values_of(WHOLE), random.Random(asked.seed), Counter[str]()  # noqa: S311
    cases, wrong, left = list(CASES), list[str](), asked.kills
    chance.shuffle(cases)
    for stage, name in itertools.cycle(cases):
        if not left:
            break
        found = try_case(Case(stage, name), min(AT_ONCE, left), expected, chance, done)
        left -= min(AT_ONCE, left)
        print(f"{asked.kills - left} kills, the last of {stage} {name}", *found[:10], sep="\n  ", flush=True)
        wrong += found
    shutil.rmtree(WHOLE)
    print(f"{sum(done.values())} kills of stages, {len(wrong)} wrong: {dict(sorted(done.items()))}")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
