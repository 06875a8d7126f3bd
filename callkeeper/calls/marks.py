"""The marks that a call leaves for later calls of its member or number. Pure functions.

`callkeeper.calls.store.earlier_calls` stores them.
"""

from msgspec.structs import replace

from callkeeper.calls.fact_derivation import has_opted_in, marks_against
from callkeeper.calls.policies import Policies
from callkeeper.calls.record import Call, Mark, Marks


def marks_of(call: Call, policies: Policies) -> tuple[Mark, ...]:
    """Return the marks that a call leaves, as it is now."""
    consent = (
        (Mark.OPTED_OUT, call.seen.opted_out and not has_opted_in(call, policies)),
        (Mark.OPTED_IN, has_opted_in(call, policies)),
    )
    return (*marks_against(call, policies), *(mark for mark, is_so in consent if is_so))


def still_holding(marks: Marks, kinds: tuple[Mark, ...]) -> Marks:
    """Return which marks still hold that the call left under a former member; ``kinds`` are those of the call now.

    An opt-in of the present member takes back nothing of the former one's.
    """
    return replace(marks, kinds=tuple([kind for kind in marks.kinds if kind in kinds and kind != Mark.OPTED_IN]))
