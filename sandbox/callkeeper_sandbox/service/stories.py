"""Stories of calls that a person can start on the page: a short description and a script for each."""

import uuid
from collections import defaultdict
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Final

import msgspec

from callkeeper_sandbox.service.faults import PUSH, Action, Fault
from callkeeper_sandbox.service.service import Sandbox
from callkeeper_sandbox.service.state import Call, Happening, Kind

ELSEWHERE: Final = "operator-2"
"""The core username of changes by hand."""


class Caller(StrEnum):
    """The kind of number that a call comes from."""

    MEMBER = "member"  # of one member: one candidate
    SHARED = "shared"  # of two members: two candidates
    STRANGER = "stranger"  # unknown: no candidate


class Story(msgspec.Struct, frozen=True):
    """One story. ``script`` gets the seconds until its result."""

    title: str
    meaning: str
    script: Callable[[float], list[Happening]]
    caller: Caller = Caller.MEMBER
    is_pushed: bool = True


STORIES: Final[Mapping[str, Story]] = {
    "green": Story(
        "Turns green", "the voice is recognised: a green policy", lambda after: [Happening(Kind.GREEN, after)]
    ),
    "questions": Story(
        "Answers questions",
        "an operator elsewhere verifies the caller by questions",
        lambda after: [Happening(Kind.ANSWERED_QUESTIONS, after, ELSEWHERE)],
    ),
    "passcode": Story(
        "Gives a passcode",
        "no voiceprint yet; a one-time passcode is sent and given",
        lambda after: [
            Happening(Kind.SENT_SMS, after / 2, ELSEWHERE),
            Happening(Kind.MFA_VALIDATED, after, ELSEWHERE),
        ],
    ),
    "shared": Story(
        "Two candidates",
        "the number belongs to two members: a person has to say who calls",
        lambda after: [Happening(Kind.GREEN, after)],
        Caller.SHARED,
    ),
    "stranger": Story(
        "No candidate", "an unknown number", lambda after: [Happening(Kind.GREEN, after)], Caller.STRANGER
    ),
    "red": Story(
        "Red",
        "a risky device, then a red policy",
        lambda after: [Happening(Kind.HIGH_RISK, after), Happening(Kind.RED, after)],
    ),
    "mismatch": Story(
        "Another voice", "the voice is not the enrolled one", lambda after: [Happening(Kind.MISMATCH, after)]
    ),
    "opt_out": Story(
        "Opts out, then answers",
        "wants no voiceprint, and is verified by questions",
        lambda after: [
            Happening(Kind.OPT_OUT, after / 2, ELSEWHERE),
            Happening(Kind.ANSWERED_QUESTIONS, after, ELSEWHERE),
        ],
    ),
    "unpushed": Story(
        "No push arrives",
        "both pushes are lost; only the queue shows the call",
        lambda after: [Happening(Kind.GREEN, after)],
        is_pushed=False,
    ),
    "nothing": Story("No result", "no result until the end", lambda _after: []),
}
"""Every story by its name."""

DEEDS: Final[Mapping[str, str]] = {
    Kind.CLAIMED: "assign",
    Kind.GREEN: "green",
    Kind.RED: "red",
    Kind.MFA_VALIDATED: "passcode",
    Kind.ANSWERED_QUESTIONS: "questions",
    Kind.END: "hang up",
}
"""Changes of a live call by hand, with the labels of their buttons."""


def by_hand(sandbox: Sandbox, call: Call, kind: Kind) -> Happening:
    """Return a change of a live call by hand. An operator elsewhere assigns the first matched member."""
    matched = sandbox.world.candidates(call) if kind is Kind.CLAIMED else []
    text = ELSEWHERE if kind in {Kind.CLAIMED, Kind.MFA_VALIDATED, Kind.ANSWERED_QUESTIONS} else None
    return Happening(kind, text=text, person_id=matched[0].person.person_id if matched else None)


def begin(sandbox: Sandbox, institution_key: str, name: str, *, after_s: float, ends_s: float) -> Call:
    """Start a call of an institution with a story: its result comes after ``after_s``, its end after ``ends_s``."""
    story, voice_id = STORIES[name], str(uuid.uuid4())
    if not story.is_pushed:
        sandbox.faults.add(Fault(target=PUSH, action=Action.LOST, voice_id=voice_id))
    script = [*story.script(after_s), Happening(Kind.END, ends_s)]
    number = _number(sandbox, institution_key, story.caller)
    return sandbox.start_call(institution_key, number, script, voice_id=voice_id)


def _number(sandbox: Sandbox, institution_key: str, caller: Caller) -> str:
    """Return a number of the kind without a live call, if there is one."""
    if caller is Caller.STRANGER:
        return f"5559{sandbox.world.number() % 1_000_000:06}"
    owners: dict[str, int] = defaultdict(int)
    for member in sandbox.world.state.members:
        if member.institution_key == institution_key:
            for phone in member.phones:
                owners[phone] += 1
    wanted = 2 if caller is Caller.SHARED else 1
    numbers = [phone for phone, count in owners.items() if count == wanted] or sorted(owners) or ["5559000000"]
    busy = {call.phone_number for call in sandbox.world.live[institution_key].values()}
    free = [number for number in numbers if number not in busy]
    return (free or numbers)[sandbox.world.number() % len(free or numbers)]
