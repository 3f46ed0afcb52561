"""Run what needs an accelerator, in pieces of less than ten minutes each, and say how each ended.

`python tools/gpu_check.py [--list] [--only PIECE]... [--out FOLDER]` runs the pieces in turn from the root of the project;
`make gpu-check` calls it. A piece that fails or reaches its limit does not stop the others; interrupted samples
continue when a piece runs again. FOLDER gets a log of each piece and gpu-check.csv.
"""

from __future__ import annotations

import argparse
import csv
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

LIMIT_S = 590.0
"""Seconds of a piece."""

_BENCHMARK = ("python", "-m", "bayesmesh_reproduction", "benchmark")
_WORKFLOW = ("snakemake", "--profile", "profiles/local-gpu")

PIECES: Mapping[str, Sequence[str]] = {
    "devices": ("bayesmesh", "doctor"),
    "paths": ("python", "tools/gpu_paths.py"),
    "gradients": (*_BENCHMARK, "gradients"),
    "metropolis": (*_BENCHMARK, "metropolis"),
    "primer": (*_BENCHMARK, "primer"),
    "hidden_markov": (*_BENCHMARK, "hidden_markov"),
    "quickstart": (*_WORKFLOW, "quickstart"),
    "mnist": (*_WORKFLOW, "mnist"),
    "movielens": (*_WORKFLOW, "movielens"),
    "mnist-published": (*_WORKFLOW, "mnist-published"),
    "movielens-published": (*_WORKFLOW, "movielens-published"),
}
"""Name -> command. The real data come from the network or from the folder that ``BAYESMESH_MIRROR`` names."""


def run_piece(command: Sequence[str], log: Path, limit_s: float) -> tuple[str, float]:
    """Run a command with its output in a file, and return how it ended and its seconds.

    At the limit the command is interrupted, so that it commits its draws, and a minute later it is killed.
    """
    begun = time.monotonic()
    with log.open("w") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            code = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGINT)
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            return "time limit", time.monotonic() - begun
    return "ok" if code == 0 else f"exit code {code}", time.monotonic() - begun


def main(arguments: Sequence[str] | None = None, pieces: Mapping[str, Sequence[str]] = PIECES) -> int:
    """Run the pieces and return 0 if all ended well."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="print the pieces and their commands")
    parser.add_argument("--only", action="append", choices=tuple(pieces), metavar="PIECE", help="run this piece")
    parser.add_argument("--out", type=Path, default=Path("results/gpu-check"), help="folder of logs and table")
    parser.add_argument("--limit", type=float, default=LIMIT_S, metavar="SECONDS", help="limit of a piece")
    given = parser.parse_args(arguments)
    if given.list:
        print("\n".join(f"{name:20} {' '.join(command)}" for name, command in pieces.items()))
        return 0
    given.out.mkdir(parents=True, exist_ok=True)
    rows = []
    for name in given.only or pieces:
        print(f"{name}: {' '.join(pieces[name])}", flush=True)
        ended, seconds = run_piece(pieces[name], given.out / f"{name}.log", given.limit)
        print(f"{name}: {ended} after {seconds:.0f} s, log in {given.out / f'{name}.log'}", flush=True)
        rows.append({"piece": name, "ended": ended, "seconds": round(seconds, 1), "command": " ".join(pieces[name])})
        with (given.out / "gpu-check.csv").open("w", newline="") as file:
            table = csv.DictWriter(file, list(rows[0]))
            table.writeheader()
            table.writerows(rows)
    return int(any(row["ended"] != "ok" for row in rows))


if __name__ == "__main__":
    sys.exit(main())
