"""Kills everything that works on results, at seeded moments, and compares all values with an undisturbed run.

    python tests/chaos/kill.py --kills 300

Of the kills, two fifths hit a sampling process between the steps of its commits, two fifths one stage of the flow, and
one fifth whole sessions: Snakemake with all that it has started. The suite runs few of each.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from workspace import EXPERIMENTS, for_user, lay_out


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    # Programs run for milliseconds.
    os.environ["XLA_FLAGS"] = "--xla_backend_optimization_level=0"
    sessions = asked.kills // 5
    stages = asked.kills * 2 // 5
    with tempfile.TemporaryDirectory() as folder:
        # Compiled programs, where the tests share theirs.
        os.environ["BAYESMESH_TEST_CACHE"] = str(Path(folder, "cache"))
        workspace = lay_out(Path(folder, "project"), for_user(dict(os.environ)), EXPERIMENTS)
        for name in EXPERIMENTS:
            # One draw a segment: other lengths follow the measured time of a gradient, and the shapes of chunks follow them.
            workspace.set(name, "sampling.segment_seconds", 1e-6)
        undisturbed = workspace.snakemake("--cores", "2")
        if undisturbed.returncode:
            print(undisturbed.stdout, undisturbed.stderr, file=sys.stderr)
            return 1
        counts = {"stages": stages, "sessions": sessions, "commits": asked.kills - stages - sessions}
        codes = [
            subprocess.run(
                [sys.executable, Path(__file__).with_name(f"{kind}.py"), f"--kills={count}", f"--seed={asked.seed}"],
                cwd=workspace.root, env=workspace.environment, check=False,
            ).returncode
            for kind, count in counts.items()
        ]  # fmt: skip
    return int(any(codes))


if __name__ == "__main__":
    sys.exit(main())
