"""Expressions read into a tree. What is not understood is an error: nothing is skipped."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d+(?:\.\d+)?(?![smhd\w]))|(?P<duration>\d+[smhd])|(?P<word>[a-zA-Z_][a-zA-Z0-9_]*)"
    r"|(?P<string>\"[^\"]*\")|(?P<sign>=~|!~|==|!=|<=|>=|[-+*/<>=(){},\[\]]))"
)
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_AGGREGATIONS = frozenset({"sum", "max", "min", "avg", "count"})
_FUNCTIONS = frozenset({"increase", "rate", "histogram_quantile", "clamp_min", "max_over_time"})
_LEVELS = (("or",), ("and", "unless"), ("==", "!=", "<=", ">=", "<", ">"), ("+", "-"), ("*", "/"))


@dataclass(frozen=True)
class Number:
    """A literal."""

    value: float


@dataclass(frozen=True)
class Matcher:
    """One condition on a label; ``sign`` is ``=``, ``!=``, ``=~`` or ``!~``."""

    label: str
    sign: str
    value: str


@dataclass(frozen=True)
class Selector:
    """Series by name and labels, over a range of seconds if there is one."""

    name: str
    matchers: tuple[Matcher, ...] = ()
    range_s: int | None = None


@dataclass(frozen=True)
class Apply:
    """A function of expressions."""

    function: str
    arguments: "tuple[Tree, ...]"


@dataclass(frozen=True)
class Aggregate:
    """An aggregation by some labels, or without them."""

    function: str
    inner: "Tree"
    labels: tuple[str, ...]
    is_without: bool


@dataclass(frozen=True)
class Binary:
    """Two expressions joined; ``on`` are the labels that are compared (None: all)."""

    sign: str
    left: "Tree"
    right: "Tree"
    on: tuple[str, ...] | None


Tree = Number | Selector | Apply | Aggregate | Binary


def parse(text: str) -> Tree:
    """Read an expression.

    Raises:
        ValueError: It is not of the part of PromQL that we use.
    """
    reader = _Reader(_tokens(text))
    tree = reader.binary(0)
    if reader.peek():
        raise ValueError(f"unexpected {reader.peek()!r} in {text!r}")
    return tree


def selectors(tree: Tree) -> Iterator[Selector]:
    """Yield every selector of an expression."""
    match tree:
        case Selector():
            yield tree
        case Apply():
            for argument in tree.arguments:
                yield from selectors(argument)
        case Aggregate():
            yield from selectors(tree.inner)
        case Binary():
            yield from selectors(tree.left)
            yield from selectors(tree.right)
        case Number():
            pass


def grouping_labels(tree: Tree) -> Iterator[str]:
    """Yield every label that an expression groups or matches by."""
    match tree:
        case Apply():
            for argument in tree.arguments:
                yield from grouping_labels(argument)
        case Aggregate():
            yield from tree.labels
            yield from grouping_labels(tree.inner)
        case Binary():
            yield from tree.on or ()
            yield from grouping_labels(tree.left)
            yield from grouping_labels(tree.right)
        case _:
            pass


def _tokens(text: str) -> list[str]:
    tokens, at = [], 0
    text = text.strip()
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise ValueError(f"cannot read {text[at:]!r}")
        tokens.append(found.group().strip())
        at = found.end()
    return tokens


class _Reader:
    """Recursive descent over tokens."""

    def __init__(self, tokens: list[str]) -> None:
        self._tokens = tokens
        self._at = 0

    def peek(self) -> str:
        """Return the next token, empty at the end."""
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def take(self, expected: str | None = None) -> str:
        """Return the next token and go on."""
        token = self.peek()
        if not token or (expected is not None and token != expected):
            raise ValueError(f"expected {expected}, found {token!r}")
        self._at += 1
        return token

    def binary(self, level: int) -> Tree:
        """Read operators of one level of precedence, from the left."""
        if level == len(_LEVELS):
            return self._primary()
        left = self.binary(level + 1)
        while self.peek() in _LEVELS[level]:
            sign = self.take()
            on = self._labels() if self._takes("on") else None
            left = Binary(sign, left, self.binary(level + 1), on)
        return left

    def _takes(self, word: str) -> bool:
        if self.peek() == word:
            self.take()
            return True
        return False

    def _primary(self) -> Tree:
        token = self.take()
        if token == "(":
            inner = self.binary(0)
            self.take(")")
            return inner
        if re.fullmatch(r"\d+(\.\d+)?", token):
            return Number(float(token))
        if token in _AGGREGATIONS:
            return self._aggregate(token)
        if token in _FUNCTIONS:
            return Apply(token, self._arguments())
        if re.fullmatch(r"[a-zA-Z_]\w*", token) and self.peek() != "(":
            return self._selector(token)
        raise ValueError(f"unexpected {token!r}")

    def _arguments(self) -> tuple[Tree, ...]:
        self.take("(")
        arguments = [self.binary(0)]
        while self._takes(","):
            arguments.append(self.binary(0))
        self.take(")")
        return tuple(arguments)

    def _aggregate(self, function: str) -> Aggregate:
        labels: tuple[str, ...] = ()
        is_without = False
        for where in ("before", "after"):
            if self.peek() in {"by", "without"}:
                is_without = self.take() == "without"
                labels = self._labels()
            if where == "before":
                [inner] = self._arguments()
        return Aggregate(function, inner, labels, is_without)

    def _labels(self) -> tuple[str, ...]:
        self.take("(")
        labels = []
        while self.peek() != ")":
            labels.append(self.take())
            self._takes(",")
        self.take(")")
        return tuple(labels)

    def _selector(self, name: str) -> Selector:
        matchers = []
        if self._takes("{"):
            while self.peek() != "}":
                matchers.append(Matcher(self.take(), self.take(), self.take().strip('"')))
                self._takes(",")
            self.take("}")
        range_s = None
        if self._takes("["):
            duration = self.take()
            range_s = int(duration[:-1]) * _SECONDS[duration[-1]]
            self.take("]")
        return Selector(name, tuple(matchers), range_s)
