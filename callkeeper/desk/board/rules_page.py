"""The page of rules: those in force with their hits and their text, and earlier ones."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from redis.asyncio import Redis
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from callkeeper.calls.metrics.rule_hits import NO_RULE, AllHits, Hits, read_hits
from callkeeper.calls.metrics.snapshot import FigureReader, Process
from callkeeper.calls.rules.book import EFFECTS, Outcome, Rule, RuleBook, Stage
from callkeeper.calls.rules.condition_parsing import describe_condition
from callkeeper.calls.rules.file import parse_kept_rules
from callkeeper.calls.rules.matching import dates_wanted
from callkeeper.calls.store.in_bytes import in_bytes
from callkeeper.calls.store.keys import Keys
from callkeeper.calls.store.rules_in_force import RulesInForce, read_rules_history
from callkeeper.calls.stored_value import readable
from callkeeper.desk.archived_calls import ArchivedCalls, kept_or_archived_rules
from callkeeper.desk.board.renderer import Renderers

SHOWN: Final = 50
"""How many changes of the rules the page shows; ``callkeeper rules history`` prints all."""


@dataclass(frozen=True, slots=True)
class RuleRow:
    """A rule with its hits, in the order of the file. ``rule`` is None if these rules do not have it."""

    name: str
    rule: Rule | None = None
    live: Hits = field(default_factory=Hits)
    shadow: Hits = field(default_factory=Hits)

    @property
    def asks_for(self) -> str:
        if self.rule is None:
            return "no rule decided" if self.name == NO_RULE else "not in these rules"
        how = f" with {self.rule.validation_type}" if self.rule.validation_type else ""
        return f"{self.rule.outcome}{how}"

    @property
    def conditions(self) -> list[str]:
        if self.rule is None:
            return []
        found = [describe_condition(name, test) for name, test in self.rule.when] or ["always"]
        found += [f"only for {', '.join(sorted(self.rule.institutions))}"] if self.rule.institutions else []
        return [*found, *filter(None, [dates_wanted(self.rule)])]

    @property
    def came_of(self) -> str:
        """Return what came of its hits in four weeks if not what it asks for: an enroll that the law held, for example."""
        asked = self.rule.outcome if self.rule is not None else None
        found = self.live.by_days[-1] + self.shadow.by_days[-1]
        other = {outcome: n for outcome, n in found.most_common() if outcome != asked}
        is_effect = asked in EFFECTS
        return ", ".join(
            f"{n:,} held by the law" if is_effect and outcome == Outcome.HOLD else f"{outcome} {n:,}"
            for outcome, n in other.items()
        )

    @property
    def is_shadow(self) -> bool:
        return self.rule is not None and self.rule.stage is Stage.SHADOW


def rows_of(book: RuleBook | None, hits: AllHits) -> list[RuleRow]:
    """Return the rules with their hits. Those that decided lately and are not among them come last."""
    rules = {rule.name: rule for rule in book.rules} if book is not None else {}
    others = sorted({name for name, _ in hits} - rules.keys())
    return [
        RuleRow(name, rules.get(name), *(hits.get((name, stage), Hits()) for stage in (Stage.LIVE, Stage.SHADOW)))
        for name in (*rules, *others)
    ]


class RulesPage:
    """Answers one request each."""

    def __init__(
        self,
        redis: Redis,
        keys: Keys,
        book: RuleBook,
        renderers: Renderers,
        *,
        now: Callable[[], datetime],
        archive: ArchivedCalls | None,
    ) -> None:
        """Put the parts together; ``book`` are this process's own rules."""
        self._redis = redis
        self._keys = keys
        self._book = book
        self._renderers = renderers
        self._now = now
        self._archive = archive
        self._figures = FigureReader(redis, keys=keys)
        self._address = f"{renderers.base}/rules"

    def routes(self) -> list[Route]:
        return [Route(self._address, self.show)]

    async def show(self, request: Request) -> Response:
        """Show the rules in force, or others by their digest, and which were in force when."""
        history = await self._history()
        in_force = readable(await in_bytes(self._redis).get(self._keys.rules), RulesInForce)
        newest = in_force.digest if in_force is not None else self._book.digest
        digest = request.query_params.get("digest", newest)
        text = await self._text(digest)
        if text is None and digest != newest:
            raise HTTPException(404)
        named = next((each for each in history if each.digest == digest), None)
        book = self._parsed(digest, text, named)
        return self._renderers.page(
            request,
            "rules.html",
            digest=digest,
            name=named.name if named else book.name if book else "",
            is_in_force=digest == newest,
            in_force=in_force,
            book=book,
            text=text.decode(errors="replace") if text else "",
            rows=rows_of(book, await read_hits(self._redis, self._now(), keys=self._keys)),
            differing=_differing(await self._figures.processes(), newest),
            history=history,
            digests={each.digest for each in history},
        )

    async def _history(self) -> list[RulesInForce]:
        return await read_rules_history(self._redis, self._keys, most=SHOWN)

    async def _text(self, digest: str) -> bytes | None:
        if digest == self._book.digest:
            return self._book.text
        return await kept_or_archived_rules(self._redis, self._keys, self._archive, digest)

    def _parsed(self, digest: str, text: bytes | None, named: RulesInForce | None) -> RuleBook | None:
        """Return rules as this release reads them; None if it cannot."""
        if digest == self._book.digest:
            return self._book
        return parse_kept_rules(text, name=named.name if named else "rules", digest=digest) if text else None


def _differing(processes: Sequence[Process], digest: str) -> Mapping[str, list[Process]]:
    """Return the processes that run other rules than those in force, by digest."""
    found: dict[str, list[Process]] = {}
    for process in processes:
        if process.rules not in {"", digest}:
            found.setdefault(process.rules, []).append(process)
    return found
