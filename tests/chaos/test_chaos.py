"""A sampling process that is killed at 20 moments leaves, once it is let finish, the bytes of an undisturbed run."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

COMMITS = Path(__file__).with_name("commits.py")


def test_twenty_kills_change_no_byte(user_environment: Mapping[str, str], tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(COMMITS), "--kills", "20", "--kernel", "hmc"],
        capture_output=True, text=True, check=False, env={**user_environment, "TMPDIR": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith(
        "20 kills (10 at any moment, 2 before stage, 2 before checkpoint, 2 before marker, 2 before publish, 2 before tidy): 0 of "
    )
