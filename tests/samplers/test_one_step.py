"""One step from exact draws leaves the target as it is: every kernel, and HMC under every metric.

tests/exact/test_invariance.py makes twenty steps with each kernel's own metric and seeds defects; an error that further
steps would wash out shows after one.
"""

from __future__ import annotations

from typing import Any

import pytest

from bayesmesh.config.blocks import METRICS
from bayesmesh.config.registry import load_component
from exact import test_invariance as invariance
from kernel_options import kernel_options

CASES = [
    # That of the curvature comes from a mode of the program's target; the integrator's tests have it.
    *(("hmc", {"metric": metric}) for metric in METRICS if metric != "curvature"),
    *((kernel, {}) for kernel in invariance.ADJUSTED if kernel != "hmc"),
]


@pytest.mark.verify
@pytest.mark.parametrize(("name", "options"), CASES, ids=["-".join([name, *given.values()]) for name, given in CASES])
def test_one_step_leaves_exact_draws_exact(name: str, options: dict[str, Any], monkeypatch, record) -> None:
    monkeypatch.setattr(invariance, "NUM_STEPS", 1)
    settings = invariance.OPTIONS.get(name, {}) | options
    kernel = load_component("kernel", name)(kernel_options(name, **settings), num_warmup=200)
    transitions = invariance.Transitions(kernel, invariance.CHAINS.get(name, invariance.NUM_CHAINS))
    tuning = invariance.tune(kernel)
    position, acceptance = transitions(tuning)
    p = invariance.smallest_p(kernel, position)
    record(f"smallest p {p:.2g}, acceptance {acceptance:.2f}", f"{invariance.ALPHA}")
    assert (position.shared != transitions.begin.shared).any(axis=1).mean() > 0.1, "a step that stays proves nothing"
    assert invariance.invariant(p)
    if name == "hmc":
        # A target that is a tenth too wide is seen after one step.
        assert not invariance.invariant(invariance.smallest_p(kernel, transitions(tuning, width=1.1)[0]))
