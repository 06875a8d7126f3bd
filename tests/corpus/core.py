"""The only module of the recorder that knows the core. A new core provides these functions; the rest stays as it is.

- `shipped_books`: the texts of the rules that come with the software, by name.
- `open_world`: a `World` (tests/faults/world.py) that works by a text of rules.
- `say`, `pause`: what a person says at the desk, given as plain words.
- `push_elsewhere`: a push about a call that the service does not have.
- `now_known`: what is known of a call at a moment, as a flat dict of plain values.
- `told`: what people and other systems are told of it in the end.

`World` itself must still take pushes, statements, failures and time, as the fault model asks of it.
"""

from functools import lru_cache
from typing import Any, Final

import msgspec

from callkeeper.calls.action_status import statuses_of
from callkeeper.calls.context import Context
from callkeeper.calls.decide import decide
from callkeeper.calls.effect_ledger import EffectKind
from callkeeper.calls.effect_resolution import attention, attention_reasons
from callkeeper.calls.fact_derivation import facts_of
from callkeeper.calls.notes import AssignWish, CheckWish, Distrusted, OptedOut, Resolved, Verified, Withdrawn
from callkeeper.calls.outcome_messages import message_id, message_of
from callkeeper.calls.outcomes_of_trails import outcomes
from callkeeper.calls.pause import Pause, PauseScope
from callkeeper.calls.rules.book import RuleBook
from callkeeper.calls.rules.file import SHIPPED, parse_rules, read_rules_text
from callkeeper.calls.steps import Step
from callkeeper.calls.store.claims import FARTHEST_MS
from callkeeper.calls.store.pausing import Pausing
from callkeeper.calls.store.queries import Known
from callkeeper.desk.views import story_view
from callkeeper.service.push_event import PushEvent
from callkeeper_sandbox.service.state import Call as SandboxCall
from tests.faults.world import Servers, World

Plain = dict[str, Any]
"""Values that JSON has."""

_WORDS: Final = {
    "assign": AssignWish,
    "verified": Verified,
    "distrusted": Distrusted,
    "opted-out": OptedOut,
    "check": CheckWish,
    "resolve": Resolved,
    "withdraw": Withdrawn,
}
"""What a person can say, by the last part of an action's address at the desk."""


def shipped_books() -> dict[str, str]:
    """Return the texts of the rules that come with the software."""
    return {name: read_rules_text(name).decode() for name in SHIPPED}


def open_world(servers: Servers, rules: str, variants: list[str]) -> World:
    """Return a new world whose workers go by these rules."""
    return _QuickWorld(servers, _parsed(rules), variants)


class _QuickWorld(World):
    """A world that asks Redis once whether work is due, where the other one asks three times."""

    async def _is_due(self) -> bool:
        due, now_ms = self.keys.due, self.now_ms()
        async with self.servers.current().pipeline(transaction=False) as pipe:
            pipe.zcount(due, now_ms + FARTHEST_MS, "+inf").zcount(due, "-inf", now_ms).exists(due)
            far, now, is_there = await pipe.execute()
        return bool(far or now or not is_there)


_RENAMED: Final = {"doubted_since_verified": "evidence_against", "voice_of_another": "member_changed"}
"""Facts that rules of an older corpus name, and what is nearest to each now."""


@lru_cache
def _parsed(rules: str) -> RuleBook:
    for old, new in _RENAMED.items():
        rules = rules.replace(old, new)
    return parse_rules(rules.encode(), name="corpus")


async def say(world: World, call: SandboxCall, word: str, fields: Plain, *, by_alternate_id: bool = False) -> None:
    """Say something about a call at the desk."""
    statement = msgspec.convert({"said_at": world.clock.now} | fields, _WORDS[word])
    await world.hear(call, statement, by_alternate_id=by_alternate_id)


async def push_elsewhere(world: World, kind: str, key: str, voice_id: str, *, is_test: bool) -> None:
    """Deliver a push about a call that the service does not have."""
    await world.deliver(PushEvent(type=kind, institution_key=key, voice_id=voice_id, is_test=is_test))


async def pause(world: World, scope: str) -> None:
    """Pause everything at all institutions, or enrolls and rejects only; an empty scope resumes."""
    pausing, now = Pausing(world.servers.current()), world.clock.now
    if scope:
        await pausing.pause(None, Pause(scope=PauseScope(scope), operator="ann", because="a drill", at=now))
    else:
        await pausing.resume(None, operator="ann", because="over", at=now)


async def _known(world: World, call: SandboxCall) -> Known | None:
    lookup = world.lookup
    known = await lookup.known(call.institution_key, call.voice_id)
    return await lookup.known(call.institution_key, call.alternate_id) if known is None else known


async def now_known(world: World, call: SandboxCall) -> Plain:
    """Return what is known of a call now: its phase, facts, ledger, next step, needs, and what became of each action.

    The keys begin with the layer that `tests.corpus.comparing` sorts by. A fact that is false, none or 0 is left out.
    """
    known = await _known(world, call)
    if known is None:
        return {}
    book, record, now = world.book, known.call, world.clock.now
    facts = facts_of(record, record.last_claim, book.policies, now, lists=book.lists)
    step = decide(record, Context(obstacles=record.last_claim), book, now)
    actions = statuses_of(record, known.trail)
    return {
        "told.phase": f"{record.life.phase}, {record.life.reason}" if record.life.reason else f"{record.life.phase}",
        "told.needs": "; ".join(attention_reasons(record)) or attention(record),
        "step.next": _name_of(step),
        **{f"fact.{name}": value for name, value in facts.as_dict().items()},
        "fact.policies": ", ".join(facts.policies),
        **{f"ledger.{kind}": _ledger(record.effect(kind)) for kind in EffectKind},
        **{f"told.action {wish[-2:]}": ", ".join((one.state, *one.reasons)) for wish, one in actions.items()},
    }


def _name_of(step: Step) -> str:
    """Return the name of a step, without the instant until which it waits."""
    names = [type(step).__name__, getattr(step, "kind", ""), getattr(step, "because", "")]
    return " ".join(filter(None, names)) + (f", {_name_of(then)}" if (then := getattr(step, "then", None)) else "")


def _ledger(effect: Any) -> str:
    return " ".join(str(one) for one in (effect.state, effect.person_id, effect.validation_type) if one)


async def told(world: World, call: SandboxCall) -> Plain:
    """Return the call as the desk shows it, its story, and the messages that other systems get."""
    known = await _known(world, call)
    if known is None:
        return {}
    view: Plain = msgspec.to_builtins(story_view(known.call, known.trail, world.book.policies, sees_people=True))
    found = [(message_id(known.call_id, one), message_of(known.call, one)) for one in outcomes(known.trail)]
    del view["call"]["revision"]  # counts writes, of which another core may need another number
    return view | {"outcomes": {id_: msgspec.to_builtins(message) for id_, message in found}}
