"""The changes that a Lua script is tried with, of the same kinds as those of a module. `tree-sitter` parses it."""

from collections.abc import Iterator
from typing import Final

import tree_sitter_lua
from tree_sitter import Language, Node, Parser

from tests.mutation.changes import Change, first_difference

_PARSER: Final = Parser(Language(tree_sitter_lua.language()))

_OPERATORS: Final = {
    "==": ("~=",),
    "~=": ("==",),
    "<": ("<=", ">="),
    "<=": ("<", ">"),
    ">": (">=", "<="),
    ">=": (">", "<"),
    "and": ("or",),
    "or": ("and",),
    "+": ("-",),
    "-": ("+",),
    "*": ("/",),
    "/": ("*",),
    "%": ("*",),
}
_PAIRS: Final = (
    ("true", "false"),
    ("min", "max"),
    ("floor", "ceil"),
    ("MIN", "MAX"),
    ("ZPOPMIN", "ZPOPMAX"),
    ("NX", "XX"),
    ("LT", "GT"),
)
_WORDS: Final = {one: other for pair in _PAIRS for one, other in (pair, pair[::-1])}
"""Constants, functions, Redis's commands and their options."""

_NOTHING: Final = "do end"


def changes(code: str) -> Iterator[Change]:
    """Yield every change of a script, from its first line to its last."""
    source = code.encode()
    for node, text in _replacements(_PARSER.parse(source).root_node):
        changed = (source[: node.start_byte] + text.encode() + source[node.end_byte :]).decode()
        yield Change(*first_difference(code, changed), changed)


def _replacements(node: Node) -> Iterator[tuple[Node, str]]:
    """Yield parts of a script, each with what takes its place."""
    match node.type:
        case "binary_expression":
            operator = _field(node, "operator")
            yield from ((operator, other) for other in _OPERATORS.get(_text(operator), ()))
        case "unary_expression" if _text(_field(node, "operator")) in {"not", "-"}:
            yield node, _text(_field(node, "operand"))
        case "true" | "false" | "identifier" | "string_content" if _text(node) in _WORDS:
            yield node, _WORDS[_text(node)]
        case "number" if not _is_index(node):
            yield node, str(float(_text(node)) + 1).removesuffix(".0")
        case "if_statement" | "elseif_statement" | "while_statement":
            condition = _field(node, "condition")
            if condition.type not in {"binary_expression", "unary_expression"}:  # parts of those are changed anyway
                yield condition, f"not ({_text(condition)})"
        case "function_call" | "return_statement" | "break_statement" if _may_be_left_out(node):
            yield node, _NOTHING
    for child in node.children:
        yield from _replacements(child)


def _may_be_left_out(node: Node) -> bool:
    """Tell whether a part is a statement, and not the return that ends a function or the script."""
    above = node.parent
    if above is None or above.type not in {"block", "chunk"}:
        return False
    is_body = above.type == "chunk" or above.parent is None or above.parent.type.startswith("function_")
    return node.type != "return_statement" or not is_body


def _is_index(number: Node) -> bool:
    """Tell whether a number only says which value of several."""
    return number.parent is not None and number.parent.type == "bracket_index_expression"


def _field(node: Node, name: str) -> Node:
    found = node.child_by_field_name(name)
    assert found is not None, f"{node.type} has no {name}"
    return found


def _text(node: Node) -> str:
    return (node.text or b"").decode()
