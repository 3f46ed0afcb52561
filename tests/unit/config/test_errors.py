"""What a user reads about a wrong key: the file, the key as it was written, what is wrong, and the remedy."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import yaml

from bayesmesh.errors import ConfigError

Refused = Callable[..., ConfigError]

GOOD = {
    "title": "A test",
    "data": {"source": "gaussian"},
    "model": {"name": "gaussian"},
    "kernel": {"name": "hmc"},
}

INTERNAL = re.compile(
    r"Settings|pydantic|Traceback|literal\[|constrained-|union_tag|function-|tagged|https?://|\bNone\b|_(source|model|kernel)\b"
)
"""Parts of pydantic's and of our own vocabulary that no user wrote."""


def _with(key: str, value: object) -> str:
    """The good experiment with one dotted key set; a value of None takes the key away."""
    whole = {k: dict(v) if isinstance(v, dict) else v for k, v in GOOD.items()}
    *path, last = key.split(".")
    block: dict = whole
    for part in path:
        block = block.setdefault(part, {})
    if value is None:
        del block[last]
    else:
        block[last] = value
    return yaml.safe_dump(whole, sort_keys=False)


MISSPELT = [
    ("tilte", "title"), ("sampling.chians", "chains"), ("sampling.initial.sread", "spread"),
    ("compute.dtpye", "dtype"), ("compute.mesh.chian", "chain"), ("posterior.probe_row", "probe_rows"),
    ("gates.rhat", "r_hat"), ("gates.r_hat.limti", "limit"), ("averaging.calibration_bin", "calibration_bins"),
    ("recommendation.num_film", "num_films"), ("report.captoin", "caption"), ("data.nmu_rows", "num_rows"),
    ("data.held_out_fractoin", "held_out_fraction"), ("model.prior_scal", "prior_scale"),
    ("kernel.num_leapfrog_step", "num_leapfrog_steps"), ("sweep.gird", "grid"),
]  # fmt: skip


@pytest.mark.parametrize(("key", "nearest"), MISSPELT)
def test_a_misspelt_key_is_named_with_the_nearest_one(refused: Refused, key: str, nearest: str) -> None:
    error = refused(_with(key, 1))
    assert f": unknown key '{key}'" in error.message
    assert f"did you mean '{nearest}'?" in error.remedy
    assert not INTERNAL.search(str(error))


WRONG = [
    ("sampling.chains", -3, "should be greater than or equal to 1, found -3", "chains: Total number of chains."),
    ("sampling.chains", True, "should be a valid integer, found True", "Total number of chains"),
    ("sampling.chains", "8", "should be a valid integer, found '8'", "Total number of chains"),
    ("sampling.chains", 2.5, "should be a valid integer, found 2.5", "Total number of chains"),
    ("sampling.draws", [1], "should be a valid integer, found [1]", "Draws per chain"),
    ("sampling.seed", 2**32, "should be less than 4294967296, found 4294967296", "seed: Seed of all"),
    ("sampling.mode", "paralel", "should be 'independent' or 'sharded', found 'paralel'", "mode: "),
    ("sampling.segment_seconds", float("nan"), "should be a finite number, found nan", "segment"),
    ("sampling.segment_seconds", float("inf"), "should be a finite number, found inf", "segment"),
    ("sampling", 3, "should be a mapping with the keys mode, chains", "sampling: Chains and draws"),
    ("sampling.initial", "zero", "should be a mapping with the keys method, file, spread", "initial: "),
    ("compute.mesh", 4, "should be a mapping with the keys chain, data or should be 'auto', found 4", "mesh: "),
    ("compute.mesh", "all", "should be a mapping with the keys chain, data or should be 'auto', found 'all'", "mesh"),
    ("compute.mesh.chain", 0, "should be greater than or equal to 1, found 0", "chain: Devices"),
    ("compute.row_tile", 0, "should be greater than or equal to 1 or should be 'auto', found 0", "row_tile: Rows"),
    ("compute.dtype", "float16", "should be 'float32' or 'float64', found 'float16'", "dtype: "),
    ("gates.r_hat", "tight", "should be a mapping with the keys limit, severity, found 'tight'", "A plain number"),
    ("gates.r_hat", float("nan"), None, ""),
    ("gates.max_coordinates", 0, "should be greater than or equal to 1, found 0", "max_coordinates"),
    ("averaging.calibration_bins", 1, "should be greater than or equal to 2, found 1", "write a number of at least 2"),
    ("recommendation.users", ["x"], None, ""),
    ("data.held_out_fraction", 1.0, "should be less than 1, found 1.0", "held_out_fraction: "),
    ("data.noise_scale", "wide", "should be a valid number, found 'wide'", "noise_scale: "),
    ("data.num_rows", 0, "should be greater than or equal to", "num_rows: "),
    ("model.prior_scale", -1, "should be greater than 0, found -1", "write a number above 0"),
    ("kernel.target_acceptance", 1.5, "should be less than 1, found 1.5", "write a number below 1"),
    ("kernel.metric", "diagonl", "unknown metric 'diagonl'", "diagonal"),
    ("title", "", "should have at least 1 character, found ''", "title: "),
]  # fmt: skip


