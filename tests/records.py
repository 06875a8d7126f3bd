"""Records of calls with given fields, which are named as they are stored: ``end_seen_at`` is ``life.ended_at``."""

from datetime import datetime
from typing import Any

from msgspec.structs import fields, replace

from callkeeper.calls.context import Context
from callkeeper.calls.decide import decide
from callkeeper.calls.fact_derivation import facts_of
from callkeeper.calls.facts import Facts
from callkeeper.calls.person_lists import NamedLists
from callkeeper.calls.policies import Policies
from callkeeper.calls.record import Call
from callkeeper.calls.record_storage import StoredCall
from callkeeper.calls.rules.book import RuleBook
from callkeeper.calls.steps import Step

_PARTS = {
    field.encode_name: (part, field.name)
    for part in ("names", "life", "seen", "plan", "ledger", "statements", "written", "last_claim")
    for field in fields(getattr(Call(institution_key="", voice_id=""), part))
}


def stored_value(call: Call, name: str) -> Any:
    """Return the value of a stored field."""
    part, field = _PARTS.get(name, (None, name))
    return getattr(call if part is None else getattr(call, part), field)


def stored_values(call: Call) -> dict[str, Any]:
    """Return the values of all fields as they are stored, by name."""
    return {name: stored_value(call, name) for name in StoredCall.__struct_fields__}


def with_stored(call: Call, **values: Any) -> Call:
    """Return a record with the values of stored fields replaced."""
    for name, value in values.items():
        if name in _PARTS:
            part, field = _PARTS[name]
            call = replace(call, **{part: replace(getattr(call, part), **{field: value})})
        else:
            call = replace(call, **{name: value})
    return call


def facts_of_record(call: Call, policies: Policies, now: datetime | None = None, **lists: NamedLists) -> Facts:
    """Derive the facts with what held when the record was written."""
    return facts_of(call, call.last_claim, policies, now, **lists)


def decide_record(call: Call, book: RuleBook, now: datetime, **context: Any) -> Step:
    """Decide with what held when the record was written; ``context`` as in ``Context``."""
    return decide(call, Context(call.last_claim, **context), book, now)
