"""Measure how long Snakemake plans a sweep of the digits, and as many empty rules: `python tools/plan_sweep.py [MEMBERS]`."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
STAGES = ("compile", "sample", "assemble", "average", "diagnose", "report")


def main(num_members: int) -> None:
    """Print the processor seconds of dry runs, of the sweep and of empty rules."""
    with tempfile.TemporaryDirectory() as folder:
        ours, empty = Path(folder, "ours"), Path(folder, "empty")
        for part in ("workflow", "profiles", "envs", "src"):
            shutil.copytree(ROOT / part, ours / part)
        shutil.copy(ROOT / "Snakefile", ours)
        (ours / "config" / "experiments").mkdir(parents=True)
        (ours / "config" / "config.yaml").write_text("experiments: [prior-study]\n")
        digits = (ROOT / "config" / "experiments" / "digits.yaml").read_text()
        scales = ", ".join(str(1 + i / 100) for i in range(num_members))
        sweep = f"sweep:\n  grid:\n    model.prior_scale: [{scales}]\n  max_members: {num_members}\n"
        (ours / "config" / "experiments" / "prior-study.yaml").write_text(digits + sweep)
        empty.mkdir()
        (empty / "Snakefile").write_text(_empty_rules(num_members))
        # The first run compiles modules.
        measured = [_plan(ours, "prior-study") for _ in range(2)][-1]
        baseline = _plan(empty, "all")
        print(f"{num_members} members: {measured:.1f} s; {num_members * len(STAGES)} empty rules: {baseline:.1f} s;")
        print(f"ratio {measured / baseline:.2f}")


def _empty_rules(num_members: int) -> str:
    lines = [f"rule all:\n    input: expand('r/{{i}}/{STAGES[-1]}', i=range({num_members}))"]
    for i in range(num_members):
        for before, stage in zip((None, *STAGES), STAGES, strict=False):
            read = f"    input: 'r/{i}/{before}'\n" if before else ""
            lines.append(f"rule {stage}_{i}:\n{read}    output: 'r/{i}/{stage}'\n    shell: 'touch {{output}}'")
    return "\n".join(lines) + "\n"


def _plan(folder: Path, target: str) -> float:
    """Return the processor seconds of a dry run."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "snakemake", "--dry-run", target, "--quiet", "all"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    subprocess.run(command, cwd=folder, check=True, capture_output=True, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else 200)
