"""The rules file: TOML, read once at start. Every fault is reported at once, and a faulty file stops the process.

A deploy is the reload: nothing reads the file a second time.
"""

import hashlib
import re
import tomllib
from importlib.resources import files
from pathlib import Path

from calls.rules.book import RuleBook
from calls.rules.lines import Lines
from calls.rules.reader import read_book
from calls.rules.sections import Fault, Faults, RulesError

SHIPPED = ("default", "demo", "watch-only")
"""Rule books that come with the software and are known by name."""


def load_rules(path: str | Path | None, *, owned: frozenset[str] | None = None) -> RuleBook:
    """Read a rules file; ``None`` is the shipped cautious one, the shipped ones are known by name.

    Args:
        path: The file, or the name of a shipped one.
        owned: The institutions that rules may name; None where they are not known.

    Raises:
        RulesError: The file is missing, not TOML, or has faults; all are listed.
    """
    name = str(path) if path else "default"
    return parse_rules(read_rules_text(name), name=name, owned=owned)


def read_rules_text(name: str) -> bytes:
    """Return the content of a rules file, or of a shipped one.

    Raises:
        RulesError: It cannot be read.
    """
    try:
        return (
            (files("calls") / "rulebooks" / f"{name}.toml").read_bytes() if name in SHIPPED else Path(name).read_bytes()
        )
    except OSError as error:
        raise RulesError.unreadable(name, error.strerror or "") from None


def parse_rules(text: bytes, *, name: str, owned: frozenset[str] | None = None) -> RuleBook:
    """Read a rules file's content.

    Raises:
        RulesError: With all faults.
    """
    table, lines = parse_toml(text, name=name)
    faults = Faults(lines)
    digest = hashlib.sha256(text).hexdigest()[:12]
    book = read_book(table, faults, name=name, digest=digest, owned=owned)
    if book is None:
        raise RulesError(name, faults.found)
    return book


def parse_toml(text: bytes, *, name: str) -> tuple[dict[str, object], Lines]:
    """Read TOML and where everything in it stands.

    Raises:
        RulesError: It is not TOML.
    """
    try:
        decoded = text.decode("utf-8-sig").replace("\r\n", "\n")
        return tomllib.loads(decoded), Lines(decoded)
    except UnicodeDecodeError as error:
        line = text.count(b"\n", 0, error.start) + 1
        raise RulesError(name, [Fault(line, "is not UTF-8", "save the file as UTF-8")]) from None
    except tomllib.TOMLDecodeError as error:
        found = re.search(r"at line (\d+)", str(error))
        line = int(found.group(1)) if found else text.count(b"\n") + 1
        raise RulesError(name, [Fault(line, f"is not TOML: {error}", "see toml.io")]) from None
