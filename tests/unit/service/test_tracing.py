"""Traces and spans of a process without a tracer, and what a tracer is told."""

import asyncio
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from callkeeper.service.tracing import (
    _NO_SPAN,
    HEADER,
    SpanAttributes,
    SpanKind,
    SpanPlace,
    TraceSpan,
    first_span,
    follow,
    is_trace,
    new_trace,
    place_in,
    span,
    trace_headers,
    traced_by,
)

TRACE = "0af7651916cd43dd8448eb211c80319c"
SPAN = "b7ad6b7169203331"


class Told:
    """A tracer that keeps what it is told."""

    def __init__(self) -> None:
        self.spans: list[tuple[str, str | None, bool, list[SpanPlace], dict[str, Any]]] = []

    @contextmanager
    def span(
        self,
        name: str,
        kind: SpanKind,
        attributes: SpanAttributes,
        *,
        trace: str | None,
        is_first: bool,
        links: Sequence[SpanPlace],
    ) -> Iterator[TraceSpan]:
        """Keep it, and open none."""
        self.spans.append((name, trace, is_first, list(links), {**attributes}))
        yield _NO_SPAN

    def header(self) -> str | None:
        """Return a header."""
        return f"00-{TRACE}-{SPAN}-00"


async def alone(coroutine: Any) -> Any:
    """Run something as a task, so that the trace it sets stays its own."""
    return await asyncio.create_task(coroutine)


def test_first_span_of_a_trace_has_an_id_that_follows_from_the_trace() -> None:
    """Every process names the same one, and it is never all zero, which no tracing tool accepts."""
    assert first_span(TRACE) == (TRACE, "8448eb211c80319c")
    assert first_span("1" * 16 + "0" * 16) == ("1" * 16 + "0" * 16, "1" * 16)
    assert first_span(new_trace()) != first_span(new_trace())


@pytest.mark.parametrize(
    ("header", "place"),
    [
        (f"00-{TRACE}-{SPAN}-01", (TRACE, SPAN)),
        (f"00-{TRACE}-{SPAN}-00", (TRACE, SPAN)),
        (None, None),
        ("", None),
        (f"01-{TRACE}-{SPAN}-01", None),
        (f"00-{'0' * 32}-{SPAN}-01", None),
        (f"00-{TRACE}-{'0' * 16}-01", None),
        (f"00-{TRACE.upper()}-{SPAN}-01", None),
        (f"00-{TRACE}-{SPAN}-01-more", None),
        (f"00-{TRACE}-{SPAN}", None),
        (f" 00-{TRACE}-{SPAN}-01", None),
        (f"00-{TRACE}-{SPAN}-01\n", None),
        ("00-\xff-x-01", None),
    ],
)
def test_span_of_somebody_else_is_read_strictly(header: str | None, place: tuple[str, str] | None) -> None:
    """Anything but a header of W3C Trace Context, version 00, names no span, and nothing raises."""
    assert place_in(header.encode("latin-1") if header is not None else None) == place


async def test_header_has_the_trace_that_the_task_follows() -> None:
    """Each request has an id of its own; without a trace there is no header."""

    async def sends() -> list[str]:
        follow(TRACE)
        return [trace_headers()[HEADER] for _ in range(2)]

    assert trace_headers() == {}
    one, other = await alone(sends())
    assert re.fullmatch(f"00-{TRACE}-[0-9a-f]{{16}}-01", one)
    assert one != other


async def test_spans_are_nothing_without_a_tracer() -> None:
    """All are one object that forgets what it is told, and lets exceptions pass."""
    with span("a", institution="cu-1") as one, span("b", SpanKind.CLIENT) as other:
        one.note(status=200)
        one.fail("x")
    assert one is other
    with pytest.raises(ZeroDivisionError), span("c"):
        raise ZeroDivisionError


async def test_tracer_makes_the_spans_while_it_is_there() -> None:
    """It is told the trace of the task unless another is named, and requests carry its header."""
    told, link = Told(), SpanPlace(TRACE, SPAN)

    async def moves() -> str:
        follow(TRACE)
        with span("claim", SpanKind.CONSUMER, links=[None, link], institution="cu-1"):
            pass
        with span("push", trace="1" * 32, is_first=True):
            pass
        return trace_headers()[HEADER]

    with traced_by(told):
        assert await alone(moves()) == f"00-{TRACE}-{SPAN}-00"
    assert told.spans == [
        ("claim", TRACE, False, [link], {"institution": "cu-1"}),
        ("push", "1" * 32, True, [], {}),
    ]
    assert trace_headers() == {}


def test_trace_is_thirty_two_digits() -> None:
    """And not all zero; large letters are not used."""
    assert is_trace(TRACE)
    assert is_trace(new_trace())
    assert [is_trace(text) for text in ("", "0" * 32, TRACE.upper(), TRACE[1:], f"{TRACE}0")] == [False] * 5
