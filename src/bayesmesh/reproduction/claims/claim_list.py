"""All published claims, in the order of the table."""

from __future__ import annotations

from bayesmesh.reproduction.claims import (
    compile_scaling_claims,
    hidden_markov_claims,
    metropolis_claims,
    primer_claims,
    tutorial_claims,
)

_PIECES = (metropolis_claims, primer_claims, compile_scaling_claims, hidden_markov_claims, tutorial_claims)

CLAIMS = tuple(claim for piece in _PIECES for claim in piece.CLAIMS)
