"""The rules that come with the software, each loaded once for all tests: to prove them takes longer than most tests."""

from functools import cache

from callkeeper.calls.rules import RuleBook, load_rules


@cache
def shipped(name: str | None = None) -> RuleBook:
    """Return rules that come with the software: the cautious ones, or those of a name."""
    return load_rules(name)
