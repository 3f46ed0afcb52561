"""A model of the pipeline as an operation in a PyMC model."""

from __future__ import annotations

import jax
import numpy as np
import pymc
import pytensor
import pytensor.tensor as pt
import pytest

from bayesmesh.data.base import DataSpec, FieldSpec
from bayesmesh.data.sources.hidden_markov import Options as SourceOptions
from bayesmesh.data.sources.hidden_markov import Source
from bayesmesh.models.hidden_markov import HiddenMarkov, Options
from bayesmesh.models.pymc.graphs import to_jax
from bayesmesh.models.pymc.operation import log_likelihood_operation

DATASET = Source(SourceOptions()).read(None)
MODEL = HiddenMarkov(Options(), DataSpec(70, {"emissions": FieldSpec((51,), "float64")}, {}, "float64"))
FORMS = ("one", "two")
PUBLISHED = ("-37.00348857", "-297.86490611")
"""D2 and D3 of the experiments: log likelihood at the true values, and its derivative by the signal."""


def symbols() -> dict[str, pt.TensorVariable]:
    return {k: pt.tensor(k, dtype="float64", shape=np.shape(v)) for k, v in DATASET.truth.items()}


def in_pymc(form: str) -> pymc.Model:
    operation = log_likelihood_operation(MODEL, DATASET.rows, form)
    with pymc.Model() as model:
        latents = {
            "signal": pymc.Normal("signal", 0, 1),
            "noise": pymc.HalfNormal("noise", 1),
            "initial": pymc.Dirichlet("initial", np.ones(3)),
            "transition": pymc.Dirichlet("transition", np.ones((3, 3))),
        }
        pymc.Potential("log_likelihood", operation(**latents))
    return model


@pytest.mark.parametrize("form", FORMS)
def test_the_published_terms_at_pymc_s_initial_point(form: str) -> None:
    """D4 of the experiments, to the digits that are printed there."""
    model = in_pymc(form)
    # PyTensor's plainest compiler, for the test is about values.
    with pytensor.config.change_flags(mode="FAST_COMPILE"):
        found = model.point_logps(model.initial_point(0), round_vals=2)
    expected = {"signal": -0.92, "noise": -0.73, "initial": -1.5, "transition": -4.51, "log_likelihood": -9812.67}
    assert {k: float(v) for k, v in found.items()} == expected


@pytest.mark.parametrize("mode", ["FAST_COMPILE", "JAX"])
@pytest.mark.parametrize("form", FORMS)
def test_value_and_gradient_by_pytensor(form: str, mode: str) -> None:
    """The gradient is PyTensor's; in JAX mode all of it is compiled by JAX."""
    inputs = symbols()
    value = log_likelihood_operation(MODEL, DATASET.rows, form)(**inputs)
    gradient = pytensor.grad(value, list(inputs.values()))
    found, *by = pytensor.function(list(inputs.values()), [value, *gradient], mode=mode)(*DATASET.truth.values())
    assert (f"{float(found):.8f}", f"{float(by[0]):.8f}") == PUBLISHED
    truth = {k: jax.numpy.asarray(v) for k, v in DATASET.truth.items()}
    rows = {k: jax.numpy.asarray(v) for k, v in DATASET.rows.items()}
    expected = jax.grad(lambda z: MODEL.log_likelihood(z, rows).sum())(truth)
    for name, one in zip(inputs, by, strict=True):
        np.testing.assert_allclose(one, expected[name], rtol=1e-10)


@pytest.mark.parametrize("form", FORMS)
def test_value_and_gradient_by_jax(form: str) -> None:
    """As samplers on JAX do: PyTensor's graph becomes a JAX function, and JAX takes the gradient."""
    inputs = symbols()
    function = to_jax(list(inputs.values()), [log_likelihood_operation(MODEL, DATASET.rows, form)(**inputs)])
    truth = [jax.numpy.asarray(v) for v in DATASET.truth.values()]
    value, by_signal = jax.jit(jax.value_and_grad(lambda *z: function(*z)[0]))(*truth)
    assert (f"{float(value):.8f}", f"{float(by_signal):.8f}") == PUBLISHED
