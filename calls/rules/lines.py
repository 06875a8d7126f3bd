"""Where things stand in a TOML file: the line of every table, key and list element.

The standard parser checks a file but does not tell lines. This scanner reads text that the parser has accepted, so it may
trust the syntax: it only follows brackets, strings and line ends. A place is named by its path, for example
``("rule", 2, "when", "green")``; tables of a list and elements of a list are counted from 0.
"""

import re
from collections.abc import Iterator

Path = tuple[str | int, ...]

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_BLANK = re.compile(r"[ \t]*")
_EMPTY = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_SCALAR = re.compile(r"[^,\]}#\r\n]*")
_TEXTS = (
    re.compile(r'"""(?:[^\\]|\\.)*?"{3,5}', re.DOTALL),
    re.compile(r"'''.*?'{3,5}", re.DOTALL),
    re.compile(r'"(?:[^"\\]|\\.)*"'),
    re.compile(r"'[^']*'"),
)


class Lines:
    """The lines of a file that is valid TOML."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._line = 1
        self._counted_to = 0
        self._lines: dict[Path, int] = {}
        self._lists: dict[Path, int] = {}
        self._scan()

    def find(self, *path: str | int) -> int:
        """Return the line of a place; of what holds it where the place itself is not written, at last line 1."""
        while path and path not in self._lines:
            path = path[:-1]
        return self._lines.get(path, 1)

    def __iter__(self) -> Iterator[tuple[Path, int]]:
        return iter(self._lines.items())

    def _scan(self) -> None:
        table: Path = ()
        self._skip(_EMPTY)
        while self._at < len(self._text):
            table = self._header() if self._text[self._at] == "[" else self._pair(table)
            self._skip(_EMPTY)

    def _header(self) -> Path:
        """Read ``[table]`` or ``[[list]]`` and return the path that the keys below it belong to."""
        is_list = self._text.startswith("[[", self._at)
        self._at += 2 if is_list else 1
        path: Path = ()
        line = self._line_here()
        keys = self._keys()
        for n, key in enumerate(keys):
            path = (*path, key)
            is_last = n == len(keys) - 1
            if is_last and is_list:
                self._lists[path] = self._lists.get(path, -1) + 1
                self._note(path, line)
            if path in self._lists:
                path = (*path, self._lists[path])
        self._note(path, line)
        self._at += 2 if is_list else 1
        return path

    def _pair(self, table: Path) -> Path:
        """Read ``key = value`` and return the table that is still open."""
        path, line = table, self._line_here()
        for key in self._keys():
            path = (*path, key)
            self._note(path, line)
        self._skip(_BLANK)
        self._at += 1  # the equals sign
        self._value(path)
        return table

    def _keys(self) -> list[str]:
        """Read a key that may be dotted and quoted."""
        keys: list[str] = []
        while True:
            self._skip(_BLANK)
            if self._text[self._at] in "\"'":
                keys.append(_plain(self._take_text()))
            else:
                keys.append(self._skip(_BARE))
            self._skip(_BLANK)
            if self._text[self._at] != ".":
                return keys
            self._at += 1

    def _value(self, path: Path) -> None:
        self._skip(_BLANK)
        match self._text[self._at]:
            case "[":
                self._members(path, "]")
            case "{":
                self._members(path, "}")
            case '"' | "'":
                self._take_text()
            case _:
                self._skip(_SCALAR)

    def _members(self, path: Path, end: str) -> None:
        """Read a list or an inline table."""
        self._at += 1
        n = 0
        while True:
            self._skip(_EMPTY)
            if self._text[self._at] == end:
                self._at += 1
                return
            if self._text[self._at] == ",":
                self._at += 1
            elif end == "]":
                self._note((*path, n), self._line_here())
                self._value((*path, n))
                n += 1
            else:
                self._pair(path)

    def _take_text(self) -> str:
        for pattern in _TEXTS:
            if found := pattern.match(self._text, self._at):
                self._at = found.end()
                return found.group()
        raise AssertionError("the parser accepted a text that does not end")

    def _skip(self, pattern: re.Pattern[str]) -> str:
        found = pattern.match(self._text, self._at)
        assert found is not None  # noqa: S101  (every pattern but a bare key matches nothing too)
        self._at = found.end()
        return found.group()

    def _line_here(self) -> int:
        self._line += self._text.count("\n", self._counted_to, self._at)
        self._counted_to = self._at
        return self._line

    def _note(self, path: Path, line: int) -> None:
        self._lines.setdefault(path, line)


def _plain(quoted: str) -> str:
    """Return what a quoted key says; an escaped one keeps its escapes, and its place is then that of its table."""
    return quoted[1:-1]
