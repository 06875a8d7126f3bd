"""The changes that a Python module is tried with. `cosmic-ray` makes them; one kind is ours: a call is left out.

A change is left out if it could not matter, or not to us: in an annotation, in the options of a record, in what is
logged. So is one that does not compile.
"""

import ast
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any, Final, NamedTuple
from zlib import crc32

import parso
from cosmic_ray.ast import ast_nodes
from cosmic_ray.operators.operator import Operator
from cosmic_ray.plugins import get_operator

_REPLACED: Final = {
    "Comparison": (
        *("Eq_NotEq", "NotEq_Eq", "Lt_LtE", "Lt_GtE", "LtE_Lt", "LtE_Gt", "Gt_GtE", "Gt_LtE", "GtE_Gt", "GtE_Lt"),
        *("Is_IsNot", "IsNot_Is"),
    ),
    "Binary": ("Add_Sub", "Sub_Add", "Mul_Div", "Div_Mul", "FloorDiv_Mul", "Mod_Mul", "BitOr_BitAnd", "BitAnd_BitOr"),
    "Unary": ("USub_UAdd", "Delete_Not"),
}
_CHOSEN: Final = (
    *(f"core/Replace{kind}Operator_{change}" for kind, changes in _REPLACED.items() for change in changes),
    *(f"core/Replace{change}" for change in ("AndWithOr", "OrWithAnd", "TrueWithFalse", "FalseWithTrue")),
    *(f"core/{name}" for name in ("AddNot", "NumberReplacer", "ExceptionReplacer", "ZeroIterationForLoop")),
    *(f"core/Replace{change}" for change in ("BreakWithContinue", "ContinueWithBreak")),
)
"""Of several replacements of one operator, those that are the hardest to notice. Others would die with them."""

_LEVELS: Final = {"debug", "info", "warning", "error", "exception", "critical"}


class CallLeftOut(Operator):  # type: ignore[misc]  # cosmic-ray has no types
    """Replaces a statement that only calls something with ``pass``."""

    def mutation_positions(self, node: Any) -> Iterator[tuple[Any, Any]]:
        """Yield the place of the call if the statement is one."""
        if node.type == "simple_stmt" and node.children[0].type in {"atom_expr", "power"}:
            yield node.children[0].start_pos, node.children[0].end_pos

    def mutate(self, node: Any, index: int) -> Any:
        """Replace the call."""
        del index
        parse: Any = parso.parse  # it has no types
        node.children[0] = parse(f"{node.children[0].get_first_leaf().prefix}pass")
        return node

    @classmethod
    def examples(cls) -> Sequence[Any]:
        return ()


class Change(NamedTuple):
    """One change: the first line that differs, before and after, without indentation; and the whole changed module."""

    line: str
    becomes: str
    code: str


def sample(code: str) -> Iterator[Change]:
    """Yield every change of a module, in an order that depends on the text of each only.

    So the first dozen stays the same when other lines change.
    """
    seen = {_essence(code)}
    for change in sorted(_all_changes(code), key=lambda change: crc32(f"{change.line}\n{change.becomes}".encode())):
        essence = _essence(change.code)
        if essence is not None and essence not in seen:
            seen.add(essence)
            yield change


def _all_changes(code: str) -> Iterator[Change]:
    """Yield every change by kind, also those that make no difference."""
    parse: Any = parso.parse  # it has no types
    nodes = list(ast_nodes(parse(code)))
    lines = [0, *accumulate(len(line) + 1 for line in code.split("\n"))]
    for operator in [*(get_operator(name)() for name in _CHOSEN), CallLeftOut()]:
        places = [(each, n) for each in nodes for n, _ in enumerate(operator.mutation_positions(each))]
        for node, index in places:
            line, column = node.get_start_pos_of_prefix()
            begin = lines[line - 1] + column
            end = begin + len(node.get_code())
            intact = [(each, dict(_state(each))) for each in ast_nodes(node)]
            try:
                text = code[:begin] + operator.mutate(node, index).get_code() + code[end:]
            except AttributeError:  # cosmic-ray replaces no exception whose name has a dot
                continue
            for each, state in intact:
                for name, value in state.items():
                    setattr(each, name, value)
            yield Change(*_first_difference(code, text), text)


def _state(node: Any) -> Iterator[tuple[str, Any]]:
    """Yield what a change may overwrite."""
    if hasattr(node, "children"):
        yield "children", list(node.children)
    else:
        yield from (("value", node.value), ("prefix", node.prefix))


def _first_difference(code: str, changed: str) -> tuple[str, str]:
    """Return the first line that differs, before and after a change."""
    pairs = zip(code.splitlines(), changed.splitlines(), strict=False)
    return next((before.strip(), after.strip()) for before, after in pairs if before != after)


def _essence(code: str) -> str | None:
    """Return what a module does as text, without what makes no difference. None: it does not compile."""
    try:
        tree = ast.parse(code)
    except SyntaxError:
        return None
    return ast.dump(_Stripped().visit(tree))


_OPPOSITES: Final[tuple[tuple[type[ast.cmpop], type[ast.cmpop]], ...]] = (
    *((ast.Is, ast.IsNot), (ast.Eq, ast.NotEq), (ast.In, ast.NotIn)),
    *((ast.Lt, ast.GtE), (ast.Gt, ast.LtE)),
)
_OPPOSITE: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    one: other for pair in _OPPOSITES for one, other in (pair, pair[::-1])
}


class _Stripped(ast.NodeTransformer):
    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        """Read ``not a is b`` as ``a is not b``, and ``not not a`` as ``a``: they are one change, or none."""
        self.generic_visit(node)
        match node:
            case ast.UnaryOp(op=ast.Not(), operand=ast.Compare(ops=[one]) as compared):
                return ast.Compare(compared.left, [_OPPOSITE[type(one)]()], compared.comparators)
            case ast.UnaryOp(op=ast.Not(), operand=ast.UnaryOp(op=ast.Not(), operand=inner)):
                return inner
        return node

    def visit_arguments(self, node: ast.arguments) -> ast.AST:
        """Forget which arguments are named: that is the callers' business, and the type checker's."""
        node.args = [*node.posonlyargs, *node.args, *node.kwonlyargs]
        node.defaults = [*node.defaults, *(each for each in node.kw_defaults if each is not None)]
        node.posonlyargs, node.kwonlyargs, node.kw_defaults = [], [], []
        return self.generic_visit(node)

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.annotation = None
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        node.keywords, node.decorator_list = [], []
        return self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        node.annotation = ast.Constant(None)
        return self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        return ast.Pass() if _is_silent(node.value) else self.generic_visit(node)


def _is_silent(call: ast.expr) -> bool:
    """Tell whether a call only logs, or only tells the type checker something."""
    if not isinstance(call, ast.Call):
        return False
    match call.func:
        case ast.Attribute(value=ast.Name(id="log") | ast.Attribute(attr="log"), attr=level):
            return level in _LEVELS
        case ast.Name(id=name):
            return name == "assert_never"
    return False
