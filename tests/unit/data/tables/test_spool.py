"""A spool gives back what was appended, whatever the blocks were."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bayesmesh.data.tables import spool as table_spool
from bayesmesh.data.tables.spool import Spool, SpoolWriter
from bayesmesh.errors import StoreError


@pytest.mark.parametrize("sizes", [[1000], [1, 2, 3, 994], [0, 256, 256, 0, 488]])
def test_ranges_of_columns_are_what_was_appended(
    tmp_path: Path, sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_spool, "_MOST_ROWS", 256)
    x, y, town = np.linspace(0, 1, 1000), np.arange(1000.0), np.arange(1000, dtype=np.int32)
    writer, start = SpoolWriter(tmp_path, ["x", "y"], ["town"]), 0
    for size in sizes:
        writer.append({k: v[start : start + size] for k, v in {"x": x, "y": y, "town": town}.items()})
        start += size
    writer.close()
    found = Spool(tmp_path, ["x", "y"], ["town"])
    assert found.num_rows == writer.num_rows == 1000
    np.testing.assert_array_equal(found.read("x", 0, 1000), x)
    np.testing.assert_array_equal(found.read("y", 250, 260), y[250:260])
    np.testing.assert_array_equal(found.read("town", 999, 1000), town[999:])
    assert found.blocks() == [(0, 256), (256, 512), (512, 768), (768, 1000)]


def test_a_damaged_chunk_is_noticed(tmp_path: Path) -> None:
    writer = SpoolWriter(tmp_path, ["x"], [])
    writer.append({"x": np.arange(5.0)})
    writer.close()
    (chunk,) = (tmp_path / table_spool.FOLDER / "numbers" / "c").rglob("0/0")
    content = bytearray(chunk.read_bytes())
    content[10] ^= 1
    chunk.write_bytes(content)
    with pytest.raises(StoreError, match="damaged"):
        Spool(tmp_path, ["x"], []).read("x", 0, 5)
