"""All published claims, in the order of the table."""

from __future__ import annotations

from bayesmesh.reproduction.claims import (
    compile_scaling_claims,
    hidden_markov_claims,
    metropolis_claims,
    primer_claims,
    tutorial_claims,
)

CLAIMS = (
    *metropolis_claims.CLAIMS,
    *primer_claims.CLAIMS,
    *compile_scaling_claims.CLAIMS,
    *hidden_markov_claims.CLAIMS,
    *tutorial_claims.CLAIMS,
)
