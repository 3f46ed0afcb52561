"""Show films that lie close: a section of the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from bayesmesh.analyses.figures.documents import Row, read_csv
from bayesmesh.analyses.figures.sections import Section, render

REQUIRED = ("film", "film_id", "title", "rank", "neighbour_id", "neighbour_title", "genres", "cosine", "q5", "q95")


class Neighbour(NamedTuple):
    """A film that lies close to another: name, genres, mean cosine with its interval, and how often it is among the closest."""

    name: str
    genres: str
    cosine: float
    low: float
    high: float
    p_among: float

    @property
    def is_clear(self) -> bool:
        """Whether the interval lies above 0, the cosine of films that have nothing to do with each other."""
        return self.low > 0


def build_section(files: Mapping[str, Path]) -> Section | None:
    """Build the section; None without the table.

    Raises:
        StoreError: the table is damaged.
    """
    if not files["neighbours.csv"].exists():
        return None
    # By column: several films of a dataset may have one title.
    films: dict[str, tuple[str, list[Neighbour]]] = {}
    for row in read_csv(files["neighbours.csv"], (*REQUIRED, "p_among_closest")):
        films.setdefault(row.text("film"), (_name(row, "title", "film_id"), []))[1].append(
            Neighbour(
                _name(row, "neighbour_title", "neighbour_id"), row.text("genres").replace("|", ", "),
                row.number("cosine"), row.number("q5"), row.number("q95"), row.number("p_among_closest"),
            )
        )  # fmt: skip
    template = Path(__file__).with_name("section.html")
    listed = list(films.values())
    return Section(render(template, films=listed, sentence=_sentence(listed))) if listed else None


def _name(row: Row, title: str, number: str) -> str:
    return row.text(title) or f"film {row.text(number)}"


def _sentence(films: Sequence[tuple[str, list[Neighbour]]]) -> str:
    """Return how many neighbours are close beyond their uncertainty."""
    pairs = [each for _, of_film in films for each in of_film]
    clear = sum(each.is_clear for each in pairs)
    if not clear:
        return f"None of the {len(pairs)} pairs has a clearly positive cosine: all 90% intervals contain 0 or lie below it."
    return f"For {clear} of {len(pairs)} listed pairs, the 90% interval of the cosine lies above 0."
