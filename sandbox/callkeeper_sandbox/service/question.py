"""An open question of the document, with its heading, the usual answer, and other answers (variants)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from callkeeper_sandbox.service.access import Operation
from callkeeper_sandbox.service.faults import Action, Fault
from callkeeper_sandbox.service.options import Options

THE_LAST = "*last*"
"""Placeholder in a fault for the key of the reseller's last institution."""


@dataclass(frozen=True)
class Variant:
    """One answer: the fields of `Options` that it sets, and its faults."""

    name: str
    answer: str
    options: Mapping[str, Any] = field(default_factory=dict)
    faults: tuple[Fault, ...] = ()


@dataclass(frozen=True)
class Question:
    """An open question and all answers to it."""

    heading: str
    question: str
    usual: str
    variants: tuple[Variant, ...]


def other(name: str, answer: str, *faults: Fault, **options: Any) -> Variant:
    """Return a variant with these faults and these fields of `Options`."""
    assert set(options) <= set(Options.__dataclass_fields__)  # noqa: S101  (a misspelt field would change nothing)
    return Variant(name, answer, options, faults)


def ask(heading: str, question: str, usual: str, *variants: Variant) -> Question:
    """Return a question with its variants."""
    return Question(heading, question, usual, variants)


def at_last(action: Action, target: str = "*", **more: Any) -> Fault:
    """Return a fault of the last institution."""
    return Fault(target=target, action=action, institution_key=THE_LAST, **more)


def some(action: Action, share: float, **more: Any) -> Fault:
    """Return a fault that affects a share of all requests."""
    return Fault(target="*", action=action, share=share, seed=7, **more)


def unauthorized(*, applied: bool) -> list[Fault]:
    """Return faults that refuse some requests of every operation except the login, which uses no token."""
    operations = [operation for operation in Operation if operation is not Operation.TOKEN]
    return [
        Fault(target=operation, action=Action.UNAUTHORIZED, applied=applied, share=0.1, seed=7)
        for operation in operations
    ]
