"""JAX reads compiled programs through the cache that checks them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import sys, jax, jax.numpy as jnp
from bayesmesh.sampling.compilation_cache import count_misses, use_cache
use_cache(sys.argv[1])
with count_misses() as misses:
    values = [float(jax.jit(f)(jnp.float32(3))) for f in (lambda x: x + 1, lambda x: x * 2)]
print(values, len(misses))
"""


def _run(results: Path, environment: dict[str, str]) -> tuple[str, str]:
    command = [sys.executable, "-c", PROGRAM, str(results)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.strip(), done.stderr


def test_swapped_programs_are_compiled_anew_and_not_executed(tmp_path: Path, user_environment: dict[str, str]) -> None:
    cold, _ = _run(tmp_path, user_environment)
    files = sorted((tmp_path / ".cache" / "xla").glob("jit__lambda*-cache"))
    assert cold.startswith("[4.0, 6.0]")
    assert len(files) == 2
    assert _run(tmp_path, user_environment)[0] == "[4.0, 6.0] 0"
    first, second = (file.read_bytes() for file in files)
    files[0].write_bytes(second)
    files[1].write_bytes(first)
    mended, said = _run(tmp_path, user_environment)
    assert mended == "[4.0, 6.0] 2"
    assert all(f"{file}: is damaged, or belongs to another program" in said for file in files)
    assert _run(tmp_path, user_environment)[0] == "[4.0, 6.0] 0"
