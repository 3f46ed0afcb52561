"""Code of cells becomes a module that holds all that it refers to, or is refused."""

from __future__ import annotations

import pytest

from bayesmesh.errors import ConfigError
from bayesmesh.notebook.cell_code import CellCode
from notebook_cells import Cells

SETUP = """
import math, numpy
from collections.abc import Mapping as M
scale, other, array = 2.5, (1, "a"), numpy.zeros(2)
def halve(x):
    return x / scale
"""
FUNCTION = """
def density(latents: M, data):
    array = data["y"]
    return [math.log(halve(each)) for each in array], other
"""


@pytest.fixture
def cells() -> Cells:
    made = Cells("code")
    made.run(SETUP)
    return made


def test_a_module_holds_what_a_function_refers_to(cells: Cells) -> None:
    cells.run(FUNCTION)
    code = CellCode()
    assert code.add(cells.names["density"]) == "density"
    found: dict[str, object] = {}
    exec(code.text, found)
    # A local variable of the name of a global one is none of its business.
    assert "numpy" not in code.text
    assert found["density"]({}, {"y": [2.5]}) == ([0.0], (1, "a"))


def test_a_class_takes_the_options_of_its_own_cell(cells: Cells) -> None:
    cells.run("class Options:\n    first: float = 1.0\n")
    cells.run("class Model:\n    options: Options\n    def prior(self):\n        return super().__repr__()\n")
    cells.run("class Options:\n    second: float = 2.0\n")
    code = CellCode()
    code.add(cells.names["Model"])
    assert "first" in code.text
    assert "second" not in code.text
    with pytest.raises(ConfigError, match="'Options' stands for two things"):
        code.add(cells.names["Options"])
