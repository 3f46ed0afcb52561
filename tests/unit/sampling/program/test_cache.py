"""A damaged entry of the compilation cache is compiled again, with a warning, and never executed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import sys, jax, numpy as np
from bayesmesh.sampling.program.cache import count_misses, use_cache
use_cache(sys.argv[1])
with count_misses() as misses:
    value = float(jax.jit(lambda x: x + 1)(np.float32(3)))
print(value, len(misses))
"""


def _run(results: Path, environment: dict[str, str]) -> tuple[str, str]:
    command = [sys.executable, "-c", PROGRAM, str(results)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.strip(), done.stderr


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory, user_environment: dict[str, str]) -> Path:
    """Return the entry of the program, in a folder of results in which it is found."""
    results = tmp_path_factory.mktemp("results")
    assert _run(results, user_environment)[0] == "4.0 1"
    assert _run(results, user_environment)[0] == "4.0 0"
    (entry,) = (results / ".cache" / "xla").glob("jit__lambda*-cache")
    return entry


@pytest.mark.parametrize("kind", ["empty", "truncated", "altered"])
def test_a_damaged_program_is_compiled_again(stored: Path, kind: str, user_environment: dict[str, str]) -> None:
    """An entry that a killed job wrote only in part, and one with a wrong byte."""
    content = stored.read_bytes()
    half = len(content) // 2
    altered = content[:half] + bytes([content[half] ^ 1]) + content[half + 1 :]
    stored.write_bytes({"empty": b"", "truncated": content[:half], "altered": altered}[kind])
    printed, warned = _run(stored.parents[2], user_environment)
    stored.write_bytes(content)
    assert printed.startswith("4.0 ")
    assert "Error reading persistent compilation cache entry for 'jit__lambda'" in warned
