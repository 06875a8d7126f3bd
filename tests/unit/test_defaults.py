"""How optional parameters get their defaults."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("receiver", "workers", "callkeeper", "sandbox")


def replaced_when_falsy(tree: ast.AST) -> Iterator[int]:
    """Yield the lines in which a parameter is replaced by a new object because it is falsy."""
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        arguments = function.args
        names = {argument.arg for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}
        for node in ast.walk(function):
            match node:
                case ast.BoolOp(ast.Or(), [ast.Name(name), *_, ast.Call(ast.Name(made))]):
                    if name in names and made[:1].isupper():
                        yield node.lineno


def test_default_replaces_none_only() -> None:
    """A parameter is replaced by a default because it is None: an empty collection that was passed in is kept."""
    texts = {path: path.read_text() for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))}
    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for path, text in texts.items()
        if re.search(r"\bor\s+\(?\s*[A-Z]\w*\(", text)
        for line in replaced_when_falsy(ast.parse(text))
    ]
    assert found == []


def test_default_search_finds_the_pattern() -> None:
    """The search sees ``limiter or Limiter()`` in a function, and passes a result that is joined by ``or``."""
    bad = "def f(limiter=None):\n    return limiter or Limiter()\n"
    good = "def f(call):\n    return found(call) or Wait(call)\n"
    assert list(replaced_when_falsy(ast.parse(bad))) == [2]
    assert list(replaced_when_falsy(ast.parse(good))) == []
