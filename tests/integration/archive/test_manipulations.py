"""The verification names every change that the owner of the archive's database can make before the last logged head."""

from pathlib import Path

import msgspec
import pytest

from archive.heads import parse_heads, signed_head
from archive.writing import Head, Writer
from reseller.secret import Secret
from tests.archive_manipulations import KEY, MANIPULATIONS, OURS, YEAR_MS, change_body, filled, rechain, verified
from tests.archivist import content, sqlite_archive


def test_untouched_archive_has_no_fault(tmp_path: Path) -> None:
    """What workers and commands do is no fault, and all of it is proved."""
    with sqlite_archive(tmp_path) as database:
        found, heads = verified(database, filled(database), YEAR_MS)
        assert (found.faults, heads.faults, heads.unsigned) == ([], [], 0)
        assert {key: tail.lines for key, tail in found.tails.items()} == {OURS: 0, "cu-2": 0, "*audit": 0}


@pytest.mark.parametrize("name", MANIPULATIONS)
def test_manipulation_is_named(tmp_path: Path, name: str) -> None:
    """Each is a fault, whatever hashes the owner computes anew."""
    with sqlite_archive(tmp_path) as database:
        log = filled(database)
        with database.writing() as connection:
            MANIPULATIONS[name](connection)
        assert verified(database, log, YEAR_MS)[0].faults


def test_retirement_is_a_fault_where_everything_is_kept(tmp_path: Path) -> None:
    """Without CALLKEEPER_ARCHIVE_KEEP no line is removed."""
    with sqlite_archive(tmp_path) as database:
        log = filled(database)
        with database.writing() as connection:
            MANIPULATIONS["a retirement of old lines is forged, of which the audit log knows nothing"](connection)
        assert any("keeps them for ever" in fault.what for fault in verified(database, log)[0].faults)


def test_head_that_is_signed_again_overrides_nothing(tmp_path: Path) -> None:
    """The newest line was changed, and a worker signed the new head: two hashes of one line are a fault."""
    with sqlite_archive(tmp_path) as database:
        log = filled(database)
        with database.writing() as connection:
            change_body(connection, 10)
            rechain(connection, OURS, 10)
        head = Writer(database).heads()[OURS]
        log.append(msgspec.json.encode({"event": "archive_head", **signed_head(OURS, head, KEY)}))
        found, heads = verified(database, log, YEAR_MS)
        assert heads.faults == [f"{OURS} line {head.n}: the log has two different hashes"]
        assert found.faults


def test_log_that_lacks_a_head_says_so() -> None:
    """Each head names the one before it. A log may begin anywhere."""
    heads = [Head(n, str(n) * 64) for n in range(1, 5)]
    told = [signed_head(OURS, head, KEY, before) for before, head in zip([None, *heads], heads, strict=False)]
    log = [msgspec.json.encode({"event": "archive_head", **each}) for each in told]
    assert parse_heads(log, KEY).faults == parse_heads(log[2:], KEY).faults == []
    assert parse_heads([log[0], *log[2:]], KEY).faults == [
        f"{OURS} line 3: the log lacks the head before it, of line 2"
    ]


@pytest.mark.parametrize("field", ["n", "hash", "before_n", "before_hash", "institution"])
def test_signature_covers_all_that_a_head_says(field: str) -> None:
    """Nothing of a signed head can be changed, and the link cannot be left out."""
    told = signed_head(OURS, Head(2, "b" * 64), KEY, Head(1, "a" * 64))
    forged = {**told, field: 7 if field.endswith("n") and field != "institution" else "c" * 64}
    bare = {name: value for name, value in told.items() if not name.startswith("before")}
    lines = [msgspec.json.encode({"event": "archive_head", **each}) for each in (forged, bare)]
    assert parse_heads(lines, KEY).unsigned == 2
    assert parse_heads(lines[:1], Secret("another-key-of-nobody")).unsigned == 1


def test_lines_after_the_last_logged_head_are_counted(tmp_path: Path) -> None:
    """What no head proves yet is told with its length."""
    with sqlite_archive(tmp_path) as database:
        log = filled(database)
        Writer(database, now_ms=lambda: 5).write(OURS, [content(11), content(12)])
        tail = verified(database, log, YEAR_MS)[0].tails[OURS]
        assert (tail.lines, tail.since_ms) == (2, 5)
