"""primer: Measure the phases of an array program separately: transfer, trace, lower, compile, first run, steady run, copy back.

The tasks are those of F. Chiusano's "JAX primer": the product of a 5,000 x 5,000 float32 matrix with its transpose, SELU
of a million numbers, and the gradient of a sum of logistic functions. Every phase waits for its result, because
JAX returns before it is ready.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np

from bayesmesh_reproduction.benchmarks.harness import Case, Measurement, Options, Outcome, Ratio, compare, ratio
from bayesmesh_reproduction.benchmarks.history import write_rows
from bayesmesh_reproduction.benchmarks.process import Contender, ask_once, list_platforms
from bayesmesh_reproduction.benchmarks.worker import timed

if TYPE_CHECKING:
    import jax

PHASES = ("transfer_s", "trace_s", "lower_s", "compile_s", "first_s", "back_s")
"""Columns besides ``median_s``, the steady run; in seconds."""

SELU_SCALE, SELU_ALPHA = 1.05, 1.67
"""Constants as the primer has them, rounded."""


class WorkCase(TypedDict):
    """A task, ``product`` or ``selu``, and the size of its input."""

    work: str
    n: int


def run(options: Options) -> Outcome:
    """Measure both tasks in NumPy and on every platform, and evaluate the gradient."""
    platforms = list_platforms()
    compiled, uncompiled = ([_jax(*names, is_compiled=c) for names in platforms.items()] for c in (True, False))
    product = [Contender("numpy", f"{__name__}:NumpyWork"), *compiled]
    cases = [
        Case({"work": "product", "n": options.pick(5000, quick=300)}, product),
        Case({"work": "selu", "n": options.pick(1_000_000, quick=10_000)}, [*product, *uncompiled]),
    ]
    limits = options.limits(run_s=max(options.seconds_limit, 60.0), rounds=options.pick(7, quick=3), case_s=60)
    measured = compare(cases, limits, options.journal)
    gradient = ask_once(Contender("gradient", f"{__name__}:Gradient"), {"seed": time.time_ns()})
    write_rows(options.layout.table("primer-gradient"), gradient["rows"])
    return Outcome([m.row() for m in measured], _ratios(measured, list(platforms)), PHASES)


def _jax(platform: str, variable: str, *, is_compiled: bool) -> Contender:
    name = f"jax {platform}" if is_compiled else f"jax {platform} without jit"
    return Contender(name, f"{__name__}:JaxWork", {"is_compiled": is_compiled}, variables={"JAX_PLATFORMS": variable})


def _ratios(measured: list[Measurement], platforms: list[str]) -> list[Ratio]:
    found = [ratio(measured, {"work": w}, f"jax {p}", against="numpy") for w in ("product", "selu") for p in platforms]
    return [*found, *(ratio(measured, {"work": "selu"}, f"jax {p}", against=f"jax {p} without jit") for p in platforms)]


def _input(case: WorkCase) -> np.ndarray:
    """Return the float32 input of a task: a matrix or a vector of standard normals."""
    shape = (case["n"], case["n"]) if case["work"] == "product" else (case["n"],)
    return np.random.default_rng(1).standard_normal(shape, np.float32)


def make_work(work: str, xp: ModuleType) -> Callable[[Any], Any]:
    """Return a task as a function of its input; `xp` is `numpy` or `jax.numpy`."""
    if work == "product":
        return lambda x: x @ x.T
    return lambda x: SELU_SCALE * xp.where(x > 0, x, SELU_ALPHA * xp.exp(x) - SELU_ALPHA)


class NumpyWork:
    """The tasks in NumPy, whose only phases are the first run and the steady run."""

    def prepare(self, case: WorkCase) -> dict[str, object]:
        """Make the input, and run once."""
        self._input, self._work = _input(case), make_work(case["work"], np)
        return {"first_s": timed(lambda: self._work(self._input))[1], "device": "cpu"}

    def run(self, repeat: int) -> dict[str, object]:
        """Run."""
        self._work(self._input)
        return {}


class JaxWork:
    """The tasks in JAX on its default device, as one program or operation by operation.

    Args:
        is_compiled: one program, with the phases trace, lower and compile; otherwise the first run compiles operations.
    """

    def __init__(self, *, is_compiled: bool) -> None:
        self._is_compiled = is_compiled

    def prepare(self, case: WorkCase) -> dict[str, object]:
        """Go through all phases up to the first run, and time a copy back of its result."""
        import jax

        work, host = make_work(case["work"], jax.numpy), _input(case)
        jax.block_until_ready(jax.numpy.zeros(()))  # Start the backend before timing.
        facts: dict[str, object] = {"device": jax.devices()[0].device_kind}
        self._input, facts["transfer_s"] = timed(lambda: jax.block_until_ready(jax.device_put(host)))
        self._work: Callable[[jax.Array], jax.Array] = work
        if self._is_compiled:
            traced, facts["trace_s"] = timed(lambda: jax.jit(work).trace(self._input))
            lowered, facts["lower_s"] = timed(traced.lower)
            self._work, facts["compile_s"] = timed(lowered.compile)
        found, facts["first_s"] = timed(lambda: jax.block_until_ready(self._work(self._input)))
        _, facts["back_s"] = timed(lambda: np.array(found))
        return facts

    def run(self, repeat: int) -> dict[str, object]:
        """Run and wait for the result."""
        import jax

        jax.block_until_ready(self._work(self._input))
        return {}


def sum_logistic(x: jax.Array) -> jax.Array:
    """Return the sum of 1 / (1 + exp(-x)), float32 in and out."""
    import jax.numpy as jnp

    return jnp.sum(1.0 / (1.0 + jnp.exp(-x)))


class Gradient:
    """The gradient of the summed logistic function, at the published point and at a point that is not known in advance."""

    def prepare(self, case: dict[str, int]) -> dict[str, object]:
        """Return rows; the point of case ``probe`` follows from the seed."""
        import jax

        probe = np.random.default_rng(case["seed"]).uniform(-4, 4, 4).astype(np.float32)
        points = {"published": np.arange(3, dtype=np.float32), "probe": probe}
        rows = []
        for name, x in points.items():
            gradient = np.asarray(jax.grad(sum_logistic)(x))
            rows += [{"case": name, "x": float(a), "gradient": float(g)} for a, g in zip(x, gradient, strict=True)]
        return {"rows": rows}
