"""The endpoints in reseller auth mode: those that manage institutions."""

from collections.abc import Mapping

import msgspec
from structlog.typing import FilteringBoundLogger

from reseller import endpoints
from reseller.answers import BaseAnswer, InstitutionAnswer, LoginAsAnswer
from reseller.conversation import Conversation
from reseller.enumerations import CoreType
from reseller.errors import AnswerUnreadable, InstitutionNotFound
from reseller.exchange import Request
from reseller.institutions import Institution, InstitutionSummary
from reseller.listing import institution_list
from reseller.reading import Reader

_BASE = Reader(BaseAnswer)
_INSTITUTION = Reader(InstitutionAnswer)
_LOGIN_AS = Reader(LoginAsAnswer)


class InstitutionEndpoints:
    """List, read, add and change institutions; log in as one. Part of `reseller.client.Reseller`."""

    def __init__(self, talk: Conversation, log: FilteringBoundLogger) -> None:
        self._talk = talk
        self._log = log

    async def institutions(self) -> tuple[InstitutionSummary, ...]:
        """List the institutions, five fields of each; their secrets never leave the parser.

        Spec: Endpoints 8. Assumed: the list's wrapper is not shown; see `reseller.listing`.
        """
        endpoint = endpoints.INSTITUTIONS
        summaries, left_out = institution_list(await self._talk.ask(Request(endpoint, endpoint.at())))
        if left_out:
            self._log.warning("institutions_left_out", institutions=left_out)
        return summaries

    async def institution(self, key: str) -> Institution:
        """Read an institution's full record, secrets masked.

        Raises:
            InstitutionNotFound: The service knows no such institution.

        Spec: Endpoints 10.
        """
        endpoint = endpoints.INSTITUTION
        answer, record = await self._talk.read(Request(endpoint, endpoint.at(key), about=key), _INSTITUTION)
        if record.institution is None:
            raise InstitutionNotFound(endpoint.name, status=answer.status_code)
        return record.institution

    async def add_institution(self, fields: Mapping[str, object]) -> None:
        """Add an institution. An effect.

        Args:
            fields: The request's body; its fields are not shown. Assumed: at least ``name`` and ``core``, as update.

        Raises:
            ServiceRefused: Declined, also by a 400 problem response.
            NotSent: Provably no byte was written.
            TokenLapsed: 401; renew, then send anew.
            OutcomeUnknown: May or may not have been applied.

        Spec: Endpoints 9; Errors 3.
        """
        endpoint = endpoints.ADD_INSTITUTION
        await self._talk.effect(
            Request(endpoint, endpoint.at(), content=msgspec.json.encode(dict(fields))), _BASE, None
        )

    async def update_institution(self, key: str, *, name: str | None, core: CoreType) -> None:
        """Change an institution's name and core type. Repeating it changes nothing more.

        Raises:
            InstitutionNotFound: The service knows no such institution.

        Spec: Endpoints 11.
        """
        endpoint = endpoints.UPDATE_INSTITUTION
        body = msgspec.json.encode({"name": name, "core": str(core)})
        await self._talk.read(Request(endpoint, endpoint.at(key), content=body, about=key), _BASE)

    async def login_as(self, key: str) -> LoginAsAnswer:
        """Log in as an institution: a token and the places it opens.

        Raises:
            InstitutionNotFound: The service knows no such institution.

        Spec: Endpoints 12; Rules per operation 6. Assumed: the base response may be missing there.
        """
        endpoint = endpoints.LOGIN_AS
        request = Request(endpoint, endpoint.at(key), about=key)
        _, record = await self._talk.read(request, _LOGIN_AS, needs_success=False)
        if not record.token:
            raise AnswerUnreadable(endpoint.name, "token is missing")
        return record
