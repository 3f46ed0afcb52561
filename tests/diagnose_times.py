"""Not a test: the stage `diagnose` on a posterior of hundreds of thousands of scalars, beside earlier commits of the package.

    PYTHONPATH=src:tests python -m diagnose_times [--scalars 204666] [--rounds 3] [--former COMMIT]...

The posterior is AR(1) chains in float32, one latent with all scalars but 501, which are summaries, in shards and chunks as the
store writes them. All scalars are listed. Contenders take turns, each in a process of its own, on all cores that it can use; the
fastest round counts. Each process says how much memory it had before it began and at most. Contenders whose `summary.csv` is the
same byte for byte have the same letter.
"""

from __future__ import annotations

import argparse
import hashlib
import inspect
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

import numpy as np
from scipy.signal import lfilter

HERE = Path(__file__).resolve().parent
NUM_SUMMARIES, RHO, SEGMENT_DRAWS = 501, 0.5, 100


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scalars", type=int, default=204_666)
    parser.add_argument("--chains", type=int, default=2)
    parser.add_argument("--draws", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--former", metavar="COMMIT", action="append", default=[])
    parser.add_argument("--efficiency", action="store_true", help="also time `gates.efficiency: true`")
    parser.add_argument("--run", nargs=3, metavar=("POSTERIOR", "RESULTS", "SETTINGS"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.run:
        print(json.dumps(_run(Path(given.run[0]), Path(given.run[1]), json.loads(given.run[2]))))
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _write_posterior(folder / "posterior.zarr", (given.chains, given.draws, given.scalars))
        contenders = {commit: (_archived(commit, folder / commit), {}) for commit in given.former}
        contenders["now"] = (HERE.parent / "src", {})
        if given.efficiency:
            contenders["now, efficiency"] = (HERE.parent / "src", {"efficiency": True})
        _compare(contenders, folder, given.rounds, given.scalars)


def _compare(contenders: dict[str, tuple[Path, dict[str, bool]]], folder: Path, rounds: int, scalars: int) -> None:
    found: dict[str, list[dict[str, float | str]]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, (source, settings) in contenders.items():
            command = [sys.executable, "-m", "diagnose_times", "--run", str(folder / "posterior.zarr")]
            command += [str(folder / "results"), json.dumps(settings)]
            environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(source), str(HERE)])}
            done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True, cwd=folder)
            found[name].append(json.loads(done.stdout.splitlines()[-1]))
    first = next(iter(found.values()))
    digests = list(dict.fromkeys(str(runs[0]["digest"]) for runs in found.values()))
    print(f"{scalars:,} scalars; {rounds} rounds in turn; us per scalar, and ratios to the first line; MiB")
    print(f"{'':20} {'processor':>15} {'wall':>15} {'before':>8} {'most':>8}  summary.csv")
    for name, runs in found.items():
        texts = []
        for key in ("processor", "wall"):
            own, other = (min(float(run[key]) for run in each) for each in (runs, first))
            texts.append(f"{1e6 * own / scalars:8.1f} {own / other:6.2f}")
        memory = [max(float(run[key]) for run in runs) for key in ("before", "most")]
        letter = "abcdefgh"[digests.index(str(runs[0]["digest"]))]
        print(f"{name:20} {texts[0]:>15} {texts[1]:>15} {memory[0]:8.0f} {memory[1]:8.0f}  {letter}")


def _run(posterior: Path, results: Path, settings: dict[str, bool]) -> dict[str, float | str]:
    """Diagnose once with the package that is on the path."""
    from bayesmesh.config.config_blocks import GateSettings
    from bayesmesh.diagnostics.diagnosis import diagnose
    from bayesmesh.store.layout import ExperimentLayout

    layout = ExperimentLayout(results, "timed")
    layout.summary.parent.mkdir(parents=True, exist_ok=True)
    threads = (
        {"num_threads": len(os.sched_getaffinity(0))} if "num_threads" in inspect.signature(diagnose).parameters else {}
    )
    gates = GateSettings(max_coordinates=10_000_000, **settings)
    # The peak of a process begins with that of the process that started it.
    Path("/proc/self/clear_refs").write_text("5")
    before = _peak()
    processor, wall = time.process_time(), time.perf_counter()
    diagnose(posterior, gates, layout, **threads)
    return {
        "processor": time.process_time() - processor,
        "wall": time.perf_counter() - wall,
        "before": before,
        "most": _peak(),
        "digest": hashlib.sha256(layout.summary.read_bytes()).hexdigest(),
    }


def _peak() -> float:
    """Return the largest resident memory so far, in MiB."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) / 1024


def _archived(commit: str, folder: Path) -> Path:
    done = subprocess.run(["git", "archive", commit, "src/bayesmesh"], capture_output=True, check=True, cwd=HERE.parent)
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder / "src"


def _write_posterior(path: Path, shape: tuple[int, int, int]) -> None:
    from bayesmesh.store.zarr_arrays import chunk_shape, create_array, open_group

    num_chains, num_draws, num_scalars = shape
    root, random = open_group(path, "w"), np.random.default_rng(0)
    sizes = {"summaries/logits": NUM_SUMMARIES, "posterior/weights": num_scalars - NUM_SUMMARIES}
    for name, size in sizes.items():
        group, _, leaf = name.partition("/")
        chunk = chunk_shape((1, SEGMENT_DRAWS, size), 4)
        chunks = (1, max(d for d in range(1, chunk[1] + 1) if SEGMENT_DRAWS % d == 0), chunk[2])
        array = create_array(
            root.require_group(group), leaf, (num_chains, num_draws, size), np.float32, ("chain", "draw", "event"),
            chunks=chunks, shards=(num_chains, SEGMENT_DRAWS, size),
        )  # fmt: skip
        last = np.zeros((num_chains, 1, size))
        for start in range(0, num_draws, SEGMENT_DRAWS):
            noise = random.normal(size=(num_chains, min(SEGMENT_DRAWS, num_draws - start), size))
            noise[:, 1 if start == 0 else 0 :] *= np.sqrt(1 - RHO**2)
            values, _ = lfilter([1.0], [1.0, -RHO], noise, axis=1, zi=RHO * last)
            last = values[:, -1:]
            array[:, start : start + values.shape[1]] = values.astype(np.float32)
    statistics = root.require_group("sample_stats")
    for name, values in {
        "energy": random.normal(size=shape[:2]),
        "diverging": np.zeros(shape[:2], bool),
        "acceptance_rate": np.full(shape[:2], 0.8),
    }.items():
        array = create_array(statistics, name, shape[:2], values.dtype, ("chain", "draw"))
        array[...] = values


if __name__ == "__main__":
    main()
