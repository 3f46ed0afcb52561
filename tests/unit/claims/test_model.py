"""A wrong constant in a model turns its claims red: the published likelihoods of the hidden Markov model."""

from __future__ import annotations

from pathlib import Path

import jax.numpy as jnp
import pytest

from bayesmesh.benchmarks.table import write_rows
from bayesmesh.claims.judge import FAILED, HOLDS, judge_all
from bayesmesh.data.base import DataSpec, FieldSpec
from bayesmesh.data.sources.hidden_markov import INITIAL, NOISE, SIGNAL, TRANSITION, simulate_processes
from bayesmesh.data.sources.hidden_markov import Options as SourceOptions
from bayesmesh.experiment.claims import load_claims
from bayesmesh.models import hidden_markov
from bayesmesh.models.hidden_markov import HiddenMarkov, Options
from bayesmesh.store.layout import BenchmarkLayout

CLAIMS = Path(__file__).resolve().parents[3] / "config" / "claims.yaml"
POINTS = {"published": (SIGNAL, NOISE), "probe": (1.07, 0.21)}


def verdicts(results: Path) -> dict[str, str]:
    """Evaluate the model of the pipeline at both points, store what comes out, and judge."""
    source, rows = SourceOptions(), []
    emissions = simulate_processes(source.num_processes, source.num_steps, source.seed)
    spec = DataSpec(len(emissions), {"emissions": FieldSpec(emissions.shape[1:], "float64")}, {}, "float64")
    model = HiddenMarkov(Options(), spec)
    for case, (signal, noise) in POINTS.items():
        at = {"signal": signal, "noise": noise, "initial": INITIAL, "transition": TRANSITION}
        latents = {name: jnp.asarray(value, jnp.float64) for name, value in at.items()}
        every = jnp.ones(len(emissions), bool)
        total, gradient = model.log_likelihood_and_gradient(latents, {"emissions": emissions}, every)
        quantities = {
            "log_likelihood_first": model.log_likelihood(latents, {"emissions": emissions[:1]})[0],
            "log_likelihood_all": total,
            "derivative_signal": gradient["signal"],
        }
        about = {"case": case, "signal": signal, "noise": noise}
        rows += [{**about, "quantity": name, "value": float(value)} for name, value in quantities.items()]
    write_rows(BenchmarkLayout(results).table("hidden_markov-exact"), rows)
    claims = tuple(claim for claim in load_claims(CLAIMS) if claim.name in ("D1", "D2", "D3"))
    return {finding.claim.name: finding.verdict for finding in judge_all(results, claims)}


def test_the_model_has_the_published_digits(tmp_path: Path) -> None:
    assert verdicts(tmp_path) == dict.fromkeys(("D1", "D2", "D3"), HOLDS)


def test_a_wrong_constant_in_the_model_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = hidden_markov._means
    monkeypatch.setattr(hidden_markov, "_means", lambda latents: 1.0001 * right(latents))
    assert verdicts(tmp_path) == dict.fromkeys(("D1", "D2", "D3"), FAILED)
