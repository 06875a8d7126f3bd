"""Judges what a test call showed of each promise: it holds, it does not, or it was not seen. Pure functions.

A verdict's evidence has instants, counts and fixed words, and nothing of the caller: no number, no id of the call or of
a person, no text of the service. `docs/guarantees.md` has the promises.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from callkeeper.app.certification.evidence import UNREADABLE, CallEvidence
from callkeeper.calls.effect_ledger import DONE, EffectKind
from callkeeper.calls.quantity import quantity
from callkeeper.calls.record import CHECK_LIMIT
from callkeeper.calls.store.push_intake import CALL_END, CALL_START

PUSHED_WITHIN: Final = timedelta(seconds=10)
FOUND_WITHIN: Final = timedelta(seconds=10)
ENDED_WITHIN: Final = timedelta(seconds=10)
"""From a pushed end to its being read in the service's record."""
ENDED_UNPUSHED_WITHIN: Final = timedelta(seconds=90)
"""From the end to its being noticed without a push: stored details are read every minute of a decided call."""
SETTLED_WITHIN: Final = timedelta(seconds=120)
"""From the noticed end to the settled call: the provider's final analysis may be waited for."""
SAMPLE_BEFORE: Final = timedelta(hours=1)
"""A sample counts if it came no longer before the test call."""
CLOCK_AHEAD: Final = timedelta(seconds=3)
CLOCK_BEHIND: Final = timedelta(seconds=15)
"""More than the clock's own difference, because a call may be found up to ten seconds after its start."""

_ASK: Final = "callkeeper calls explain VOICE_ID shows everything that happened to the call"


class PromiseState(StrEnum):
    """What a test call showed of a promise."""

    HOLDS = "holds"
    DOES_NOT_HOLD = "does not hold"
    NOT_SEEN = "not seen"


@dataclass(frozen=True, slots=True)
class Judgement:
    """What was seen of one promise. ``remedy`` says what to do about it if it does not hold, or was not seen.

    ``is_required``: without it there is no certificate. What an installation does not use is not required.
    """

    state: PromiseState
    evidence: str
    remedy: str = ""
    is_required: bool = True

    @property
    def is_good(self) -> bool:
        """Tell whether it does not stand in the way of a certificate."""
        return self.state is PromiseState.HOLDS or (self.state is PromiseState.NOT_SEEN and not self.is_required)


@dataclass(frozen=True, slots=True, kw_only=True)
class PromiseVerdict(Judgement):
    """A judgement, and the promise that it is about."""

    id: str
    promise: str


def verdicts(evidence: CallEvidence) -> tuple[PromiseVerdict, ...]:
    """Return the verdict of every promise, in the order of a call's life."""
    return tuple(
        PromiseVerdict(**asdict(judge(evidence)), id=name, promise=promise) for name, promise, judge in PROMISES
    )


def all_hold(found: Sequence[PromiseVerdict]) -> bool:
    """Tell whether effects may be switched on, as far as this test call shows."""
    return all(verdict.is_good for verdict in found)


def _holds(evidence: str) -> Judgement:
    return Judgement(PromiseState.HOLDS, evidence)


def _broken(evidence: str, remedy: str) -> Judgement:
    return Judgement(PromiseState.DOES_NOT_HOLD, evidence, remedy)


def _unseen(evidence: str, remedy: str, *, is_required: bool = True) -> Judgement:
    return Judgement(PromiseState.NOT_SEEN, evidence, remedy, is_required)


def watch_only(evidence: CallEvidence) -> Judgement:
    """Judge whether the rules of the workers send nothing that changes a member's voice."""
    installation = evidence.installation
    if installation.sending:
        return _broken(
            f"enroll or reject by themselves: {quantity(len(installation.sending), 'rule')}",
            "start the workers with CALLKEEPER_RULES=watch-only, or set stage to shadow for this institution",
        )
    if not installation.rules or installation.unknown:
        return _unseen("the rules of a worker are not known", "start the workers with this release")
    digests = ", ".join(rules.digest for rules in installation.rules)
    assigns = "; [assign] automatic is on, so that workers assign callers" if installation.assigns else ""
    return _holds(f"no live rule of {digests} enrolls or rejects{assigns}")


