"""Which role each address needs, and how the audit log names it: one table, which the tests use too.

The first row that matches counts. An address or a method that is in no row is for admins only.
"""

import re
from dataclasses import dataclass
from typing import Final

from callkeeper.calls.store.audit_log import AuditEvent
from callkeeper.desk.access.rights import Person, Role

_CALL: Final = r"/board/calls/(?P<institution>[^/]+)/(?P<voice_id>.+)"
_SAID: Final = r"/desk/calls/(?P<institution>[^/]+)/(?P<voice_id>.+)"
_INSTITUTION: Final = r"/board/institutions/(?P<institution>[^/]+)"
_ACTIONS: Final = r"/(?P<detail>assign|verified|distrusted|opted-out|opted-in|check|withdraw)"


@dataclass(frozen=True, slots=True)
class RouteRule:
    """One row.

    Attributes:
        methods: Its methods; GET includes HEAD.
        pattern: The whole path, decoded. ``institution``, ``voice_id`` and ``detail`` go into the audit log.
        role: The role needed; None: not even a login is needed.
        event: Its name in the audit log; None: no entry is written.
        for_all: Only for people who see all institutions.
        for_agents: Also open to a token that was minted for one agent's page.
    """

    methods: frozenset[str]
    pattern: re.Pattern[str]
    role: Role | None
    event: AuditEvent | None = None
    for_all: bool = False
    for_agents: bool = False

    @property
    def name(self) -> str:
        """Return what it is about, for people: ``POST /board/calls/institution/voice_id/detail``."""
        if not self.methods:
            return "an address that is not listed"
        path = re.sub(r"\(\?P<(\w+)>[^()]*\)", r"\1", self.pattern.pattern).replace("\\", "")
        return f"{'/'.join(sorted(self.methods))} {path}".strip()

    def admits(self, person: Person) -> bool:
        return (self.role is None or person.may(self.role)) and not (self.for_all and person.institutions is not None)


def _rule(
    methods: str,
    pattern: str,
    role: Role | None,
    event: AuditEvent | None = None,
    *,
    for_all: bool = False,
    for_agents: bool = False,
) -> RouteRule:
    return RouteRule(frozenset(methods.split()), re.compile(pattern, re.DOTALL), role, event, for_all, for_agents)


RULES: Final = (
    _rule("GET", r"/board/static/[^/]+", None),
    _rule("GET", r"/board/?", Role.VIEWER, AuditEvent.VIEWED),
    _rule("GET", r"/board/stream", Role.VIEWER, AuditEvent.VIEWED),
    _rule("GET", r"/board/operations", Role.VIEWER),
    _rule("GET", r"/board/plots", Role.VIEWER),
    _rule("GET", r"/board/rules", Role.VIEWER, for_all=True),
    _rule("GET", r"/board/find", Role.VIEWER),
    _rule("POST", r"/board/find", Role.VIEWER, AuditEvent.SEARCHED),
    _rule("GET", r"/board/calls", Role.VIEWER, AuditEvent.VIEWED),
    _rule("GET", r"/board/calls\.csv", Role.AGENT, AuditEvent.EXPORTED),
    _rule("GET", r"/board/pausing", Role.AGENT),
    _rule("POST", r"/board/pause", Role.SUPERVISOR, AuditEvent.PAUSED),
    _rule("POST", r"/board/resume", Role.SUPERVISOR, AuditEvent.RESUMED),
    _rule("GET", r"/board/incidents", Role.AGENT),
    _rule("POST", r"/board/incidents/(?P<detail>acknowledge|end)", Role.SUPERVISOR, AuditEvent.ACKNOWLEDGED),
    _rule("POST", r"/board/incidents/(?P<detail>retry)", Role.SUPERVISOR, AuditEvent.RETRIED, for_all=True),
    _rule("GET", r"/board/outcomes", Role.AGENT),
    _rule("POST", r"/board/outcomes/(?P<detail>replay)", Role.SUPERVISOR, AuditEvent.REDELIVERED),
    _rule(
        "POST", r"/board/outcomes/(?P<detail>test|replay-failed)", Role.SUPERVISOR, AuditEvent.REDELIVERED, for_all=True
    ),
    _rule("POST", rf"{_INSTITUTION}/reconcile", Role.SUPERVISOR, AuditEvent.LISTED_QUEUE),
    _rule("GET", _INSTITUTION, Role.VIEWER, AuditEvent.VIEWED),
    _rule("GET", r"/board/audit", Role.ADMIN),
    _rule("GET", r"/board/audit\.csv", Role.ADMIN, AuditEvent.EXPORTED),
    _rule("POST", rf"{_CALL}{_ACTIONS}", Role.AGENT, AuditEvent.SAID),
    _rule("POST", rf"{_CALL}/(?P<detail>resolve)", Role.SUPERVISOR, AuditEvent.RESOLVED),
    _rule("GET", _CALL, Role.VIEWER, AuditEvent.VIEWED),
    _rule("GET POST", r"/rq/.*", Role.SUPERVISOR, for_all=True),
    _rule("GET", r"/metrics", Role.VIEWER, for_all=True),
    _rule("GET", r"/desk/openapi\.json", None),
    _rule("GET", r"/desk/callkeeper-call\.js", None),
    _rule("GET", r"/desk/calls", Role.VIEWER, AuditEvent.VIEWED, for_agents=True),
    _rule("GET", r"/desk/stream", Role.VIEWER, AuditEvent.VIEWED, for_agents=True),
    _rule("POST", r"/desk/tickets", Role.VIEWER),
    _rule("POST", r"/desk/agent-tokens", Role.AGENT, AuditEvent.TOKEN_CHANGED),
    _rule("GET", rf"{_SAID}/actions/[^/]+", Role.AGENT, for_agents=True),
    _rule("POST", rf"{_SAID}{_ACTIONS}", Role.AGENT, AuditEvent.SAID, for_agents=True),
    _rule("POST", rf"{_SAID}/(?P<detail>resolve)", Role.SUPERVISOR, AuditEvent.RESOLVED),
    _rule("GET", _SAID, Role.VIEWER, AuditEvent.VIEWED),
)

_ELSE: Final = _rule("", "", Role.ADMIN, for_all=True)


def rule_of(method: str, path: str) -> tuple[RouteRule, dict[str, str]]:
    """Return the row of a request, and the parts of its path that have a name."""
    method = "GET" if method == "HEAD" else method
    for rule in RULES:
        found = rule.pattern.fullmatch(path) if method in rule.methods else None
        if found is not None:
            return rule, {name: part for name, part in found.groupdict().items() if part}
    return _ELSE, {}
