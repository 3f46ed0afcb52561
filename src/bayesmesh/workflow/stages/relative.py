"""Continue the chains of a relative: read where they were, and notice after a short warmup that they mislead.

What is read follows from the relative's identity alone, however many draws it has by now: its first draw, and the step size
and the metric at the end of its warmup.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from bayesmesh.diagnostics.convergence import chance_of_r_hat
from bayesmesh.sampling.program.chain_group import Program
from bayesmesh.sampling.program.start_points import to_positions
from bayesmesh.sampling.program.values import ChainState, name_leaves
from bayesmesh.store.arrays import open_group, read_part
from bayesmesh.store.chains.arrays import DRAWS
from bayesmesh.store.chains.manifests import read_manifest
from bayesmesh.store.chains.segments import ChainStore
from bayesmesh.store.layout import group_name
from bayesmesh.workflow.jobs import Job

LEAST_CHANCE = 1e-6
"""Probability of an R-hat of the log density below which chains of both origins do not agree."""

MOST_SHRINKAGE = 0.5
"""Ratio of the step size to that of the relative below which the metric does not fit."""

_log = logging.getLogger("bayesmesh")


class Misled(Exception):
    """Chains that continue a relative do not agree after their short warmup, so that the run must start without it."""


class Relative(NamedTuple):
    """The chains of a relative.

    Attributes:
        identity: their identity.
        state: their adaptation after warmup, and their first draw as position.
        step_size: their step size.
    """

    identity: str
    state: ChainState
    step_size: float


def read_relative(job: Job, program: Program) -> Relative | None:
    """Return the chains that those of a job continue; None if there are none, or their latents have other shapes.

    Raises:
        StoreError: they are missing or damaged.
    """
    if not job.relative:
        return None
    layout = job.relative_layout
    manifest = read_manifest(layout.sampled(group_name(0)))
    store = ChainStore(layout.folder / manifest.folder, manifest.segment_draws, {"identity": manifest.identity})
    last = store.resume()
    assert last is not None, "a manifest is written after a commit"
    leaves, shapes = store.load_checkpoint(last), program.state_shapes
    draws = dict(open_group(store.folder / DRAWS / "posterior").arrays())
    expected = dict(zip(name_leaves(shapes), jax.tree.leaves(shapes), strict=True))
    if _kinds(leaves) != _kinds(expected) or not draws.keys() >= program.target.position.shapes.keys():
        _log.info("the chains of '%s' are not continued: their latents have other shapes", job.relative)
        return None
    first = {name: read_part(draws[name], slice(None), slice(1))[:, 0] for name in program.target.position.shapes}
    for part, at in to_positions(first, program.target)._asdict().items():
        if at is not None:
            leaves[f"kernel.position.{part}"] = at.astype(leaves[f"kernel.position.{part}"].dtype)
    return Relative(manifest.identity, program.state_to_device(leaves), float(last.facts["step_size"]))


def _kinds(leaves: Mapping[str, Any]) -> dict[str, tuple[tuple[int, ...], Any]]:
    return {name: (leaf.shape, leaf.dtype) for name, leaf in leaves.items()}


def check_continued(store: ChainStore, step_size: float) -> None:
    """Check that chains which continue a relative agree with those of the same run that started by themselves.

    Args:
        store: the chain group, after its warmup.
        step_size: step size of the relative.

    Raises:
        Misled: in the second half of the short warmup, the log densities of the chains differ by more than chance; or the
            step size has become less than half of the relative's, so that its metric does not fit.
    """
    lp = np.asarray(open_group(store.folder / DRAWS / "warmup_sample_stats")["lp"])
    chance = chance_of_r_hat(lp[:, lp.shape[1] // 2 :, None])[0]
    if np.isnan(chance):
        raise Misled("the log densities of its chains and of others are not finite, or are all equal")
    if chance < LEAST_CHANCE:
        raise Misled(f"the log densities of its chains and of others differ (probability {chance:.1g} if they agreed)")
    ratio = store.commits()[-1].facts["step_size"] / step_size
    if ratio < MOST_SHRINKAGE:
        raise Misled(f"its metric does not fit: the step size fell to {ratio:.2g} of its own")
