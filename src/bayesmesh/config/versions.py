"""One version number for each stage of this package, which stands for the code that the stage runs.

A number is raised with a change after which the same inputs give other results; then users' results are made again. Golden
draws and tables in the tests fail where one has to be raised. Files of components (sources, models, kernels, metrics,
analyses) count by themselves, whatever these numbers are.
"""

from __future__ import annotations

FETCH = 1
"""Raise if other records would be fetched from the same source."""

SHARD = 3
"""Raise if a dataset would be split, ordered or stored in another way."""

COMPILE = 1
"""Raise if `compile` would accept other models or data, or write other facts to ``audit.json``."""

DRAWS = 2
"""Raise if chains with the same seed would have other draws: it is part of their identity, so all chains are sampled anew."""

SAMPLE = 1
"""Raise if a stopping rule would end at another draw, or the records of sampling would change, with the draws as they are."""

ASSEMBLE = 4
"""Raise if the posterior would hold other groups, variables or values."""

DIAGNOSE = 3
"""Raise if a statistic, a gate or a sentence of the verdict would change."""

ANALYSE = 3
"""Raise if analyses would be given other draws, rows or predictions."""

REPORT = 4
"""Raise if a page, a figure or a table on it would look different: of experiments, of sweeps, and the index."""

VERSIONS = {
    "fetch": f"{FETCH}",
    "shard": f"{SHARD}",
    "compile": f"{COMPILE}.{DRAWS}",
    "sample": f"{SAMPLE}.{DRAWS}",
    "assemble": f"{ASSEMBLE}",
    "diagnose": f"{DIAGNOSE}",
    "report": f"{REPORT}",
}
"""Stage -> its version; `ANALYSE` is that of every analysis."""
