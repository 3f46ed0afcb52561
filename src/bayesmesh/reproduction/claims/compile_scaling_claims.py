"""Claims on how compile time grows with a sum over an array."""

from __future__ import annotations

from typing import Any

from bayesmesh.errors import StoreError
from bayesmesh.reproduction.claims.claim import Claim, Source
from bayesmesh.reproduction.claims.recomputed import AGAIN
from bayesmesh.reproduction.claims.results import Reading, Results, Rows

_SOURCE = Source("JAX issue 1776, compile time of a sum over an array", "https://github.com/jax-ml/jax/issues/1776")
_PYTHON, _JNP = "python sum", "jnp sum"
_SPAN = "from 200 to 1,600 over that from 50 to 200"


def _rows(results: Results, contender: str, **where: Any) -> Rows:
    return results.rows("benchmarks/compile_scaling.csv", contender=contender, **where)


C1 = Claim("C1", _SOURCE, "with Python's sum over the array, compile time grows faster than linearly in its length")


# Tracing, lowering and compiling, in the least disturbed of the rounds; over a wide span, where constant times drop
# out of both increases. On two cores 14 to 19 was measured.
@C1.shape((f"increase of build time {_SPAN}", "faster than linear, which is 9.33"), at_least=11)
def _increase_of_build_time(results: Results) -> Reading:
    def seconds(n: int) -> Reading:
        return _rows(results, _PYTHON, n=n).only("min_s")

    return (seconds(1_600) - seconds(200)) / (seconds(200) - seconds(50))


@C1.shape(("equations, slope in logarithms", "one for each point"), at_least=0.7)
def _slope_of_equations(results: Results) -> Reading:
    return _rows(results, _PYTHON).slope("equations", "n")


@C1.hardware(("seconds at 1,600", "5.2", _PYTHON, 1_600, "build_s"), unit="s", on="not stated")
@C1.hardware(("uncompiled at 6,400", "0.02", "jnp sum uncompiled", 6_400, "median_s"), unit="s", on="not stated")
def _seconds(results: Results, contender: str, n: int, column: str) -> Reading:
    return _rows(results, contender, n=n).only(column)


C2 = Claim("C2", _SOURCE, "with jnp.sum the number of equations is constant and compile time is flat")


def _equations_again(results: Results) -> Reading:
    """Count the equations of the programs whose text is stored: lines that assign. The table must agree."""
    rows, programs = _rows(results, _JNP), "benchmarks/compile_scaling-programs.json"
    texts = results.document(programs)
    counts = {n: text.count(" = ") for n, text in texts.get(_JNP, {}).items()} if isinstance(texts, dict) else {}
    if len(counts) < 2:
        raise StoreError(f"{programs}: fewer than two programs to compare", AGAIN)
    for row in rows.records():
        n, said = row.get("n", ""), row.get("equations", "")
        if n in counts and said and float(said) != counts[n]:
            raise StoreError(f"{rows.file}: says {said} equations at n {n}, and the program has {counts[n]}", AGAIN)
    return Reading(max(counts.values()) / min(counts.values()), rows.file)


@C2.exact(("equations, largest over smallest", "1"), again=_equations_again)
def _spread_of_equations(results: Results) -> Reading:
    return _rows(results, _JNP).spread("equations")


@C2.shape(("slope in logarithms", "flat"), at_least=-0.25, at_most=0.25)
def _slope_of_build_time(results: Results) -> Reading:
    return _rows(results, _JNP).slope("build_s", "n")


CLAIMS = (C1, C2)
