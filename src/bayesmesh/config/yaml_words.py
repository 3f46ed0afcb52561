"""Say in plain words what is wrong with a YAML file; PyYAML speaks of tokens, scalars and block ends."""

from __future__ import annotations

import re

import yaml

_COLUMNS = "begin all keys of a block in the same column, deeper than the key above them, with blanks and no tabs"
_QUOTES = "put the text between quotes, as in `title: 'at 9: a title'`"
_KEY = "write `key: value`, with a blank after the colon"

_SENTENCES: tuple[tuple[str, str, str], ...] = (
    (r"found character '\\t'", "a tab stands where blanks are needed", "replace the tab by blanks"),
    (r"found character '(.)' that cannot start", "a value cannot begin with {0}", _QUOTES),
    (r"expected ',' or '\]'", "the bracket [ that opens here is not closed", "close it with ], and put a comma between its entries"),
    (r"expected ',' or '\}'", "the brace {{ that opens here is not closed", "close it with }, and put a comma between its entries"),
    (r"found unexpected end of stream", "the quote that opens here is not closed", "close it with the same quote"),
    (r"found unexpected document", "the quote that opens here is not closed before a line `---`", "close it with the same quote"),
    (r"mapping values are not allowed", "a colon stands where no key can end", f"{_QUOTES}; or {_KEY}, in the line above too; or {_COLUMNS}"),
    (r"could not find expected ':'", "the line has no `key: value`", _KEY),
    (r"expected <block end>", "the line does not fit those above it", _COLUMNS),
    (r"unindent does not match|inconsistent", "the line does not fit those above it", _COLUMNS),
    (r"constructor for the tag 'tag:yaml.org,2002:(.*)'", "the tag !!{0} is not accepted: configuration is data, never code", "remove the word that begins with exclamation marks"),
    (r"constructor for the tag '(.*)'", "the tag {0} is not accepted: configuration is data, never code", "remove the word that begins with an exclamation mark"),
    (r"another document", "a second document begins, and a configuration is one", "remove the line `---` and what does not belong here"),
    (r"unknown escape character '(.*)'", "between double quotes, \\{0} means nothing", "use single quotes, which leave backslashes as they are"),
)  # fmt: skip
"""Pattern of a PyYAML problem -> what happened, and the remedy."""

_BEGINS_EARLIER = ("quote that opens", "bracket [", "brace {")


def say(error: yaml.MarkedYAMLError) -> tuple[int | None, str, str]:
    """Return the line, counted from 1, what is wrong there, and the remedy.

    Args:
        error: raised by PyYAML, or a refusal with a remedy in its `note`.

    >>> try:
    ...     yaml.safe_load("a: 1\\nb: [1, 2\\nc: 3")
    ... except yaml.MarkedYAMLError as error:
    ...     say(error)[:2]
    (2, 'the bracket [ that opens here is not closed')
    """
    problem, remedy, mark = str(error.problem), error.note or "", error.problem_mark
    for pattern, sentence, fitting in () if remedy else _SENTENCES:
        if found := re.search(pattern, problem):
            problem, remedy = sentence.format(*found.groups()), fitting
            break
    if error.context_mark is not None and any(words in problem for words in _BEGINS_EARLIER):
        mark = error.context_mark
    return (mark.line + 1 if mark else None), problem, remedy or f"{_KEY}; {_COLUMNS}"
