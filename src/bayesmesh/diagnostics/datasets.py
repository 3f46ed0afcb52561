"""Assess one dataset, or many, each by its own draws: gates, verdicts.csv, and the worst result of each gate."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
import zarr

from bayesmesh.config.blocks import GateSettings
from bayesmesh.diagnostics.energy import energies_of
from bayesmesh.diagnostics.gates.chains import Movement, NonFinite
from bayesmesh.diagnostics.gates.evaluation import evaluate_gates
from bayesmesh.diagnostics.gates.geometry import MOST_LATENTS, complete_gates
from bayesmesh.diagnostics.gates.kernel import NUM_RELATIVES, ancestors_gate
from bayesmesh.diagnostics.gates.modes import ModeStays, modes_gate
from bayesmesh.diagnostics.gates.populations import judge_populations
from bayesmesh.diagnostics.verdict import GateResult, Outcome, overall
from bayesmesh.store.arrays import dimension_names, read_part
from bayesmesh.store.layout import DATASET
from bayesmesh.store.posterior.coordinates import choose_coordinates, coordinate_indices, coordinate_places


def _assess(
    table: pd.DataFrame, draws: Sequence[Mapping[str, np.ndarray]], recorded: set[str], gates: GateSettings,
    num_populations: int,
) -> list[GateResult]:  # fmt: skip
    """Return the results of all gates of a dataset; its `draws` are those of summaries, latents and statistics."""
    summaries, latents, statistics = draws
    non_finite, movement, apart = NonFinite(), Movement(), ModeStays()
    for name, values in summaries.items():
        flat = values.reshape(*values.shape[:2], -1)
        movement.add(flat)
        places = coordinate_places(name, np.arange(flat.shape[2]), values.shape[2:])
        non_finite.add(flat, places)
        apart.add(name, flat, places, table["chance"].to_numpy(np.float64)[table["variable"] == name])
    for values in latents.values():
        movement.add(values.reshape(*values.shape[:2], -1))
    num_chains = len(next(iter(latents.values())))
    energies = energies_of(statistics, num_chains)
    relatives = statistics.get(NUM_RELATIVES)
    return judge(
        evaluate_gates(table, energies, recorded, gates),
        table,
        (non_finite, movement, apart),
        statistics.get("lp"),
        None if relatives is None else relatives[:, -1],
        lambda: _latent_blocks(latents),
        num_populations,
        num_chains,
    )


def judge(
    results: list[GateResult],
    table: pd.DataFrame,
    seen: tuple[NonFinite, Movement, ModeStays],
    lp: np.ndarray | None,
    num_relatives: np.ndarray | None,
    read_blocks: Callable[[], Iterable[tuple[list[str], np.ndarray]]],
    num_populations: int,
    num_chains: int,
) -> list[GateResult]:
    """Return the results of all gates of one dataset, including those that exist only if missed.

    Args:
        results: of the gates that every run has.
        table: convergence of the summaries.
        seen: collectors to which all draws were added.
        lp: log density of every draw, nats; None if not recorded.
        num_relatives: statistic `NUM_RELATIVES` of each chain; None for other kernels.
        read_blocks: returns an iterator over names and draws of latents.
        num_populations: number of populations that the chains are; 0 if chains are independent.
        num_chains: number of all chains.
    """
    non_finite, movement, apart = seen
    if num_populations:
        in_modes, results = judge_populations(results, table, num_populations, num_chains)
    else:
        in_modes = (None if lp is None else modes_gate(lp)) or apart.gate()
    few = None if num_relatives is None else ancestors_gate(num_relatives)
    return complete_gates(results, (non_finite.gate(), movement.gate(), in_modes), few, lp, read_blocks)


def _latent_blocks(latents: Mapping[str, np.ndarray]) -> Iterator[tuple[list[str], np.ndarray]]:
    """Yield names and draws (chain, draw, coordinate) of some coordinates of each latent."""
    for name, values in latents.items():
        flat = values.reshape(*values.shape[:2], -1)
        chosen = choose_coordinates(flat.shape[2], MOST_LATENTS)
        yield coordinate_places(name, chosen, values.shape[2:]), flat[:, :, chosen]


BLOCK_BYTES = 128 * 2**20
"""Limit on the draws of a block of datasets, in bytes; a block has at least one dataset."""

_MEASURES = ("r_hat", "ess_bulk", "ess_tail", "mcse_mean", "divergences", "bfmi")

_OUTCOMES: tuple[Outcome, ...] = ("fail", "warn", "pass")


class Assessed(NamedTuple):
    """One dataset: its name, and the results of its gates."""

    name: str
    gates: list[GateResult]

    @property
    def verdict(self) -> Outcome:
        """The worst outcome of its gates."""
        return overall(self.gates)


def dataset_names(group: zarr.Group, arrays: Mapping[str, zarr.Array]) -> list[str]:
    """Return the names of the datasets, from the coordinate of a group; empty if its arrays have no dataset axis."""
    if not any(dimension_names(array)[2:3] == (DATASET,) for array in arrays.values()):
        return []
    names = group[DATASET]
    assert isinstance(names, zarr.Array), "written with the arrays"
    return [str(name) for name in read_part(names)]


def assess_datasets(
    monitored: pd.DataFrame,
    groups: tuple[Mapping[str, zarr.Array], Mapping[str, zarr.Array], Mapping[str, zarr.Array]],
    recorded: set[str],
    gates: GateSettings,
    names: Sequence[str],
    num_populations: int = 0,
) -> list[Assessed]:
    """Evaluate the gates for every dataset.

    Args:
        monitored: convergence of all summaries, rows in the order of their arrays, whose first axis after the draws is
            the dataset.
        groups: summaries, latents and statistics of the sampler, arrays (chain, draw, dataset, ...).
        recorded: statistics that the kernel declares.
        gates: limits.
        names: of the datasets.
        num_populations: number of populations that the chains are; 0 if chains are independent.
    """
    summaries = groups[0]
    tables = {name: monitored[monitored["variable"] == name] for name in summaries}
    found = []
    for first, draws_of in _blocks(groups, len(names)):
        for number, draws in enumerate(draws_of, first):
            table = pd.concat([_rows_of(tables[n], number, names[number], a.shape[3:]) for n, a in summaries.items()])
            found.append(Assessed(names[number], _assess(table, draws, recorded, gates, num_populations)))
    return found


def _blocks(
    groups: Sequence[Mapping[str, zarr.Array]], total: int
) -> Iterator[tuple[int, list[list[dict[str, np.ndarray]]]]]:
    """Yield blocks of datasets: the number of the first, and the draws (chain, draw, ...) of all groups for each."""
    arrays = [array for group in groups for array in group.values()]
    each = sum(math.prod(a.shape) * a.dtype.itemsize for a in arrays) // total
    step = max(1, BLOCK_BYTES // max(1, each))
    for first in range(0, total, step):
        part = slice(None), slice(None), slice(first, first + step)
        read = [{name: read_part(array, *part) for name, array in group.items()} for group in groups]
        count = min(step, total - first)
        yield first, [[{k: v[:, :, i] for k, v in group.items()} for group in read] for i in range(count)]


def _rows_of(table: pd.DataFrame, number: int, name: str, shape: tuple[int, ...]) -> pd.DataFrame:
    """Return the rows of one dataset of a variable, with indices and labels that omit the dataset."""
    size = math.prod(shape)
    rows = table.iloc[number * size : (number + 1) * size]
    return rows.assign(
        index=coordinate_indices(np.arange(size), shape),
        label=[_without(label, (name, str(number))) for label in rows["label"]],
    )


def _without(label: str, datasets: Sequence[str]) -> str:
    """Return a label without the name, or the number, of its dataset.

    >>> _without("rat 7,elm", ("rat 7", "6")), _without("rat 7", ("rat 7", "6")), _without("12,elm", ("1", "12"))
    ('elm', '', 'elm')
    """
    for each in datasets:
        if label == each or label.startswith(f"{each},"):
            return label[len(each) + 1 :]
    return label


def worst_gates(datasets: Sequence[Assessed]) -> list[GateResult]:
    """Return the worst result of each gate over the datasets, in the order in which gates first appear."""
    found: dict[str, list[tuple[str, GateResult]]] = {}
    for each in datasets:
        for gate in each.gates:
            found.setdefault(gate.name, []).append((each.name, gate))
    return [_worst(results, len(datasets)) for results in found.values()]


def _worst(results: list[tuple[str, GateResult]], total: int) -> GateResult:
    def badness(item: tuple[str, GateResult]) -> tuple[int, bool, float]:
        gate = item[1]
        value = gate.value if math.isfinite(gate.value) else 0.0
        return (
            -_OUTCOMES.index(gate.verdict),
            not math.isfinite(gate.value),
            value if gate.direction == "at most" else -value,
        )

    name, worst = max(results, key=badness)
    num_missed = sum(gate.verdict != "pass" for _, gate in results)
    where = f"dataset {name}" + (f", {worst.where}" if worst.where else "")
    missed = f"{num_missed} of {total} datasets miss{'es' * (num_missed == 1)} it; " if num_missed else ""
    return worst.model_copy(update={"where": where, "found": f"{missed}the worst is dataset {name}: {worst.found}"})


def count_outcomes(datasets: Sequence[Assessed]) -> dict[Outcome, int]:
    """Return the number of datasets with each verdict, the worst first."""
    verdicts = [each.verdict for each in datasets]
    return {outcome: verdicts.count(outcome) for outcome in _OUTCOMES}


def verdicts_table(datasets: Sequence[Assessed]) -> pd.DataFrame:
    """Return one row for each dataset: its verdict, the gates that it misses, and the value of each statistic."""
    rows = []
    for each in datasets:
        values = {gate.name: gate.value for gate in each.gates}
        missed = [gate for gate in each.gates if gate.verdict != "pass"]
        rows.append(
            {
                "dataset": each.name,
                "verdict": each.verdict,
                "missed": " ".join(gate.name for gate in missed),
                **{name: values.get(name, math.nan) for name in _MEASURES},
                "message": missed[0].message if missed else "",
            }
        )
    return pd.DataFrame(rows)
