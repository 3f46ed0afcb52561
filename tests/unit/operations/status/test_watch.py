"""status --watch: the table again and again on a terminal, once elsewhere."""

from __future__ import annotations

import io

from bayesmesh.operations.status import watch


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_watching_shows_it_again_until_ctrl_c() -> None:
    calls = []

    def made() -> str:
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return f"table {len(calls)}"

    out = Terminal()
    watch(made, every=0, out=out)
    assert "table 1" in out.getvalue()
    assert "table 2" in out.getvalue()


def test_watching_without_a_terminal_shows_it_once() -> None:
    out = io.StringIO()
    watch(lambda: "the table", out=out)
    assert out.getvalue() == "the table\n"
