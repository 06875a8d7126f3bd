"""Which call and which event a task works for: said once, and in every log line and every request of it from then on."""

from structlog.contextvars import bind_contextvars

from reseller.exchange import follow, new_trace


def follow_member(institution_key: str, voice_id: str | None = None) -> None:
    """Say for which institution, and for which of its calls, this task works."""
    bind_contextvars(institution=institution_key, **({} if voice_id is None else {"voice_id": voice_id}))


def follow_trace(trace: str | None = None) -> str:
    """Say for which event this task works; a new one if it works for none. Return its trace."""
    trace = trace or new_trace()
    bind_contextvars(trace_id=trace)
    follow(trace)
    return trace
