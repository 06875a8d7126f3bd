"""Keys of institutions that people type."""

import pytest

from callkeeper.calls.institutions import KnownInstitutions, nearest, shown

KNOWN = KnownInstitutions({"cu-north": "North Credit Union", "cu-south": "South Credit Union"})


@pytest.mark.parametrize(
    ("typed", "meant"), [("cu-nort", "cu-north"), ("CU-SOUTH", "cu-south"), ("north", "cu-north"), ("zzz", None)]
)
def test_nearest_key_is_found_by_key_or_name(typed: str, meant: str | None) -> None:
    """A slip, other letters, and a part of the display name; nothing for what resembles none."""
    assert KNOWN.nearest(typed) == meant


def test_known_key_is_no_problem_and_another_names_the_nearest() -> None:
    """The message says what was typed and what was probably meant."""
    assert KNOWN.problem("cu-north") is None
    assert (KNOWN.problem("cu-nort") or "").endswith("did you mean cu-north (North Credit Union)?")
    assert (KNOWN.problem("zzz") or "").endswith("there are cu-north, cu-south")
    assert (KNOWN.problem("  ") or "").startswith("the institution's key is blank")


def test_message_of_a_new_installation_says_why_nothing_is_known() -> None:
    """Without the service's list nothing can be suggested."""
    assert "knows no institution yet" in (KnownInstitutions({}).problem("cu-1") or "")
    seen = KnownInstitutions({"cu-1": None}, is_list_stored=False)
    assert "only those seen in calls are known" in (seen.problem("zzz") or "")


def test_suggestions_name_only_what_a_caller_may_see() -> None:
    """Else a message would tell of an institution that is hidden."""
    assert KNOWN.visible(lambda key: key == "cu-south").nearest("cu-nort") != "cu-north"


def test_unknown_keys_of_settings_are_listed_with_the_nearest() -> None:
    """By setting, in order."""
    assert KNOWN.unknown({"CALLKEEPER_X": ["cu-north", "cu-sout"]}) == [("CALLKEEPER_X", "cu-sout", "cu-south")]


def test_typed_text_is_cut_and_escaped() -> None:
    """A message repeats no control characters and no novels."""
    assert shown("a\x1b[31m") == "'a\\x1b[31m'"
    assert len(shown("x" * 500)) < 80
    assert nearest("Enrol", ["enroll", "reject"]) == "enroll"
    assert KNOWN.is_known_in_other_letters("CU-North")
    assert not KNOWN.is_known_in_other_letters("cu-north")
