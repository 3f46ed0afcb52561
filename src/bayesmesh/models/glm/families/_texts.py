"""Texts that several families share: links in words, and what to try where predictions are wrong."""

from __future__ import annotations

LOG = (
    "log: the predictor is the log of the mean of {y}",
    "on the scale of the log of the mean",
    "ratio",
    "the mean of {y}",
)
MEAN = ("in the unit of {y}", "difference", "the mean of {y}")

HEAVIER = "Try `family: student_t`, which has heavier tails, so that outliers do not pull the estimates."
LOG_OUTCOME = (
    "Try `log(y)` as the outcome, or `family: gamma`: the outcomes are positive, and their logs are much less skewed."
)
COUNTS = (
    "Try `family: negative_binomial`, or `poisson` if counts scatter little: the outcomes are whole numbers from 0."
)
UNEVEN = "Transform the outcome, or write a `numpyro` or `pymc` model whose scale depends on predictors: here it is the same in all rows."
TRANSFORM = "No family here has a distribution of this shape. Transform the outcome, or look for predictors and groups that the formula lacks."
COUNTS_ABOVE_0 = (
    "Model zeros apart: whether the outcome is 0 with `family: bernoulli`, and the rows above 0 by themselves."
)
LARGEST = "If there is a largest possible count, try `family: binomial` with the key `trials`."
BOUNDED = f"No family of counts here scatters less than a Poisson distribution. {LARGEST}"
ZEROS_OR_BOUNDED = f"If many outcomes are 0: {COUNTS_ABOVE_0[0].lower()}{COUNTS_ABOVE_0[1:]} {LARGEST}"
MORE_SCATTER = "Try `family: negative_binomial`, which has a parameter for the scatter, and more zeros and heavier tails at the same mean."
OWN_SCATTER = "Look for predictors and groups that the formula lacks, and for single rows that differ from all others."
LOG_HEAVIER = "Try `log(y)` as the outcome of `family: student_t`, which has heavier tails."
ROWS = "Try effects of rows, `(1 | row)` with a column that numbers the rows: they let rows scatter more than a binomial distribution."
BINARY = "Use `family: bernoulli`: all outcomes are 0 or 1."
