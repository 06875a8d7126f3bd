"""The sync and the async client. They have the same methods and share `callkeeper_client.protocol`."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any, Self, cast

import httpx

from callkeeper_client import protocol
from callkeeper_client.protocol import FOR_EVER, STREAM, STREAM_TIMEOUT, Change, Events, Joined, Request, Retry, Tokens
from callkeeper_client.views import Action, Call, Story

Token = str | Callable[[], str]


class _Settings:
    """The settings of both clients."""

    def __init__(self, url: str, token: Token, patience_s: float, first_wait_s: float) -> None:
        if not url.startswith(("http://", "https://")):
            raise ValueError(f"url: must begin with http:// or https://, not {url[:20]!r}")
        self._tokens = Tokens(token)
        self._patience_s = patience_s
        self._first_wait_s = first_wait_s

    def _stream_headers(self, events: Events) -> dict[str, str]:
        return Request("GET", STREAM).headers(self._tokens.read()) | events.begin()


class Desk(_Settings):
    """The sync client.

    Args:
        url: Address of the web process.
        token: A desk token, or a function that returns the current one.
        patience_s: How long a request is repeated if it gets no answer, 429, 502, 503 or 504; and 401 while a token is
            exchanged: the function's earlier token was accepted. Any other 401 raises at once.
        first_wait_s: The wait before the second attempt. It doubles for each further one, up to 30 s.
        transport: Replaces the connections, for tests.

    Raises:
        DeskRefused: By every method: the desk refuses the request.
        DeskUnavailable: By every method: there was no usable answer within ``patience_s``.
    """

    def __init__(
        self,
        url: str,
        token: Token,
        *,
        patience_s: float = 60.0,
        first_wait_s: float = 0.5,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        super().__init__(url, token, patience_s, first_wait_s)
        self._http = httpx.Client(base_url=url, transport=transport, timeout=15.0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def calls(
        self,
        *,
        institution: str | None = None,
        phone: str | None = None,
        id: str | None = None,  # noqa: A002  (the API's own name)
        phase: str | None = None,
        **filters: str,
    ) -> Iterator[Call]:
        """Yield calls, page by page. Without a phase, all that are not settled.

        ``filters``: ``state``, ``outcome``, ``rule``, ``policy``, ``operator``, ``since``, ``until``, ``q``.
        """
        named = {"institution": institution, "phone": phone, "id": id, "phase": phase}
        return self._pages({**named, **filters}, self._patience_s)

    def call(self, institution_key: str, voice_id: str) -> Story:
        """Return a call with its story."""
        return cast("Story", self._send(Request("GET", protocol.call(institution_key, voice_id))))

    def act(
        self,
        institution_key: str,
        voice_id: str,
        action: str,
        *,
        operator: str,
        wait_s: float | None = None,
        key: str | None = None,
        **body: object,
    ) -> Action:
        """Send ``assign``, ``verified``, ``distrusted``, ``opted-out``, ``check``, ``withdraw`` or ``resolve``."""
        path = protocol.call(institution_key, voice_id, action)
        return cast("Action", self._send(protocol.action(path, wait_s, key, {"operator": operator, **body})))

    def verified(
        self,
        institution_key: str,
        voice_id: str,
        *,
        operator: str,
        person_id: str,
        validation_type: str,
        notes: str | None = None,
        wait_s: float | None = None,
        key: str | None = None,
    ) -> Action:
        """State that the caller is this person. The voice is enrolled if rules and law allow it."""
        body = {"person_id": person_id, "validation_type": validation_type, "notes": notes}
        return self.act(institution_key, voice_id, "verified", operator=operator, wait_s=wait_s, key=key, **body)

    def action(self, institution_key: str, voice_id: str, action_id: str) -> Action:
        """Return the state of an action."""
        path = protocol.call(institution_key, voice_id, "actions", action_id)
        return cast("Action", self._send(Request("GET", path)))

    def changes(
        self,
        *,
        institution: str | None = None,
        phone: str | None = None,
        id: str | None = None,  # noqa: A002  (the API's own name)
        last_event_id: str | None = None,
    ) -> Iterator[Change]:
        """Yield the calls that are open now, then every change, for ever; resume after a lost connection.

        No call is yielded in an older state than before: its ``revision`` tells.
        """
        events, joined, retry = Events(last_event_id), Joined(), Retry(FOR_EVER, self._first_wait_s)
        filters = {"institution": institution, "phone": phone, "id": id}
        params = {name: value for name, value in filters.items() if value is not None}
        while True:
            refusal: httpx.Response | None = None
            failure: httpx.TransportError | None = None
            try:
                headers = self._stream_headers(events)
                with self._http.stream(
                    "GET", STREAM, params=params, headers=headers, timeout=STREAM_TIMEOUT
                ) as response:
                    if not response.is_success:
                        response.read()
                        refusal = response
                    else:
                        self._tokens.accepted()
                        if events.last_id is None:
                            yield from filter(joined.is_news, self._open_calls(filters))
                        for line in response.iter_lines():
                            retry.succeeded()
                            if change := events.read(line):
                                if joined.is_news(change):
                                    yield change
                                if change.kind == "reset":
                                    yield from filter(joined.is_news, self._open_calls(filters))
            except httpx.TransportError as error:
                refusal, failure = None, error
            time.sleep(retry.wait_s(refusal, self._tokens, failure))

    def _open_calls(self, filters: Mapping[str, str | None]) -> Iterator[Change]:
        for each in self._pages(filters, FOR_EVER):
            yield Change("call", each["institution_key"], each["voice_id"], each)

    def _pages(self, filters: Mapping[str, str | None], patience_s: float) -> Iterator[Call]:
        after: str | None = None
        while True:
            page = self._send(protocol.listing(after, filters), patience_s)
            yield from page["calls"]
            if (after := page["next"]) is None:
                return

    def _send(self, request: Request, patience_s: float | None = None) -> Mapping[str, Any]:
        retry = Retry(self._patience_s if patience_s is None else patience_s, self._first_wait_s)
        while True:
            response: httpx.Response | None = None
            failure: httpx.TransportError | None = None
            try:
                response = self._http.request(
                    request.method,
                    request.path,
                    params=dict(request.params),
                    json=request.body,
                    headers=request.headers(self._tokens.read()),
                )
            except httpx.TransportError as error:
                failure = error
            if response is not None and response.is_success:
                self._tokens.accepted()
                return cast("Mapping[str, Any]", response.json())
            time.sleep(retry.wait_s(response, self._tokens, failure))


class AsyncDesk(_Settings):
    """The async client, with the methods of `Desk`."""

    def __init__(
        self,
        url: str,
        token: Token,
        *,
        patience_s: float = 60.0,
        first_wait_s: float = 0.5,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        super().__init__(url, token, patience_s, first_wait_s)
        self._http = httpx.AsyncClient(base_url=url, transport=transport, timeout=15.0)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    def calls(
        self,
        *,
        institution: str | None = None,
        phone: str | None = None,
        id: str | None = None,  # noqa: A002  (the API's own name)
        phase: str | None = None,
        **filters: str,
    ) -> AsyncIterator[Call]:
        """Yield calls, page by page. Without a phase, all that are not settled.

        ``filters``: ``state``, ``outcome``, ``rule``, ``policy``, ``operator``, ``since``, ``until``, ``q``.
        """
        named = {"institution": institution, "phone": phone, "id": id, "phase": phase}
        return self._pages({**named, **filters}, self._patience_s)

    async def call(self, institution_key: str, voice_id: str) -> Story:
        """Return a call with its story."""
        return cast("Story", await self._send(Request("GET", protocol.call(institution_key, voice_id))))

    async def act(
        self,
        institution_key: str,
        voice_id: str,
        action: str,
        *,
        operator: str,
        wait_s: float | None = None,
        key: str | None = None,
        **body: object,
    ) -> Action:
        """Send ``assign``, ``verified``, ``distrusted``, ``opted-out``, ``check``, ``withdraw`` or ``resolve``."""
        path = protocol.call(institution_key, voice_id, action)
        return cast("Action", await self._send(protocol.action(path, wait_s, key, {"operator": operator, **body})))

    async def verified(
        self,
        institution_key: str,
        voice_id: str,
        *,
        operator: str,
        person_id: str,
        validation_type: str,
        notes: str | None = None,
        wait_s: float | None = None,
        key: str | None = None,
    ) -> Action:
        """State that the caller is this person. The voice is enrolled if rules and law allow it."""
        body = {"person_id": person_id, "validation_type": validation_type, "notes": notes}
        return await self.act(institution_key, voice_id, "verified", operator=operator, wait_s=wait_s, key=key, **body)

    async def action(self, institution_key: str, voice_id: str, action_id: str) -> Action:
        """Return the state of an action."""
        path = protocol.call(institution_key, voice_id, "actions", action_id)
        return cast("Action", await self._send(Request("GET", path)))

    async def changes(
        self,
        *,
        institution: str | None = None,
        phone: str | None = None,
        id: str | None = None,  # noqa: A002  (the API's own name)
        last_event_id: str | None = None,
    ) -> AsyncIterator[Change]:
        """Yield the calls that are open now, then every change, for ever; resume after a lost connection.

        No call is yielded in an older state than before: its ``revision`` tells.
        """
        events, joined, retry = Events(last_event_id), Joined(), Retry(FOR_EVER, self._first_wait_s)
        filters = {"institution": institution, "phone": phone, "id": id}
        params = {name: value for name, value in filters.items() if value is not None}
        while True:
            refusal: httpx.Response | None = None
            failure: httpx.TransportError | None = None
            try:
                headers = self._stream_headers(events)
                async with self._http.stream(
                    "GET", STREAM, params=params, headers=headers, timeout=STREAM_TIMEOUT
                ) as response:
                    if not response.is_success:
                        await response.aread()
                        refusal = response
                    else:
                        self._tokens.accepted()
                        if events.last_id is None:
                            async for change in self._open_calls(filters):
                                if joined.is_news(change):
                                    yield change
                        async for line in response.aiter_lines():
                            retry.succeeded()
                            if event := events.read(line):
                                if joined.is_news(event):
                                    yield event
                                if event.kind == "reset":
                                    async for change in self._open_calls(filters):
                                        if joined.is_news(change):
                                            yield change
            except httpx.TransportError as error:
                refusal, failure = None, error
            await asyncio.sleep(retry.wait_s(refusal, self._tokens, failure))

    async def _open_calls(self, filters: Mapping[str, str | None]) -> AsyncIterator[Change]:
        async for each in self._pages(filters, FOR_EVER):
            yield Change("call", each["institution_key"], each["voice_id"], each)

    async def _pages(self, filters: Mapping[str, str | None], patience_s: float) -> AsyncIterator[Call]:
        after: str | None = None
        while True:
            page = await self._send(protocol.listing(after, filters), patience_s)
            for each in page["calls"]:
                yield each
            if (after := page["next"]) is None:
                return

    async def _send(self, request: Request, patience_s: float | None = None) -> Mapping[str, Any]:
        retry = Retry(self._patience_s if patience_s is None else patience_s, self._first_wait_s)
        while True:
            response: httpx.Response | None = None
            failure: httpx.TransportError | None = None
            try:
                response = await self._http.request(
                    request.method,
                    request.path,
                    params=dict(request.params),
                    json=request.body,
                    headers=request.headers(self._tokens.read()),
                )
            except httpx.TransportError as error:
                failure = error
            if response is not None and response.is_success:
                self._tokens.accepted()
                return cast("Mapping[str, Any]", response.json())
            await asyncio.sleep(retry.wait_s(response, self._tokens, failure))
