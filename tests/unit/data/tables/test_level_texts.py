"""Texts that are numbers in another notation are told from categories, codes, dates and identifiers."""

from __future__ import annotations

from pathlib import Path

import pytest

from bayesmesh.data.sources.table import Options, Source
from bayesmesh.data.tables.level_texts import doubtful_number
from bayesmesh.errors import DataError

NUMBERS = [
    ["1.234,50", "999,50", "-12,00"],
    ["1.234.567", "2.345.678"],
    ["1,234,567.5", "2,000"],
    ["12,34,567", "5,00,000"],
    ["1\u00a0500", "2\u00a0500"],
    ["1\u202f500,5", "700"],
    ["1'500", "2'500.75"],
    ["1\u2019500", "2"],
    ["$15.00", "$25"],
    ["15,00 €", "1.200,00 €"],
    ["-£3", "£4"],
    ["CHF 15", "CHF 1'500"],
    ["US$ 5", "US$ 1,000"],
    ["\u22121.5", "2.5"],
    ["\u20131.5", "2"],
    ["1,5e3", "2"],
    ["12 %", "5,5%"],
    ["\uff11\uff12", "\uff13"],
    ["1_000", "2_000"],
    ["$5", "$6", "free"],
    ["9007199254740993", "5", "7"],
]

CATEGORIES = [
    ["A", "B", "1"],
    ["D-01234", "D-99999"],
    ["SW1A 1AA", "110 01"],
    ["1.2.3", "1.10.2"],
    ["10.0.0.1", "192.168.100.100"],
    ["192.168.100.100", "192.168.100.200"],
    ["23.11.2026", "24.11.2026"],
    ["2026-11-23", "2026-11-24"],
    ["2026.11.23", "2026.11.24"],
    ["123-45-6789", "123-45-6780"],
    ["12.345.678-5", "9.345.678-K"],
    ["9007199254740993", "9007199254740995"],
    ["18-24", "25-34"],
    ["18\u201324", "25\u201334"],
    ["12:30", "13:00"],
    ["1/2", "3/4"],
    ["5'11", "6'02"],
    ["5 kg", "7 kg"],
    ["ABC 123", "ABC 124"],
    ["$", "€"],
    ["\u2460", "\u2461"],
    ["10-20", "20-30", "5%"],
    ["GBP1", "GBP2", "GBP10"],
]


@pytest.mark.parametrize("levels", NUMBERS)
def test_numbers_in_another_notation_are_refused_unless_they_are_declared(tmp_path: Path, levels: list[str]) -> None:
    quoted = "".join(f'"{level}"\n' for level in levels)
    (tmp_path / "rows.csv").write_text(f"x\n{quoted}", encoding="utf-8")
    options = {"files": str(tmp_path / "rows.csv")}
    with pytest.raises(DataError, match="'x' would be a category, because") as caught:
        Source(Options.model_validate(options)).fetch(tmp_path)
    assert "x: category" in caught.value.remedy
    (tmp_path / "kept").mkdir()
    source = Source(Options.model_validate({**options, "types": {"x": "category"}}))
    source.fetch(tmp_path / "kept")
    assert set(source.read(tmp_path / "kept").variables["x"].levels) == set(levels)


@pytest.mark.parametrize("levels", CATEGORIES)
def test_categories_codes_dates_and_identifiers_are_not_numbers(levels: list[str]) -> None:
    assert doubtful_number(levels) is None
