"""The models of the registry pass the checks that a user's model has to; what they refuse is in tests/hostile.py."""

from __future__ import annotations

import pytest

from bayesmesh.config.registry import list_components
from bayesmesh.sampling.model_check import check_model, check_predictions, check_summaries


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", list_components("model"))
def test_a_model_of_the_registry_is_accepted(make_case, name: str, dtype: str) -> None:
    case = make_case(name, dtype)
    latents = check_model(case.model_class, case.options, case.spec)
    assert {shape.dtype.name for shape in latents.values()} == {dtype}
    assert check_summaries(case.model, latents, case.spec)
    check_predictions(case.model, latents, case.spec)
