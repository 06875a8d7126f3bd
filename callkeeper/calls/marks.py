"""What is kept of a call for later calls of its member or number. Pure functions.

`callkeeper.calls.store.earlier_calls` stores it.
"""

from msgspec.structs import replace

from callkeeper.calls.effect_ledger import UNDER_WAY
from callkeeper.calls.fact_derivation import has_green_voice, is_established_as_member, is_suspected, research_of
from callkeeper.calls.member_evidence import is_rejected, may_be_rejected
from callkeeper.calls.policies import Policies
from callkeeper.calls.record import Call, Mark, Marks
from callkeeper.calls.statuses import FRAUD


def marks_of(call: Call, policies: Policies) -> tuple[Mark, ...]:
    """Return what is kept of a call for later ones."""
    consent = (
        (Mark.OPTED_OUT, call.seen.opted_out and not call.seen.opted_in_last),
        (Mark.OPTED_IN, has_opted_in(call, policies)),
    )
    return (*_against(call, policies), *(mark for mark, is_so in consent if is_so))


def _against(call: Call, policies: Policies) -> tuple[Mark, ...]:
    found = (
        (Mark.REJECTED, is_rejected(call)),
        (Mark.UNENROLLED, call.seen.unenrolled),
        (Mark.FRAUD, research_of(call)[0] == FRAUD),
        (Mark.SUSPECTED, is_suspected(call, policies) or (_speaks_of_reject(call) and not is_rejected(call))),
    )
    return tuple([mark for mark, is_so in found if is_so])


def has_opted_in(call: Call, policies: Policies) -> bool:
    """Tell whether the member of a call opted in: it came after any opt-out of the call, and the caller is the member.

    An impostor's opt-in is not the member's. If nothing establishes that the caller is the member, or something speaks
    against it, earlier opt-outs of the member stay, and a person is asked.
    """
    is_shown = call.seen.opted_in and (call.seen.opted_in_last or not call.seen.opted_out)
    return is_shown and not _against(call, policies) and is_established_as_member(call, policies)


def still_holding(marks: Marks, call: Call, kinds: tuple[Mark, ...], policies: Policies) -> Marks:
    """Return which marks of a member who stood on the call before still hold; ``kinds`` are those of the call now.

    A mismatch may only have meant that the wrong member was assigned. That is known once the caller turns out to be the
    one who is assigned now. An opt-in of that one takes back nothing of another member's.
    """
    was_mistaken = has_green_voice(call, policies) or _is_verified_as_member(call)
    lasting = kinds if was_mistaken or marks.person_id not in call.seen.mismatched_members else (*kinds, Mark.SUSPECTED)
    return replace(marks, kinds=tuple([kind for kind in marks.kinds if kind in lasting and kind != Mark.OPTED_IN]))


def _is_verified_as_member(call: Call) -> bool:
    """Tell whether a person verified that the caller is the member who stands on the call now."""
    identity = call.statements.identity
    return identity is not None and identity.by_desk and identity.person_id == call.seen.person_id


def _speaks_of_reject(call: Call) -> bool:
    """Tell whether a person's distrust, our ledger or the provider's feedback speaks of a reject.

    While one is under way, no other call is enrolled.
    """
    is_ours = call.statements.distrusted is not None or call.ledger.reject.state in UNDER_WAY
    return is_ours or may_be_rejected(call)
