"""What is stored: records, notes, trails, and the names they are stored under."""

import json
from datetime import datetime
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import fields, replace

from callkeeper.calls.item_names import CallId
from callkeeper.calls.notes import Merged, encode_note, parse_note
from callkeeper.calls.record import Call
from callkeeper.calls.record_storage import SCHEMA, NewerRecord, encode_call, parse_call, without_unknown
from callkeeper.calls.store.keys import Keys
from callkeeper.calls.trail import Entry, What, encode_entry, parse_trail
from tests.conftest import examples
from tests.unit.calls.specimens import CALLS, NOW, call
from tests.unit.calls.test_note_folding import NOTES


@given(CALLS)
@examples(50)
def test_record_comes_back_as_it_was_stored(any_call: Call) -> None:
    """A record that is written and read is the same record."""
    assert parse_call(encode_call(any_call)) == any_call


@pytest.mark.parametrize("note", NOTES.values(), ids=NOTES)
def test_note_comes_back_as_it_was_left(note: Any) -> None:
    """A note that is written and read is the same note, of the same kind."""
    assert parse_note(encode_note(note)) == note


def test_notes_of_one_kind_replace_each_other() -> None:
    """A thousand pushed starts are one note. A start and an end are two, and so are merges of two records."""
    ids = [note.note_id for note in NOTES.values()]
    assert len(set(ids)) == len(ids)
    assert Merged(call=call(voice_id="a")).note_id != Merged(call=call(voice_id="b")).note_id


def test_record_of_an_older_version_is_read() -> None:
    """Everything but the call's name is optional: what an older process wrote is a record (C12)."""
    assert parse_call(b'{"institution_key":"cu-1","voice_id":"v-1"}') == Call(institution_key="cu-1", voice_id="v-1")


def test_record_of_a_newer_version_is_read() -> None:
    """Fields of the call that a newer process wrote are kept when it is saved; those of inner values are lost (C12)."""
    stored = json.loads(encode_call(call()))
    newer = {**stored, "invented_later": {"a": [1]}, "enroll": {"state": "applied", "also_new": 1}}
    read = parse_call(json.dumps(newer).encode())
    assert read.ledger.enroll.state == "applied"
    assert json.loads(encode_call(read)) == {**newer, "enroll": {"state": "applied"}}
    assert json.loads(encode_call(without_unknown(read))) == {**stored, "enroll": {"state": "applied"}}


@pytest.mark.parametrize("change", [{}, {"phase": "teleported"}, {"saved_at": [1]}, {"voice_id": None}], ids=str)
def test_record_of_a_higher_schema_is_refused(change: dict[str, Any]) -> None:
    """Whatever else is in it, it is known to be a newer release's; no number, or one up to ours, is read."""
    stored = json.loads(encode_call(call()))
    with pytest.raises(NewerRecord):
        parse_call(json.dumps({**stored, **change, "schema": SCHEMA + 1}).encode())
    for number in range(1, SCHEMA + 1):
        assert parse_call(json.dumps({**stored, "schema": number}).encode()) == replace(call(), schema=number)


@pytest.mark.parametrize("stored", [b"", b"null", b"[]", b"{}", b'{"institution_key":"a","voice_id":"b","phase":"??"}'])
def test_record_that_no_version_writes_is_an_error(stored: bytes) -> None:
    """Unlike the service's unknown words, unknown words in our own state are not tolerated."""
    with pytest.raises(msgspec.MsgspecError):
        parse_call(stored)


ALLOWED = {
    *("at", "what", "event_id", "voice_id", "person_id", "kind", "state", "status", "policies", "n", "took_ms"),
    *("rule", "rules", "because", "validation_type", "operator", "token", "candidates", "facts", "forbidden"),
    *("asked", "tried", "pause", "wish", "trace", "signs", "earlier_calls", "member", "despite"),
}
"""What may be written down about a call: ids, words of the Spec, counts, and what people and rules gave as reasons."""


def test_trail_has_a_field_for_nothing_sensitive() -> None:
    """The fields of a line are an allow-list without names, numbers, documents and secrets (promise 6)."""
    assert {field.name for field in fields(Entry)} <= ALLOWED


@given(
    st.lists(
        st.builds(
            Entry,
            at=st.just(NOW),
            what=st.sampled_from(get_args(What)),
            voice_id=st.none() | st.text(),
            policies=st.lists(st.text()).map(tuple),
            n=st.none() | st.integers(0, 20),
            because=st.none() | st.text(),
            forbidden=st.lists(st.text()).map(tuple),
        ),
        max_size=4,
    ).map(tuple)
)
@examples(25)
def test_trail_comes_back_as_it_was_written(lines: tuple[Entry, ...]) -> None:
    """Lines that are written and read are the same lines, in order."""
    assert parse_trail([encode_entry(line) for line in lines]) == lines


def test_keys_of_different_things_differ() -> None:
    """No two things share a key, and every key but RQ's own begins with the prefix."""
    keys, member = Keys("ck"), CallId("cu-1", "v-1").member
    names = [value for name, value in vars(keys).items() if name not in {"setting", "prefix", "queue_name"}]
    names += [keys.item(member), keys.inbox(member), keys.trail(member), keys.alias("cu-1", "v-1")]
    names += [keys.sample("cu-1"), keys.opened("cu-1")]
    assert len(set(names)) == len(names)
    assert all(name.startswith(("ck:", "rq:")) for name in names)


def test_record_holds_aware_instants_only() -> None:
    """What is read back from the store has a zone."""
    stored = parse_call(encode_call(call()))
    assert all(value.tzinfo for value in msgspec.structs.asdict(stored).values() if isinstance(value, datetime))


def test_record_is_encoded_in_its_stored_form_only() -> None:
    """Stored records are flat, for the release before. msgspec alone would write parts, so it refuses."""
    with pytest.raises(TypeError, match="unsupported"):
        msgspec.json.encode(call())
    stored = json.loads(encode_note(Merged(call=call(mismatch_seen=True))))
    assert (stored["type"], stored["call"]["mismatch_seen"], stored["call"]["person_id"]) == ("merged", True, "p-1")
