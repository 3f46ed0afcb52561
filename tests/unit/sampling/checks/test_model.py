"""The models of the registry pass the checks that a user's model has to; what they refuse is in tests/support/hostile.py."""

from __future__ import annotations

import re

import jax
import pytest

from bayesmesh.config.registry import list_components
from bayesmesh.errors import ConfigError
from bayesmesh.models.base import Axis
from bayesmesh.sampling.checks.model import (
    check_axes,
    check_described,
    check_model,
    check_predictions,
    check_shown,
    check_summaries,
)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", list_components("model"))
def test_a_model_of_the_registry_is_accepted(make_case, name: str, dtype: str) -> None:
    case = make_case(name, dtype)
    latents = check_model(case.model_class, case.options, case.spec)
    assert {shape.dtype.name for shape in latents.values()} == {dtype}
    summaries = check_summaries(case.model, latents, case.spec)
    assert summaries
    check_axes(case.model, latents, summaries)
    check_shown(case.model, latents, summaries)
    check_described(case.model)
    check_predictions(case.model, latents, case.spec)


@pytest.mark.parametrize(
    ("axes", "says"),
    [
        ((Axis("row", ("a", "b", "c")),), "names 3 entries of an axis of 'mean', which has shape (2,)"),
        ((None, None), "names 2 axes of 'mean', which has shape (2,)"),
        ((Axis("age/sex", None),), "names an axis of 'mean' 'age/sex'"),
    ],
)
def test_axes_that_do_not_fit_are_refused(make_case, axes: tuple[Axis | None, ...], says: str) -> None:
    case = make_case("gaussian")
    model, shapes = case.model, {"mean": jax.ShapeDtypeStruct((2,), "float64")}
    model.axes = lambda: {"mean": axes}
    with pytest.raises(ConfigError, match=re.escape(says)):
        check_axes(model, shapes, {})
