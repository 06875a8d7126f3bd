"""docs/guarantees.md agrees with the code and the tests."""

import re
from collections.abc import Iterable

import pytest

from callkeeper.calls.claimed_item import LEASE
from tests.faults.protections import protections
from tests.mutation.tree import ROOT
from tests.recovery import OUTAGES, TROUBLES, UNTOLD

GUARANTEES = ROOT / "docs" / "guarantees.md"


def test_guarantees_state_the_times_that_the_code_computes() -> None:
    """The lease, and what it covers, are in the document as the code has them."""
    text = " ".join(GUARANTEES.read_text(encoding="utf-8").split())
    assert f"gets a lease of {LEASE.seconds:g} s" in text
    assert f"covers {LEASE.first_byte_s:g} s from booking to first byte and {LEASE.request_s:g} s from there" in text
    assert f"for {LEASE.seconds:g} s no enroll and no reject is sent" in text


def test_guarantees_name_tests_that_exist() -> None:
    """Every file of tests that the document refers to is there."""
    text = GUARANTEES.read_text(encoding="utf-8")
    assert all((ROOT / path).exists() for path in re.findall(r"tests/[\w/]+\.py", text))


@pytest.mark.parametrize("measured", [(*OUTAGES, UNTOLD), TROUBLES], ids=["outages", "troubles"])
def test_guarantees_have_a_row_for_each_that_is_measured(measured: Iterable[str]) -> None:
    """Each kind of outage, and each trouble of one institution, has a row with its two figures."""
    rows = re.findall(r"^\| ([^|]+) \| \d+\.\d+ \| \d+\.\d+ \|$", GUARANTEES.read_text(encoding="utf-8"), re.MULTILINE)
    assert set(measured) - {"none"} <= set(rows)


def test_protections_are_where_the_list_says() -> None:
    """What would be taken away is in the code once, and the test that would turn red is there."""
    for protection in protections():
        code = (ROOT / protection.file).read_text(encoding="utf-8")
        assert code.count(protection.intact) == 1, protection.words
        assert protection.also is None or protection.also[0] in code, protection.words
        path, _, name = protection.test.partition("::")
        assert f"def {name.partition('[')[0]}" in (ROOT / path).read_text(encoding="utf-8"), protection.words


def test_protections_are_chosen_across_all_cases() -> None:
    """Ten at least, and some of each of B, C, D, E."""
    cases = {case for protection in protections() for case in protection.case.split(", ")}
    assert len(protections()) >= 10
    assert {case[0] for case in cases} == set("BCDE")
