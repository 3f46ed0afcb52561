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
UNEVEN = 'Give `sigma` a predictor, such as `parameters: {sigma: "~ x"}`, or transform the outcome: its scatter differs between rows.'
TRANSFORM = "No family here has a distribution of this shape. Transform the outcome, or look for predictors and groups that the formula lacks."
ZEROS = "Try `family: zero_inflated_negative_binomial`, or `hurdle_negative_binomial` if no zero arises in the way in which the other counts do."
LARGEST = "If there is a largest possible count, try `family: binomial` with the key `trials`."
BOUNDED = f"No family of counts here scatters less than a Poisson distribution. {LARGEST}"
BOUNDED_OR_ZEROS = f"{LARGEST} If many outcomes are 0: {ZEROS[0].lower()}{ZEROS[1:]}"
MORE_SCATTER = "Try `family: negative_binomial`, which has a parameter for the scatter, and more zeros and heavier tails at the same mean."
OWN_SCATTER = "Look for predictors and groups that the formula lacks, and for single rows that differ from all others."
LOG_HEAVIER = "Try `log(y)` as the outcome of `family: student_t`, which has heavier tails."
ROWS = "Try `family: beta_binomial`, whose probability varies between rows: they scatter more than a binomial distribution allows."
BINARY = "Use `family: bernoulli`: all outcomes are 0 or 1."