def sample(evidence: CallEvidence) -> Judgement:
    """Judge whether a sample push with the right header came from the service's dashboard."""
    at, refused = evidence.sample_at, evidence.refused.get("credentials", 0)
    if at is not None and at >= evidence.began_at - SAMPLE_BEFORE:
        return _holds(f"it came at {_at(at)}, with the right header")
    remedy = "send a sample from the service's dashboard (Settings, Push Notifications) and look at its attempts there"
    if refused:
        return _broken(f"none came, and {_refused(refused)}", _COPY)
    return _unseen("none came" if at is None else f"the last one came at {_at(at)}, too long before", remedy)


def pushed_start(evidence: CallEvidence) -> Judgement:
    """Judge whether the start of the call was pushed in time, with the right header."""
    refused = evidence.refused.get("credentials", 0)
    pushed = evidence.first("pushed", "start")
    if pushed is not None:
        late = pushed.at - evidence.first_sign_at
        words = "before the queue showed it" if not late else f"{_s(late)} after the queue showed it"
        lag = _after_start(evidence, pushed.at)
        if late <= PUSHED_WITHIN:
            return _holds(f"CallStart came at {_at(pushed.at)}, {words}{lag}")
        return _broken(f"CallStart came {words}{lag}", "ask the service's operator why its pushes are late")
    if (stray := evidence.first_stray(CALL_START)) is not None:
        return _holds(f"CallStart came at {_at(stray)}, under another id than the queue's")
    if refused:
        return _broken(f"none came, and {_refused(refused)}", _COPY)
    if evidence.call is None:
        return _unseen("no call came", _NO_CALL)
    return _broken("the call came without a CallStart", _NO_PUSH)


def found(evidence: CallEvidence) -> Judgement:
    """Judge whether the queue showed the call, soon after it was first heard of."""
    if evidence.call is None:
        return _broken(f"no call came from {_at(evidence.began_at)} to {_at(evidence.taken_at)}", _NO_CALL)
    listed = evidence.first("listed")
    if listed is None:
        remedy = "is its number on the institution's ignore list? " + _ASK
        return _broken("the queue never listed it; it was handled by the id of its push", remedy)
    after = listed.at - evidence.first_sign_at
    first = "it was found by the queue" if not after else f"the queue listed it {_s(after)} after its push"
    lag = _after_start(evidence, listed.at)
    if after <= FOUND_WITHIN:
        return _holds(f"{first}, at {_at(listed.at)}{lag}")
    return _broken(f"{first}{lag}", "see the lines about the service and the workers in callkeeper doctor")


def one_call(evidence: CallEvidence) -> Judgement:
    """Judge whether push, queue and details mean the same call by the ids that they use."""
    call = evidence.call
    if call is None:
        return _unseen("no call came", _NO_CALL)
    if evidence.misnamed or call.names.other_voice_id is not None:
        return _broken(
            f"not used, because of another call's id in it: {quantity(max(evidence.misnamed, 1), 'answer')}",
            "ask the service's operator how alternate ids are resolved; docs/assumptions.md says what is assumed",
        )
    if evidence.stray and not evidence.entries("pushed"):
        return _broken(
            "the pushes name the call by an id that queue and details do not use",
            "ask the service's operator which ids pushes carry; until then calls are found by the queue alone, in 10 s",
        )
    sources = [
        name
        for name, is_seen in (
            ("push", bool(evidence.entries("pushed"))),
            ("queue", bool(evidence.entries("listed"))),
            ("details", call.seen.reading is not None),
        )
        if is_seen
    ]
    if len(sources) == 1:
        return _unseen(f"only {sources[0]} named it", _ASK)
    merged = " under two ids, which were joined" if evidence.entries("merged") else ""
    return _holds(f"{' and '.join([', '.join(sources[:-1]), sources[-1]])} named one call{merged}")


