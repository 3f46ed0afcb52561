"""A sampling process that is killed at 10 moments leaves, once it is let finish, the bytes of an undisturbed run."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

COMMITS = Path(__file__).with_name("commits.py")


@pytest.mark.nightly
def test_ten_kills_change_no_byte(user_environment: Mapping[str, str], tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(COMMITS), "--kills", "10", "--kernel", "hmc"],
        capture_output=True, text=True, check=False, env={**user_environment, "TMPDIR": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith(
        "10 kills (5 at any moment, 1 before stage, 1 before checkpoint, 1 before marker, 1 before publish, 1 before tidy): 0 of "
    )
