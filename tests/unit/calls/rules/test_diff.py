"""What a new rule book changes, in words."""

from dataclasses import replace

from callkeeper.calls.rules.book import Outcome, RuleBook, Stage
from callkeeper.calls.rules.diff import changes
from tests.unit.calls.specimens import BOOK

FIRST = BOOK.rules[0]


def with_first(**fields: object) -> RuleBook:
    """Return the rules with the first one changed."""
    return replace(BOOK, rules=(replace(FIRST, **fields), *BOOK.rules[1:]))  # type: ignore[arg-type]


def test_nothing_changes_between_equal_books() -> None:
    """No line at all."""
    assert changes(BOOK, BOOK) == []


def test_settings_name_the_value_before_and_after() -> None:
    """Numbers as they are written in the file; sets by what comes and goes."""
    assert changes(BOOK, replace(BOOK, require_opt_in=not BOOK.require_opt_in)) == [
        f"[consent] require_opt_in: {str(BOOK.require_opt_in).lower()} -> {str(not BOOK.require_opt_in).lower()}"
    ]
    watching = replace(BOOK, assign=replace(BOOK.assign, institutions=frozenset({"cu-2", "cu-1"})))
    assert changes(BOOK, watching) == ["[assign] institutions: all -> cu-1, cu-2"]
    policies = replace(BOOK.policies, green=(*BOOK.policies.green, "Mint"))
    assert changes(BOOK, replace(BOOK, policies=policies)) == ["[policies] green: with Mint"]
    assert changes(replace(BOOK, policies=policies), BOOK) == ["[policies] green: without Mint"]


def test_rules_that_come_go_or_move_are_told() -> None:
    """A new rule with its place and what it asks for."""
    without = replace(BOOK, rules=BOOK.rules[1:])
    assert changes(BOOK, without)[0].startswith(f"rule {FIRST.name!r} is gone: it asked for {FIRST.outcome}")
    assert changes(without, BOOK)[0].startswith(f"rule {FIRST.name!r} is new, before all others: ")
    turned = replace(BOOK, rules=(BOOK.rules[1], FIRST, *BOOK.rules[2:]))
    assert changes(BOOK, turned)[0].startswith(f"the order changed: {BOOK.rules[1].name!r}, {FIRST.name!r}")


def test_changes_of_a_rule_are_told_one_by_one() -> None:
    """What it needs, asks for, is for, says, and whether it is carried out."""
    stage = Stage.SHADOW if FIRST.stage is Stage.LIVE else Stage.LIVE
    name = f"rule {FIRST.name!r}: "
    assert changes(BOOK, with_first(stage=stage)) == [f"{name}goes from {FIRST.stage} to {stage}"]
    assert changes(BOOK, with_first(outcome=Outcome.ASK)) == [f"{name}then {FIRST.outcome} -> ask"]
    assert changes(BOOK, with_first(because="new")) == [f"{name}says 'new' instead of {FIRST.because!r}"]
    only = changes(BOOK, with_first(institutions=frozenset({"cu-2", "cu-1"})))
    assert only == [f"{name}is for cu-1, cu-2 instead of all institutions"]
    less = changes(BOOK, with_first(when=FIRST.when[1:]))
    assert less
    assert all("no longer needs" in line for line in less)
