"""What callkeeper assumes of the service where its document is silent, and an answer can contradict: `assumptions.toml`."""

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

import msgspec


class OtherAnswer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An answer of the service that contradicts an assumption.

    Attributes:
        name: Its name; that of the sandbox's variant that gives it, if there is one.
        words: What the service does.
        least: How often it must be seen before it counts.
        asked: Whether only ``survey --ask`` sees it.
    """

    name: str
    words: str
    least: int = 1
    asked: bool = False


class Assumption(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One assumption.

    Attributes:
        id: Its identifier, with which the code that relies on it is marked.
        text: What is assumed.
        answers: What contradicts it.
        otherwise: What happens then.
        setting: What answers that, if anything does.
    """

    id: str
    text: str
    answers: tuple[OtherAnswer, ...]
    otherwise: str = ""
    setting: str = ""


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    assumption: tuple[Assumption, ...]


@cache
def assumptions() -> Mapping[str, Assumption]:
    """Return every assumption by its identifier, in the order of the list."""
    text = (files("callkeeper.calls") / "assumptions.toml").read_text(encoding="utf-8")
    listed = msgspec.convert(tomllib.loads(text), _File).assumption
    return {one.id: one for one in listed}
