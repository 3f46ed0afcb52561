"""The benchmark of samplers on the hidden Markov model: the likelihood of the others, and the summary of draws."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytensor
import pytest

from bayesmesh.data.sources.hidden_markov import INITIAL, NOISE, SIGNAL, TRANSITION, simulate_processes
from bayesmesh_reproduction.benchmarks import hidden_markov
from bayesmesh_reproduction.benchmarks.harness import Case, Limits, Measurement, Options
from bayesmesh_reproduction.benchmarks.hidden_markov import _contenders, _ratios
from bayesmesh_reproduction.benchmarks.hidden_markov.exact import Exact
from bayesmesh_reproduction.benchmarks.hidden_markov.published import (
    jax_log_likelihood,
    pytensor_log_likelihood,
)
from bayesmesh_reproduction.benchmarks.hidden_markov.sampler import describe

EMISSIONS = simulate_processes(70, 50, 104109109)


def test_the_others_sample_the_published_posterior() -> None:
    """Their likelihoods, in JAX and in PyTensor, have the published value and derivative."""
    arguments = (SIGNAL, NOISE, INITIAL, TRANSITION)
    assert f"{float(jax_log_likelihood(EMISSIONS, *arguments)):.8f}" == "-37.00348857"
    symbols = [pytensor.tensor.as_tensor(value).type() for value in map(np.asarray, arguments)]
    value = pytensor_log_likelihood(EMISSIONS, *symbols)
    function = pytensor.function(symbols, [value, pytensor.grad(value, symbols[0])], mode="JAX")
    assert [f"{float(x):.8f}" for x in function(*map(np.asarray, arguments))] == ["-37.00348857", "-297.86490611"]


def test_exact_rows_hold_the_published_numbers_and_others() -> None:
    rows = {(r["quantity"], r["case"]): r for r in Exact().prepare({"seed": 7})["rows"]}
    assert f"{rows['log_likelihood_first', 'published']['value']:.8f}" == "-3.93533794"
    assert f"{rows['log_likelihood_all', 'published']['value']:.8f}" == "-37.00348857"
    assert f"{rows['derivative_signal', 'published']['value']:.8f}" == "-297.86490611"
    probe = rows["log_likelihood_all", "probe-1"]
    initial, transition = (np.array(probe[name].split(), np.float64) for name in ("initial", "transition"))
    given = (probe["signal"], probe["noise"], initial, transition.reshape(3, 3))
    expected = float(jax_log_likelihood(EMISSIONS, *given))
    np.testing.assert_allclose(probe["value"], expected, rtol=1e-12)
    other = {(r["quantity"], r["case"]): r for r in Exact().prepare({"seed": 8})["rows"]}
    for name in ("signal", "noise", "initial", "transition", "value"):
        assert other["log_likelihood_all", "probe-1"][name] != probe[name]


def test_the_worst_coordinate_counts() -> None:
    """All draws are independent except one entry of the transition, which is sticky."""
    generator = np.random.default_rng(0)
    draws = {
        "signal": generator.standard_normal((4, 500)),
        "noise": generator.standard_normal((4, 500)),
        "initial": generator.standard_normal((4, 500, 3)),
        "transition": generator.standard_normal((4, 500, 3, 3)),
    }
    all_well = describe(draws, 2.0)
    assert 1200 < all_well["min_ess_bulk"] < 2600
    assert all_well["ess_per_s"] == pytest.approx(all_well["min_ess_bulk"] / 2)
    draws["transition"][:, :, 2, 1] = np.repeat(generator.standard_normal((4, 10)), 50, axis=1)
    assert describe(draws, 2.0)["min_ess_bulk"] < 80


def test_all_contenders_get_one_data_file_and_the_published_budget() -> None:
    contenders = _contenders(Options(), "emissions.npy", "python", {"cpu": "cpu", "gpu": "cuda"})
    assert {c.options["data"] for c in contenders} == {"emissions.npy"}
    others = [c for c in contenders if not c.name.startswith("ours")]
    assert len(others) >= 4
    assert {(c.options["chains"], c.options["warmup"], c.options["draws"]) for c in others} == {(2, 1000, 1000)}
    assert {c.python for c in others} == {"python"}
    assert {c.options["dtype"] for c in contenders if "float64" in c.name} == {"float64"}
    assert {c.variables["JAX_PLATFORMS"] for c in others} == {"cpu"}
    assert {c.name: c.variables["JAX_PLATFORMS"] for c in contenders if c.name.startswith("ours")} == {
        "ours: ChEES-HMC": "cpu",
        "ours: ChEES-HMC, float64": "cpu",
        "ours: NUTS": "cpu",
        "ours: ChEES-HMC on gpu": "cuda",
        "ours: ChEES-HMC, float64 on gpu": "cuda",
        "ours: NUTS on gpu": "cuda",
    }


def test_the_gate_needs_every_sampler_and_convergence_of_ours() -> None:
    def measured(**changes: object) -> list[Measurement]:
        def one(name: str, rate: float) -> Measurement:
            return Measurement({"processes": 70}, name, seconds=[1.0], facts={"ess_per_s": rate, "max_r_hat": 1.004})

        found = {"ours": one("ours: ChEES-HMC", 100.0), "nutpie": one("nutpie", 10.0), "pymc": one("PyMC", 1.0)}
        for name, changed in changes.items():
            found[name] = dataclasses.replace(found[name], **changed)
        return list(found.values())

    def judge(**changes: object) -> tuple[str, str, str]:
        (gated,) = [r for r in _ratios(measured(**changes), {"processes": 70}, Options()) if r.least is not None]
        return gated.against, gated.verdict, gated.reason

    assert judge() == ("nutpie", "holds", "")
    failed = {"status": "failed", "facts": {}, "seconds": []}
    assert judge(nutpie=failed) == ("PyMC", "failed", "nutpie: failed"), "the best other sampler failed"
    stuck = {"facts": {"ess_per_s": 100.0, "max_r_hat": 1.9}}
    assert judge(ours=stuck) == ("nutpie", "failed", "ours: ChEES-HMC: R-hat 1.9, more than 1.02")


def test_measurements_are_kept_if_the_peers_fail(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def measure(cases: list[Case], limits: Limits) -> list[Measurement]:
        exact, in_pymc = cases[0].contenders
        assert (in_pymc.python, limits.rounds) == ("peers", 0)
        rows = [{"quantity": "q", "case": "published", "value": 1.0}]
        failed = Measurement(cases[0].values, in_pymc.name, "failed", "prepare: ImportError: no PyMC")
        return [Measurement(cases[0].values, exact.name, facts={"rows": rows}), failed]

    monkeypatch.setattr(hidden_markov, "compare", measure)
    (row,), (silent,) = hidden_markov._exact("peers", {"processes": 70})
    assert row["value"] == 1.0
    assert (silent.contender, silent.status) == ("exact numbers: ExactInPymc", "failed")
    assert (silent.row()["processes"], silent.row()["message"]) == (70, "prepare: ImportError: no PyMC")
    assert "no PyMC" in caplog.text
