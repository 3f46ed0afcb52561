"""A sampling process that is killed at 30 moments leaves, once it is let finish, the bytes of an undisturbed run."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

KILL = Path(__file__).with_name("kill.py")


def test_thirty_kills_change_no_byte(user_environment: Mapping[str, str], tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(KILL), "--kills", "30", "--kernel", "hmc"],
        capture_output=True, text=True, check=False, env={**user_environment, "TMPDIR": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith(
        "30 kills (15 at any moment, 3 before stage, 3 before checkpoint, 3 before marker, 3 before publish, 3 before tidy): 0 of "
    )
