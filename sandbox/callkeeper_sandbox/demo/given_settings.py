"""Settings that a person gives to ``callkeeper run``, for each process that reads them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from callkeeper.app.environment import Variable
from callkeeper.app.settings import WebSettings, WorkerSettings
from callkeeper.calls.institutions import nearest

AGENT_PAGE: Final = "http://localhost:8790"
"""The origin of docs/examples/agent_page.py in the tutorial, which may use the desk of a demonstration."""

OWN: Final = frozenset(
    {"REDIS_URL", "PORT", "CALLKEEPER_REDIS_PREFIX", "CALLKEEPER_PUSH_HEADERS", "CALLKEEPER_ADMIN"}
    | {"CALLKEEPER_SERVICE_URL", "CALLKEEPER_ACCESS_TOKEN", "CALLKEEPER_EMAIL"}
    | {"CALLKEEPER_PASSWORD"}
)
"""What a demonstration sets itself."""


class SettingsRefused(Exception):
    """A setting does not exist, is the demonstration's own, or has a wrong value, which is not repeated."""


@dataclass(frozen=True, slots=True)
class GivenSettings:
    """Settings by name. ``port`` is where the web process listens; 0: on a free port."""

    values: Mapping[str, str]
    port: int = 0

    @classmethod
    def of(cls, files: Iterable[Path], lines: Iterable[str], *, port: int = 0) -> "GivenSettings":
        """Read settings of files with a NAME=VALUE in each line, and further lines, which count before those.

        Raises:
            SettingsRefused: Something is wrong with them; lists all of it.
        """
        texts = [line.strip() for path in files for line in path.read_text(encoding="utf-8").splitlines()]
        texts = [text for text in texts if text and not text.startswith("#")] + list(lines)
        values = {name.strip(): _unquoted(value.strip()) for name, _, value in (text.partition("=") for text in texts)}
        known = WebSettings.variables() | WorkerSettings.variables()
        problems = [problem for name, value in values.items() if (problem := _problem(name, value, known))]
        if "CALLKEEPER_OIDC_ISSUER" in values and not port:
            problems.append("the identity provider redirects to a fixed address: name the port of web, --port 8000")
        if problems:
            raise SettingsRefused("\n".join(problems))
        return cls(values, port)

    def of_web(self) -> dict[str, str]:
        """Return what the web process reads."""
        fixed = {"CALLKEEPER_PUBLIC_URL": f"http://127.0.0.1:{self.port}"} if self.port else {}
        page = {"CALLKEEPER_DESK_ORIGINS": AGENT_PAGE}
        return {**page, **fixed, **self._read_by(WebSettings.variables())}

    def of_workers(self, outcome_key: str) -> dict[str, str]:
        """Return what workers read; ``outcome_key`` signs outcomes by default."""
        posts = {"CALLKEEPER_OUTCOME_SECRET": outcome_key}
        return {**(posts if self.outcome_url else {}), **self._read_by(WorkerSettings.variables())}

    @property
    def outcome_url(self) -> str | None:
        """Return where outcomes are posted."""
        return self.values.get("CALLKEEPER_OUTCOME_URL")

    @property
    def archive_url(self) -> str | None:
        """Return where calls are archived, if not in the demonstration's own file."""
        return self.values.get("CALLKEEPER_ARCHIVE_URL")

    def _read_by(self, known: Mapping[str, Variable]) -> dict[str, str]:
        return {name: value for name, value in self.values.items() if name in known}


def _unquoted(text: str) -> str:
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" else text


def _problem(name: str, value: str, known: Mapping[str, Variable]) -> str:
    """Return what is wrong with a setting; empty if nothing is."""
    if name in OWN:
        return f"{name}: the demonstration sets this itself"
    if name not in known:
        meant = nearest(name, known)
        return f"{name[:60]}: is no setting" + (f"; did you mean {meant}?" if meant else "")
    try:
        known[name].parse(value)
    except ValueError as error:
        return f"{name}: {error}\n  for example: {name}={known[name].example}"
    return ""
