"""Sixty wrong formulas and outcomes: each is answered with the key, what is wrong and what to write, before anything is sampled."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from pydantic import ValidationError

from bayesmesh.errors import ConfigError
from tabular.base import Table
from tabular.runs import case_of

NUM_ROWS = 12

ROWS = np.arange(NUM_ROWS)
COLUMNS: dict[str, Any] = {
    "y": 0.5 + ROWS % 5, "share": (1 + ROWS % 5) / 7, "count": ROWS % 4, "positive_count": 1 + ROWS % 4, "one": np.ones(NUM_ROWS),
    "x": np.sin(ROWS), "n": np.full(NUM_ROWS, 5), "site": np.array(list("abc"))[ROWS % 3], "level": np.array(["low", "mid", "high"])[ROWS % 3],
    "status": np.array(["none", "right"])[ROWS % 2], "end": 1.0 + ROWS % 5, "odd": np.array(["none", "rihgt"])[ROWS % 2],
    "nothing": 0.0 * ROWS, "se": 0.1 + 0 * ROWS, "no_se": np.where(ROWS == 3, -0.1, 0.1), "zero": np.where(ROWS == 3, 0.0, 0.4), "unit": np.where(ROWS == 3, 1.0, 0.4),
    "negative": np.where(ROWS == 3, -1.0, 2.0), "half": np.where(ROWS == 3, 1.5, 2.0),
    "intervals": np.array(["none", "interval"])[ROWS % 2], "before": 0.1 + 0 * ROWS,
}  # fmt: skip


class Wrong(NamedTuple):
    """Options of `glm`, and what the message has to name."""

    options: dict[str, Any]
    names: str


def _of(names: str, formula: str = "y ~ x", family: str = "normal", **more: Any) -> Wrong:
    return Wrong({"formula": formula, "family": family, **more}, names)


WRONG = [
    # Outcomes that a family cannot have.
    _of("row 4.*'zero' is 0.*ordered_beta", "zero ~ x", "beta"),
    _of("row 4.*'unit' is 1.*ordered_beta", "unit ~ x", "beta"),
    _of("row 1.*'negative' is 2", "negative ~ x", "ordered_beta"),
    _of("row 4.*'zero' is 0.*hurdle_gamma", "zero ~ x", "gamma"),
    _of("row 4.*'zero' is 0.*hurdle_log_normal", "zero ~ x", "log_normal"),
    _of("row 4.*'zero' is 0", "zero ~ x", "weibull"),
    _of("row 4.*'zero' is 0", "zero ~ x", "inverse_gaussian"),
    _of("row 4.*'negative' is -1", "negative ~ x", "exponential"),
    _of("row 4.*'negative' is -1", "negative ~ x", "poisson"),
    _of("row 4.*'half' is 1.5", "half ~ x", "negative_binomial"),
    _of("row 4.*'half' is 1.5", "half ~ x", "zero_inflated_poisson"),
    _of("row 4.*'negative' is -1", "negative ~ x", "zero_inflated_negative_binomial"),
    _of("row 4.*'half' is 1.5", "half ~ x", "hurdle_poisson"),
    _of("row 4.*'half' is 1.5", "half ~ x", "hurdle_negative_binomial"),
    _of("row 4.*'negative' is -1", "negative ~ x", "hurdle_gamma"),
    _of("row 4.*'negative' is -1", "negative ~ x", "hurdle_log_normal"),
    _of("'y' is 0.5", "y ~ x", "bernoulli"),
    _of("'y' is 0.5 of 5 trials", "y ~ x", "binomial", trials="n"),
    _of("'y' is 0.5 of 5 trials", "y ~ x", "beta_binomial", trials="n"),
    _of("'level' is a category of 3 levels", "level ~ x", "normal"),
    _of("'level' is a category of 3 levels", "level ~ x", "bernoulli"),
    _of("'count' is a column of numbers", "count ~ x", "ordinal"),
    _of("'count' is a column of numbers", "count ~ x", "sequential"),
    _of("outcome 'one'", "one ~ x", "normal"),
    _of("row 4.*-inf", "log(zero) ~ x", "normal"),
    # Families, links and parameters.
    _of("unknown family 'posson'", family="posson"),
    _of("unknown family 'gaussian'.*mean 'normal'", family="gaussian"),
    _of("unknown family 'cumulative.*key `link`.*mean 'ordinal'", "level ~ x", 'cumulative("probit")'),
    _of("unknown family 'negbinomial.*mean 'negative_binomial'", "count ~ x", "negbinomial()"),
    _of("model.link.*has no link 'probit'", link="probit"),
    _of("model.link.*has no link 'log'", "share ~ x", "beta", link="log"),
    _of("model.trials.*needs the number of trials", "count ~ x", "beta_binomial"),
    _of("model.formula.*trials: n", "count | trials(n) ~ x", "binomial"),
    _of("model.trials.*has no trials.*leave it out", trials="n"),
    _of("model.exposure", "share ~ x", "beta", exposure="n"),
    _of("model.weights.*0 in all training rows", weights="nothing"),
    _of("model.weights.*0 in all training rows", "level ~ x", "ordinal", weights="nothing"),
    _of("model.parameters.*'sgima'.*sigma", parameters={"sgima": "~ x"}),
    _of("model.parameters.*'zi'.*leave it out", "count ~ x", "poisson", parameters={"zi": "~ x"}),
    _of("model.parameters.sigma.*has no terms", parameters={"sigma": "~ 0"}),
    _of("model.parameters.sigma.*groups 'count'", parameters={"sigma": "~ (1 | count)"}),
    _of("model.parameters.sigma.*row 4.*log", parameters={"sigma": "~ log(negative)"}),
    _of("model.parameters.*baseline", "level ~ x", "ordinal", parameters={"baseline": "~ x"}),
    _of("model.parameters.sigma", parameters={"sigma": "y ~ x"}),
    _of("model.parameters.sigma.*'age'", parameters={"sigma": "~ age"}),
    _of("model.parameters.sigma", parameters={"sigma": "~ x +"}),
    _of("model.parameters.sigma", parameters={"sigma": {"formula": "~ x", "priors": {"cofficients": "normal(0, 1)"}}}),
    _of("parameters.sigma.*link", parameters={"sigma": {"formula": "~ x", "link": "probit"}}),
    _of("model.parameters.quantile", family="asymmetric_laplace", parameters={"quantile": 1.5}),
    _of("model.parameters.sigma", parameters={"sigma": -1.0}),
    _of("model.priors.sigma.*half_student_t", priors={"sigma": "student_t(3, 0, 2.5)"}),
    _of("model.priors.zi", "count ~ x", "zero_inflated_poisson", priors={"zi": "exponential(1)"}),
    _of("model.priors.*'phi'", priors={"phi": "gamma(2, 1)"}),
    # Outcomes that are known in part.
    _of("model.censored.*'statsu'.*status", censored="statsu"),
    _of("model.censored.*rihgt", censored="odd"),
    _of("model.censored.*beta_binomial", "count ~ x", "beta_binomial", trials="n", censored="status"),
    _of("model.censored.*categorical", "level ~ x", "categorical", censored="status"),
    _of("model.interval_end", censored="intervals"),
    _of("model.interval_end.*row 2", censored="intervals", interval_end="before"),
    _of("model.interval_end", interval_end="end"),
    _of("model.truncated.*row", truncated={"lower": 2.0}),
    _of("model.truncated.*row", truncated={"upper": 3.0}),
    _of("^(?!.*training row).*lower.*5 is not below the upper bound", truncated={"lower": 5.0, "upper": 1.0}),
    _of("model.truncated.*'lowest'", truncated={"lower": "lowest"}),
    _of("no bound", truncated={}),
    _of("model.known_error.*row 4", known_error="no_se"),
    _of("model.known_error", "count ~ x", "poisson", known_error="se"),
    _of("model.rounded", rounded=-1.0),
    _of("model.known_error.*is the outcome", known_error="y"),
    _of("model.trials.*is the outcome", "count ~ x", "binomial", trials="count"),
    _of("model.truncated.lower.*without quotes", truncated={"lower": "0"}),
    _of("model.rounded.*without quotes", rounded="1e-3"),
    _of("neither a formula nor a number.*without quotes", parameters={"sigma": "2"}),
    _of("neither a formula nor a number", parameters={"sigma": True}),
    _of("model.parameters.sigma.*an offset belongs to the outcome", parameters={"sigma": "~ x + offset(n)"}),
    _of("unknown family 'zero_one_inflated_beta'.*mean 'ordered_beta'", family="zero_one_inflated_beta"),
    _of("^(?!.*did you mean).*unknown family 'skew_normal'", family="skew_normal"),
    _of("model.centred.*'plot'", centred=("plot",)),
    _of("model.contrasts.*'plot'", "y ~ site", contrasts={"plot": "sum"}),
    _of("model.contrasts.*'x'", "y ~ x + site", contrasts={"x": "sum"}),
    _of("model.contrasts.*'site'", "y ~ x + (1 | site)", contrasts={"site": "sum"}),
    # Remedies that must not lead into another error.
    _of("^(?!.*baseline).*no parameter 'disc'.*leave it out", "level ~ x", "ordinal", parameters={"disc": "~ x"}),
    _of("model.parameters.sigma.*'one' has the same value", parameters={"sigma": "~ one"}),
    _of("decimals, such as 0.84.*x as a term of its own", "y ~ (1 | x)"),
    _of("decimals, such as 0.84", "y ~ x", parameters={"sigma": "~ (1 | x)"}),
    _of("types.*count: category", "y ~ (1 | count)"),
    _of("row 1.*e\\+299.*another unit", "I(1e300 * y) ~ x"),
    _of("row 5.*nan.*leave out the rows", "y ~ log(x + 0.5)"),
    _of("row 4.*-inf.*log1p instead of log", "y ~ log(zero)"),
    _of("treatment", "y ~ site", contrasts={"site": "helmert"}),
]


def test_there_are_at_least_sixty() -> None:
    assert len(WRONG) >= 60


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: f"{wrong.options['family']}-{wrong.names[:40]}")
def test_a_wrong_model_is_answered_before_sampling(wrong: Wrong, tmp_path: Path) -> None:
    table = Table(
        lambda _: {},
        "glm",
        wrong.options,
        {"types": {"site": "category", "level": "category"}, "levels": {"level": ["low", "mid", "high"]}},
    )

    def bind() -> None:
        case = case_of("wrong", table, COLUMNS, tmp_path)
        case.model.prior(case.spec)

    with pytest.raises((ConfigError, ValidationError)) as caught:
        bind()
    error = caught.value
    context = error.errors()[-1].get("ctx", {}) if isinstance(error, ValidationError) else {"remedy": error.remedy}
    assert re.search(f"(?s){wrong.names}", f"{error} {context.get('remedy', '')}")
    if isinstance(error, ConfigError):
        assert error.remedy
