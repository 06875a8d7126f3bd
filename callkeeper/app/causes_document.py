"""Writes the table of causes into docs/operations.md and deploy/prometheus/alerts.yml.

`make generate` runs ``python -m callkeeper.app.causes_document``. Each file keeps what stands before and after its part.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from textwrap import wrap
from typing import Final

from callkeeper.calls.causes import CAUSES, REDIS_AWAY, Cause, IncidentKind, Weight
from callkeeper.calls.institutions import OBSTACLES, REMEDIES
from callkeeper.calls.store.last_errors import FOREIGN, fault_words
from callkeeper.calls.store.writable import REFUSALS
from callkeeper.service.network_failure import CertificateFault

RUNBOOK: Final = "docs/operations.md"
RULES: Final = "deploy/prometheus/alerts.yml"
_PLACES: Final = {
    RUNBOOK: re.compile(r"(?<=\n)### incident: .*?(?=## Incident: )", re.DOTALL),
    RULES: re.compile(
        r"(?<=# The incidents, from callkeeper/calls/causes.py by `make generate`.\n).*?(?=      # The )", re.DOTALL
    ),
}
_UNSEEN: Final = frozenset({IncidentKind.NO_WEB})
"""Only web processes export figures, so Prometheus sees this one as a failing scrape."""


def with_causes(path: str, text: str) -> str:
    """Return the text of one of the two files with its part written anew."""
    rows = (
        [REDIS_AWAY, *CAUSES.values()]
        if path == RUNBOOK
        else [CAUSES[one] for one in IncidentKind if one not in _UNSEEN]
    )
    part = "".join((_section if path == RUNBOOK else _rules)(row) for row in rows)
    return _PLACES[path].sub(lambda _: part, text)


def _section(cause: Cause) -> str:
    paragraphs = [
        f"**{cause.title}** ({cause.weight}). {cause.see}",
        f"*Do*: {cause.do}",
        *(f"- *{what}*: {do}" for what, do in _special_cases(cause)),
        f"*Ends* {cause.ends}",
    ]
    lines = [f"### incident: {cause.name.replace('_', ' ')}"]
    for paragraph in paragraphs:
        is_item = paragraph.startswith("- ")
        if not (is_item and lines[-1].startswith(("- ", "  "))):
            lines.append("")
        lines += wrap(paragraph, 116, subsequent_indent="  " * is_item, break_long_words=False, break_on_hyphens=False)
    return "\n".join([*lines, "", ""])


def _special_cases(cause: Cause) -> Iterator[tuple[str, str]]:
    """Yield what some faults are called by an incident, and what to do about them."""
    yield from cause.special
    if cause.name == IncidentKind.REDIS_REFUSES:
        yield from ((words.what, words.advice) for words in REFUSALS.values())
    if cause.name == IncidentKind.NOT_ACTIVE:
        yield from ((OBSTACLES[one], f"{REMEDIES[one]}.") for one in OBSTACLES)
    if cause.name == IncidentKind.SERVICE_AWAY:
        yield from filter(None, map(fault_words, [FOREIGN, *CertificateFault.__members__]))


def _rules(cause: Cause) -> str:
    alert = "".join(word.capitalize() for word in cause.name.split("_"))
    if cause.name != IncidentKind.PUSHES_REFUSED:
        return _rule(f"Callkeeper{alert}", cause, "", cause.weight)
    of_all = _rule(f"Callkeeper{alert}", cause, ',institution=""', cause.weight)
    return of_all + _rule(f"CallkeeperInstitution{alert}", cause, ',institution!=""', Weight.TICKET)


def _rule(alert: str, cause: Cause, where: str, weight: Weight) -> str:
    summary = "{{ with $labels.institution }}{{ . }}: {{ end }}" + f"{cause.title}."
    return f"""      - alert: {alert}
        expr: callkeeper_incident{{kind="{cause.name}"{where}}} == 1
        for: {cause.told_after.total_seconds():.0f}s
        labels: {{severity: {weight}}}
        annotations:
          summary: {json.dumps(summary)}
          description: {json.dumps(f"{cause.see} {cause.do}")}
          runbook_url: https://callkeeper.example/board/operations#{cause.section}

"""


if __name__ == "__main__":
    for name in _PLACES:
        Path(name).write_text(with_causes(name, Path(name).read_text(encoding="utf-8")), encoding="utf-8")
