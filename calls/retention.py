"""For how long what is over is kept. What needs a person is kept until a person has closed it."""

import msgspec


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """How much stays in Redis.

    ``calls_s``: settled calls, their trails, how far their outcomes were sent, and the event log. ``events``: lines of that
    log at most. ``figures_s``: figures by the minute.
    """

    calls_s: int = 14 * 86400
    events: int = 100_000
    figures_s: int = 3600

    @property
    def minutes_s(self) -> int:
        """Return how long a minute of figures is kept: a little longer, for the one that is under way."""
        return self.figures_s + 300
