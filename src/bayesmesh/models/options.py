"""Options of every model of this package, importable without JAX.

The class of `some_name` is `SomeNameOptions`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from bayesmesh.config.prior_texts import PriorText
from bayesmesh.config.settings import (
    CODE_PATTERN,
    Argument,
    CodeName,
    ColumnName,
    NameOrCode,
    Settings,
    does_not_fit,
)
from bayesmesh.errors import suggest


class GaussianOptions(Settings):
    """Options of `gaussian`."""

    prior_scale: Argument[float] = Field(
        1.0, gt=0, le=1e6, description="Prior standard deviation of each mean, in the unit of the data."
    )


_FAMILIES = Path(__file__).with_name("glm") / "families"

FAMILIES = tuple(sorted(p.stem for p in _FAMILIES.glob("*.py") if p.stem != "base" and p.stem[0] != "_"))
"""Names of the families of `glm`: its files."""


_ELSEWHERE = {
    "gaussian": "normal", "student": "student_t", "t": "student_t", "cumulative": "ordinal", "sratio": "sequential",
    "wald": "inverse_gaussian", "geometric": "negative_binomial", "negbinomial": "negative_binomial",
    "nbinom1": "negative_binomial", "nbinom2": "negative_binomial", "quasipoisson": "negative_binomial",
    "zip": "zero_inflated_poisson", "zinb": "zero_inflated_negative_binomial", "zero_one_inflated_beta": "ordered_beta",
    "multinomial": "categorical", "skew_normal": "", "von_mises": "", "exgaussian": "", "shifted_lognormal": "",
}  # fmt: skip
"""Name of a family elsewhere (brms, Bambi, R) -> the nearest one here; empty if none is near."""


class ParameterOptions(Settings):
    """The predictor of a parameter of the family."""

    formula: str = Field(min_length=2, max_length=4000, description="Terms, such as `~ x + (1 | site)`.")
    link: Literal["identity", "log", "logit"] | None = Field(
        None,
        description="Function of the parameter that the predictor is the value of: log for positive parameters, logit for "
        "probabilities, identity for others. There is one for each parameter, so the key only states it.",
    )
    priors: dict[str, PriorText] = Field(
        {}, description="Name -> prior: `intercept`, `coefficients` or a term, `sd` or `sd_GROUP`, and `correlation`."
    )

    @model_validator(mode="before")
    @classmethod
    def _take_text_for_formula(cls, value: object) -> object:
        if isinstance(value, str) and "~" in value:
            return {"formula": value}
        if not isinstance(value, Mapping | ParameterOptions):
            raise does_not_fit("", f"{value!r:.80} is neither a formula nor a number", 'write a formula, such as "~ x", or a number without quotes')  # fmt: skip
        return value


class TruncatedOptions(Settings):
    """Bounds outside of which no row could be seen."""

    lower: float | str | None = Field(None, description="Lower bound: a number, or a column.", examples=[0.0])
    upper: float | str | None = Field(None, description="Upper bound: a number, or a column.", examples=["longest"])

    @model_validator(mode="after")
    def _has_a_bound(self) -> TruncatedOptions:
        if self.lower is None and self.upper is None:
            raise does_not_fit("", "no bound", "write `lower`, `upper` or both")
        if isinstance(self.lower, float) and isinstance(self.upper, float) and not self.lower < self.upper:
            raise does_not_fit("lower", f"{self.lower:g} is not below the upper bound, {self.upper:g}", "write a lower bound below the upper one")  # fmt: skip
        return self


class GlmOptions(Settings):
    """Options of `glm`."""

    formula: str = Field(
        min_length=3,
        max_length=4000,
        description="Outcome and terms, such as `y ~ x + log(z) + species + x:species + (1 + x | site)`. Terms may "
        "contain columns, `+ - : * / ^`, log, exp, sqrt and a few more functions, and group effects in parentheses, "
        "with `||` for uncorrelated ones.",
        examples=["y ~ x + (1 | site)"],
    )
    family: NameOrCode = Field(
        "normal",
        description="Distribution of the outcome, or `module:attribute` of a family of your own. The linear predictor is "
        "the mean, its logit (such as bernoulli), its log (such as poisson), log odds against the first level "
        "(categorical), or cumulative logits (ordinal).",
        json_schema_extra={"anyOf": [{"enum": list(FAMILIES)}, {"pattern": CODE_PATTERN}]},
    )
    link: str | None = Field(
        None,
        description="Link between the mean and the linear predictor, where the family has several; by default, its first.",
        examples=["probit"],
    )
    priors: dict[str, PriorText] = Field(
        {},
        description="Name -> prior, such as `normal(0, 1)`. Names are `intercept`, `coefficients` or a term, the "
        "parameters of the family such as `sigma`, `sd` or `sd_GROUP`, and `correlation`. The defaults are scaled to the data.",
        examples=[{"coefficients": "normal(0, 1)"}],
    )
    parameters: dict[str, float | ParameterOptions] = Field(
        {},
        description="Parameter of the family -> a formula such as `~ x + (1 | site)`, a mapping of `formula`, `link` and "
        "`priors`, or a number to which the parameter is set. Names of its latents and summaries begin with the parameter, "
        "such as `sigma_b_x`.",
        examples=[{"sigma": "~ x + (1 | site)"}],
    )
    contrasts: dict[str, Literal["treatment", "sum"]] = Field(
        {},
        description="Category of the formula -> what its coefficients compare: `treatment`, each level with the first one, "
        "or `sum`, each level but the last with the mean over all levels.",
        examples=[{"species": "sum"}],
    )
    offset: ColumnName | None = Field(
        None,
        description="Column that is added to the linear predictor; by default, the offset that the data declare.",
        examples=["log_area"],
    )
    exposure: ColumnName | None = Field(
        None,
        description="Column, such as a time at risk, whose log is added to the linear predictor, for families "
        "with a log link; by default, the exposure that the data declare.",
        examples=["days_at_risk"],
    )
    weights: ColumnName | None = Field(
        None,
        description="Column of weights that multiply the log likelihood of each row and do not affect predictions; by "
        "default, the weights that the data declare.",
        examples=["weight"],
    )
    trials: ColumnName | None = Field(
        None,
        description="Column with the number of trials, for the families binomial and beta_binomial.",
        examples=["trials"],
    )
    censored: ColumnName | None = Field(
        None,
        description="Column with the kind of censoring of each row: `none`, `left` (at most the outcome), `right` (more than "
        "it) or `interval` (more than it, up to `interval_end`), or the numbers 0, -1, 1 and 2. Predictions are of the "
        "uncensored outcome.",
        examples=["status"],
    )
    interval_end: ColumnName | None = Field(
        None,
        description="Column with the upper ends of intervals; the outcome is the lower end. Other rows may have any number there.",
        examples=["end"],
    )
    truncated: TruncatedOptions | None = Field(
        None,
        description="`lower` and `upper`, numbers or columns: a row outside of them could not be in the data.",
        examples=[{"lower": 0.0}],
    )
    known_error: ColumnName | None = Field(
        None,
        description="Column with the known standard error of each outcome, for the families normal and student_t; `sigma` "
        "is the spread beyond it, and `parameters: {sigma: 0}` leaves none.",
        examples=["standard_error"],
    )
    rounded: float | str | None = Field(
        None,
        description="Number or column: the distance between two roundings. The outcome is known to within half of it.",
        examples=[1.0],
    )
    centred: bool | tuple[str, ...] | None = Field(
        None,
        description="Coordinates in which group effects are sampled; the effects themselves stay the same. By default, "
        "the coordinates follow from the rows of each level. `true` samples the effects directly, `false` in units of "
        "their standard deviation, and a list names the groups whose effects are sampled directly.",
        examples=[["site"]],
    )
    local_group: str = Field(
        "auto",
        description="Grouping column whose effects are stored with its rows, spread over devices: a column, `none`, or "
        "`auto`, the largest one with at least 10,000 levels.",
        examples=["site"],
    )
    integrated_group: str = Field(
        "auto",
        description="Grouping column of a `normal` outcome whose effects are integrated out while chains run, and drawn "
        "exactly for each draw: a column, `none`, or `auto`, the column with most levels where the rows allow it. The "
        "posterior is the same.",
        examples=["site"],
    )

    @model_validator(mode="after")
    def _check_family(self) -> GlmOptions:
        if self.family not in FAMILIES and not re.fullmatch(CODE_PATTERN, self.family):
            name, bracket, _ = self.family.partition("(")
            remedy = suggest(_ELSEWHERE.get(name, name), FAMILIES)
            of_link = "write the name alone, and a link with the key `link`; " if bracket else ""
            raise does_not_fit("family", f"unknown family '{self.family}'", of_link + remedy)
        return self


class HiddenMarkovOptions(Settings):
    """Options of `hidden_markov`."""

    num_states: int = Field(
        3, ge=1, le=64, description="Number of hidden states; state j emits about j times the signal."
    )
    signal_scale: Argument[float] = Field(1.0, gt=0, le=1e6, description="Prior standard deviation of the signal.")
    noise_scale: Argument[float] = Field(1.0, gt=0, le=1e6, description="Scale of the half-normal prior of the noise.")


class LogDensityOptions(Settings):
    """Options of `log_density`."""

    function: CodeName = Field(
        description="Function of (latents, data) that returns one number, as `module:function`: the log likelihood of "
        "all data if there is a prior, or the whole log density if there is a test point. `data` has every field, with "
        "rows along the first axis.",
        examples=["my_models:log_likelihood"],
    )
    prior: dict[str, PriorText] | None = Field(
        None,
        description="Latent -> prior by name, such as `normal(0, 1)` or `half_normal(2)[3]`; latents are independent.",
        examples=[{"rate": "gamma(2, 1)"}],
    )
    prior_function: CodeName | None = Field(
        None,
        description="Instead of `prior`: function of the data spec that returns a TFP joint distribution.",
        examples=["my_models:prior"],
    )
    test_point: dict[str, float | list[float] | list[list[float]]] | None = Field(
        None,
        description="Instead of a prior: latent -> values at which the log density is finite. Chains start around them.",
        examples=[{"rate": 1.0}],
    )
    support: dict[str, Literal["positive", "unit", "simplex", "ordered", "correlation_cholesky"]] = Field(
        {},
        description="With a test point: latent -> its support; the whole real line by default. The density is with "
        "respect to the latents themselves; the Jacobian is added.",
        examples=[{"rate": "positive"}],
    )
    summary_function: CodeName | None = Field(
        None,
        description="Function of (latents, data) that returns the quantities on which convergence is assessed, as a "
        "dict of arrays; all latents by default.",
        examples=["my_models:summaries"],
    )
    predictive_function: CodeName | None = Field(
        None,
        description="Function of (latents, data) that returns the TFP distribution of the outcome.",
        examples=["my_models:predictive"],
    )
    axes: dict[str, list[str]] = Field(
        {},
        description="Latent or summary -> a name for each of its axes: a category, whose levels then name the entries; "
        "a matrix, whose columns then name them; or any other name.",
        examples=[{"effect": ["site"]}],
    )
    start_function: CodeName | None = Field(
        None,
        description="Function of data that returns the latents at which chains start with `sampling.initial.method: "
        "model`, as a dict of arrays; an extra leading axis holds several points.",
        examples=["my_models:starts"],
    )
    outcome_field: str | None = Field(
        None,
        description="Field with the outcome, of which `function` returns the density and `predictive_function` the "
        "distribution. The default is `y` if there is a `predictive_function`. Without either, the outcome is not "
        "known, and scores are not compared.",
        examples=["y"],
    )


class MatrixFactorizationOptions(Settings):
    """Options of `matrix_factorization`."""

    width: int = Field(20, ge=1, le=4096, description="Dimension of the embeddings.")
    prior_scale: Argument[float] = Field(
        1.0,
        gt=0,
        le=1e6,
        description="Prior standard deviation of embeddings and biases. On an H100 or H200 with float32, embeddings "
        "beyond 65,504 have no finite density; for scales above some 1,000 there, write `compute: {dtype: float64}`.",
    )


class NeuralNetworkOptions(Settings):
    """Options of `neural_network`."""

    task: Literal["classification", "regression"] = Field(
        "classification", description="Whether the outcome is a label or a number."
    )
    features: tuple[str, ...] = Field(
        ("features",), min_length=1, description="Input fields of the network, concatenated."
    )
    outcome: str = Field("label", description="Field to predict: labels 0, 1, ..., or numbers.")
    widths: tuple[int, ...] = Field(
        (50,), max_length=16, description="Number of units in each hidden layer; an empty list gives a linear model."
    )
    activation: Literal["silu", "tanh", "relu"] = Field("silu", description="Activation function of the hidden units.")
    weight_scale: Argument[float] = Field(
        1.0,
        gt=0,
        le=1e6,
        description="Prior standard deviation of a weight, multiplied by the square root of the number of inputs of its "
        "unit.",
    )
    bias_scale: Argument[float] = Field(1.0, gt=0, le=1e6, description="Prior standard deviation of biases.")
    noise_scale: Argument[float] = Field(
        1.0,
        gt=0,
        le=1e6,
        description="Scale of the half-normal prior of the noise, for regression; in the unit of the outcome.",
    )


class NumpyroOptions(Settings):
    """Options of `numpyro`."""

    function: CodeName = Field(
        description="Model function with NumPyro's primitives, as `module:function`. It receives the fields that its "
        "arguments name, or all fields as one mapping if its only argument does not name a field.",
        examples=["my_models:model"],
    )
    whole: bool = Field(
        False,
        description="Treat all data as one row, for models without a plate of rows or with latents for each row. Every "
        "device then holds all data, which are not tiled and have a single log likelihood.",
    )


class PymcOptions(Settings):
    """Options of `pymc`."""

    function: CodeName = Field(
        description="Function that returns a PyMC model, as `module:function`. It receives a mapping from fields to "
        "PyTensor variables of shape (row, ...), from which it makes observed variables and potentials.",
        examples=["my_models:build"],
    )
    given: Literal["symbols", "arrays", "frame"] = Field(
        "symbols",
        description="What the function receives: `symbols`, as above, or the values of all rows, as NumPy `arrays` or "
        "as a pandas data `frame` with the names of levels. Use values for models that hold their data as constants, as "
        "Bambi's do; all data then count as one row.",
    )
    whole: bool = Field(
        False,
        description="Treat all data as one row, for models whose rows depend on each other. Every device then holds all "
        "data, which are not tiled and have a single log likelihood.",
    )


class RatingFactorizationOptions(Settings):
    """Options of `rating_factorization`."""

    width: int = Field(10, ge=1, le=4096, description="Dimension of the embeddings.")
    user: str = Field("user", min_length=1, description="Column of the user, a category.")
    film: str = Field("film", min_length=1, description="Column of the rated item, a category.")
    rating: str = Field("rating", min_length=1, description="Column of the rating, a number.")
    likelihood: Literal["gaussian", "ordinal"] = Field(
        "gaussian",
        description="`gaussian`: normal around the expected rating. `ordinal`: one of a few ordered ratings, such as "
        "stars, with cumulative logits.",
    )
    levels: tuple[float, ...] = Field(
        (),
        max_length=50,
        description="All possible ratings for `ordinal`; by default, those in the training rows. A held-out rating that "
        "is not among them has probability 0.",
        examples=[[1.0, 2.0, 3.0, 4.0, 5.0]],
    )
    repeated: Literal["refuse", "keep"] = Field(
        "refuse",
        description="What to do if a user has rated a film twice; `keep` counts each as a rating of its own.",
    )
    bias_scale: Argument[float] = Field(
        0.5,
        gt=0,
        le=1e3,
        description="Prior standard deviation of the biases, in standard deviations of the ratings or, for `ordinal`, "
        "of the logistic noise (1.81 logits).",
    )
    factor_scale: Argument[float] = Field(
        0.5,
        gt=0,
        le=1e3,
        description="Prior standard deviation of the contribution of the embeddings to a rating, whatever the width, in "
        "the unit of `bias_scale`.",
    )
    noise_scale: Argument[float] = Field(
        1.0,
        gt=0,
        le=1e3,
        description="Scale of the half-normal prior of the noise for `gaussian`, in the unit of `bias_scale`.",
    )


class SoftmaxRegressionOptions(Settings):
    """Options of `softmax_regression`."""

    prior_scale: Argument[float] = Field(
        1.0, gt=0, le=1e6, description="Prior standard deviation of weights and biases."
    )
