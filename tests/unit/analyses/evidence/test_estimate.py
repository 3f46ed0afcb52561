"""The digest of outcomes, by which evidences of the same rows are known, whatever their order."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bayesmesh.analyses.base import BoundModel
from bayesmesh.analyses.evidence import estimate
from bayesmesh.analyses.evidence.estimate import outcome_digest
from bayesmesh.data.base import DataSpec, FieldSpec
from bayesmesh.models.base import Model
from bayesmesh.store.scores import digest_outcomes

Y = np.array([3.0, 1.0, 2.0, 5.0, 4.0])


class Plain(Model):
    pretty_name = "Plain"
    offers = ()

    def __init__(self) -> None:
        pass

    prior = log_likelihood = predict = summaries = lambda *_: None  # type: ignore[assignment]

    def outcome(self, rows: Any) -> Any:
        return rows["y"]


def bound(model: Model, order: np.ndarray) -> BoundModel:
    shards = SimpleNamespace(
        num_rows=len(Y), read_rows=lambda start, stop: {"y": Y[order][start:stop]}, source_rows=lambda: order
    )
    return BoundModel(model, DataSpec(len(Y), {"y": FieldSpec((), "float64")}, {}, "float64"), shards)  # type: ignore[arg-type]


@pytest.mark.parametrize("order", [[0, 1, 2, 3, 4], [4, 2, 0, 1, 3]])
def test_the_digest_is_that_of_the_source_in_blocks_of_any_size(
    order: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(estimate, "DIGEST_ROWS", 2)
    assert outcome_digest(bound(Plain(), np.array(order))) == digest_outcomes(Y)
