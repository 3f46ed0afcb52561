"""Damages stored results, one file at a time, and says what nobody noticed.

    python tests/promises/damage.py --count 600 --seed 1

Runs in a folder with finished results, which are as before when it ends. Each damage must be named by ``bayesmesh verify``,
unless the file is a log; and whoever reads results must refuse, say so, or make what it made before. Everything runs
in forks of this process, which has imported what they need.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import difflib
import functools
import hashlib
import json
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

RESULTS = Path("results")

HARMLESS = ("logs", ".cache")
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


def _namesakes(path: Path) -> list[Path]:
    """Return the files of the same name elsewhere: of another experiment, dataset, group, array or job."""
    return [p for p in sorted(RESULTS.rglob(path.name)) if p.is_file() and p.read_bytes() != path.read_bytes()]


@functools.cache
def _has_namesake(name: str) -> bool:
    """Return whether files of that name differ, before anything is damaged."""
    return len({path.read_bytes() for path in RESULTS.rglob(name) if path.is_file()}) > 1


def _exchange(path: Path, chance: random.Random) -> None:
    """Exchange it with a namesake, times included."""
    other, aside = chance.choice(_namesakes(path)), path.with_name(".aside")
    path.rename(aside)
    other.rename(path)
    aside.rename(other)


def _replace_by_pipe(path: Path, _: random.Random) -> None:
    """Put a pipe there, which keeps waiting whoever opens it."""
    path.unlink()
    os.mkfifo(path)


def _move_folder(path: Path, _: random.Random) -> None:
    """Keep its folder elsewhere, as on a disk with more room."""
    aside = path.parent.with_name(f".{path.parent.name}.elsewhere")
    path.parent.rename(aside)
    path.parent.symlink_to(aside.name)


def _empty_folder(path: Path, _: random.Random) -> None:
    shutil.rmtree(path.parent)
    path.parent.mkdir()


def _date_ahead(path: Path, _: random.Random) -> None:
    """Date it into the future, as a machine whose clock is wrong."""
    os.utime(path, (4e9, 4e9))


def _repeat_key(path: Path, _: random.Random) -> None:
    """Give an object its first key twice: readers of JSON take the last."""
    path.write_text(re.sub(r'\{(\s*"[^"]*":)', r"{\1 0,\1", path.read_text(), count=1))


def _make_nan(path: Path, chance: random.Random) -> None:
    """Replace a number by NaN, which is not JSON but which Python reads."""
    text = path.read_text()
    begin, end = chance.choice([m.span() for m in re.finditer(NUMBER, text)])
    path.write_text(f"{text[:begin]}NaN{text[end:]}")


NUMBER = r"(?<=[:,\[ ])-?\d[\d.e+-]*(?=[,\]}\s])"
"""A number in a table or in JSON."""

KINDS: dict[str, Callable[[Path, random.Random], object]] = {
    "ahead": _date_ahead,
    "bit": _flip,
    "capital": lambda path, _: path.rename(path.with_name(path.name.upper())),
    "copied": lambda path, _: shutil.copy(path, path.with_name(f"{path.stem}-copy{path.suffix}")),
    "digit": _change_digit,
    "elsewhere": _move_folder,
    "emptied": lambda path, _: path.write_bytes(b""),
    "emptied folder": _empty_folder,
    "exchanged": _exchange,
    "folder": _replace_by_folder,
    "gone": lambda path, _: path.unlink(),
    "halved": lambda path, _: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "link": _replace_by_link,
    "key twice": _repeat_key,
    "line ends": lambda path, _: path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n")),
    "longer": lambda path, _: path.write_bytes(path.read_bytes() + b" "),
    "nan": _make_nan,
    "other": _swap,
    "pipe": _replace_by_pipe,
    "sparse": lambda path, _: path.write_bytes(bytes(path.stat().st_size)),
}
"""Kind of damage -> what does it."""

POSSIBLE: dict[str, Callable[[Path, bytes], object]] = {
    "capital": lambda path, _: path.name != path.name.upper(),
    "digit": lambda _, data: re.search(rb"\d", data),
    "elsewhere": lambda path, _: path.parent != RESULTS,
    "emptied folder": lambda path, _: path.parent != RESULTS,
    "exchanged": lambda path, _: _has_namesake(path.name),
    "key twice": lambda path, data: path.suffix in (".json", ".jsonl") and b'":' in data,
    "line ends": lambda _, data: b"\n" in data,
    "nan": lambda path, data: path.suffix in (".json", ".jsonl", ".csv") and re.search(NUMBER, data.decode()),
}
"""Kind of damage -> whether a file with some content can have it."""

HARMLESS_KINDS = ("ahead", "copied", "elsewhere")
"""Kinds that leave every file as it was: `verify` need not name them, but readers must make what they made before."""

SAID = re.compile("damaged|unreadable|older than|Missing are")
"""What tables say of results that are not whole."""

LONGEST = 60
"""Seconds after which a command is taken for one that waits forever."""


class Damage(NamedTuple):
    """A file below the results, and what happens to it."""

    file: Path
    kind: str


class Answer(NamedTuple):
    """Exit code of a command, -1 for a traceback, and what it printed."""

    code: int
    text: str


class Whole(NamedTuple):
    """Analyses of each experiment, digests of the tables, and what commands show, before anything is damaged."""

    analyses: dict[str, list[str]]
    tables: dict[str, str]
    shown: dict[tuple[str, ...], str]


def choose(count: int, seed: int) -> list[Damage]:
    """Return `count` damages, or all there are, each kind for each file at most once."""
    # The page that explains the folder belongs to the project.
    found = (p for p in sorted(RESULTS.rglob("*")) if p.is_file() and not p.name.startswith("."))
    files = [p for p in found if p != RESULTS / "README.md"]
    every = [Damage(file, kind) for file in files if ".cache" not in file.parts for kind in _possible_kinds(file)]
    random.Random(seed).shuffle(every)  # noqa: S311
    return every[:count]


def _possible_kinds(file: Path) -> list[str]:
    data = file.read_bytes()
    return [kind for kind in KINDS if kind not in POSSIBLE or POSSIBLE[kind](file, data)] if data else []


def call(*words: str) -> Answer:
    """Run a command of Bayesmesh in a fork."""
    from bayesmesh.cli import main

    with tempfile.TemporaryFile("w+") as said:
        child = os.fork()
        if child == 0:
            code = 254
            os.dup2(said.fileno(), 1)
            os.dup2(said.fileno(), 2)
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(LONGEST)
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
    return Answer(-1 if code == 254 or code < 0 or "Traceback" in text else code, text or f"ended by signal {-code}")


@contextlib.contextmanager
def kept() -> Iterator[None]:
    """Put back all results that change meanwhile."""
    with tempfile.TemporaryDirectory(dir=".") as folder:
        shutil.copytree(RESULTS, Path(folder, "kept"), symlinks=True)
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
    volatile = ("ledger", "seals", "logs", ".cache")
    files = (p for p in folder.rglob("*") if p.is_file() and not set(volatile) & set(p.relative_to(folder).parts))
    kept = (p for p in files if not p.name.startswith(("ledger.csv", ".")) and p.suffix != ".html")
    return {str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest() for p in kept}


def shown(words: Sequence[str], answer: Answer) -> str:
    """Return what a command shows of results; empty for other jobs.

    That is the page that it wrote, or the table of `status` without ages and without what Slurm's queue answers, which may
    change from one call to the next, and without the rate, the median over the segments that are there.
    """
    if words[0] == "status":
        text = re.sub(r"(\d+/\d+ +)[\d.]+", r"\1", answer.text)
        return re.sub(r"\d+ (s|min|h|d) ago|^queue: .*\n\n?", "", text, flags=re.MULTILINE)
    page = {"index": RESULTS / "index.html", "report": RESULTS / words[-1] / "report.html"}.get(words[0])
    return page.read_text() if page else ""


def judge(damage: Damage, seed: int, whole: Whole) -> tuple[list[str], list[str]]:
    """Return how a damage was noticed, and what went unnoticed or ended in a traceback."""
    noticed, found = [], []
    words = random.Random(f"{seed} reader {damage}").choice(readers(damage, whole.analyses))  # noqa: S311
    see_whole(words, whole)
    with kept():
        KINDS[damage.kind](damage.file, random.Random(f"{seed} {damage}"))  # noqa: S311
        before = tables(RESULTS)
        verified = call("verify")
        is_harmless = damage.kind in HARMLESS_KINDS or set(HARMLESS) & set(damage.file.parts)
        if verified.code == -1:
            found.append(f"verify ended in a traceback: {verified.text[-800:]}")
        elif verified.code != 0 and str(damage.file) in verified.text:
            noticed.append("named")
        elif is_harmless:
            noticed.append("harmless")
        else:
            found.append(f"verify did not name it: {verified.text[-300:]}")
        made = call(*words)
        if made.code == -1:
            found.append(f"{' '.join(words)} ended in a traceback: {made.text[-800:]}")
        elif made.code != 0:
            is_refused = words[0] != "status" and "remedy: " in made.text
            (noticed if is_refused else found).append(f"{words[0]} refused")
        else:
            now = tables(RESULTS)
            others = [f for f, digest in whole.tables.items() if now.get(f) not in (digest, before.get(f))]
            is_reader = words[0] in ("status", "index")
            found += [f"{' '.join(words)} made another {file}" for file in others[:1] if not is_reader]
            text, expected = shown(words, made), whole.shown[tuple(words)]
            # The style sheet of a page has some of these words.
            is_said = is_reader and len(SAID.findall(text)) > len(SAID.findall(expected))
            if text == expected or is_said:
                noticed.append(f"{words[0]} {'said so' if is_said else 'made the same'}")
            else:
                changes = difflib.unified_diff(expected.splitlines(), text.splitlines(), lineterm="", n=0)
                found.append(f"{' '.join(words)} showed something else: {list(changes)[2:6]}")
    return noticed, found


def see_whole(words: Sequence[str], whole: Whole) -> None:
    """See what a command shows of whole results."""
    if tuple(words) not in whole.shown:
        # A page shows the times of all jobs, so each command finds the same state, as a damage does.
        with kept():
            whole.shown[tuple(words)] = shown(words, call(*words))


def analyses_of() -> dict[str, list[str]]:
    """Return experiment -> verbs of its analyses."""
    from bayesmesh.workflow.jobs import later_stages
    from bayesmesh.workflow.plan import Plan

    plan = Plan()
    return {
        name: [s for s in later_stages(e) if s not in ("sample", "assemble")] for name, e in plan.experiments.items()
    }


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
    verified = call("verify")
    if verified.code != 0:
        print(f"not whole to begin with:\n{verified.text}")
        return 1
    whole = Whole(analyses_of(), tables(RESULTS), {})
    chosen, counts, num_bad = choose(asked.count, asked.seed), collections.Counter[str](), 0
    for damage in chosen:
        noticed, found = judge(damage, asked.seed, whole)
        counts.update(noticed)
        num_bad += len(found)
        for line in found:
            print(json.dumps({"file": str(damage.file), "kind": damage.kind, "unnoticed": line}), flush=True)
    said = ", ".join(f"{count} {word}" for word, count in sorted(counts.items()))
    print(f"{len(chosen)} damages: {said}; {num_bad} unnoticed")
    return int(num_bad > 0)


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        sys.exit(main())
