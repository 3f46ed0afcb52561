"""Programs are compiled side by side, and those of later stages with them where the cache lacks one."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from bayesmesh.sampling.program import compilation
from bayesmesh.sampling.program.compilation import compile_programs
from bayesmesh.store.ledger import Ledger

ONE = jax.ShapeDtypeStruct((), jnp.float32)


optimised: list[bool] = []
"""Of each program, whether it was compiled as usual."""


class Adding:
    """Programs that add the length of their names."""

    def compiler_options(self, name: str) -> dict[str, int] | None:
        return {"xla_backend_optimization_level": 0} if name == "a" else None

    def trace(self, name: str) -> jax.stages.Traced:
        return jax.jit(lambda x: x + len(name)).trace(ONE)


@pytest.fixture
def compile_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Return a function that compiles with a cache that has all or nothing: `compiled, later programs that were made`."""

    def run(*, is_cached: bool, **options: Any) -> Any:
        misses, made, compile_ = list[str](), list[str](), compilation._compile
        optimised.clear()

        @contextlib.contextmanager
        def count_misses(**_: bool) -> Iterator[list[str]]:
            yield misses

        def compile_and_miss(lowered: jax.stages.Lowered, options: dict[str, int] | None = None) -> Any:
            optimised.append(options is None)
            found = compile_(lowered, options)
            # As JAX does: after the program has been compiled.
            misses.extend([] if is_cached else ["one"])
            return found

        def later() -> Iterator[jax.stages.Lowered]:
            made.append("later")
            yield Adding().trace("later").lower()

        monkeypatch.setattr(compilation, "count_misses", count_misses)
        monkeypatch.setattr(compilation, "_compile", compile_and_miss)
        ledger, names = Ledger(tmp_path / "ledger.json", "compile"), ("a", "ab")
        program: Any = Adding()
        return compile_programs(program, ledger, names, later(), **options), made

    return run


@pytest.mark.parametrize("is_cached", [False, True])
def test_later_programs_are_made_where_one_was_missing(compile_all: Callable[..., Any], is_cached: bool) -> None:
    compiled, made = compile_all(is_cached=is_cached)
    assert made == ([] if is_cached else ["later"])
    assert {name: float(each.compiled(jnp.float32(1))) for name, each in compiled.items()} == {"a": 2.0, "ab": 3.0}


def test_further_programs_are_compiled_with_them(compile_all: Callable[..., Any]) -> None:
    compiled, _ = compile_all(is_cached=True, others={"doubling": lambda: jax.jit(lambda x: 2 * x).trace(ONE)})
    assert float(compiled["doubling"].compiled(jnp.float32(4))) == 8.0
    assert list(compiled) == ["a", "ab", "doubling"]
    assert sorted(optimised) == [False, True, True]


PROGRAM = """
import sys, jax, numpy as np
from pathlib import Path
from bayesmesh.sampling.program.compilation import count_misses, use_cache
use_cache(Path(sys.argv[1]))
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
