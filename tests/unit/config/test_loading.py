"""Reading YAML as data: bounds, duplicates, tags, names."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from bayesmesh.config.loading import (
    load_configuration,
    load_experiment,
    load_run,
    refuse_folder,
)
from bayesmesh.config.yaml_reader import MAX_BYTES, MAX_DEPTH, MAX_NODES, read_yaml
from bayesmesh.errors import ConfigError

ROOT = Path(__file__).resolve().parents[3]
Refused = Callable[..., ConfigError]


def test_the_shortest_experiment_loads(tmp_path: Path, good: str) -> None:
    path = tmp_path / "short-1.yaml"
    path.write_text(good)
    experiment = load_experiment(path)
    assert experiment.title == "A test"
    assert experiment.sampling.chains == 4
    path.write_text("data: {source: gaussian}\nmodel: {name: gaussian}\n")
    defaults = load_experiment(path)
    assert (defaults.title, defaults.kernel.name) == ("short-1", "nuts")
    path.write_text("data: {source: gaussian}\nmodel: {name: gaussian}\nkernel: {name: nuts}\n")
    assert load_experiment(path).kernel == defaults.kernel


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("title: a\ntitle: b\n", "line 2: duplicate key 'title', first given in line 1"),
        ("data: {source: a, source: b}\n", "line 1: duplicate key 'source', first given in line 1"),
        ("__use_yte__: true\ntitle: a\n", "line 1: the key '__use_yte__' is not accepted"),
        ("data:\n  __variables__: {}\n", "line 2: the key '__variables__' is not accepted"),
        ("title: &a x\ndata: *a\n", "line 2: aliases"),
        ("title: !!python/object/apply:os.system ['touch pwned']\n", "line 1: the tag !"),
        ("title: !!python/name:os.system\n", "line 1: the tag !"),
        ("title: !include x.yaml\n", "line 1: the tag !"),
        ("1: x\n", "line 1: the key 1 is not a word"),
        ("? [a, b]\n: x\n", "is not a word"),
        ("- a\n- b\n", "is a mapping of keys, but this is list"),
        ("just a word\n", "is a mapping of keys, but this is str"),
        ("", "the file is empty"),
        ("  \n\n", "the file is empty"),
        ("# all commented out\n", "is a mapping of keys, but this is nothing but comments"),
        ("title: [a\n", "line 1: the bracket [ that opens here is not closed"),
        ("title: a\n\tdata: b\n", "line 2"),
        ("title: a\n---\ntitle: b\n", "line 2: a second document begins"),
        ("title: a\0b\n", "special characters are not allowed at character 8"),
        (b"title: \xff\xfe\n", "not UTF-8 text at byte 7"),
        ("title: " + "[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1), f"{MAX_DEPTH} levels"),
        ("title: " + "[" * 100_000, f"{MAX_DEPTH} levels"),
        ("title: " + "{a: " * 50_000, f"{MAX_DEPTH} levels"),
        ("title: [" + "1," * MAX_NODES + "]", f"more than {MAX_NODES} values"),
        ("title: " + "a" * MAX_BYTES, f"more than the {MAX_BYTES}"),
    ],
    ids=lambda value: repr(value[:20]),
)
def test_what_is_no_plain_data_is_refused_with_its_place(refused: Refused, text: str | bytes, said: str) -> None:
    assert said in str(refused(text))


def test_nothing_is_executed(tmp_path: Path, refused: Refused, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    refused("title: !!python/object/apply:os.system ['touch pwned']\n")
    refused("__use_yte__: true\n__definitions__:\n- open('pwned', 'w')\ntitle: ?open('pwned', 'w')\n")
    assert not (tmp_path / "pwned").exists()


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 1e-3), ("1.5E2", 150.0), ("-3", -3), ("0", 0), (".5", 0.5), ("true", True), ("~", None), ("", None),
        ("no", "no"), ("off", "off"), ("010", "010"), ("1_000", "1_000"), ("1:30", "1:30"), ("2026-11-21", "2026-11-21"),
        ("'1'", "1"), ("<<", "<<"), ("=", "="),
    ],
)  # fmt: skip
def test_plain_words_mean_what_they_mean_in_yaml_1_2(tmp_path: Path, text: str, value: object) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(f"key: {text}\n")
    found = read_yaml(path)["key"]
    assert (found, type(found)) == (value, type(value))


def test_the_experiment_that_messages_show_loads(tmp_path: Path, refused: Refused) -> None:
    path = tmp_path / "pasted.yaml"
    path.write_text(textwrap.dedent(refused("").remedy.partition("for example\n")[2]))
    assert load_experiment(path).title == "My experiment"


def test_what_is_no_plain_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.yaml")
    (tmp_path / "endless.yaml").symlink_to("/dev/zero")
    for name in ("pipe.yaml", "endless.yaml"):
        with pytest.raises(ConfigError, match=f"{name}: not a regular file"):
            read_yaml(tmp_path / name)


def test_a_missing_file_and_a_folder_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"gone\.yaml: cannot be read: No such file"):
        read_yaml(tmp_path / "gone.yaml")
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        read_yaml(tmp_path)


@pytest.mark.parametrize("name", ["Upper", "with space", "-dash", "_under", "dot.dot", "a" * 65, "ä", "a;b", "$(x)"])
def test_a_file_name_that_could_harm_is_no_experiment(tmp_path: Path, good: str, name: str) -> None:
    path = tmp_path / f"{name}.yaml"
    path.write_text(good)
    with pytest.raises(ConfigError, match="is not a valid name for an experiment") as caught:
        load_experiment(path)
    assert "[a-z0-9]" in caught.value.remedy


DIGITS = "title: A test\ndata: {source: digits}\nmodel: {name: softmax_regression}\nkernel: {name: hmc}\n"
FILMS = "title: A test\ndata: {source: films}\nmodel: {name: matrix_factorization}\nkernel: {name: hmc}\n"


@pytest.mark.parametrize(
    ("kernel", "sampling", "said", "remedy"),
    [
        ("replica_exchange", "chains: 3", "takes chains in groups of 2, and a chain group has 3", "chains: 4"),
        ("replica_exchange", "chains: 6, chain_groups: 2, mode: independent", "in groups of 2, .* has 3", "chains: 8"),
        ("chees", "chains: 1", "takes at least 2 chains, and a chain group has 1", "chains: 2"),
        ("chees", "chains: 5, chain_groups: 5, mode: independent", "at least 2 chains, .* has 1", "chains: 10"),
    ],
)
def test_chains_that_the_kernel_does_not_take_are_refused(
    refused: Refused, good: str, kernel: str, sampling: str, said: str, remedy: str
) -> None:
    error = refused(good.replace("name: hmc", f"name: {kernel}") + f"sampling: {{{sampling}}}\n")
    assert re.search(f"key 'sampling.chains': kernel '{kernel}' .*{said}", error.message)
    assert error.remedy == f"use for example\n    sampling:\n      {remedy}"


def test_what_data_and_model_offer_is_accepted(tmp_path: Path) -> None:
    for number, text in enumerate((DIGITS + "averaging: {}\n", FILMS + "recommendation: {}\n")):
        path = tmp_path / f"offered-{number}.yaml"
        path.write_text(text)
        load_experiment(path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (DIGITS + "recommendation: {}\n", "key 'recommendation': not with source 'digits': it offers averaging"),
        (FILMS + "averaging: {}\n", "key 'averaging': not with source 'films': it offers recommendation"),
        (
            DIGITS.replace("softmax_regression", "gaussian") + "averaging: {}\n",
            "key 'averaging': not with model 'gaussian': it does not offer averaging",
        ),
        (
            DIGITS.replace("softmax_regression", "'bayesmesh.models.gaussian:Gaussian'") + "averaging: {}\n",
            "key 'averaging': not with model 'bayesmesh.models.gaussian:Gaussian': it does not offer averaging",
        ),
    ],
)
def test_what_data_or_model_do_not_offer_is_refused_with_the_yaml_to_paste(
    tmp_path: Path, refused: Refused, text: str, said: str
) -> None:
    error = refused(text)
    assert said in error.message
    pasted = error.remedy.partition("for example\n")[2]
    key = said.split("'")[1]
    path = tmp_path / "pasted.yaml"
    path.write_text(f"title: A test\n{textwrap.dedent(pasted)}\nkernel: {{name: hmc}}\n{key}: {{}}\n")
    load_experiment(path)


def _config(folder: Path, run: str, **experiments: str) -> Path:
    (folder / "experiments").mkdir()
    (folder / "config.yaml").write_text(run)
    for name, text in experiments.items():
        (folder / "experiments" / f"{name}.yaml").write_text(text)
    return folder


def test_all_experiments_load_in_sorted_order(tmp_path: Path, good: str) -> None:
    run, experiments, *_ = load_configuration(_config(tmp_path, "experiments: [two]\n", two=good, one=good))
    assert (run.experiments, list(experiments)) == (["two"], ["one", "two"])


@pytest.mark.parametrize("name", ["$(touch pwned)", "`x`", '"x"', "a\\b", "{x}", "a:b", "a\nb"])
def test_a_project_folder_that_a_shell_would_interpret_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="which shells or Snakemake would interpret") as caught:
        refuse_folder(Path("/home/me") / name)
    assert "rename the folder" in caught.value.remedy


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("experiments: [../../etc/passwd]\n", "key 'experiments[0]': '../../etc/passwd' is not a valid name"),
        ("experiments: [a, Films]\n", "key 'experiments[1]': 'Films' is not a valid name"),
        (
            "experiments: ud\n",
            "key 'experiments': should be a list, found the word 'ud'\n  remedy: write\n    experiments: [ud]",
        ),
        ("experiments: {ud: 1}\n", "key 'experiments': should be a valid list, found {'ud': 1}"),
        ("experiments: [1]\n", "key 'experiments[0]': should be a valid string, found 1"),
        ("experiments: []\n", "key 'experiments': should have at least 1 item"),
        ("{}\n", "key 'experiments' is missing"),
        ("experiment: [a]\n", "unknown key 'experiment'"),
    ],
)
def test_config_yaml_is_checked(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_run(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert said in str(caught.value)


def test_loading_imports_neither_jax_nor_tensorflow() -> None:
    code = (
        "import sys; from bayesmesh.workflow.plan import Plan; plan = Plan(); experiments = plan.experiments\n"
        "specs = [plan._spec(s, n) for n in experiments for s in ('fetch', 'sample', 'report')]\n"
        "codes = [plan.code_of_stage(s, n) for n in experiments for s in ('fetch', 'sample', 'report')]\n"
        "heavy = ('jax', 'jaxlib', 'tensorflow', 'tensorflow_probability', 'tensorflow_datasets', 'xarray', 'zarr', 'numpy')\n"
        "print(len(experiments), [m for m in heavy if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    number, _, loaded = done.stdout.strip().partition(" ")
    assert int(number) >= 7
    assert loaded == "[]"
