"""Diagnose a posterior: from posterior.zarr to summary.csv and verdict.json."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import zarr

from bayesmesh.config.blocks import GateSettings
from bayesmesh.diagnostics.datasets import (
    assess_datasets,
    count_outcomes,
    dataset_names,
    judge,
    verdicts_table,
    worst_gates,
)
from bayesmesh.diagnostics.energy import energies_of
from bayesmesh.diagnostics.gates.chains import Movement, NonFinite
from bayesmesh.diagnostics.gates.evaluation import defer_to_rounding, evaluate_gates, withdraw_prior
from bayesmesh.diagnostics.gates.geometry import MOST_LATENTS
from bayesmesh.diagnostics.gates.kernel import NUM_RELATIVES, accept_step_gate
from bayesmesh.diagnostics.gates.messages import without_kernel
from bayesmesh.diagnostics.gates.modes import ModeStays
from bayesmesh.diagnostics.gates.precision import (
    EdgeDraws,
    constant_gate,
    likelihood_gate,
    precision_gate,
    resolution_gate,
    worst_of,
)
from bayesmesh.diagnostics.gates.tails import HeavyTails
from bayesmesh.diagnostics.summary import (
    READ_BYTES,
    Efficiency,
    SummaryFile,
    name_coordinates,
    writing_summary,
)
from bayesmesh.diagnostics.verdict import GateResult, Listed, NumCoordinates, Verdict, overall, write_verdict
from bayesmesh.errors import ConfigError, StoreError
from bayesmesh.files import write_text
from bayesmesh.store.arrays import read_part
from bayesmesh.store.layout import DECLARED, POPULATIONS, TOTAL, UNADJUSTED, ExperimentLayout
from bayesmesh.store.posterior.attributes import read_attribute
from bayesmesh.store.posterior.coordinates import choose_coordinates, coordinate_blocks, drawn_arrays, event_size
from bayesmesh.store.posterior.reader import open_posterior


def diagnose(posterior: Path, gates: GateSettings, layout: ExperimentLayout, *, num_threads: int = 1) -> Verdict:
    """Assess a posterior and write its summary and verdict.

    Args:
        posterior: Zarr store with the groups `summaries` (identified quantities), `posterior` (latents) and
            `sample_stats`, arrays of dimensions (chain, draw, ...).
        gates: limits for `summaries` only; latents need not be identified and are only listed.
        layout: files of the experiment. summary.csv, efficiency.csv and verdict.json are replaced atomically, the verdict last.
        num_threads: threads for the statistics, which do not depend on their number.

    Returns:
        The verdict. Some gates exist only if they are missed:
        `finite`: draws of summaries that are not finite.
        `movement`: chains that stay at one point.
        `populations`: independent populations of chains that disagree, or a single one whose chains do.
        `modes`: chains whose log density differs from that of the others, or that stay in one of two modes of a summary.
        `ancestors`, a warning: chains that descend from few draws of the prior.
        `precision`: data or draws that float32 rounds too coarsely, or draws next to an edge that their dtype does not resolve.
        `fast_path`: a fast path that differs from the sum over rows.
        `tails`, a warning: a summary whose mean the draws cannot estimate.
        `likelihood`, a warning: a log likelihood that is the same in all draws.
        `accept_step`, a warning: draws of a kernel without an accept step.
        `drift`, `funnel`: the latent that is the likely cause of another missed gate.

        If the kernel declares `energy` or `diverging` but does not record it, its gate is missed; a kernel that does
        not declare the statistic has no such gate.

    Raises:
        ConfigError: superchains do not divide the chains.
        StoreError: a group is missing, a chunk is missing or damaged, or arrays differ in chains or draws.

    Reference:
        Vehtari et al. 2021, doi:10.1214/20-BA1221; Betancourt 2016, arXiv:1604.00695.
    """
    efficiency = _efficiency(posterior, gates, layout)
    found: object = open_posterior(posterior).group("sample_stats").attrs.get(POPULATIONS, 0)
    num_populations = found if isinstance(found, int) else 0
    with writing_summary(layout.summary, num_threads, efficiency, num_populations) as summary:
        verdict = _judge(posterior, gates, layout, summary, num_populations)
    if efficiency is None:
        layout.efficiency.unlink(missing_ok=True)
    write_verdict(layout.verdict, verdict)
    return verdict


def _efficiency(posterior: Path, gates: GateSettings, layout: ExperimentLayout) -> Efficiency | None:
    """Return the additional statistics that the settings request; None if they request none.

    Raises:
        ConfigError: the number of superchains does not divide that of the chains.
    """
    if not gates.efficiency:
        return None
    if gates.superchains is None:
        return Efficiency(layout.efficiency, None)
    num_chains = open_posterior(posterior).num_chains
    if num_chains % gates.superchains:
        problem = f"{gates.superchains} superchains do not divide {num_chains} chains evenly"
        raise ConfigError(f"key 'gates.superchains': {problem}", "give the number of different starting points")
    return Efficiency(layout.efficiency, np.arange(num_chains) // (num_chains // gates.superchains))


def _judge(
    posterior: Path, gates: GateSettings, layout: ExperimentLayout, summary: SummaryFile, num_populations: int
) -> Verdict:
    reader = open_posterior(posterior)
    groups = [reader.group(name) for name in ("summaries", "posterior", "sample_stats")]
    summaries, latents, sample_stats = map(drawn_arrays, groups)
    num_chains, num_draws = _sampled_shape(posterior, {**latents, **summaries, **sample_stats})
    non_finite, movement, apart, tails, edges = NonFinite(), Movement(), ModeStays(), HeavyTails(), EdgeDraws(latents)
    monitored = summary.add_monitored(
        groups[0], summaries, gates.r_hat.limit, movement, non_finite, apart, tails, edges
    )
    listed = {
        name: summary.add_latent(groups[1], name, array, gates.max_coordinates, monitored, movement)
        for name, array in latents.items()
    }
    kept = ("energy", "diverging", "divergent_share")
    energies = energies_of({k: _by_chain(read_part(sample_stats[k])) for k in kept if k in sample_stats}, num_chains)
    recorded = recorded_statistics(reader.group("sample_stats"))
    varying = monitored[~monitored["is_fixed"].to_numpy(bool)]
    if names := dataset_names(reader.group("sample_stats"), sample_stats):
        groups_of = (summaries, latents, sample_stats)
        datasets = assess_datasets(monitored, groups_of, recorded, gates, names, num_populations)
        results, counts = worst_gates(datasets), count_outcomes(datasets)
        table = verdicts_table(datasets)
        write_text(layout.verdicts, table.to_csv(index=False, na_rep="NaN", lineterminator="\n"))
    else:
        relatives = sample_stats.get(NUM_RELATIVES)
        results = judge(
            evaluate_gates(varying, energies, recorded, gates),
            varying,
            (non_finite, movement, apart),
            read_part(sample_stats["lp"]) if "lp" in sample_stats else None,
            None if relatives is None else read_part(relatives, slice(None), slice(-1, None))[:, 0],
            lambda: _latent_blocks(groups[1], latents, layout.summary.parent),
            num_populations,
            num_chains,
        )
        counts = None
        layout.verdicts.unlink(missing_ok=True)
    in_float32 = [name for name, array in summaries.items() if array.dtype == np.float32]
    is_float32 = any(array.dtype == np.float32 for array in latents.values())
    of_likelihood = likelihood_gate(reader.rounded_likelihood, is_float32, reader.fast_path)
    of_draws = resolution_gate(varying, in_float32), edges.gate()
    rounding = worst_of(precision_gate(reader.rounded), of_likelihood, *of_draws)
    if of_likelihood is not None:
        results = defer_to_rounding(map(withdraw_prior, results), of_likelihood.name)
    is_adjusted = not reader.group("sample_stats").attrs.get(UNADJUSTED, False)
    # Rounding comes first because it may be why others are missed; heavy tails may not.
    further = (tails.gate(), _constant(sample_stats), accept_step_gate(is_adjusted))
    results = [*filter(None, (rounding, *results, *further))]
    hints = ["; ".join(without_kernel(each.hint.split("; "), reader.kernel)) for each in results]
    results = [each.model_copy(update={"hint": hint}) for each, hint in zip(results, hints, strict=True)]
    totals = {name: event_size(array) for name, array in latents.items()}
    return Verdict(
        verdict=overall(results),
        gates=tuple(results),
        experiment=layout.experiment,
        num_chains=num_chains,
        num_draws=num_draws,
        num_coordinates=NumCoordinates(
            summaries=len(monitored),
            latents=sum(totals.values()),
            listed=summary.num_rows,
            fixed=len(monitored) - len(varying),
        ),
        latents={name: Listed(total=total, listed=listed[name]) for name, total in totals.items()},
        num_restarted=_num_restarted(reader.find("warmup_sample_stats/restarted")),
        raised_target_acceptance=_raised(
            reader.find("warmup_sample_stats/target_acceptance"), reader.find("sample_stats/target_acceptance")
        ),
        is_adjusted=is_adjusted,
        num_populations=num_populations,
        datasets=counts,
        num_divergences=energies.num_divergences,
        divergence_share=energies.divergence_share,
        bfmi=tuple(energies.bfmi.tolist()),
        acceptance_rate=_acceptance(sample_stats.get("acceptance_rate")),
    )


def _constant(sample_stats: dict[str, zarr.Array]) -> GateResult | None:
    """Return the warning about a likelihood that uses no latent; None for many datasets."""
    recorded = sample_stats.get(TOTAL)
    return None if recorded is None or recorded.ndim > 2 else constant_gate(read_part(recorded))


def _num_restarted(restarted: zarr.Array | None) -> int:
    """Return how many chains warmup restarted at the positions of others, from a statistic (chain, iteration, ...)."""
    return 0 if restarted is None else int(np.count_nonzero(read_part(restarted).any(axis=1)))


def _raised(warmup: zarr.Array | None, sampling: zarr.Array | None) -> float | None:
    """Return the target acceptance of sampling if warmup began with a lower one; both are (chain, iteration, ...)."""
    if warmup is None or sampling is None:
        return None
    last = float(read_part(sampling).max())
    return last if last > read_part(warmup).min() else None


def recorded_statistics(sample_stats: zarr.Group) -> set[str]:
    """Return the statistics that the kernel declares; if the store does not say, those of Hamiltonian kernels."""
    declared = read_attribute(sample_stats.attrs.get(DECLARED, ["energy", "diverging"]))
    return set(map(str, declared)) if isinstance(declared, list) else set()


def _sampled_shape(path: Path, arrays: dict[str, zarr.Array]) -> tuple[int, int]:
    """Return the numbers of chains and draws, which all arrays share."""
    shapes = {array.shape[:2]: name for name, array in arrays.items()}
    if len(shapes) != 1 or 0 in next(iter(shapes)):
        found = ", ".join(f"'{name}' {shape}" for shape, name in shapes.items()) or "no array"
        message = f"{path}: arrays differ in chains or draws, or have none: {found}"
        raise StoreError(message, "assemble the posterior again")
    num_chains, num_draws = next(iter(shapes))
    return int(num_chains), int(num_draws)


def _latent_blocks(
    group: zarr.Group, latents: dict[str, zarr.Array], scratch: Path
) -> Iterator[tuple[list[str], np.ndarray]]:
    """Yield names and draws (chain, draw, coordinate) of some coordinates of each latent, block by block."""
    for name, array in latents.items():
        positions = choose_coordinates(event_size(array), MOST_LATENTS)
        for part, draws in coordinate_blocks(array, positions, READ_BYTES, scratch):
            yield name_coordinates(group, name, array, positions[part]).places(), draws


def _acceptance(recorded: zarr.Array | None) -> float | None:
    """Return the mean acceptance rate; None if it is not recorded or not finite."""
    mean = np.nan if recorded is None else float(read_part(recorded).mean(dtype=np.float64))
    return mean if np.isfinite(mean) else None


def _by_chain(values: np.ndarray) -> np.ndarray:
    """Return a statistic as (chain, draw), with the chains of all datasets concatenated if it has a dataset axis."""
    return values if values.ndim == 2 else np.moveaxis(values, 2, 0).reshape(-1, values.shape[1])
