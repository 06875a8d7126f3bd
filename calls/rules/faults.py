"""What is wrong with a rules file, told so that its author can repair it: where, in which rule, what is allowed."""

from collections.abc import Iterable
from dataclasses import dataclass

from calls.known import nearest


@dataclass(frozen=True, slots=True, order=True)
class Fault:
    """One fault. ``line`` counts from 1.

    ``rule`` is the name of the rule it is in, or ``number 3`` where that has none; ``noun`` says what it is in, if no rule.
    """

    line: int
    problem: str
    allowed: str = ""
    rule: str | None = None
    noun: str = "rule"

    def __str__(self) -> str:
        """Say the fault in one line, without the file's name."""
        where = f"{self.line}: " + (f"{self.noun} {self.rule}: " if self.rule else "")
        return f"{where}{self.problem}" + (f"; {self.allowed}" if self.allowed else "")


class RulesError(Exception):
    """A rules file that cannot be used. ``faults`` lists all that is wrong, by line."""

    def __init__(self, name: str, faults: Iterable[Fault]) -> None:
        self.name = name
        self.faults = tuple(sorted(faults))
        super().__init__("\n".join(self.lines))

    @classmethod
    def unreadable(cls, name: str, why: str) -> "RulesError":
        """Return the error for a file that cannot be read."""
        return cls(name, [Fault(1, f"cannot be read ({why})", "name a TOML file, or a shipped one")])

    @property
    def lines(self) -> list[str]:
        """Return the faults as ``file:line: what is wrong; what is allowed``, the form that editors follow."""
        return [f"{self.name}:{fault}" for fault in self.faults]


def one_of(allowed: Iterable[str], wrong: object = None) -> str:
    """Say what is allowed, and which of it is nearest to what was written."""
    words = list(allowed)
    close = nearest(wrong, words) if isinstance(wrong, str) else None
    meant = f"did you mean {close!r}? " if close is not None else ""
    return f"{meant}allowed: {', '.join(words)}"
