"""Pages of agents: the token that one is given, what it may ask, and the script of ``<callkeeper-call>``.

A page in a browser gets no desk token that others share: whoever reads it there could read every call and speak for
anybody. The back end mints a token for each page instead. That speaks for one operator, and reads the calls of one number
or one id at a time.
"""

from collections.abc import Mapping
from hashlib import sha256
from importlib.resources import files
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from callkeeper.calls.record import Phase
from callkeeper.calls.store.attempt_limiter import AttemptLimiter
from callkeeper.calls.store.queries import Lookup
from callkeeper.desk.access.desk_tokens import DeskToken, DeskTokens
from callkeeper.desk.access.visitor import note_of, place_of
from callkeeper.desk.bodies import AgentTokenBody, read_body
from callkeeper.desk.problems import forbidden, invalid, too_many
from callkeeper.desk.views import AgentTokenView

SCRIPT: Final = (files("callkeeper.desk") / "static" / "callkeeper-call.js").read_bytes()
"""The web component, which pages of any origin may load. It holds no data."""

MINTED_AT_ONCE: Final = 600
MINTED_EVERY_S: Final = 0.1
"""How many tokens a desk token may mint at once, and in what time one more, in each web process."""

CALLERS_AN_HOUR: Final = 60
"""How many different numbers and ids one agent's pages may ask for in an hour, in each web process."""

_ASKED_BY_AGENTS: Final = frozenset({"institution", "phone", "id", "phase", "limit", "after", "last_event_id"})
"""The parameters with which an agent's token may list and follow calls."""

_ETAG: Final = f'"{sha256(SCRIPT).hexdigest()[:32]}"'
_SCRIPT_HEADERS: Final = {
    "Access-Control-Allow-Origin": "*",
    "Cross-Origin-Resource-Policy": "cross-origin",
    "Cache-Control": "public, max-age=300",
    "ETag": _ETAG,
}


def script(request: Request) -> Response:
    """Return the web component."""
    if request.headers.get("if-none-match") == _ETAG:
        return Response(status_code=304, headers=_SCRIPT_HEADERS)
    return Response(SCRIPT, headers=_SCRIPT_HEADERS, media_type="text/javascript")


class AskedByAgents:
    """What the pages of each agent have asked for."""

    def __init__(self) -> None:
        self._asked = AttemptLimiter(allowed=1, every_s=3600, remembered=65_536)
        self._agents = AttemptLimiter(allowed=CALLERS_AN_HOUR, every_s=3600 / CALLERS_AN_HOUR)

    def refuse_others(self, request: Request, token: DeskToken, query: Mapping[str, str]) -> None:
        """Refuse an agent's token what does not ask for the calls of one number or one id that are not settled.

        Raises:
            Problem: It asks for more, or the agent asks for many callers: whoever reads a page's token could try numbers.
        """
        if token.agent is None:
            return
        about = [query.get("phone", ""), query.get("id", "")]
        if not any(about):
            raise forbidden("this token sees the calls of one number or one id: name phone or id")
        if query.get("phase") not in {None, Phase.LIVE, Phase.ENDED} or not query.keys() <= _ASKED_BY_AGENTS:
            raise forbidden("this token does not search, and sees no list of settled calls")
        asked = " ".join([token.holder, *about])
        if not self._asked.wait_s(asked) and (wait_s := self._agents.count(token.holder)):
            note_of(request).deny(detail="too many callers for one agent")
            raise too_many("too_many_callers", wait_s)
        self._asked.count(asked)


async def refuse_unknown(lookup: Lookup, token: DeskToken, key: str, field: str, problem: str) -> None:
    """Refuse an institution that is not this token's or, once the list is stored, does not exist, in the same words.

    So the answer does not reveal others' institutions.

    Raises:
        Problem: It is such a one; the problem is that of the field.
    """
    if token.may_see(key) and await lookup.is_listed(key):
        return
    known = (await lookup.institutions()).visible(token.may_see)
    if token.may_see(key) and (key in known.names or not known.is_list_stored):
        return
    near = known.nearest(key)
    raise invalid(field, problem + (f"; did you mean {near}?" if near else ""))


class Minting:
    """Mints tokens for pages of agents."""

    def __init__(self, tokens: DeskTokens, lookup: Lookup, *, at_once: int = MINTED_AT_ONCE) -> None:
        """``at_once``: how many tokens one desk token may mint at once."""
        self._tokens = tokens
        self._lookup = lookup
        self._minted = AttemptLimiter(allowed=at_once, every_s=MINTED_EVERY_S)

    async def mint(self, request: Request, token: DeskToken) -> AgentTokenView:
        """Mint a token of an agent.

        Raises:
            Problem: A browser asks, the body is wrong, the desk token does not cover it, or it mints too many.
        """
        if "origin" in request.headers:
            raise forbidden("your back end mints tokens; a desk token does not belong in a browser")
        body = await read_body(request, AgentTokenBody)
        wanted = frozenset(body.institutions)
        for key in sorted(wanted):
            await refuse_unknown(self._lookup, token, key, "institutions", "names none of this token's")
        if not token.covers(body.operator, wanted):
            note_of(request).deny(institution=place_of(wanted), detail="token of another operator")
            raise forbidden("operator: this token may not speak for them")
        if wait_s := self._minted.count(token.name):
            raise too_many("too_many_tokens", wait_s)
        value = await self._tokens.mint(token, body.operator, wanted, valid_s=body.valid_s)
        note_of(request).operator = body.operator
        note_of(request).complete(institution=place_of(wanted), detail="minted for an agent")
        return AgentTokenView(value, body.operator, tuple(sorted(wanted)), body.valid_s)
