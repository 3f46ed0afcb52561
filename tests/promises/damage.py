"""Damages stored results, one file at a time, and says what nobody noticed.

    python tests/promises/damage.py --count 600 --seed 1

Runs in a folder with finished results, which are as before when it ends. Each damage must be named by ``bayesmesh verify``,
unless the file is a log; and whoever reads results must refuse, say so, or make what it made before. Everything runs
in forks of this process, which has imported what they need.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import random
import shutil
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

RESULTS = Path("results")

HARMLESS = ("logs", "benchmarks", ".cache")
"""Folders of files that nobody reads for a result: logs, and Snakemake's times; entries of the cache are checked when read."""


def _flip(path: Path, chance: random.Random) -> None:
    """Change a bit, but neither size nor time."""
    about, data = path.stat(), bytearray(path.read_bytes())
    data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    path.write_bytes(data)
    os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))


def _change_digit(path: Path, chance: random.Random) -> None:
    """Change a digit to another one, as somebody who wants a better number."""
    data = bytearray(path.read_bytes())
    digits = [i for i, byte in enumerate(data) if 48 <= byte <= 57]
    place = chance.choice(digits)
    data[place] = chance.choice([byte for byte in range(48, 58) if byte != data[place]])
    path.write_bytes(data)


def _replace_by_folder(path: Path, _: random.Random) -> None:
    path.unlink()
    path.mkdir()
    (path / "stray").write_text("?")


def _replace_by_link(path: Path, _: random.Random) -> None:
    path.unlink()
    path.symlink_to("/nonexistent/file")


def _swap(path: Path, chance: random.Random) -> None:
    """Give it the content of another file of its kind."""
    others = [p for p in RESULTS.rglob(f"*{path.suffix}") if p.is_file() and p.read_bytes() != path.read_bytes()]
    path.write_bytes(chance.choice(sorted(others)).read_bytes())


KINDS: dict[str, Callable[[Path, random.Random], object]] = {
    "bit": _flip,
    "digit": _change_digit,
    "emptied": lambda path, _: path.write_bytes(b""),
    "folder": _replace_by_folder,
    "gone": lambda path, _: path.unlink(),
    "halved": lambda path, _: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "link": _replace_by_link,
    "longer": lambda path, _: path.write_bytes(path.read_bytes() + b" "),
    "other": _swap,
}
"""Kind of damage -> what does it."""


class Damage(NamedTuple):
    """A file below the results, and what happens to it."""

    file: Path
    kind: str


class Answer(NamedTuple):
    """Exit code of a command, -1 for a traceback, and what it printed."""

    code: int
    text: str


def choose(count: int, seed: int) -> list[Damage]:
    """Return `count` damages, or all there are, each kind for each file at most once."""
    # The page that explains the folder belongs to the project.
    found = (p for p in sorted(RESULTS.rglob("*")) if p.is_file() and not p.name.startswith("."))
    files = [p for p in found if p != RESULTS / "README.md"]
    every = [
        Damage(file, kind) for file in files if ".cache" not in file.parts for kind in KINDS if _is_possible(file, kind)
    ]
    random.Random(seed).shuffle(every)  # noqa: S311
    return every[:count]


def _is_possible(file: Path, kind: str) -> bool:
    data = file.read_bytes()
    return bool(data) and (kind != "digit" or any(48 <= byte <= 57 for byte in data))


def call(*words: str) -> Answer:
    """Run a command of Bayesmesh in a fork."""
    from bayesmesh.cli import main

    with tempfile.TemporaryFile("w+") as said:
        child = os.fork()
        if child == 0:
            code = 254
            os.dup2(said.fileno(), 1)
            os.dup2(said.fileno(), 2)
            try:
                code = main(list(words))
            except SystemExit as end:
                code = int(end.code or 0)
            except BaseException:  # noqa: BLE001 - whatever it is, a user would see it
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        _, status = os.waitpid(child, 0)
        said.seek(0)
        text = said.read()
    code = os.waitstatus_to_exitcode(status)
    return Answer(-1 if code == 254 or "Traceback" in text else code, text)


