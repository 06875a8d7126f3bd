"""The collector of spans and figures: how its answers are read, and whether it takes what is sent.

A collector is no part of callkeeper, so no answer of it may cost more than the export. Only `callkeeper.app.telemetry`
and `otlp_figures` import this: ``requests`` comes with OpenTelemetry's exporter.
"""

import os
import threading
from collections.abc import Callable
from typing import Any, Final

import requests

SENT_WITHIN_S: Final = 30.0
"""How long an export may take before it is logged as lost. The SDK gives up after 10 s, unless answers trickle in."""


class CollectorSession(requests.Session):
    """Reads the status and headers of an answer and nothing else. A redirect is a failure."""

    def send(self, request: requests.PreparedRequest, **kwargs: Any) -> requests.Response:
        """Send a request, and close the answer without its body, which may be endless or a gzip bomb.

        Raises:
            requests.HTTPError: The answer is a redirect. The SDK takes it for a success.
        """
        answer = super().send(request, **kwargs | {"stream": True})
        answer.close()
        if 300 <= answer.status_code < 400:
            raise requests.HTTPError(f"redirect {answer.status_code}")
        return answer

    def get_redirect_target(self, resp: requests.Response) -> None:
        """Name no target: ``requests`` reads the whole body of an answer that has one, even if it does not follow."""


def collector_session() -> CollectorSession | None:
    """Return the session of an exporter; None if a credential provider of the SDK gives it one."""
    is_given = any(name.startswith("OTEL_") and name.endswith("_CREDENTIAL_PROVIDER") for name in os.environ)
    return None if is_given else CollectorSession()


class DeliveryWatch:
    """Logs once that the collector does not take a signal, and once that it takes it again."""

    def __init__(self, log: Any, signal: str, *, within_s: float = SENT_WITHIN_S) -> None:
        self._log = log
        self._signal = signal
        self._within_s = within_s
        self._works = True

    def export(self, send: Callable[[], bool]) -> bool:
        """Run one export; note and return whether it was taken. One that hangs is noted before it ends."""
        late = threading.Timer(self._within_s, self.note, (False,))
        late.daemon = True
        late.start()
        try:
            was_taken = send()
        except Exception:  # noqa: BLE001  (whatever a library does with a collector's answer, an export is not worth more)
            was_taken = False
        finally:
            late.cancel()
        self.note(was_taken)
        return was_taken

    def note(self, was_taken: bool) -> None:
        """Note the result of one export."""
        if was_taken and not self._works:
            self._log.info("telemetry_back", signal=self._signal)
        elif self._works and not was_taken:
            self._log.warning("telemetry_away", signal=self._signal)
        self._works = was_taken
