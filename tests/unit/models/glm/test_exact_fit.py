"""Outcomes that columns and the effects of one group explain exactly are named, and others are not, however well they are explained."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

from bayesmesh.config.registry import options_class
from bayesmesh.data.views import prepare_rows
from bayesmesh.models.glm.model import Glm
from cases import trees


def prepare(formula: str, outcome: Any, family: str = "normal", num_rows: int = 60, **options: Any) -> None:
    """Prepare trees whose growth is a function of the other columns."""
    spec, table = trees(num_rows)
    own = options_class("model", "glm")(formula=formula, family=family, **options)
    prepare_rows(functools.partial(Glm.prepare, own), spec, {**table, "growth": np.asarray(outcome(table), float)})


def of_site(table: Any) -> Any:
    return np.sin(table["site"] + 1.0)


def of_site_and_age(table: Any) -> Any:
    return of_site(table) + 0.3 * table["age"]


@pytest.mark.parametrize("family", ["normal", "student_t"])
@pytest.mark.parametrize(
    ("formula", "outcome", "said"),
    [
        ("growth ~ (1 | site)", of_site, "the groups 'site' and the columns explain the outcome 'growth' exactly"),
        ("growth ~ age + species + (1 | site)", of_site, "the groups 'site'"),
        ("growth ~ age + (1 | site)", of_site_and_age, "the groups 'site'"),
        ("growth ~ 0 + (1 + age | site)", of_site_and_age, "the groups 'site'"),
        ("growth ~ age", lambda table: 2 - 3.0 * table["age"], "the columns explain the outcome 'growth' exactly"),
        ("growth ~ species", lambda table: table["species"] ** 2, "the columns explain"),
    ],
)
def test_an_exact_fit_is_named_with_what_makes_it(
    caplog: pytest.LogCaptureFixture, formula: str, outcome: Any, family: str, said: str
) -> None:
    prepare(formula, outcome, family)
    assert said in caplog.text
    assert "keep one row of each group" in caplog.text
    caplog.clear()
    for proper in ("log_normal(0, 1)", "inverse_gamma(2, 1)", "gamma(80, 1)", "uniform(0.1, 3)"):
        prepare(formula, outcome, family, priors={"sigma": proper})
    assert not caplog.messages
    for improper in ("half_normal(1)", "gamma(2, 1)", "uniform(0, 1)"):
        prepare(formula, outcome, family, priors={"sigma": improper})
    assert len(caplog.messages) == 3


def test_as_many_effects_as_rows_explain_everything_and_are_proper(caplog: pytest.LogCaptureFixture) -> None:
    spec, table = trees(4)
    own = options_class("model", "glm")(formula="growth ~ (1 | site)")
    rows = {**table, "site": np.arange(4, dtype=np.int32)}
    assert len(spec.variables["site"].levels) >= 4
    prepare_rows(functools.partial(Glm.prepare, own), spec, rows)
    assert not caplog.messages