@contextlib.contextmanager
def damaged(damage: Damage, seed: int) -> Iterator[None]:
    """Let a file be damaged for a while, and put back all that changed meanwhile."""
    with tempfile.TemporaryDirectory(dir=".") as folder:
        shutil.copytree(RESULTS, Path(folder, "kept"), symlinks=True)
        KINDS[damage.kind](damage.file, random.Random(f"{seed} {damage}"))  # noqa: S311
        try:
            yield
        finally:
            shutil.rmtree(RESULTS)
            Path(folder, "kept").rename(RESULTS)


def readers(damage: Damage, analyses: dict[str, list[str]]) -> list[list[str]]:
    """Return the commands that may read a file: those of its experiment, or of all experiments for shared data."""
    owner = (
        damage.file.parts[1]
        if damage.file.parts[1] in analyses
        else damage.file.parts[2:3][0]
        if damage.file.parts[1] == "seals"
        else ""
    )
    names = [owner] if owner in analyses else sorted(analyses)
    jobs = [[verb, "--experiment", n] for n in names for verb in ("assemble", "diagnose", *analyses[n], "report")]
    return [["status"], ["index"], *jobs]


def tables(folder: Path) -> dict[str, str]:
    """Return the digests of all results that do not depend on when they were made."""
    volatile = ("ledger", "seals", "logs", "benchmarks", ".cache")
    files = (p for p in folder.rglob("*") if p.is_file() and not set(volatile) & set(p.relative_to(folder).parts))
    kept = (
        p
        for p in files
        if not p.name.startswith(("ledger.csv", ".")) and p.suffix != ".html" and "receipt" not in p.name
    )
    return {str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest() for p in kept}


def judge(damage: Damage, seed: int, analyses: dict[str, list[str]], expected: dict[str, str]) -> list[str]:
    """Return what went unnoticed, or ended in a traceback."""
    found = []
    with damaged(damage, seed):
        verified = call("verify")
        is_named = verified.code != 0 and str(damage.file) in verified.text
        if verified.code == -1:
            found.append(f"verify ended in a traceback: {verified.text[-500:]}")
        elif not is_named and not set(HARMLESS) & set(damage.file.parts):
            found.append("verify did not name it")
        words = random.Random(f"{seed} reader {damage}").choice(readers(damage, analyses))  # noqa: S311
        made = call(*words)
        if made.code == -1:
            found.append(f"{' '.join(words)} ended in a traceback: {made.text[-800:]}")
        elif made.code == 0 and words[0] not in ("status", "index"):
            now = tables(RESULTS)
            name = str(damage.file.relative_to(RESULTS))
            others = [file for file, digest in expected.items() if file != name and now.get(file) != digest]
            found += [f"{' '.join(words)} made another {file}" for file in others[:1]]
        elif words[0] == "status" and made.code != 0:
            found.append(f"status ended with {made.code}: {made.text[-500:]}")
    return found


def analyses_of() -> dict[str, list[str]]:
    """Return experiment -> verbs of its analyses."""
    from bayesmesh.planning.plan import Plan
    from bayesmesh.planning.specs import later_stages

    plan = Plan()
    return {name: [s for s in later_stages(e) if s != "sample"] for name, e in plan.experiments.items()}


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=600)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args(argv)
    # What forks would import one by one; no device is opened before they are forked.
    import jax.numpy
    import tensorflow_probability.substrates.jax
    import zarr

    del jax, tensorflow_probability, zarr
    analyses, expected = analyses_of(), tables(RESULTS)
    whole = call("verify")
    if whole.code != 0:
        print(f"not whole to begin with:\n{whole.text}")
        return 1
    chosen, num_bad = choose(asked.count, asked.seed), 0
    for damage in chosen:
        for line in judge(damage, asked.seed, analyses, expected):
            num_bad += 1
            print(json.dumps({"file": str(damage.file), "kind": damage.kind, "unnoticed": line}), flush=True)
    print(f"{len(chosen)} damages, {num_bad} unnoticed")
    return int(num_bad > 0)


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        sys.exit(main())
