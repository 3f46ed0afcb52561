"""The base class of blocks: a list of YAML is a tuple where a field is one; fields are described by strings below them."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from pydantic import Field

from bayesmesh.config.settings import Settings


class Block(Settings):
    """All kinds of tuples."""

    many: tuple[int, ...] = Field((), max_length=3)
    pair: tuple[float, str] = (0.0, "")
    nested: tuple[tuple[int, int], ...] = ()
    perhaps: tuple[int, ...] | None = None
    one_of: Annotated[tuple[str, ...], Field(min_length=1)] = ("a",)
    plain: list[int] = Field([])


@pytest.mark.parametrize(
    ("key", "given", "taken"),
    [
        ("many", [1, 2], (1, 2)),
        ("many", [], ()),
        ("many", (1,), (1,)),
        ("pair", [0.5, "x"], (0.5, "x")),
        ("nested", [[1, 2], [3, 4]], ((1, 2), (3, 4))),
        ("perhaps", [1], (1,)),
        ("perhaps", None, None),
        ("one_of", ["a", "b"], ("a", "b")),
        ("plain", [1], [1]),
    ],
)
def test_a_list_is_a_tuple_where_the_field_is_one(key: str, given: Any, taken: Any) -> None:
    assert getattr(Block.model_validate({key: given}), key) == taken