def clocks(evidence: CallEvidence) -> Judgement:
    """Judge whether the clocks of the service, of Redis and of our machines agree."""
    processes = (*evidence.installation.workers, *evidence.installation.webs)
    off_s = max((abs(process.ahead_s) for process in processes), default=0.0)
    remedy = (
        "synchronise the clocks (NTP): calls are handled correctly, but logs, trails and figures are hard to compare"
    )
    if off_s >= CLOCK_AHEAD.total_seconds():
        return _broken(f"a machine of ours differs from Redis by {off_s:.0f} s", remedy)
    told = _told_start(evidence)
    if told is None:
        return _unseen(
            "the service told no start of the call", _NO_CALL if evidence.call is None else "", is_required=False
        )
    lead = told - evidence.first_sign_at
    if lead > CLOCK_AHEAD:
        return _broken(f"the service's clock is ahead of Redis by {_s(lead)} or more", remedy)
    if -lead > CLOCK_BEHIND:
        return _broken(f"the service's clock is behind Redis by about {_s(-lead)}", remedy)
    return _holds(
        f"the call was first seen {_s(-lead)} after its start, our machines are within {off_s:.1f} s of Redis"
    )


def assigned(evidence: CallEvidence) -> Judgement:
    """Judge whether the call was assigned, by whomever, and callkeeper saw it."""
    call = evidence.call
    if call is None:
        return _unseen("no call came", _NO_CALL)
    seen = next((entry for entry in evidence.trail if entry.person_id and entry.what in {"read", "checked"}), None)
    if call.ledger.assign.state in DONE:
        answered = next((entry for entry in evidence.entries("answered") if entry.kind == EffectKind.ASSIGN), None)
        return _holds("callkeeper assigned it" + (f" at {_at(answered.at)}" if answered else ""))
    if seen is not None:
        return _holds(f"somebody else assigned it; seen at {_at(seen.at)}")
    return _unseen("nobody assigned it", "assign the test call while it lives, as an agent does")


def checks(evidence: CallEvidence) -> Judgement:
    """Judge whether checks were made and answered, and not more than the service allows."""
    call = evidence.call
    if call is None:
        return _unseen("no call came", _NO_CALL)
    answered, failed = evidence.entries("checked"), evidence.entries("check_failed")
    if call.plan.checks_used > CHECK_LIMIT:
        return _broken(f"{call.plan.checks_used} checks were counted, {CHECK_LIMIT} are allowed", _ASK)
    if not answered and not failed:
        return _unseen("no check was made", "assign the test call, and let it last at least 20 s from then on")
    took = [entry.took_ms for entry in answered if entry.took_ms is not None]
    words = f"{len(answered)} of {len(answered) + len(failed)} checks answered, {CHECK_LIMIT} are allowed"
    if not answered:
        return _broken(words, "see the last errors on the board, and callkeeper doctor")
    return _holds(words + (f"; the slowest took {max(took)} ms" if took else ""))


def silence(evidence: CallEvidence) -> Judgement:
    """Judge whether a caller who said nothing was not taken for the member."""
    call = evidence.call
    if not evidence.was_silent:
        return _unseen("the caller spoke", "", is_required=False)
    if call is None or not evidence.entries("checked"):
        return _unseen("no check was answered", "as for the checks")
    is_taken = call.seen.authenticated or (call.seen.reading is not None and call.seen.reading.is_voice_verified)
    if is_taken:
        return _broken(
            "the service authenticated a caller who was to say nothing",
            "if the caller was silent indeed, ask the service's operator before any rule relies on a green voice",
        )
    return _holds(
        f"{quantity(len(evidence.entries('checked')), 'check')} answered, and the caller was not authenticated"
    )


def pushed_end(evidence: CallEvidence) -> Judgement:
    """Judge whether the end of the call was pushed."""
    if evidence.call is None:
        return _unseen("no call came", _NO_CALL)
    pushed = evidence.first("pushed", "end")
    if pushed is not None:
        hung_up = evidence.hung_up_at
        noted = f", {_distance(hung_up, pushed.at)} Enter was pressed" if hung_up else ""
        return _holds(f"CallEnd came at {_at(pushed.at)}{noted}")
    if (stray := evidence.first_stray(CALL_END)) is not None:
        return _holds(f"CallEnd came at {_at(stray)}, under another id than the queue's")
    if evidence.first("ended") is None:
        return _unseen("the call has not ended", "hang up, and run this again with --voice-id")
    return _broken("the call ended without a CallEnd", _NO_PUSH)


