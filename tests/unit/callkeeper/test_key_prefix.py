"""The key prefix: several installations on one Redis never meet."""

import ast
from collections.abc import Iterator
from pathlib import Path

from calls.keys import Keys

ROOT = Path(__file__).parents[3]
PACKAGES = ("receiver", "desk", "workers", "calls", "callkeeper")


def trees() -> Iterator[tuple[Path, ast.Module]]:
    """Parse every file of the product."""
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            yield path, ast.parse(path.read_text(encoding="utf-8"))


def named_by_keys() -> set[str]:
    """Return the classes that would fall back on the default keys if they were not told others."""
    found = set()
    for _, tree in trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                makers = [each for each in node.body if isinstance(each, ast.FunctionDef) and each.name == "__init__"]
                if any(argument.arg == "keys" for maker in makers for argument in maker.args.kwonlyargs):
                    found.add(node.name)
    return found


def test_everything_that_names_keys_is_told_the_prefix() -> None:
    """Promise of CALLKEEPER_REDIS_PREFIX: no part of the product falls back on ``ck``, or two banks would share a call."""
    classes = named_by_keys()
    assert {"Store", "Intake", "Pacemaker", "Waker", "Crew"} <= classes
    silent = [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.func.id}"
        for path, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in classes
        if "keys" not in {keyword.arg for keyword in node.keywords}
    ]
    assert silent == []


def test_installations_with_different_prefixes_share_no_key_and_no_queue() -> None:
    """Neither a key of ours nor the RQ queue is the same; outcomes wake the workers of their own installation."""
    one, other = Keys("bank-a"), Keys("bank-b")
    ours, theirs = set(vars(one).values()), set(vars(other).values())
    assert not ours & theirs
    assert one.outbox.queue == one.queue == "rq:queue:calls-bank-a"
    assert Keys().queue_name == "calls"
