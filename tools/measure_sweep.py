"""Compare a sweep of twelve prior scales on the digits with its members run by hand: `python tools/measure_sweep.py FOLDER [BY_HAND]`.

Some members, three by default, are run one after the other, each by itself on all cores, with their programs compiled before. Their
warmup and sampling, times twelve over their number, is the yardstick; the sweep begins with an empty cache.
"""

from __future__ import annotations

import csv
import shutil
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SCALES = [round(0.5 + 0.25 * i, 2) for i in range(12)]
SAMPLING = ("warmup", "sample")


def write_project(folder: Path, num_by_hand: int) -> None:
    """Write the workflow, the sweep and the members by themselves."""
    for part in ("workflow", "profiles", "envs"):
        shutil.copytree(ROOT / part, folder / part)
    shutil.copy(ROOT / "Snakefile", folder)
    experiments = folder / "config" / "experiments"
    experiments.mkdir(parents=True)
    (folder / "config" / "config.yaml").write_text("experiments: [prior-study]\n")
    digits = (ROOT / "config" / "experiments" / "digits.yaml").read_text()
    grid = ", ".join(map(str, SCALES))
    (experiments / "prior-study.yaml").write_text(f"{digits}sweep:\n  grid:\n    model.prior_scale: [{grid}]\n")
    name = "  name: softmax_regression\n"
    for number, scale in enumerate(SCALES[: num_by_hand + 1]):
        own = digits.replace(name, f"{name}  prior_scale: {scale}\n")
        (experiments / f"alone-{number}.yaml").write_text(own)


def run(folder: Path, target: str) -> float:
    """Run Snakemake; return wall seconds."""
    start = time.perf_counter()
    command = [sys.executable, "-m", "snakemake", target, "--cores", "2", "--quiet", "all"]
    subprocess.run(command, cwd=folder, check=True)
    return time.perf_counter() - start


def read_phases(ledger: Path) -> list[dict[str, str]]:
    """Return the rows of an experiment's ledger."""
    with ledger.open() as file:
        return list(csv.DictReader(file))


def sampling_seconds(ledger: Path) -> float:
    """Return the wall seconds of warmup and draws."""
    return sum(float(row["seconds"]) for row in read_phases(ledger) if row["phase"] in SAMPLING)


def main() -> None:
    folder, num_by_hand = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 3
    write_project(folder, num_by_hand)
    results = folder / "results"
    together = run(folder, "prior-study")
    of_members = sorted(results.glob("prior-study-*/ledger.csv"))
    compiled = Counter(
        row["detail"]
        for path in of_members
        for row in read_phases(path)
        if row["phase"] == "compile" and row["detail"].endswith("cold")
    )
    run(folder, f"alone-{num_by_hand}")
    alone = [run(folder, f"alone-{number}") for number in range(num_by_hand)]
    sampling = [sampling_seconds(results / f"alone-{number}" / "ledger.csv") for number in range(num_by_hand)]
    by_hand = sum(sampling) / num_by_hand * len(SCALES)
    print(
        f"sweep of {len(SCALES)}: {together:.0f} s, of which members sampled {sum(map(sampling_seconds, of_members)):.0f} s"
    )
    print(
        f"by hand: {by_hand:.0f} s of sampling, {sum(alone) / num_by_hand * len(SCALES):.0f} s in all, of {num_by_hand} members"
    )
    print(f"ratio to the sampling {together / by_hand:.2f}; compiled in the sweep: {dict(compiled)}")


if __name__ == "__main__":
    main()
