"""Which institutions a worker acts for: pure memory, told what the account manages."""

from structlog.testing import LogCapture
from structlog.typing import FilteringBoundLogger

from tests.workers_built import institution_settings
from workers.managed_keys import ManagedKeys


def test_everything_that_is_managed_is_acted_for_unless_the_settings_name_some(log: FilteringBoundLogger) -> None:
    """The settings restrict; they add nothing that the account does not manage."""
    everything = ManagedKeys(institution_settings(), log)
    everything.take(frozenset({"cu-1", "cu-2"}))
    assert everything.acted_for == {"cu-1", "cu-2"}
    one = ManagedKeys(institution_settings(only=frozenset({"cu-1", "cu-9"})), log)
    one.take(frozenset({"cu-1", "cu-2"}))
    assert one.acted_for == {"cu-1"}


def test_the_standing_is_needed_of_what_the_settings_name_alone(log: FilteringBoundLogger) -> None:
    """A key that no login has listed yet is asked for by itself."""
    assert ManagedKeys(institution_settings(), log).needed(frozenset({"cu-1"})) == {"cu-1"}
    restricted = ManagedKeys(institution_settings(only=frozenset({"cu-9"})), log)
    assert restricted.needed(frozenset({"cu-1"})) == {"cu-9"}


def test_one_of_two_spellings_is_kept_and_logged_once(log: FilteringBoundLogger, logged: LogCapture) -> None:
    """All workers keep the same one, and find it by the other."""
    keys = ManagedKeys(institution_settings(), log)
    for _ in range(2):
        keys.take(frozenset({"CU-1", "cu-1"}))
    assert keys.acted_for == {"cu-1"}
    assert [keys.spelling_kept(key) for key in ("CU-1", "cu-1", "cu-2")] == ["cu-1", "cu-1", "cu-2"]
    assert [entry["left_out"] for entry in logged.entries] == ["CU-1"]


def test_only_what_the_settings_exclude_and_others_act_for_is_left_to_them(log: FilteringBoundLogger) -> None:
    """An institution of another account is nobody's, and one of ours is not left."""
    keys = ManagedKeys(
        institution_settings(only=frozenset({"cu-1"}), beside={"cu-1", "cu-2", "cu-9"}.__contains__), log
    )
    keys.take(frozenset({"cu-1", "cu-2", "cu-3"}))
    assert keys.left_to_others() == ["cu-2"]
    assert not keys.is_left_to_others("cu-9")


def test_dropped_institution_is_no_more_acted_for(log: FilteringBoundLogger) -> None:
    """Neither by us nor, as far as we know, by others."""
    keys = ManagedKeys(institution_settings(beside=lambda _: True), log)
    keys.take(frozenset({"cu-1", "cu-2"}))
    keys.drop("cu-1")
    assert keys.acted_for == {"cu-2"}
    assert not keys.is_left_to_others("cu-1")


def test_unknown_key_in_the_settings_is_logged_once(log: FilteringBoundLogger, logged: LogCapture) -> None:
    """With the setting, and the nearest key that exists."""
    keys = ManagedKeys(institution_settings(named={"CALLKEEPER_RULES": frozenset({"CU-1"})}), log)
    for _ in range(2):
        keys.warn_of_unknown({"cu-1": None})
    assert [(entry["setting"], entry["institution"], entry["nearest"]) for entry in logged.entries] == [
        ("CALLKEEPER_RULES", "CU-1", "cu-1")
    ]
