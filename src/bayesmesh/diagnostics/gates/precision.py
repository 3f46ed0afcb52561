"""Detect float32 rounding too coarse for data or draws, a fast path that differs from the sum over rows, and a constant likelihood.

A likelihood that uses no latent, for example because of a misspelt name or a comparison that is never true, passes
every other gate.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np
import pandas as pd
from jaxtyping import Float, Shaped

from bayesmesh.diagnostics.gates.messages import missed_gate, place_of
from bayesmesh.diagnostics.verdict import GateResult, Outcome
from bayesmesh.store.layout import MOST_ROUNDED

MOST = 1.0
"""Rounding, in standard errors, above which the posterior is that of other data: a location parameter of the values has
no finer steps than they have, and its posterior is about one standard error wide."""

WIDEST = 1.0
"""Largest step between float32 numbers, in standard deviations of the draws there; at this step, standard deviations
are 4% too large."""

MOST_NATS = 0.2
"""Largest rounding of the log likelihood, in nats; a posterior mean moves by up to that many posterior standard
deviations."""

NOT_FINITE = 1e300
"""Values above this stand for a log likelihood that is infinite or NaN in float64."""

FAR_TOO_MANY_NATS = 1.0
"""Rounding of the log likelihood, in nats, at which means may be off by a standard deviation."""

FAR_TOO_WIDE = 2.0
"""Step, in standard deviations, at which standard deviations are 15% too large and above which means follow the
steps."""

EDGE_STEPS, MOST_AT_EDGE, FAR_TOO_MANY_AT_EDGE = 100, 0.01, 0.1
"""Steps of the dtype within which a draw is at an edge, the largest share of such draws, and the share from which the gate fails."""

_AT_EDGE = "use a prior with less mass at the edge, or make the log odds or the logarithm the latent"


def precision_gate(rounded: Mapping[str, float]) -> GateResult | None:
    """Return a warning or a failure if the values of a field are rounded by more than the limit; otherwise None.

    Args:
        rounded: field -> rounding of its values, in standard errors of their mean.

    >>> precision_gate({}), precision_gate({"year": 0.02}), precision_gate({"time": 0.3, "y": 20.0}).verdict
    (None, None, 'fail')
    """
    missed = {name: value for name, value in rounded.items() if value > MOST_ROUNDED}
    if not missed:
        return None
    worst = max(missed, key=lambda name: missed[name])
    others = f", and {', '.join(sorted({*missed} - {worst}))} by less" if len(missed) > 1 else ""
    told = f"float32 rounds the values of '{worst}' by {missed[worst]:.2g} standard errors of their mean, limit {MOST_ROUNDED:g}{others}: the posterior is that of rounded data"
    return missed_gate(
        "precision", "fail" if missed[worst] > MOST else "warn", missed[worst], MOST_ROUNDED, worst, told
    )


def likelihood_gate(nats: float | None, is_float32: bool = True, fast_path: str = "") -> GateResult | None:
    """Return a warning or a failure if the sampled log likelihood is off by more than the limit; otherwise None.

    The gate is `fast_path` if only the model's own method can be the cause, and `precision` otherwise.

    Args:
        nats: standard deviation over draws of the sampled minus the exact value; None if they were not compared.
        is_float32: whether it was sampled in float32.
        fast_path: the model's own method by which it was sampled; empty if it has none.

    >>> likelihood_gate(None), likelihood_gate(0.01), likelihood_gate(0.5).verdict, likelihood_gate(30.0).verdict
    (None, None, 'warn', 'fail')
    >>> likelihood_gate(30.0, False, "Model.fast").found.partition(",")[0]
    'Model.fast changes the log likelihood by 30 nats from draw to draw (standard deviation of the sampled value minus the sum of log_likelihood in float64)'
    """
    if nats is None or nats <= MOST_NATS:
        return None
    by = " or ".join([*(["float32"] if is_float32 else []), *([fast_path] if fast_path else [])])
    exact = "the sum of log_likelihood in float64" if fast_path else "the value in float64"
    told = (
        f"{by} changes the log likelihood by {nats:.3g} nats from draw to draw (standard deviation of the sampled value minus {exact}), "
        f"limit {MOST_NATS:g}: posterior means may be off by up to that many posterior standard deviations"
        if nats < NOT_FINITE
        else "the log likelihood of draws is finite as it was sampled, but infinite or not a number in float64"
    )
    remedies = [f"correct {fast_path}, or leave it out"] if fast_path else []
    if is_float32:
        remedies.append("set `compute: {dtype: float64}`, or write the formula so that it loses no digits")
    outcome: Outcome = "fail" if nats > FAR_TOO_MANY_NATS else "warn"
    name = "precision" if is_float32 else "fast_path"
    return missed_gate(name, outcome, nats, MOST_NATS, "log_likelihood", told, hint="; ".join(remedies))


def resolution_gate(table: pd.DataFrame, names: Collection[str]) -> GateResult | None:
    """Return a warning or a failure if draws vary by less than the step of float32 at their mean; otherwise None.

    Args:
        table: one row per coordinate, columns variable, index, label, mean and sd.
        names: variables that are stored in float32.

    >>> draws = pd.DataFrame([{"variable": "level", "index": "", "label": "", "mean": 3e5, "sd": 0.02}])
    >>> resolution_gate(draws, []), resolution_gate(draws, ["level"]).verdict
    (None, 'warn')
    """
    stored = table[table["variable"].isin(list(names)) & (table["sd"] > 0) & np.isfinite(table["mean"])]
    if stored.empty:
        return None
    steps = np.spacing(np.abs(stored["mean"].to_numpy(np.float32))).astype(np.float64)
    values = steps / stored["sd"].to_numpy(np.float64)
    worst = int(values.argmax())
    if values[worst] <= WIDEST:
        return None
    row = stored.iloc[worst]
    place = place_of(*(str(row[key]) for key in ("variable", "index", "label")))
    told = (
        f"draws of {place} vary by {row['sd']:.2g}, less than the steps of {steps[worst]:.2g} in float32 at {row['mean']:.6g}"
        f"; {(num := int((values > WIDEST).sum()))} of {len(values)} values miss{'es' * (num == 1)} the limit of one step per standard deviation"
    )
    outcome: Outcome = "fail" if values[worst] > FAR_TOO_WIDE else "warn"
    return missed_gate("precision", outcome, float(values[worst]), WIDEST, place, told)


class EdgeDraws:
    """The latents with many draws next to an edge of their support, where the floating-point numbers end.

    Of Beta(0.05, 0.05), 8% lie nearer to 1 than float64 can express, and 22% nearer than float32 can.

    Args:
        latents: their names.

    Attributes:
        found: coordinate -> share of draws at an edge, the edge, and the dtype of the draws.
    """

    def __init__(self, latents: Collection[str]) -> None:
        self._latents = latents
        self.found: dict[str, tuple[float, float, str]] = {}

    def add(
        self,
        name: str,
        draws: Shaped[np.ndarray, "chain draw coordinate"],
        places: Sequence[str],
        sd: Float[np.ndarray, " coordinate"],
    ) -> None:
        """Add a block of draws of a summary; one that is not a latent may reach an edge without any loss.

        >>> edges = EdgeDraws(["p"])
        >>> edges.add("p", np.array([[[0.1], [0.9], [1.0], [1.0]]], np.float32), ["p"], np.array([0.4]))
        >>> edges.found["p"], edges.gate().verdict
        ((0.5, 1.0, 'float32'), 'fail')
        """
        if name not in self._latents or draws.dtype.kind != "f":
            return
        for ends in (draws.min(axis=(0, 1)), draws.max(axis=(0, 1))):
            with np.errstate(invalid="ignore"):
                reach = EDGE_STEPS * np.maximum(np.spacing(np.abs(ends)), np.finfo(draws.dtype).tiny)
                # A single chain may stay at its own extreme.
                shares = np.median((np.abs(draws - ends) <= reach).mean(axis=1), axis=0)
            for at in map(int, np.flatnonzero((shares > MOST_AT_EDGE) & (sd > reach / MOST_AT_EDGE**2))):
                self.found[places[at]] = (float(shares[at]), float(ends[at]), draws.dtype.name)

    def gate(self) -> GateResult | None:
        """Return a warning or a failure that names the latent with the most draws at an edge; None if there is none."""
        if not self.found:
            return None
        worst = max(self.found, key=lambda place: self.found[place])
        share, edge, dtype = self.found[worst]
        told = f"{share:.2g} of the draws of {worst} lie within {EDGE_STEPS} steps of {dtype} from {edge:.6g}, limit {MOST_AT_EDGE:g}: numbers nearer to this edge are rounded to it, and their mass may be lost"
        wider = "set `compute: {dtype: float64}`; if it does not help, " if dtype == "float32" else ""
        outcome: Outcome = "fail" if share > FAR_TOO_MANY_AT_EDGE else "warn"
        return missed_gate("precision", outcome, share, MOST_AT_EDGE, worst, told, hint=f"{wider}{_AT_EDGE}")


def worst_of(*found: GateResult | None) -> GateResult | None:
    """Return the first failing gate, or else the first warning; None if there are none."""
    there = [gate for gate in found if gate is not None]
    return min(there, key=lambda gate: gate.verdict != "fail", default=None)


def constant_gate(log_likelihood: Float[np.ndarray, "chain draw"]) -> GateResult | None:
    """Return a warning if all draws have the same finite log likelihood, in nats; None if not, or if there is one draw.

    >>> constant_gate(np.array([[-3.0, -2.9]])) is None
    True
    """
    first = log_likelihood.ravel()[0]
    if log_likelihood.size == 1 or not np.isfinite(first) or (log_likelihood != first).any():
        return None
    found = f"the log likelihood is {first:.6g} in all draws: no latent changes it, and the posterior is the prior"
    return missed_gate("likelihood", "warn", 1.0, 2.0, "log_likelihood", found, beyond_draws=True)
