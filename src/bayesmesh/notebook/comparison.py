"""Show a comparison of models as a table and sentences, as HTML and as text."""

from __future__ import annotations

import pandas as pd
from markupsafe import Markup

from bayesmesh.report.comparison.models import ModelComparison
from bayesmesh.report.comparison.page import COLUMNS, table_row
from bayesmesh.report.comparison.text import sentences


class ShownComparison:
    """A comparison of models on the same rows.

    Attributes:
        table: one row per model, the best first, and one per average over models; columns as in ``comparisons/*.csv``.
        weights: stacking weights by value of a feature, one column per model; None without a feature.
        sentences: the conclusions from the scores.
    """

    def __init__(self, found: ModelComparison) -> None:
        rows = [table_row(each, found.probabilities) for each in (*found.members, *found.averages)]
        self.table = pd.DataFrame(rows, columns=list(COLUMNS)).set_index("model")
        self.sentences = sentences(found)
        self.weights = None
        if found.by_cell is not None:
            labels, counts, weights = zip(*found.by_cell.rows, strict=True)
            index = pd.Index(labels, name=found.by_cell.feature)
            self.weights = pd.DataFrame(list(weights), index, [each.name for each in found.members])
            self.weights.insert(0, "num_rows", list(counts))

    def __repr__(self) -> str:
        return "\n".join([*self.sentences, self.table.to_string(float_format="%.3f", na_rep="")])

    def _repr_html_(self) -> str:
        said = Markup("").join(Markup("<p>{}</p>").format(each) for each in self.sentences)
        return f"<div>{said}{self.table.to_html(float_format='{:.3f}'.format, na_rep='')}</div>"
