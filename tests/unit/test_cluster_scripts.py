"""The scripts of profiles/cluster-generic, with real processes."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parents[2] / "profiles" / "cluster-generic"


def call(folder: Path, name: str, *words: str) -> str:
    done = subprocess.run([SCRIPTS / f"{name}.sh", *words], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def submit(folder: Path, script: str, minutes: str = "1") -> str:
    path = folder / f"{len(list(folder.iterdir()))}.sh"
    path.write_text(script)
    return call(folder, "submit", minutes, "100", "0", str(path))


def wait(folder: Path, job: str) -> str:
    """Return how a job ended."""
    until = time.monotonic() + 30
    while (status := call(folder, "status", job)) == "running" and time.monotonic() < until:
        time.sleep(0.02)
    return status


def test_jobs_end_as_they_do(tmp_path: Path) -> None:
    jobs = [submit(tmp_path, f"exit {code}\n") for code in (0, 75)]
    assert [wait(tmp_path, job) for job in jobs] == ["success", "failed"]


def test_a_job_is_told_to_stop_by_its_limit_and_by_cancelling(tmp_path: Path) -> None:
    script = "trap 'echo stopped >$0.out; exit 0' TERM\ntouch $0.begun\nwhile :; do sleep 0.02; done\n"
    # Two seconds, in which it begins on a busy machine too.
    limited = submit(tmp_path, script, "0.034")
    cancelled = submit(tmp_path, script)
    until = time.monotonic() + 30
    while len(list(tmp_path.glob("*.begun"))) < 2:
        assert time.monotonic() < until, "a job did not begin"
        time.sleep(0.02)
    assert call(tmp_path, "status", cancelled) == "running"
    call(tmp_path, "cancel", cancelled)
    assert [wait(tmp_path, job) for job in (limited, cancelled)] == ["failed", "failed"]
    until = time.monotonic() + 30
    while len(list(tmp_path.glob("*.out"))) < 2 and time.monotonic() < until:
        time.sleep(0.02)
    assert len(list(tmp_path.glob("*.out"))) == 2
