"""compile_scaling: Measure compile time against the length of an array, with Python's sum over it and with jnp.sum.

JAX issue 1776: the integral of the product of two normal densities over a grid of n points in [-100, 100]. Python's sum
adds the points one by one, so that the program has an equation or more for each; `jnp.sum` is one equation. For this
reason the compile stage counts the equations of every model at two sizes of its data (`bayesmesh.sampling.program.audit`), and
reports a model whose program grows.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.scipy.stats import norm

from bayesmesh.files import write_json
from bayesmesh_reproduction.benchmarks.harness import Case, Measurement, Options, Outcome, compare
from bayesmesh_reproduction.benchmarks.process import ON_CPU, Contender, on_platforms
from bayesmesh_reproduction.benchmarks.worker import timed

PYTHON_SUM, JNP_SUM = "python sum", "jnp sum"

MOST_TEXT = 400
"""Largest number of points for which the text of a program is stored, to count its equations again."""

_START_S = 60.0
"""Time for the start of a process with its imports, on a busy machine."""

_DENSITIES = ((-2.0, 1.0), (1.0, 2.0))
"""Mean and standard deviation of the two normal densities."""


def run(options: Options) -> Outcome:
    """Compile both arms in every round; the slow one up to the published 1,600 points or its time limit."""
    sizes = options.pick((50, 100, 200, 400, 800, 1600), quick=(20, 40, 80))
    # The published times are for one platform.
    works = [Contender(name, f"{__name__}:Compilation", {"arm": name}) for name in (PYTHON_SUM, JNP_SUM)]
    *arms, uncompiled = on_platforms([*works, Contender("jnp sum uncompiled", f"{__name__}:Uncompiled")], ON_CPU)
    cases = [Case({"n": n}, arms, series="n") for n in sizes]
    cases += [Case({"n": n}, arms[1:]) for n in options.pick((6400, 100_000), quick=())]
    cases += [Case({"n": n}, [uncompiled]) for n in options.pick((1600, 6400), quick=(80,))]
    # Every compilation has the time limit of a run; the first one includes the start of the process.
    rounds, prepare_s = options.pick(5, quick=2), options.seconds_limit + _START_S
    limits = options.limits(rounds=rounds, least_rounds=1, case_s=30, prepare_s=prepare_s)
    measured = compare(cases, limits, options.journal)
    path = options.layout.table("compile_scaling-programs").with_suffix(".json")
    write_json(path, _texts(measured))
    rows = [{name: value for name, value in m.row().items() if name != "text"} for m in measured]
    return Outcome(rows, metrics=("build_s", "equations"), files=(path,))


def _texts(measured: list[Measurement]) -> dict[str, dict[str, str]]:
    """Return contender -> points -> text of the program."""
    found: dict[str, dict[str, str]] = {}
    for m in measured:
        if "text" in m.facts and m.case["n"] <= MOST_TEXT:
            found.setdefault(m.contender, {})[str(m.case["n"])] = m.facts["text"]
    return found


def make_integral(arm: str) -> Callable[[jax.Array, jax.Array], jax.Array]:
    """Return the integral as a function of a shift of the first density, and the grid (n,).

    Args:
        arm: the sum.
    """
    total = sum if arm == PYTHON_SUM else jnp.sum

    def integral(shift: jax.Array, grid: jax.Array) -> jax.Array:
        (first, first_sd), (second, second_sd) = _DENSITIES
        values = norm.pdf(grid, first + shift, first_sd) * norm.pdf(grid, second, second_sd)
        return total(values) * (grid[1] - grid[0])

    return integral


def _inputs(n: int) -> tuple[jax.Array, jax.Array]:
    return jnp.zeros(()), jnp.linspace(-100.0, 100.0, n)


class Compilation:
    """Traces, lowers and compiles an arm; the time of a round is that of all three phases.

    Args:
        arm: the sum.
    """

    def __init__(self, *, arm: str) -> None:
        self._arm = arm

    def prepare(self, case: dict[str, int]) -> dict[str, object]:
        """Count equations, and compile once."""
        from bayesmesh.sampling.program.audit import count_equations

        self._inputs = _inputs(case["n"])
        jaxpr = jax.make_jaxpr(make_integral(self._arm))(*self._inputs)
        self.run(-1)
        return {"equations": count_equations(jaxpr), **({"text": str(jaxpr)} if case["n"] <= MOST_TEXT else {})}

    def run(self, repeat: int) -> dict[str, object]:
        """Compile a new function, so that nothing comes from JAX's caches."""
        traced, trace_s = timed(lambda: jax.jit(make_integral(self._arm)).trace(*self._inputs))
        lowered, lower_s = timed(traced.lower)
        compiled, compile_s = timed(lowered.compile)
        phases = {"trace_s": trace_s, "lower_s": lower_s, "compile_s": compile_s}
        total = sum(phases.values())
        return {"seconds": total, "build_s": total, **phases, "value": float(compiled(*self._inputs))}


class Uncompiled:
    """The integral with `jnp.sum`, operation by operation."""

    def prepare(self, case: dict[str, int]) -> dict[str, object]:
        """Run once: each operation is compiled then."""
        self._inputs, self._work = _inputs(case["n"]), make_integral(JNP_SUM)
        return self.run(-1)

    def run(self, repeat: int) -> dict[str, object]:
        """Integrate."""
        return {"value": float(self._work(*self._inputs))}
