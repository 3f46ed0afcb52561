"""Show a list of films for one user as a table and a sentence, as HTML and as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd
from markupsafe import Markup

from bayesmesh.analyses.recommendation.film_lists import COLUMNS, FilmList, Request, as_text
from bayesmesh.errors import ConfigError
from bayesmesh.store.layout import ExperimentLayout
from bayesmesh.workflow.stages.recommend import for_rated, for_user, for_watched


class ShownFilms:
    """Films for one user.

    Attributes:
        table: one row per film, in order of rank; docs/how-to/recommendation.md lists the columns.
        about: a sentence about the user, the draws and the intervals.
        warnings: reasons to doubt the list.
    """

    def __init__(self, found: FilmList) -> None:
        self.table = pd.DataFrame(found.rows, columns=list(COLUMNS)).set_index("rank")
        self.about, self.warnings, self._found = found.about, found.warnings, found

    def __repr__(self) -> str:
        return "\n".join([*self.warnings, as_text(self._found)])

    def _repr_html_(self) -> str:
        said = Markup("").join(Markup("<p>{}</p>").format(each) for each in (*self.warnings, self.about))
        return f"<div>{said}{self.table.to_html(float_format='{:.3f}'.format, na_rep='')}</div>"


def films_for(
    layout: ExperimentLayout,
    user: object,
    watched: Sequence[object] | None,
    rated: Mapping[object, float] | None,
    request: Request,
) -> ShownFilms:
    """Return films for a user in the data, or for a new one; see `bayesmesh.recommend`."""
    if sum(each is not None for each in (user, watched, rated)) != 1:
        raise ConfigError(
            "recommend takes one of `user`, `watched` and `rated`",
            "name a user of the data, or give watched films, or ratings",
        )
    if user is not None:
        return ShownFilms(for_user(layout, str(user), request))
    if watched is not None:
        return ShownFilms(for_watched(layout, [str(each) for each in watched], request))
    assert rated is not None  # one of the three is given
    return ShownFilms(for_rated(layout, {str(film): rating for film, rating in rated.items()}, request))