@pytest.mark.parametrize(("key", "value", "said", "remedy"), WRONG)
def test_a_wrong_value_is_named_with_what_is_wanted(
    refused: Refused, key: str, value: object, said: str | None, remedy: str
) -> None:
    error = refused(_with(key, value))
    assert f"key '{key}" in error.message
    assert said is None or f"key '{key}': {said}" in error.message
    assert remedy in error.remedy
    assert not INTERNAL.search(str(error))


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("kernel", "chees", "key 'kernel': should be a mapping that names a kernel, found 'chees'"),
        ("kernel", {"nmae": "hmc"}, "key 'kernel.name' is missing; 'nmae' should read 'name'"),
        ("data", {"num_rows": 3}, "key 'data.source' is missing"),
        ("model", {"name": 3}, "key 'model.name': unknown model 3"),
        ("model", {"name": ["gaussian"]}, "key 'model.name': unknown model ['gaussian']"),
        ("model", [], "key 'model': should be a mapping that names a model, found []"),
    ],
)
def test_a_component_that_is_not_named_is_explained(refused: Refused, key: str, value: object, said: str) -> None:
    error = refused(_with(key, value))
    assert said in error.message
    assert f"for example\n    {key}:\n" in error.remedy
    assert not INTERNAL.search(str(error))


def test_a_key_inside_a_mapping_of_numbers_or_blocks_is_named(refused: Refused) -> None:
    sigma = {"formula": "~ x", "link": "inverse"}
    error = refused(_with("model", {"name": "glm", "formula": "y ~ x", "parameters": {"sigma": sigma}}))
    wanted = "key 'model.parameters.sigma.link': should be 'identity', 'log' or 'logit', found 'inverse'"
    assert error.message.endswith(wanted)
    assert "Function of the parameter" in error.remedy


@pytest.mark.parametrize("key", ["model.trials", "model.known_error", "model.interval_end", "data.exposure"])
def test_a_number_in_place_of_a_column_is_not_to_be_quoted(refused: Refused, key: str) -> None:
    blocks: dict[str, dict[str, object]] = {
        "data": {"source": "table", "files": "rows.csv"},
        "model": {"name": "glm", "formula": "y ~ x"},
    }
    block, _, last = key.partition(".")
    blocks[block][last] = 0.5
    error = refused(yaml.safe_dump({"title": "A test", **blocks}))
    assert f"key '{key}': 0.5 is not the name of a column" in error.message
    assert "a constant needs a column of its own" in error.remedy
    assert not INTERNAL.search(str(error))


@pytest.mark.parametrize(
    ("sampling", "mesh", "key", "problem", "remedy"),
    [
        ("{mode: independent, chains: 8, chain_groups: 3}", "auto", "sampling.chain_groups",
         "3 groups do not divide 8 chains evenly", "use one of 1, 2, 4, 8"),
        ("{mode: sharded, chains: 8, chain_groups: 2}", "auto", "sampling.chain_groups",
         "must be 1 when sampling.mode is sharded", "mode: independent"),
        ("{chains: 6}", "{chain: 4}", "compute.mesh.chain", "4 devices do not divide the 6 chains", "1, 2, 3, 6"),
        ("{mode: independent, chains: 8, chain_groups: 4}", "{chain: 4}", "compute.mesh.chain",
         "4 devices do not divide the 2 chains", "1, 2"),
    ],
)  # fmt: skip
def test_keys_that_do_not_go_together(
    refused: Refused, good: str, sampling: str, mesh: str, key: str, problem: str, remedy: str
) -> None:
    error = refused(f"{good}sampling: {sampling}\ncompute: {{mesh: {mesh}}}\n")
    assert f": key '{key}': {problem}" in error.message
    assert remedy in error.remedy


@pytest.mark.parametrize(
    ("model", "said", "remedy"),
    [
        ({"formula": "y ~ x", "priors": {"x": "norml(0, 1)"}}, "model.priors.x': 'norml' is not a family", "did you mean 'normal'?"),
        ({"formula": "y ~ x", "priors": {"sd": "half_normal(-1)"}}, "model.priors.sd': 'half_normal(-1)': scale must be", "write half_normal(scale)"),
        ({"function": "m:f", "prior": {"mu": "normal(0)"}}, "model.prior.mu': 'normal(0)': 1 parameters", "write normal(mean, sd)"),
    ],
)  # fmt: skip
def test_a_prior_is_refused_when_the_file_is_read(refused: Refused, model: dict, said: str, remedy: str) -> None:
    error = refused(_with("model", {"name": "glm" if "formula" in model else "log_density", **model}))
    assert f": key '{said}" in error.message
    assert error.remedy.startswith(remedy)
