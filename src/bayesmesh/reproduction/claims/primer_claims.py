"""Claims of the primer on JAX: one matrix product and one activation in NumPy and JAX, and a gradient."""

from __future__ import annotations

import math

from bayesmesh.reproduction.claims.claim import Claim, Source
from bayesmesh.reproduction.claims.recomputed import Row, recompute
from bayesmesh.reproduction.claims.results import Reading, Results

_SOURCE = Source("F. Chiusano, JAX primer")
_CPU, _GPU, _TPU = (f"a {device} that is not named" for device in ("CPU", "GPU", "TPU"))
_GRADIENT = "benchmarks/primer-gradient.csv"


def _time(results: Results, work: str, n: int, contender: str, column: str = "median_s") -> Reading:
    return results.rows("benchmarks/primer.csv", work=work, n=n, contender=contender).only(column)


B1 = Claim("B1", _SOURCE, "product of a 5,000 x 5,000 float32 matrix with its transpose")
B2 = Claim("B2", _SOURCE, "the same product on a GPU, its phases apart")


@B1.hardware(("NumPy, CPU", "1.61", "numpy"), ("JAX, CPU", "3.49", "jax cpu"), unit="s", on=_CPU)
@B1.hardware(("JAX, GPU", "0.0689", "jax gpu"), unit="s", on=_GPU)
@B1.hardware(("JAX, TPU", "0.0165", "jax tpu"), unit="s", on=_TPU)
@B2.hardware(("transfer", "0.000155", "jax gpu", "transfer_s"), unit="s", on=_GPU)
@B2.hardware(("compile", "2.16", "jax gpu", "compile_s"), ("run", "0.0689", "jax gpu"), unit="s", on=_GPU)
def _product(results: Results, contender: str, column: str = "median_s") -> Reading:
    return _time(results, "product", 5_000, contender, column)


B3 = Claim("B3", _SOURCE, "SELU of 1,000,000 float32 numbers")


@B3.hardware(("NumPy", "0.0076", "numpy"), ("JAX, CPU", "0.0048", "jax cpu"), unit="s", on=_CPU)
@B3.hardware(("JAX, GPU, without jit", "0.00121", "jax gpu without jit"), unit="s", on=_GPU)
@B3.hardware(("JAX, GPU, with jit", "0.00013", "jax gpu"), unit="s", on=_GPU)
def _selu(results: Results, contender: str) -> Reading:
    return _time(results, "selu", 1_000_000, contender)


@B3.hardware(("gain of jit, GPU", "9", "jax gpu without jit"), on=_GPU)
@B3.hardware(("gain of jit on a GPU over NumPy", "58", "numpy"), on=_GPU)
def _gain_of_jit(results: Results, contender: str) -> Reading:
    return _selu(results, contender) / _selu(results, "jax gpu")


_DIGITS = "eight digits are printed, and float32 holds seven"
B4 = Claim("B4", _SOURCE, "gradient of the summed logistic function at (0, 1, 2)", (_DIGITS,))


def _gradient_again(results: Results, x: float) -> Reading:
    """Compute s(x) (1 - s(x)); 3e-7 allows a few units in the last place of float32 values up to 1/4."""

    def compute(row: Row) -> float:
        s = 1 / (1 + math.exp(-float(row["x"])))
        return s * (1 - s)

    return recompute(results, _GRADIENT, "gradient", compute, 3e-7, {"case": "published", "x": x})


@B4.exact(("at 0", "0.25", 0), again=_gradient_again, resolution=6e-8)
@B4.exact(("at 1", "0.19661197", 1), ("at 2", "0.10499357", 2), again=_gradient_again, resolution=6e-8)
def _gradient(results: Results, x: float) -> Reading:
    return results.rows(_GRADIENT, case="published", x=x).only("gradient")


CLAIMS = (B1, B2, B3, B4)
