"""The arguments of a call become the settings of an experiment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from bayesmesh.config.checks import check_experiment
from bayesmesh.errors import ConfigError, DataError
from bayesmesh.models.gaussian import Gaussian
from bayesmesh.notebook.sample import WHERE, Described, describe
from notebook_cells import Cells

FRAME = pd.DataFrame({"x": [0.5, 1.5], "y": [1, 2]}, index=[7, 8])


def described(tmp_path: Path, model: object = "gaussian", data: object = "gaussian", **blocks: Any) -> Described:
    kernel, name = blocks.pop("kernel", "nuts"), blocks.pop("name", None)
    return describe(model, data, kernel, name, tmp_path, blocks)


def test_a_call_is_an_experiment(tmp_path: Path) -> None:
    made = described(
        tmp_path, Gaussian, draws=np.int64(40), sampling={"seed": 3}, chains=None, compute={"dtype": "float64"}
    )
    assert made.values["model"] == {"name": "gaussian"}
    assert made.values["sampling"] == {"seed": 3, "draws": 40}
    assert check_experiment(WHERE, made.values).sampling.draws == 40
    assert made.values["title"] == made.name


def test_the_code_of_cells_is_part_of_the_name_but_comments_are_not(tmp_path: Path) -> None:
    names = []
    for body in ("0.0", "0.0  # zero", "1.0"):
        cells = Cells("settings")
        cells.run(f"def density(latents, data):\n    return {body}\n")
        made = described(
            tmp_path, {"name": "log_density", "function": cells.names["density"], "prior": {"m": "normal(0, 1)"}}
        )
        assert made.values["model"]["function"] == f"{made.module}:density"  # type: ignore[index]  # a block
        names.append(made.name)
    assert names[0] == names[1] != names[2]


def test_tables_and_arrays_become_files_named_after_their_content(tmp_path: Path) -> None:
    first, same = (described(tmp_path, data=FRAME.copy()).values["data"] for _ in range(2))
    assert first == same == {"source": "table", "files": first["files"]}  # type: ignore[index]  # a block
    other = described(tmp_path, data={"source": "table", "files": FRAME * 2, "rows": "x > 0"}).values["data"]
    assert other["files"] != first["files"]  # type: ignore[index]  # a block
    # The index is not a column.
    assert list(pd.read_parquet(first["files"]).columns) == ["x", "y"]  # type: ignore[index]  # a block
    arrays = described(tmp_path, data={"x": [[1.0], [2.0]], "n": 2}).values["data"]
    assert {name: a.tolist() for name, a in np.load(arrays["files"]).items()} == {"x": [[1.0], [2.0]], "n": 2}  # type: ignore[index]  # a block
    assert len(list((tmp_path / "notebook" / "inputs").iterdir())) == 3


@pytest.mark.parametrize(
    ("arguments", "error", "problem"),
    [
        ({"draws": 10, "sampling": {"draws": 20}}, ConfigError, "'draws' is given twice"),
        ({"drawz": 10}, ConfigError, "unknown key 'drawz'\n.*did you mean 'draws'"),
        ({"sweep": {}}, ConfigError, "key 'sweep': a call samples one experiment"),
        ({"draws": 1}, ConfigError, "key 'sampling.draws': should be"),
        ({"model": lambda latents, data: 0}, ConfigError, "a log density needs a prior"),
        ({"model": 3}, ConfigError, "key 'model': int is not a model"),
        ({"model": {"name": "gaussian", "prior_scale": np.ones(2)}}, ConfigError, "key 'model.prior_scale': ndarray"),
        ({"name": "sample"}, ConfigError, "'sample' is taken"),
        ({"data": {"a": [[1], [1, 2]]}}, DataError, "'a' is not an array"),
        ({"data": {"file": [1]}}, DataError, "'file' is a name that NPZ files do not take"),
        ({"data": FRAME["y"]}, DataError, "key 'data': a single column"),
        ({"data": np.ones((3, 2))}, DataError, "key 'data': an array without column names"),
        ({"data": FRAME.set_axis(["x"] * FRAME.shape[1], axis=1)}, DataError, "column 'x' appears twice"),
        ({"model": "y ~ x"}, ConfigError, "key 'model.name': 'y ~ x' is a formula\n.*give it to a glm"),
        ({"data": pd.DataFrame({"a": [1, "b"]})}, DataError, "the table cannot be stored"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(
    tmp_path: Path, arguments: dict[str, Any], error: type[Exception], problem: str
) -> None:
    with pytest.raises(error, match=problem) as caught:
        check_experiment(WHERE, described(tmp_path, **arguments).values)
    assert "remedy: " in str(caught.value)


def test_an_analysis_of_a_cell_is_asked_for_by_its_class(tmp_path: Path) -> None:
    cells = Cells("analyses")
    cells.run(
        "from bayesmesh.analyses.base import Analysis\nfrom bayesmesh.config.settings import Settings\n"
        "class Options(Settings):\n    '''None.'''\n"
        "class Tails(Analysis):\n    outputs = ('tails.csv',)\n    reads = ('posterior',)\n    options: Options\n"
        "    def run(self, subject, others, files):\n        return 'done'\n"
    )
    made = described(tmp_path, analyses={cells.names["Tails"]: {}})
    assert made.values["analyses"] == {f"{made.module}:Tails": {}}
    assert "class Tails(Analysis):" in made.code
    assert "class Options(Settings):" in made.code
