"""The key prefix: several installations on one Redis share no key."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from callkeeper.calls.store.keys import Keys

ROOT = Path(__file__).parents[4]
PACKAGES = ("receiver", "workers", "callkeeper")


def texts() -> dict[Path, str]:
    """Return every file of the product."""
    paths = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    return {path: path.read_text(encoding="utf-8") for path in paths}


def named_by_keys(files: dict[Path, str]) -> set[str]:
    """Return the classes and functions that would fall back on the default keys if they were not told others."""
    found = set()
    for text in files.values():
        for node in ast.walk(ast.parse(text)) if re.search(r"\bkeys\b", text) else ():
            if isinstance(node, ast.ClassDef):
                makers = [each for each in node.body if isinstance(each, ast.FunctionDef) and each.name == "__init__"]
                found |= {node.name for maker in makers if _falls_back(maker)}
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and _falls_back(node):
                found.add(node.name)
    return found - {"__init__"}


def calls_of(names: set[str], files: dict[Path, str]) -> Iterator[tuple[Path, ast.Call, str]]:
    """Yield where one of them is called by its name. Only files that have such a name before a bracket are parsed."""
    named = re.compile(rf"\b({'|'.join(sorted(names))})\s*\(")
    for path, text in files.items():
        for node in ast.walk(ast.parse(text)) if named.search(text) else ():
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names:
                yield path, node, node.func.id


def _falls_back(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Tell whether a function takes keys and does without."""
    known = function.args
    optional = [*known.args[len(known.args) - len(known.defaults) :], *known.kwonlyargs]
    return any(argument.arg == "keys" for argument in optional)


def _is_told(call: ast.Call) -> bool:
    """Tell whether a call hands keys on, by name or as what it is called everywhere."""
    given = [*(keyword.value for keyword in call.keywords if keyword.arg == "keys"), *call.args]
    return any(ast.unparse(value).endswith(("keys", "outbox")) for value in given)


def test_everything_that_names_keys_is_told_the_prefix() -> None:
    """No part of the product uses the default prefix ``ck`` if another one is set."""
    files = texts()
    classes = named_by_keys(files)
    assert {
        "Store",
        "Intake",
        "Watchdog",
        "Waker",
        "WorkerRuntime",
        "read_present",
        "service_away",
        "health_routes",
    } <= classes
    silent = [
        f"{path.relative_to(ROOT)}:{call.lineno} {name}"
        for path, call, name in calls_of(classes, files)
        if not _is_told(call)
    ]
    assert silent == []


def test_installations_with_different_prefixes_share_no_key_and_no_queue() -> None:
    """They share neither a key of ours nor the RQ queue, and outcomes wake only their own workers."""
    one, other = Keys("bank-a"), Keys("bank-b")
    ours, theirs = set(vars(one).values()), set(vars(other).values())
    assert not ours & theirs
    assert one.outbox.queue == one.queue == "rq:queue:calls-bank-a:2"
    assert Keys().queue_name == "calls:2"