def end_noticed(evidence: CallEvidence) -> Judgement:
    """Judge whether the end was noticed soon."""
    if evidence.call is None:
        return _unseen("no call came", _NO_CALL)
    pushed, ended = evidence.first("pushed", "end"), evidence.first("ended")
    since, within = (pushed.at, ENDED_WITHIN) if pushed else (evidence.hung_up_at, ENDED_UNPUSHED_WITHIN)
    if ended is None:
        if since is not None and evidence.taken_at - since > within:
            return _broken(f"not within {_s(evidence.taken_at - since)}", _ASK)
        return _unseen("the call has not ended", "hang up, and run this again with --voice-id")
    if since is None:
        return _holds(f"noticed at {_at(ended.at)}")
    after = max(ended.at - since, timedelta())
    words = f"noticed at {_at(ended.at)}, {_s(after)} after {'its push' if pushed else 'the caller hung up'}"
    return _holds(words) if after <= within else _broken(words, _ASK)


def settled(evidence: CallEvidence) -> Judgement:
    """Judge whether the call was settled with a reason."""
    ended, done = evidence.first("ended"), evidence.first("settled")
    if done is not None:
        reason = (
            evidence.call.life.reason
            if evidence.call is not None and evidence.call.life.reason is not None
            else "no reason"
        )
        after = "" if ended is None else f", {_s(done.at - ended.at)} after its end"
        words = f"{reason}{after}"
        is_late = ended is not None and done.at - ended.at > SETTLED_WITHIN
        return _broken(words, _ASK) if is_late else _holds(words)
    if ended is not None and evidence.taken_at - ended.at > SETTLED_WITHIN:
        return _broken(f"not within {_s(evidence.taken_at - ended.at)} of its end", _ASK)
    return _unseen("it is not settled yet", _NO_CALL if evidence.call is None else "run this again with --voice-id")


def nothing_sent(evidence: CallEvidence) -> Judgement:
    """Judge whether callkeeper sent no enroll and no reject for the call."""
    if evidence.call is None:
        return _unseen("no call came", _NO_CALL)
    sent = [entry for entry in evidence.entries("sent") if entry.kind in {EffectKind.ENROLL, EffectKind.REJECT}]
    if sent:
        names = ", ".join(f"{entry.kind} at {_at(entry.at)}" for entry in sent)
        return _broken(f"sent: {names}", f"pause effects (callkeeper pause), then: {_ASK}")
    elsewhere = (
        "; somebody else enrolled or rejected it" if evidence.call.seen.enrolled or evidence.call.seen.rejected else ""
    )
    return _holds(f"no enroll and no reject in ledger and trail{elsewhere}")


def explained(evidence: CallEvidence) -> Judgement:
    """Judge whether every decision names the rules that made it."""
    decided = evidence.entries("decided")
    if not decided:
        return _unseen(
            "nothing was decided", _NO_CALL if evidence.call is None else "assign the test call while it lives"
        )
    nameless = sum(entry.rules is None for entry in decided)
    if nameless:
        return _broken(f"{nameless} of {len(decided)} decisions name no rules", "report this: it is a bug")
    digests = ", ".join(sorted({entry.rules for entry in decided if entry.rules is not None}))
    return _holds(
        f"{len(decided)} decisions by rules {digests}; callkeeper rules report shows what they would have done"
    )


def readable(evidence: CallEvidence) -> Judgement:
    """Judge whether all answers of the service had the documented form."""
    unreadable, skipped = evidence.requests.get(UNREADABLE, 0), evidence.skipped
    if unreadable or skipped:
        return _broken(
            f"not readable: {quantity(unreadable, 'answer')}, and {quantity(skipped, 'entry', 'entries')} of the queue",
            "see the log events of that time, and report the form of the answers to the service's operator",
        )
    asked = sum(evidence.requests.values())
    if not asked:
        return _unseen(_NO_REQUEST, _IS_WORKING)
    return _holds(f"all answers to {asked} requests could be read")


def unlimited(evidence: CallEvidence) -> Judgement:
    """Judge whether the service took every request."""
    if evidence.turned_away:
        return _broken(
            f"{evidence.turned_away} of {sum(evidence.requests.values())} requests were answered 429",
            "ask the service's operator for the limit, and set CALLKEEPER_SERVICE_RPS",
        )
    asked = sum(evidence.requests.values())
    return _holds(f"none of {asked} requests was answered 429") if asked else _unseen(_NO_REQUEST, _IS_WORKING)


