"""The marks that a call leaves for later calls of its member or number. Pure functions.

`callkeeper.calls.store.earlier_calls` stores them.
"""

from msgspec.structs import replace

from callkeeper.calls.effect_ledger import UNDER_WAY
from callkeeper.calls.fact_derivation import has_green_voice, is_established_as_member, is_suspected, research_of
from callkeeper.calls.member_evidence import is_rejected, may_be_rejected
from callkeeper.calls.policies import Policies
from callkeeper.calls.record import Call, Mark, Marks
from callkeeper.calls.statuses import FRAUD


def marks_of(call: Call, policies: Policies) -> tuple[Mark, ...]:
    """Return the marks that a call leaves, as it is now."""
    consent = (
        (Mark.OPTED_OUT, call.seen.opted_out and not call.seen.opted_in_last),
        (Mark.OPTED_IN, has_opted_in(call, policies)),
    )
    return (*_marks_against(call, policies), *(mark for mark, is_so in consent if is_so))


def _marks_against(call: Call, policies: Policies) -> tuple[Mark, ...]:
    found = (
        (Mark.REJECTED, is_rejected(call)),
        (Mark.UNENROLLED, call.seen.unenrolled),
        (Mark.FRAUD, research_of(call)[0] == FRAUD),
        (Mark.SUSPECTED, is_suspected(call, policies) or (_speaks_of_reject(call) and not is_rejected(call))),
    )
    return tuple([mark for mark, is_so in found if is_so])


def has_opted_in(call: Call, policies: Policies) -> bool:
    """Tell whether the member opted in on the call: after any opt-out of it, and the caller is known to be the member.

    An impostor's opt-in is not the member's. If nothing establishes that the caller is the member, or something speaks
    against it, earlier opt-outs of the member stay, and a person is asked.
    """
    is_shown = call.seen.opted_in and (call.seen.opted_in_last or not call.seen.opted_out)
    return is_shown and not _marks_against(call, policies) and is_established_as_member(call, policies)


def still_holding(marks: Marks, call: Call, kinds: tuple[Mark, ...], policies: Policies) -> Marks:
    """Return which marks still hold that the call left under a former member; ``kinds`` are those of the call now.

    A mismatch may only have meant that the wrong member was assigned. That is known once the caller turns out to be the
    member who is assigned now. An opt-in of this member takes back nothing of the former one's.
    """
    was_mistaken = has_green_voice(call, policies) or _is_verified_by_desk(call)
    lasting = kinds if was_mistaken or marks.person_id not in call.seen.mismatched_members else (*kinds, Mark.SUSPECTED)
    return replace(marks, kinds=tuple([kind for kind in marks.kinds if kind in lasting and kind != Mark.OPTED_IN]))


def _is_verified_by_desk(call: Call) -> bool:
    """Tell whether a person at the desk verified that the caller is the member who stands on the call now."""
    identity = call.statements.identity
    return identity is not None and identity.by_desk and identity.person_id == call.seen.person_id


def _speaks_of_reject(call: Call) -> bool:
    """Tell whether a person's distrust, our ledger or the provider's feedback speaks of a reject.

    While one is under way, no other call is enrolled.
    """
    is_ours = call.statements.distrusted is not None or call.ledger.reject.state in UNDER_WAY
    return is_ours or may_be_rejected(call)
