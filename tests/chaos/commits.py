"""Kills a sampling process again and again, and holds what it leaves against an undisturbed run, byte for byte.

    python tests/chaos/commits.py --kills 200

Half of the kills come at a random moment, half right before a step of the commit: each is a real SIGKILL of a real
process that samples. The suite runs 10 of them, `make chaos` as many as you like.
"""

from __future__ import annotations

import argparse
import functools
import gc
import hashlib
import importlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

STEPS = ("stage", "checkpoint", "marker", "publish", "tidy")
"""What a commit does, in order; a kill comes right before one of them, after the one before."""


def experiment(kernel: str, kills: int) -> dict[str, Any]:
    """Return a tiny experiment with a commit for every draw, and more commits than kills can reach."""
    return {
        "title": "Killed again and again",
        "data": {"source": "gaussian", "num_rows": 20, "dimension": 3},
        "model": {"name": "gaussian"},
        "kernel": {"name": kernel},
        "sampling": {"chains": 4, "warmup": 12, "draws": 4 * kills, "segment_seconds": 1e-6, "seed": 7},
    }


def specs(config: dict[str, Any], results: Path) -> dict[str, str]:
    """Return stage -> specification, as JSON."""
    from bayesmesh.config.experiment import experiment_class
    from bayesmesh.workflow.jobs import make_job

    valid = experiment_class().model_validate(config)
    return {s: make_job(s, "killed", valid, str(results)).canonical() for s in ("fetch", "shard", "compile", "sample")}


def run_stage(stage: str, spec: str) -> None:
    """Run one stage as a user would."""
    subprocess.run([sys.executable, "-m", "bayesmesh.cli", stage, "--spec", spec], check=True, capture_output=True)


def begin_stage(stage: str, spec: str, prepare: Callable[[], None] = lambda: None) -> int:
    """Fork a process that runs one stage; returns its number.

    Modules are imported before the fork and devices opened after it: a start costs a second instead of six.
    """
    child = os.fork()
    if child == 0:
        status = 1
        try:
            prepare()
            from bayesmesh.cli import main

            sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - for the rest of this process
            status = main([stage, "--spec", spec])
        finally:
            os._exit(status)
    return child


def prepare_death(step: str, number: int, seconds: float) -> None:
    """Have this process killed right before the `number`-th `step`; without a step, so many seconds after its first commit.

    Its own clock tells: on a busy machine somebody who watched from outside could come too late.
    """
    from bayesmesh.store.chains import arrays as draw_arrays
    from bayesmesh.store.chains import checkpoints, segments

    count = 0

    def begin_to_count(operation: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal count
            count += 1
            made = operation(*args, **kwargs)
            if count == 1:
                threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGKILL)).start()
            return made

        return call

    def before(operation: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal count
            count += 1
            if count == number:
                os.kill(os.getpid(), signal.SIGKILL)
            return operation(*args, **kwargs)

        return call

    where = {
        "stage": (draw_arrays.DrawArrays, "stage"),
        "checkpoint": (checkpoints.Checkpoints, "write"),
        "marker": (segments, "write_marker"),
        "publish": (draw_arrays.DrawArrays, "publish"),
        "tidy": (segments.ChainStore, "_tidy"),
    }
    owner, name = where[step or "marker"]
    setattr(owner, name, (before if step else begin_to_count)(getattr(owner, name)))


def bytes_of(results: Path) -> dict[str, str]:
    """Return file -> sha256 of all that chains stored, without the clock in the facts of markers."""
    found = {}
    for path in sorted(p for p in (results / "killed" / "chains").rglob("*") if p.is_file()):
        content = path.read_bytes()
        if path.parent.name == "commits":
            marker = json.loads(content)
            del marker["sha256"]
            for facts in (marker["facts"], *marker["earlier"]):
                facts.pop("committed_at"), facts.pop("seconds")
            content = json.dumps(marker, sort_keys=True).encode()
        found[str(path.relative_to(results))] = hashlib.sha256(content).hexdigest()
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kernel", default="chees")
    arguments = parser.parse_args()
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    for module in (
        "cli",
        "workflow.stages.command",
        "workflow.stages.sample",
        "models.gaussian",
        f"kernels.{arguments.kernel}",
    ):
        importlib.import_module(f"bayesmesh.{module}")
    # Forks then need not collect or copy imported modules.
    gc.freeze()
    chance = random.Random(arguments.seed)  # noqa: S311 - moments, not secrets
    moments = [(STEPS[i // 2 % len(STEPS)] if i % 2 else "", chance.random()) for i in range(arguments.kills)]
    with tempfile.TemporaryDirectory() as folder:
        whole, killed = Path(folder, "whole"), Path(folder, "killed")
        config = experiment(arguments.kernel, arguments.kills)
        told = specs(config, whole)
        for stage in ("fetch", "shard", "compile", "sample"):
            if stage == "sample":
                shutil.copytree(whole, killed)
            _, status = os.waitpid(begin_stage(stage, told[stage]), 0)
            if status:
                print(f"{stage} ended with {status}", file=sys.stderr)
                return 1
        spec = specs(config, killed)["sample"]
        deaths = dict.fromkeys(("", *STEPS), 0)
        for step, share in moments:
            # A stage has a dozen arrays, the other steps come once a commit.
            number = 1 + int(share * (40 if step == "stage" else 4))
            child = begin_stage("sample", spec, functools.partial(prepare_death, step, number, share * 0.05))
            _, status = os.waitpid(child, 0)
            if not os.WIFSIGNALED(status):
                print(f"a process ended with {status} before it was to be killed: {step} {number}", file=sys.stderr)
                return 1
            deaths[step] += 1
        # By what a user starts anew, which has none of this process's modules.
        run_stage("sample", spec)
        expected, found = bytes_of(whole), bytes_of(killed)
    different = sorted(n for n in expected.keys() | found.keys() if expected.get(n) != found.get(n))
    for name in different:
        print(f"differs: {name}", file=sys.stderr)
    named = ", ".join(f"{n} {'before ' + s if s else 'at any moment'}" for s, n in deaths.items())
    print(f"{sum(deaths.values())} kills ({named}): {len(different)} of {len(expected)} files differ")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
