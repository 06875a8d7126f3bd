"""The check times in force: the rules file's, or those of the environment in their place."""

from collections.abc import Mapping, Sequence

from callkeeper import variables as var
from callkeeper.environment import Reader
from calls.backoff import Schedule
from calls.record import CHECK_LIMIT
from calls.rules import RuleBook, load_rules


def with_check_times(book: RuleBook, at_s: Sequence[float] | None) -> RuleBook:
    """Return the rules with other check times; None leaves them. More checks than the reserve allows shrink the reserve."""
    if at_s is None:
        return book
    return book.with_schedule(Schedule(tuple(at_s), min(book.schedule.reserve, CHECK_LIMIT - len(at_s))))


def rules_in_force(environ: Mapping[str, str]) -> RuleBook:
    """Return the rules that workers with this environment would follow.

    Raises:
        SettingsWrong: CALLKEEPER_RULES or CALLKEEPER_CHECK_AT is wrong.
        calls.rules.RulesError: The file has faults.
    """
    reader = Reader(environ)
    path, at_s = reader.optional(var.RULES), reader.optional(var.CHECK_AT)
    reader.finish(())
    return with_check_times(load_rules(path), at_s)