def delivered(evidence: CallEvidence) -> Judgement:
    """Judge whether the outcomes of the call were delivered, if any are wanted."""
    outcomes = evidence.deliveries
    if not outcomes.is_wanted:
        return _unseen("no worker posts outcomes", "", is_required=False)
    words = f"{outcomes.accepted} of {outcomes.due} accepted by the receiver"
    if not outcomes.due:
        return _unseen("the call has no outcome yet", _NO_CALL if evidence.call is None else _ASK)
    if outcomes.accepted >= outcomes.due:
        return _holds(words)
    return _broken(words, "callkeeper outcomes log shows what the receiver answered")


def surveyed(evidence: CallEvidence) -> Judgement:
    """Judge whether no assumption about the service is contradicted."""
    rows = evidence.survey
    contradicted = [row.id for row in rows if row.state == "contradicted"]
    unseen = sum(row.state == "not_seen" for row in rows)
    if contradicted:
        remedy = "callkeeper service survey says what callkeeper does about each, and which setting answers it"
        return _broken(f"contradicted: {', '.join(contradicted)}", remedy)
    if unseen == len(rows):
        return _unseen("nothing was seen yet", "callkeeper service survey --ask")
    return _holds(f"{len(rows) - unseen} assumptions hold, none is contradicted, {unseen} were not seen")


PROMISES: Final[tuple[tuple[str, str, Callable[[CallEvidence], Judgement]], ...]] = (
    ("watch-only", "The rules enroll and reject nobody", watch_only),
    ("sample", "A sample push arrives with the right header", sample),
    ("push-start", f"CallStart arrives with the right header within {PUSHED_WITHIN.seconds} s", pushed_start),
    ("found", f"The queue shows the call within {FOUND_WITHIN.seconds} s", found),
    ("one-call", "Push, queue and details name one call", one_call),
    ("clocks", "The clocks agree", clocks),
    ("assigned", "The call is assigned to a person", assigned),
    ("checks", f"Checks are made and answered, at most {CHECK_LIMIT}", checks),
    ("silence", "A silent caller is not authenticated", silence),
    ("push-end", "CallEnd arrives with the right header", pushed_end),
    (
        "end",
        f"The end is noticed within {ENDED_WITHIN.seconds} s of its push, or {ENDED_UNPUSHED_WITHIN.seconds} s without",
        end_noticed,
    ),
    ("settled", f"The call is settled with a reason within {SETTLED_WITHIN.seconds} s", settled),
    ("nothing-sent", "Nobody was enrolled or rejected by callkeeper", nothing_sent),
    ("explained", "Every decision names its rules", explained),
    ("readable", "The service's answers have the documented form", readable),
    ("unlimited", "The service takes every request", unlimited),
    ("outcomes", "Outcomes are delivered", delivered),
    ("survey", "No assumption about the service is contradicted", surveyed),
)
"""Every promise that a test call can show: its name, its sentence, and how it is judged."""

_COPY: Final = "copy CALLKEEPER_PUSH_HEADERS exactly into the dashboard (Settings, Push Notifications)"
_NO_PUSH: Final = (
    "look at the attempts in the dashboard (Settings, Push Notifications): the address, and what it answered"
)
_NO_REQUEST: Final = "no request was sent since"
_IS_WORKING: Final = "is a worker alive? See callkeeper doctor"
_NO_CALL: Final = "is the institution Active, and the caller's number not on its ignore list? See callkeeper doctor"


def _refused(count: int) -> str:
    return f"{quantity(count, 'push', 'pushes')} refused for a wrong or missing header"


def _told_start(evidence: CallEvidence) -> datetime | None:
    """Return when the call began, by the service's clock."""
    call = evidence.call
    if call is None:
        return None
    return call.life.started_at or (call.seen.reading.created_at if call.seen.reading is not None else None)


def _after_start(evidence: CallEvidence, at: datetime) -> str:
    """Say, after other words, how long something was after the start that the service tells; its clock may differ."""
    told = _told_start(evidence)
    return "" if told is None else f", {_distance(told, at)} its start by the service's clock"


def _distance(since: datetime, at: datetime) -> str:
    return f"{_s(at - since)} after" if at >= since else f"{_s(since - at)} before"


def _s(span: timedelta) -> str:
    return f"{span.total_seconds():.1f} s"


def _at(at: datetime) -> str:
    return f"{at:%H:%M:%S}"
