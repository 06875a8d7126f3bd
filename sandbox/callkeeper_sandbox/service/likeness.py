"""A likeness: a file that says which variants the real service was seen to be. The sandbox answers like it.

``callkeeper service survey --export FILE`` writes it, and a person can::

    format = 1
    [variants]
    seen = ["page-capped", "numbers-e164"]

Other keys are ignored, so that a survey can say more. A file that cannot be followed exactly is refused, with the line
and the remedy: a sandbox that is only nearly like the service would prove nothing.
"""

import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from callkeeper_sandbox.service.variants import VARIANTS, VariantError, choose

FORMAT: Final = 1
_WRITE_IT: Final = "write it again with `callkeeper service survey --export FILE`"
_MOST_BYTES: Final = 100_000


class LikenessError(ValueError):
    """The file cannot be followed. The message names the file, the line and the remedy."""


def load_likeness(path: Path) -> tuple[str, ...]:
    """Return the variants that a file names.

    Raises:
        LikenessError: It cannot be read, has another format, or names variants that are unknown or exclude each other.
    """
    text = _read(path)
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise LikenessError(f"{path}: this is no TOML: {error}; {_WRITE_IT}") from None
    _check_format(path, text, content)
    seen = _seen(path, text, content)
    for n, name in enumerate(seen):
        try:
            choose(seen[: n + 1])
        except VariantError as error:
            remedy = (
                "remove it or correct the name (docs/variants.md lists all)"
                if name not in VARIANTS
                else "remove one of them; if the service answered both ways, try each by itself with --variant"
            )
            raise LikenessError(f"{path}:{_line_of(text, name)}: {error}; {remedy}") from None
    return tuple(seen)


def with_own(likeness: Iterable[str], own: Sequence[str]) -> tuple[str, ...]:
    """Return the variants of a file together with those chosen by hand, which replace the file's answers."""
    answered = {VARIANTS[name][0].question for name in own if name in VARIANTS}
    return (*(name for name in likeness if VARIANTS[name][0].question not in answered), *own)


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            stored = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise LikenessError(f"{path}: this cannot be read: {error.strerror}; check the path, or {_WRITE_IT}") from None
    if len(stored) > _MOST_BYTES:
        raise LikenessError(f"{path}: this is too large to be a likeness; {_WRITE_IT}")
    try:
        return stored.decode()
    except UnicodeDecodeError:
        raise LikenessError(f"{path}: this is no TOML, because it is not UTF-8; {_WRITE_IT}") from None


def _check_format(path: Path, text: str, content: Mapping[str, Any]) -> None:
    number = content.get("format")
    if number is None:
        raise LikenessError(f"{path}:1: `format` is missing; {_WRITE_IT}")
    if type(number) is not int or number != FORMAT:
        remedy = f"this sandbox reads format {FORMAT}: install the release that wrote the file, or {_WRITE_IT}"
        raise LikenessError(f"{path}:{_line_of_key(text, 'format')}: format {number!r} is unknown; {remedy}")


def _seen(path: Path, text: str, content: Mapping[str, Any]) -> list[str]:
    variants = content.get("variants")
    seen = variants.get("seen") if isinstance(variants, dict) else None
    if seen is None:
        remedy = 'name the variants in the table `[variants]`: seen = ["NAME", ...]; [] is the usual service'
        raise LikenessError(f"{path}:{_line_of_key(text, 'variants')}: `variants.seen` is missing; {remedy}")
    if not isinstance(seen, list) or not all(isinstance(name, str) for name in seen):
        remedy = 'write seen = ["NAME", ...]'
        raise LikenessError(f"{path}:{_line_of_key(text, 'seen')}: `variants.seen` is not a list of names; {remedy}")
    return seen


def _line_of_key(text: str, key: str) -> int:
    """Return the line that begins with a key or its table; 1 if there is none."""
    return _first_line(text, lambda line: line.lstrip("[ \t").startswith(key))


def _line_of(text: str, name: str) -> int:
    """Return the line of a name in the list of the seen ones. `usual` may come before it and name others."""
    begin = _line_of_key(text, "seen")
    quoted = (f'"{name}"', f"'{name}'")
    rest = "\n".join(text.splitlines()[begin - 1 :])
    found = _first_line(rest, lambda line: not line.startswith("#") and any(each in line for each in quoted))
    return begin + found - 1


def _first_line(text: str, matches: Callable[[str], bool]) -> int:
    return next((n for n, line in enumerate(text.splitlines(), 1) if matches(line.strip())), 1)
