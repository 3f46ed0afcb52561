"""Effects equal marginaleffects' definitions, evaluated by hand at the stored draws in float64."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd
import pytest
from scipy.special import expit, softmax
from scipy.stats import truncnorm

from bayesmesh.analyses.base import BoundModel
from bayesmesh.analyses.effects import comparisons
from bayesmesh.analyses.effects.comparisons import comparisons_of
from bayesmesh.analyses.effects.curves import curves_of
from bayesmesh.analyses.effects.table import check_effects, write_effects
from bayesmesh.analyses.options import EffectsOptions
from bayesmesh.errors import ConfigError
from bayesmesh.report.learned.curves import draw_curves
from bayesmesh.sampling.checks.model import check_described
from bayesmesh.store.posterior.reader import Posterior, open_posterior
from bayesmesh.workflow.components import component_of
from bayesmesh.workflow.stages.inputs import bind
from stored_experiment import store_experiment

CHAINS, DRAWS, ROWS = 2, 60, 40
Frame = pd.DataFrame
Mean = Callable[[Frame], np.ndarray]

generator = np.random.default_rng(5)
TABLE = pd.DataFrame({
    "x": generator.normal(3, 2, ROWS), "z": generator.normal(-1, 1, ROWS),
    "site": np.array(["a", "b", "c"])[np.arange(ROWS) % 3], "treated": np.arange(ROWS) % 2,
    "hours": generator.uniform(1, 9, ROWS), "most": np.full(ROWS, 5),
    "y": generator.normal(2, 1, ROWS), "positive": generator.gamma(2, 1, ROWS), "count": generator.poisson(2, ROWS) % 6,
    "alive": np.array(["no", "yes"])[generator.integers(0, 2, ROWS)],
    "amount": np.where(np.arange(ROWS) % 4 == 0, 0, generator.gamma(2, 1, ROWS)),
    "status": np.array(["none", "right", "left", "interval"])[np.arange(ROWS) // 3 % 4],
    "grade": np.array(["bad", "fair", "good"])[np.arange(ROWS) // 2 % 3],
})  # fmt: skip
TABLE["end"], TABLE["least"], TABLE["se"] = TABLE.positive + 1, TABLE.y - 1 - TABLE.hours / 9, TABLE.hours / 20
A_B = lambda frame: np.stack([frame.site == "b", frame.site == "c"], axis=1).astype(float)  # noqa: E731


def random(*shape: int, size: float = 0.3, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).normal(0.4, size, (CHAINS, DRAWS, *shape))


class Case:
    """A model with its latents, and its expected outcome (draw, row, level) by hand."""

    def __init__(
        self, model: Mapping[str, Any], design: Callable[[Frame], np.ndarray], latents: Mapping[str, np.ndarray],
        mean: Callable[[np.ndarray, Frame, Mapping[str, np.ndarray]], np.ndarray], **data: Any,
    ) -> None:  # fmt: skip
        self.model, self.design, self.latents, self.data = model, design, dict(latents), data
        self.of_eta = mean

    def eta(self, frame: Frame) -> np.ndarray:
        flat = {k: v.reshape(-1, *v.shape[2:]) for k, v in self.latents.items()}
        columns = self.design(frame) - self.design(TABLE).mean(axis=0)
        eta = np.einsum("rc,dc...->dr...", columns, flat["coefficients"])
        return eta + flat["intercept"][:, None] if "intercept" in flat else eta

    def mean(self, frame: Frame) -> np.ndarray:
        flat = {k: v.reshape(-1, *v.shape[2:]) for k, v in self.latents.items()}
        found = self.of_eta(self.eta(frame), frame, flat)
        return found if found.ndim == 3 else found[..., None]


def plain(link: Callable[[np.ndarray], np.ndarray]) -> Any:
    return lambda eta, frame, latents: link(eta)


def cumulative(eta: np.ndarray, frame: Frame, latents: Mapping[str, np.ndarray]) -> np.ndarray:
    up_to = np.cumsum(latents["baseline"], axis=1)[:, :-1]
    cuts = np.log(up_to / (1 - up_to))
    below = expit(cuts[:, None] - eta[..., None])
    ends = [np.zeros_like(below[..., :1]), below, np.ones_like(below[..., :1])]
    return np.diff(np.concatenate(ends, axis=-1), axis=-1)


SIGMA = {"sigma": np.full((CHAINS, DRAWS), 0.7)}
SHAPE = {"shape": np.full((CHAINS, DRAWS), 2.0)}
GROUPS = {"sd_site": np.ones((CHAINS, DRAWS, 1)), "effects_site": random(3, 1, seed=9)}


def of_groups(eta: np.ndarray, frame: Frame, latents: Mapping[str, np.ndarray]) -> np.ndarray:
    codes = frame.site.map({"a": 0, "b": 1, "c": 2}).to_numpy()
    return np.exp(eta + latents["effects_site"][:, codes, 0])


def of_hurdle(eta: np.ndarray, frame: Frame, latents: Mapping[str, np.ndarray]) -> np.ndarray:
    columns = frame[["x", "z"]].to_numpy() - TABLE[["x", "z"]].to_numpy().mean(axis=0)
    share = expit(latents["hu_intercept"][:, None] + np.einsum("rc,dc->dr", columns, latents["hu_coefficients"]))
    return (1 - share) * np.exp(eta)


def of_truncated(eta: np.ndarray, frame: Frame, latents: Mapping[str, np.ndarray]) -> np.ndarray:
    return truncnorm.mean((frame.least.to_numpy() - eta) / 0.7, np.inf, loc=eta, scale=0.7)


CASES = {
    "normal": Case(
        {"formula": "y ~ x + site"}, lambda f: np.column_stack([f.x, A_B(f)]),
        {"intercept": random(), "coefficients": random(3), **SIGMA}, plain(lambda eta: eta),
    ),
    "logit with interaction": Case(
        {"formula": "alive ~ x * site", "family": "bernoulli"},
        lambda f: np.column_stack([f.x, A_B(f), f.x.to_numpy()[:, None] * A_B(f)]),
        {"intercept": random(), "coefficients": random(5)}, plain(expit),
    ),
    "Poisson with exposure": Case(
        {"formula": "count ~ x + treated", "family": "poisson", "exposure": "hours"}, lambda f: f[["x", "treated"]].to_numpy(float),
        {"intercept": random(), "coefficients": random(2)}, lambda eta, frame, _: np.exp(eta) * frame.hours.to_numpy(),
    ),
    "ordinal": Case(
        {"formula": "grade ~ x + treated", "family": "ordinal"}, lambda f: f[["x", "treated"]].to_numpy(float),
        {"coefficients": random(2), "baseline": softmax(random(3, seed=3), axis=-1)}, cumulative,
        levels={"grade": ["bad", "fair", "good"]},
    ),
    "polynomial": Case(
        {"formula": "y ~ x + I(x ** 2) + I(x ** 3)"}, lambda f: np.column_stack([f.x, f.x**2, f.x**3]),
        {"intercept": random(), "coefficients": random(3), **SIGMA}, plain(lambda eta: eta),
    ),
    "gamma of a log": Case(
        {"formula": "positive ~ log(hours) + z", "family": "gamma"}, lambda f: np.column_stack([np.log(f.hours), f.z]),
        {"intercept": random(), "coefficients": random(2), **SHAPE}, plain(np.exp),
    ),
    "groups": Case(
        {"formula": "count ~ x + (1 | site)", "family": "negative_binomial"}, lambda f: f[["x"]].to_numpy(),
        {"intercept": random(), "coefficients": random(1), **SHAPE, **GROUPS}, of_groups,
    ),
    "categorical": Case(
        {"formula": "grade ~ x + z", "family": "categorical"}, lambda f: f[["x", "z"]].to_numpy(),
        {"intercept": random(2), "coefficients": random(2, 2, seed=4)},
        lambda eta, frame, _: softmax(np.concatenate([np.zeros_like(eta[..., :1]), eta], axis=-1), axis=-1),
    ),
    "two numbers that interact": Case(
        {"formula": "alive ~ x * z", "family": "bernoulli"}, lambda f: np.column_stack([f.x, f.z, f.x * f.z]),
        {"intercept": random(), "coefficients": random(3)}, plain(expit),
    ),
    "hurdle": Case(
        {"formula": "amount ~ x", "family": "hurdle_gamma", "parameters": {"hu": "~ x + z"}}, lambda f: f[["x"]].to_numpy(),
        {"intercept": random(), "coefficients": random(1), **SHAPE, "hu_intercept": random(seed=6), "hu_coefficients": random(2, seed=7)},
        of_hurdle,
    ),
    "censored": Case(
        {"formula": "positive ~ x + z", "family": "weibull", "censored": "status", "interval_end": "end"},
        lambda f: f[["x", "z"]].to_numpy(), {"intercept": random(), "coefficients": random(2), **SHAPE}, plain(np.exp),
    ),
    "truncated": Case(
        {"formula": "y ~ x", "truncated": {"lower": "least"}}, lambda f: f[["x"]].to_numpy(),
        {"intercept": random(), "coefficients": random(1), **SIGMA}, of_truncated,
    ),
    "known errors": Case(
        {"formula": "y ~ x + z", "known_error": "se"}, lambda f: f[["x", "z"]].to_numpy(),
        {"intercept": random(), "coefficients": random(2), **SIGMA}, plain(lambda eta: eta),
    ),
    "binomial": Case(
        {"formula": "count ~ x", "family": "binomial", "trials": "most"}, lambda f: f[["x"]].to_numpy(),
        {"intercept": random(), "coefficients": random(1)}, lambda eta, frame, _: 5 * expit(eta),
    ),
}  # fmt: skip


def stored(case: Case) -> tuple[BoundModel, Posterior]:
    job = store_experiment(TABLE, case.model, case.latents, **case.data)
    return bind(job, component_of(job, "model")), open_posterior(job.layout.posterior)


@pytest.fixture
def effects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Frame]:
    """A function of a case and options to the table of effects."""
    monkeypatch.chdir(tmp_path)
    found: list[Any] = []

    def compute(case: Case, **options: Any) -> Frame:
        found.extend(() if found else stored(case))
        write_effects(*found, EffectsOptions.model_validate(options), Path("effects.csv"))
        return pd.read_csv("effects.csv", keep_default_na=False, dtype={"level": str})

    return compute


def check(found: Frame, draws: np.ndarray) -> None:
    """Compare lines with draws, (draw, line)."""
    assert len(found) == draws.shape[1]
    np.testing.assert_allclose(found["mean"], draws.mean(axis=0), rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(found["sd"], draws.std(axis=0, ddof=1), rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(found["low"], np.quantile(draws, 0.05, axis=0), rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(found["high"], np.quantile(draws, 0.95, axis=0), rtol=1e-6, atol=1e-9)
    assert (found["mcse_mean"] > 0).all()


def first_number(case: Case) -> str:
    return "hours" if "log(hours)" in case.model["formula"] else "x"


@pytest.mark.parametrize("name", CASES)
def test_averages_over_rows_are_those_of_the_definitions(name: str, effects: Callable[..., Frame]) -> None:
    case, column = CASES[name], first_number(CASES[name])
    high, low = (case.mean(TABLE.assign(**{column: TABLE[column] + step})).mean(axis=1) for step in (2, 0))
    # A step far from that of the code under test, and Richardson's extrapolation.
    step = 1e-3
    up, down, up2, down2 = (case.mean(TABLE.assign(**{column: TABLE[column] + k * step})) for k in (1, -1, 2, -2))
    slope = ((8 * (up - down) - (up2 - down2)) / (12 * step)).mean(axis=1)
    found = effects(case, predictions=True, comparisons={column: 2}, slopes=[column], measure="ratio")
    check(found, np.concatenate([case.mean(TABLE).mean(axis=1), high / low, slope], axis=1))


@pytest.mark.parametrize("name", ["normal", "logit with interaction", "Poisson with exposure", "ordinal"])
def test_values_that_are_given_leave_the_other_columns_at_what_is_typical(
    name: str, effects: Callable[..., Frame]
) -> None:
    case = CASES[name]
    typical = TABLE.iloc[[0, 0]].assign(x=[1.0, 4.0], site="a", treated=TABLE.treated.mean(), hours=TABLE.hours.mean())
    found = effects(case, predictions=True, at={"x": [1, 4]})
    check(found, case.mean(typical).reshape(CHAINS * DRAWS, -1))
    assert (
        found["x"].tolist() == sorted(2 * [1, 4])[:: 2 // (len(found) // 2)] if len(found) == 2 else [1] * 3 + [4] * 3
    )


def test_a_category_is_compared_by_reference_sequence_and_pairs_within_levels_of_another(
    effects: Callable[..., Frame],
) -> None:
    case = CASES["normal"]
    means = {site: case.mean(TABLE.assign(site=site)) for site in "abc"}
    kept = [TABLE.treated.to_numpy() == level for level in (0, 1)]
    found = effects(case, comparisons={"site": "pairwise"}, by=["treated"])
    pairs = [means[b] - means[a] for a, b in ("ab", "ac", "bc")]
    check(found, np.concatenate([pair[:, rows].mean(axis=1) for pair in pairs for rows in kept], axis=1))
    assert found[["contrast", "treated"]].to_numpy().tolist() == [[c, t] for c in ("b - a", "c - a", "c - b") for t in (0, 1)]  # fmt: skip
    assert effects(case, comparisons={"site": "sequential"})["contrast"].tolist() == ["b - a", "c - b"]
    everything = effects(case)
    assert everything["column"].tolist() == ["site", "site", "x"]


def test_odds_ratios_are_those_of_averages_and_steps_follow_the_spread(effects: Callable[..., Frame]) -> None:
    case = CASES["two numbers that interact"]
    middle, half = TABLE.x.mean(), TABLE.x.std() / 2
    low, high = (case.mean(TABLE.assign(x=middle + sign * half)).mean(axis=1) for sign in (-1, 1))
    odds = high / (1 - high) / (low / (1 - low))
    check(effects(case, comparisons={"x": "sd"}, measure="odds_ratio"), odds)
    check(effects(case, comparisons={"x": "sd"}, measure="log_odds_ratio"), np.log(odds))
    low, high = (case.mean(TABLE.assign(x=np.quantile(TABLE.x, q))).mean(axis=1) for q in (0.25, 0.75))
    check(effects(case, comparisons={"x": "iqr"}), high - low)


def test_single_rows_and_the_scale_of_the_predictor(effects: Callable[..., Frame]) -> None:
    case = CASES["groups"]
    check(effects(case, predictions=True, average=False), case.mean(TABLE)[..., 0])
    slope = case.latents["coefficients"].reshape(-1, 1)
    check(effects(case, comparisons=["x"], scale="predictor"), slope)
    check(effects(case, predictions=True, group_effects="zero"), np.exp(case.eta(TABLE)).mean(axis=1, keepdims=True))


def test_effects_of_groups_are_zero_where_they_have_coefficients_or_a_parameter_too(
    effects: Callable[..., Frame],
) -> None:
    slopes = {
        "sd_site": np.ones((CHAINS, DRAWS, 2)),
        "correlation_site": np.broadcast_to(np.eye(2), (CHAINS, DRAWS, 2, 2)),
    }
    of_share = {
        "hu_intercept": random(seed=6),
        "hu_sd_site": np.ones((CHAINS, DRAWS, 1)),
        "hu_effects_site": random(3, 1, seed=8),
    }
    case = Case(
        {"formula": "amount ~ x + site + (1 + treated | site)", "family": "hurdle_gamma", "parameters": {"hu": "~ 1 + (1 | site)"}},
        lambda f: np.column_stack([f.x, A_B(f)]),
        {"intercept": random(), "coefficients": random(3), **SHAPE, **slopes, "effects_site": random(3, 2, seed=9), **of_share},
        lambda eta, frame, latents: np.exp(eta) * expit(-latents["hu_intercept"])[:, None],
    )  # fmt: skip
    expected = case.mean(TABLE).mean(axis=1)
    check(effects(case, predictions=True, group_effects="zero"), expected)


@pytest.mark.parametrize("name", ["truncated", "known errors", "censored"])
def test_columns_of_what_is_known_of_outcomes_are_no_predictors(name: str, effects: Callable[..., Frame]) -> None:
    case = CASES[name]
    assert {*effects(case)["column"]} == {each for each in "xz" if each in case.model["formula"]}


def test_what_does_not_fit_is_answered_with_the_key(effects: Callable[..., Frame]) -> None:
    case = CASES["normal"]
    for options, text in (
        ({"comparisons": ["X"]}, "'X' is not a column"),
        ({"comparisons": {"site": "iqr"}}, "effects.comparisons"),
        ({"comparisons": {"x": "far"}}, "effects.comparisons"),
        ({"slopes": ["site"]}, "is a category"),
        ({"at": {"site": ["q"]}}, "no level 'q'"),
        ({"by": ["x"]}, "effects.by"),
        ({"measure": "odds_ratio"}, "probabilities"),
        ({"at": {"x": [0]}, "by": ["site"]}, "effects.by"),
    ):
        with pytest.raises(ConfigError, match=text):
            effects(case, **options)


@pytest.mark.parametrize("name", ["normal", "logit with interaction"])
def test_what_does_not_fit_is_refused_before_sampling(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    case = CASES[name]
    bound, _ = stored(case)
    shapes = {
        latent: jax.ShapeDtypeStruct(draws.shape[2:], bound.data_spec.dtype) for latent, draws in case.latents.items()
    }
    with pytest.raises(ConfigError, match=r"effects\.by"):
        check_effects(bound, EffectsOptions(at={"x": [0]}, by=("site",)), shapes)
    for scale, is_refused in (("outcome", name == "normal"), ("predictor", True)):
        odds = EffectsOptions.model_validate({"measure": "odds_ratio", "scale": scale})
        with pytest.raises(ConfigError, match="probabilities") if is_refused else contextlib.nullcontext():
            check_effects(bound, odds, shapes)


def test_a_formula_without_columns_has_predictions(effects: Callable[..., Frame]) -> None:
    case = Case(
        {"formula": "y ~ 1"}, lambda f: f[[]].to_numpy(), {"intercept": random(), **SIGMA}, plain(lambda eta: eta)
    )
    found = effects(case)
    assert found.quantity.tolist() == ["prediction"]
    check(found, case.latents["intercept"].reshape(-1, 1))


def test_curves_of_the_page_follow_each_predictor_by_the_levels_of_one_it_interacts_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    case = CASES["logit with interaction"]
    (curve,) = curves_of(*stored(case))
    assert (curve["column"], curve["y"]) == ("x", "probability of yes")
    assert [line["label"] for line in curve["series"]] == ["site = a", "site = b", "site = c"]
    for line, site in zip(curve["series"], "abc", strict=True):
        frame = pd.DataFrame({"x": curve["at"], "site": site})
        np.testing.assert_allclose(line["mean"], case.mean(frame)[..., 0].mean(axis=0), rtol=1e-9)
        np.testing.assert_allclose(line["high"], np.quantile(case.mean(frame)[..., 0], 0.95, axis=0), rtol=1e-9)
    assert "site = b" in draw_curves([curve])[0][0].svg


def test_curves_of_an_ordinal_outcome_have_a_line_for_each_level(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    of_treated, of_x = curves_of(*stored(CASES["ordinal"]))
    assert (of_treated["at"], of_treated["y"], len(of_x["at"])) == (["0", "1"], "probability", 25)
    assert [line["label"] for line in of_x["series"]] == ["bad", "fair", "good"]
    assert "bad" in draw_curves([of_treated])[0][0].svg


X_MORE = {"x": TABLE.x + 1}


@pytest.mark.parametrize(
    ("name", "changes", "of"),
    [
        ("normal", {"one more unit of x": X_MORE, "c instead of a (site)": {"site": "c"}}, ["the mean of y"]),
        ("logit with interaction", {"one more unit of x": X_MORE, "b instead of a (site)": {"site": "b"}}, ["the odds of alive = yes", "the probability that alive = yes"]),
        ("gamma of a log", {"doubling hours": {"hours": 2 * TABLE.hours}}, ["the mean of positive"]),
        ("ordinal", {"1 instead of 0 (treated)": {"treated": 1}}, ["the odds of a higher level of grade", *(f"the probability that grade = {x}" for x in ("bad", "fair", "good"))]),
        ("categorical", {"one more unit of z": {"z": TABLE.z + 1}}, [*(f"the odds of {x} against bad" for x in ("fair", "good")), *(f"the probability that grade = {x}" for x in ("bad", "fair", "good"))]),
    ],
)  # fmt: skip
def test_changes_of_the_page_are_averages_on_the_scale_of_the_outcome_and_factors_of_the_link(
    name: str, changes: Mapping[str, Any], of: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    # Several batches.
    monkeypatch.setattr(comparisons, "TOGETHER", 2)
    case = CASES[name]
    bound, posterior = stored(case)
    found = comparisons_of(bound, posterior, check_described(bound.model).effects)
    for words, columns in changes.items():
        low = (
            TABLE.assign(**dict.fromkeys(columns, "a" if "site" in columns else 0))
            if " instead of " in words
            else TABLE
        )
        high = TABLE.assign(**columns)
        rows = [each for each in found if each["change"] == words]
        assert sorted({each["of"] for each in rows}) == sorted(of)
        factors = [each for each in rows if each["is_ratio"]]
        for each, mean in ((case.mean, [each for each in rows if not each["is_ratio"]]), (case.eta, factors)):
            if mean:
                draws = (each(high) - each(low)).mean(axis=1).reshape(CHAINS * DRAWS, -1)
                np.testing.assert_allclose([each["mean"] for each in mean], draws.mean(axis=0), rtol=1e-9)
                np.testing.assert_allclose([each["low"] for each in mean], np.quantile(draws, 0.05, axis=0), rtol=1e-9)
                np.testing.assert_allclose([each["high"] for each in mean], np.quantile(draws, 0.95, axis=0), rtol=1e-9)
                assert all(each["mcse_mean"] > 0 for each in mean)


def test_a_predictor_of_zeros_alone_has_a_difference_and_no_factor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    bound, posterior = stored(CASES["hurdle"])
    found = comparisons_of(bound, posterior, check_described(bound.model).effects)
    kinds = {predictor: {each["is_ratio"] for each in found if each["predictor"] == predictor} for predictor in "xz"}
    assert kinds == {"x": {False, True}, "z": {False}}
