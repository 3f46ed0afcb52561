"""A result is a lazy DataTree that shows its verdict; what is not as it was written is refused."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import bayesmesh as bm
from bayesmesh.diagnostics.verdict import GateResult, NumCoordinates, Verdict, write_verdict
from bayesmesh.errors import StoreError
from bayesmesh.store.hashes import write_hashes
from bayesmesh.store.layout import ExperimentLayout
from recording import record_as


@pytest.fixture
def layout(tmp_path: Path) -> ExperimentLayout:
    """A small posterior with a verdict, as a copy of an experiment's folder."""
    found = ExperimentLayout(tmp_path / "results", "a&b")
    draws = xr.Dataset({"mu": (("chain", "draw"), np.arange(6.0).reshape(2, 3))})
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Consolidated metadata")
        xr.DataTree.from_dict({"/posterior": draws}).to_zarr(found.posterior, zarr_format=3)
    write_hashes(found.posterior, {})
    gate = GateResult(
        name="r_hat",
        limit=1.01,
        direction="at most",
        value=1.5,
        where="<mu>",
        severity="fail",
        verdict="fail",
        found="",
    )
    verdict = Verdict(
        verdict="fail", gates=(gate,), experiment="a&b", num_chains=2, num_draws=3,
        num_coordinates=NumCoordinates(summaries=1, latents=1, listed=2), latents={}, num_divergences=0,
        divergence_share=0.0, bfmi=(), acceptance_rate=0.9,
    )  # fmt: skip
    write_verdict(found.verdict, verdict)
    return found


def test_a_result_is_a_tree_that_shows_its_verdict(layout: ExperimentLayout) -> None:
    result = bm.open(layout.folder)
    assert isinstance(result, xr.DataTree)
    assert result["posterior"]["mu"].values.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert "a&b: fail" in repr(result)
    html = result._repr_html_()
    assert "a&amp;b" in html
    assert "(&lt;mu&gt;)" in html
    assert "<mu>" not in html
    assert bm.verdict(result) == bm.verdict("a&b", results=layout.results)
    assert bm.verdict(layout.posterior).gate("r_hat").value == 1.5


def test_what_was_altered_is_refused(layout: ExperimentLayout) -> None:
    record_as(layout.results, "a&b", "assemble", [layout.posterior, layout.posterior_hashes])
    bm.open(layout.folder)
    metadata = layout.posterior / "posterior" / "mu" / "zarr.json"
    metadata.write_text(metadata.read_text() + " ")
    with pytest.raises(StoreError, match=r"mu/zarr\.json"):
        bm.open(layout.folder)
