"""The gate on how many draws of the prior chains descend from."""

from __future__ import annotations

import numpy as np

from bayesmesh.diagnostics.gates.kernel import FEWEST_ANCESTORS, ancestors_gate, effective_ancestors


def relatives(counts: list[int]) -> np.ndarray:
    """Return the statistic of chains of which so many descend from each draw."""
    return np.repeat(counts, counts).astype(np.int32)


def test_the_number_is_that_of_equal_families_and_adds_over_chain_groups() -> None:
    assert effective_ancestors(relatives([4] * 5)) == 5
    assert effective_ancestors(relatives([4] * 10)) == 10
    assert effective_ancestors(relatives([97, 1, 1, 1])) < 1.1


def test_few_ancestors_warn_and_many_do_not() -> None:
    assert ancestors_gate(relatives([10] * 10)) is None
    found = ancestors_gate(relatives([10] * 9))
    assert found is not None
    assert (found.name, found.verdict, found.value, found.limit) == ("ancestors", "warn", 9, FEWEST_ANCESTORS)
    assert "90 chains effectively descend from 9.0 draws of the prior" in found.message
    assert "sampling.chains" in found.message
