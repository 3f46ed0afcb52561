"""What is chosen where the configuration says auto."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from bayesmesh.config.experiment import experiment_class
from bayesmesh.errors import ConfigError
from bayesmesh.sampling.program.sizes import (
    SEGMENT_BYTES,
    SEGMENT_DRAWS,
    SLICE_BYTES,
    SLICE_SECONDS,
    choose_lengths,
    make_program,
)
from bayesmesh.workflow.components import program_settings
from bayesmesh.workflow.jobs import make_job
from cases import OPTIONS


@pytest.mark.parametrize("seconds", [1e-9, 1e-3, 1.0, 1e6])
@pytest.mark.parametrize("aimed", [0.01, 10.0, 3600.0])
@pytest.mark.parametrize("num_chains", [1, 64])
def test_lengths_are_powers_of_two_within_bounds(make_case, fixed_program, seconds, aimed, num_chains) -> None:
    program = fixed_program(num_chains)
    lengths = choose_lengths(program, aimed, seconds, seconds)
    assert max(lengths) <= SEGMENT_DRAWS
    (num_coordinates,) = program.target.position.position_shapes.shared.shape
    per_draw = num_coordinates * num_chains * 8
    for length, most_bytes, most_seconds in zip(
        lengths, (SLICE_BYTES, SEGMENT_BYTES), (SLICE_SECONDS, aimed), strict=True
    ):
        assert math.log2(length).is_integer()
        assert length == 1 or length * per_draw <= most_bytes
        assert length == 1 or length * seconds * program.kernel.expected_gradients() <= most_seconds


@pytest.fixture(scope="module")
def fixed_program(make_case, request):
    build = request.getfixturevalue("make_program")
    programs = {n: build(make_case("softmax_regression"), "hmc", num_chains=n) for n in (1, 64)}
    return programs.__getitem__


def test_longer_gradients_never_lengthen_a_segment(fixed_program) -> None:
    lengths = [choose_lengths(fixed_program(1), 10.0, 1e-3, s).segment_draws for s in np.geomspace(1e-6, 10, 30)]
    assert lengths == sorted(lengths, reverse=True)
    assert len(set(lengths)) > 3


def test_chains_that_are_not_kept_need_no_room(make_case) -> None:
    """Of replica exchange half the chains are draws; only these wait in memory."""
    kept, all_kept = (
        make_program(spec(kernel=kernel), make_case("gaussian").spec, 16) for kernel in ("replica_exchange", "hmc")
    )
    assert (kept.num_reported, all_kept.num_reported) == (4, 8)
    many = dataclasses.make_dataclass("P", ["target", "kernel", "num_reported"])
    lengths = [
        choose_lengths(many(p.target, all_kept.kernel, 10**5 * p.num_reported), 1e9, 1e-9, 1e-9).segment_draws
        for p in (kept, all_kept)
    ]
    assert lengths[0] == 2 * lengths[1]


def _settings_of(stage, config):
    return program_settings(make_job(stage, "some", experiment_class().model_validate(config), "results"))


def spec(sharding="named", kernel="chees", metric=None, compute=None, **sampling):
    options = {"max_leapfrog_steps": 17} if kernel == "chees" else {}
    options |= {} if metric is None else {"metric": metric}
    config = {
        "title": "Some", "data": {"source": "gaussian"}, "model": {"name": "gaussian", "prior_scale": 3.0},
        "kernel": {"name": kernel, **options}, "sampling": {"chains": 8, "warmup": 21, **sampling},
        "compute": {"dtype": "float64", "sharding": sharding, **(compute or {})},
    }  # fmt: skip
    return _settings_of("sample", config)


def test_a_program_is_what_its_spec_says(make_case) -> None:
    case = make_case("gaussian")
    program = make_program(spec(), case.spec, 16)
    assert program.num_chains == 8
    assert program.slice_draws == 16
    assert program.sampling.warmup == program.kernel.num_warmup == 21
    assert program.kernel.options.max_leapfrog_steps == 17
    assert program.target.model.options.prior_scale == 3.0
    assert program.mesh.size == program.target.layout.num_devices == 1


@pytest.mark.parametrize(("num_rows", "num_cores"), [(20_000, 1), (50_000, 4), (10**6, 8)])
def test_cores_share_rows_that_are_many(make_case, num_rows, num_cores) -> None:
    data = dataclasses.replace(make_case("gaussian").spec, num_rows=num_rows)
    program = make_program(spec(), data, 16)
    assert dict(program.mesh.shape) == {"chain": 1, "data": num_cores}
    assert program.target.layout.num_devices == num_cores


@pytest.mark.parametrize(
    ("kernel", "mode", "expected"),
    [("hmc", "sharded", 1), ("nuts", "sharded", 4), ("hmc", "independent", 1), ("nuts", "independent", 4)],
)
def test_cores_share_chains_that_step_alone_where_sharing_rows_does_not_pay(
    make_case, monkeypatch, kernel, mode, expected
) -> None:
    monkeypatch.setattr("bayesmesh.sampling.program.sizes.expected_seconds", lambda cost, mesh: 0.001)
    program = make_program(spec(kernel=kernel, mode=mode), make_case("gaussian").spec, 16)
    assert dict(program.mesh.shape) == {"chain": expected, "data": 1}


def test_cores_share_the_rows_where_they_are_told_to(make_case) -> None:
    few = make_case("gaussian").spec
    for asked in (spec(compute={"mesh": {"data": 4}}), spec("shard_map")):
        assert make_program(asked, few, 16).mesh.shape["data"] > 1


def whole(prior=True, kernel="hmc", **more):
    """An experiment with a function of all rows."""
    options = dict(OPTIONS["log_density"])
    if not prior:
        del options["prior"]
        options |= {"test_point": {"mean": 0.0, "slope": 0.0, "noise": 1.0}, "support": {"noise": "positive"}}
    config = {
        "title": "Some", "data": {"source": "hidden_markov"}, "model": {"name": "log_density", **options},
        "kernel": {"name": kernel}, "sampling": {"chains": 18, "warmup": 21}, **more,
    }  # fmt: skip
    return _settings_of("sample", config)


def test_cores_share_the_chains_of_a_model_that_takes_all_rows_if_its_gradient_is_long(make_case, monkeypatch) -> None:
    data = dataclasses.replace(make_case("log_density").spec, num_rows=1)
    assert dict(make_program(whole(), data, 16).mesh.shape) == {"chain": 1, "data": 1}
    monkeypatch.setattr("bayesmesh.sampling.program.sizes.expected_seconds", lambda cost, mesh: 0.02)
    assert dict(make_program(whole(), data, 16).mesh.shape) == {"chain": 6, "data": 1}
    for compute, said in (
        ({"mesh": {"data": 2}}, "key 'compute.mesh.data'"),
        ({"processes": 2}, "key 'compute.processes'"),
    ):
        with pytest.raises(ConfigError, match=said) as caught:
            make_program(whole(compute=compute), data, 16)
        assert caught.value.remedy


@pytest.mark.parametrize("stage", ["compile", "sample"])
def test_kernels_with_many_chains_run_in_groups(make_case, stage: str) -> None:
    """The spec of the compile stage has the chains of one program, and not `sampling.chains`."""
    config = {
        "title": "Some", "data": {"source": "gaussian"}, "model": {"name": "gaussian"}, "kernel": {"name": "tempered_smc"},
        "sampling": {"chains": 64, "chain_groups": 4, "mode": "independent", "initial": {"method": "prior"}},
    }  # fmt: skip
    asked = _settings_of(stage, config)
    assert make_program(asked, make_case("gaussian").spec, 16).num_chains == 16


def test_an_automatic_metric_is_chosen_and_the_reason_logged(make_case, caplog) -> None:
    with caplog.at_level("INFO", "bayesmesh"):
        program = make_program(spec(kernel="hmc", metric="auto"), make_case("gaussian").spec, 16)
    assert program.kernel.options.metric == "dense"
    assert "kernel.metric: dense chosen: 2 shared and 0 local coordinates" in caplog.text


def test_a_kernel_that_compares_chains_refuses_a_single_one(make_case) -> None:
    with pytest.raises(ConfigError, match=r"key 'sampling.chains': kernel 'chees' takes at least 2 chains, .* has 1"):
        make_program(spec(mode="independent", chain_groups=8), make_case("gaussian").spec, 16)
