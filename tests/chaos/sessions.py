"""Kills whole sessions, Snakemake with all its jobs at one moment, repeats the same command, and compares all values.

    python tests/chaos/sessions.py --kills 60 --seed 1

Runs in a folder with finished results, which it copies. A round begins with no results, or with damaged
ones and ``bayesmesh verify --repair``; after some kills, now and then right after the start, the command runs to its end.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from chaos.values import differing, values_of
from zygote import zygote

EXPERIMENTS = ("digits", "films")
AT_ONCE = 3
"""Kills before a session is let finish."""


def working_in(root: Path) -> list[int]:
    """Return the processes that work in a folder."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            where = Path(os.readlink(entry / "cwd"))
        except OSError:
            continue
        if where.is_relative_to(root):
            found.append(int(entry.name))
    return found


def kill_all(root: Path) -> None:
    """Kill all processes that work in a folder, none of which sees another die."""
    while processes := working_in(root):
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for process in processes:
                try:
                    os.kill(process, number)
                except ProcessLookupError:
                    continue
        time.sleep(0.05)


class Session:
    """A command with all that it starts, in a folder.

    Args:
        root: the folder.
        words: the command.
    """

    def __init__(self, root: Path, words: list[str]) -> None:
        self.said, self._words, self._root = root.with_name("said"), words, root

    def run(self, seconds: float | None) -> int | None:
        """Run the command; after so many seconds it is killed with all that it has started. Returns its exit code if not."""
        command = [str(zygote().bin / self._words[0]), *self._words[1:]]
        with self.said.open("w") as said:
            process = subprocess.Popen(command, cwd=self._root, stdout=said, stderr=said, start_new_session=True)
            try:
                return process.wait(seconds)
            except subprocess.TimeoutExpired:
                kill_all(self._root)
                process.wait()
                return None


def damage(results: Path, name: str, chance: random.Random) -> None:
    """Damage some files with values, by a changed byte or by removal."""
    files = [n for n, digest in sorted(values_of(results, name).items()) if digest]
    for file in chance.sample(files, 3):
        path = results / file
        if chance.random() < 0.5:
            path.unlink()
        else:
            data = bytearray(path.read_bytes())
            data[chance.randrange(len(data))] ^= 1
            path.write_bytes(data)


def prepare(root: Path, whole: Path, name: str, chance: random.Random) -> tuple[str, list[str]]:
    """Lay out the results with which a round begins; returns what kind of round it is, and its command."""
    shutil.rmtree(root / "results")
    (root / "config" / "config.yaml").write_text(f"experiments: [{name}]\n")
    if chance.random() < 0.25:
        shutil.copytree(whole, root / "results", symlinks=True)
        damage(root / "results", name, chance)
        return "repair", ["bayesmesh", "verify", "--repair", name]
    shutil.rmtree(root / ".snakemake")
    (root / "results").mkdir()
    if is_warm := chance.random() < 0.8:
        shutil.copytree(whole / ".cache", root / "results" / ".cache")
    return "warm" if is_warm else "cold", ["snakemake", "--cores", "2", name]


def try_round(
    root: Path, whole: Path, name: str, kills: int, seconds: dict[str, float], chance: random.Random
) -> tuple[str, int, list[str]]:
    """Kill a session some times and let it finish.

    Returns:
        The kind of round, how often it was killed, and what is wrong with what it left.
    """
    kind, words = prepare(root, whole, name, chance)
    session, done = Session(root, words), 0
    code: int | None = None
    while code is None and done < kills:
        # Every now and then right after the start, while locks and specifications are written.
        code = session.run(chance.random() * (6 if chance.random() < 0.3 else seconds.get(kind, 30)))
        done += code is None
    if code is None:
        start = time.monotonic()
        code = session.run(None)
        # What is left after kills is shorter than the whole.
        seconds[kind] = max(seconds.get(kind, 0), time.monotonic() - start)
    text = session.said.read_text()
    wrong = [f"{' '.join(words)} ended with {code}: {text[-3000:]}"] if code or "Traceback" in text else []
    expected = values_of(whole, name)
    wrong += [f"differs: {file}" for file in differing(expected, values_of(root / "results", name))]
    checked = Session(root, ["bayesmesh", "verify"])
    if checked.run(None):
        wrong.append(checked.said.read_text()[-1500:])
    return kind, done, wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    whole, chance = Path.cwd(), random.Random(asked.seed)  # noqa: S311
    # In another folder, or this process and the shell that started it would be among those that work there.
    root = whole.with_name(f"{whole.name}-killed")
    shutil.copytree(whole, root, symlinks=True)
    os.environ["PYTHONPATH"] = str(root / "src")
    done, num_wrong, seconds = Counter[str](), 0, dict[str, float]()
    for name in itertools.cycle(EXPERIMENTS):
        if done.total() >= asked.kills:
            break
        left = min(AT_ONCE, asked.kills - done.total())
        kind, kills, wrong = try_round(root, whole / "results", name, left, seconds, chance)
        done[kind] += kills
        num_wrong += len(wrong)
        print(f"{done.total()} kills, the last {kills} of {name}, {kind}", *wrong[:10], sep="\n  ", flush=True)
    shutil.rmtree(root)
    print(f"{done.total()} kills of sessions, {num_wrong} wrong: {dict(sorted(done.items()))}")
    return int(num_wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
