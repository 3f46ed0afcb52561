"""Small public posteriors, written as a user of the public interface would, and what is known of each.

Priors that the originals leave out ("flat") are N(0, 1e6^2) here. `reference.csv` holds the means and standard deviations
of all summaries; `make_reference.py` says how they were found.
"""

from __future__ import annotations

from posteriors import hierarchies, regressions, series, shapes
from posteriors.base import Posterior

POSTERIORS: dict[str, type[Posterior]] = {
    each.name: each
    for module in (regressions, hierarchies, series, shapes)
    for each in vars(module).values()
    if isinstance(each, type) and each.__module__ == module.__name__ and hasattr(each, "name")
}
"""Name -> model, in the order of the files."""
