"""The certificate as Markdown and as JSON. It has nothing of a person, so that it can be sent to anybody."""

from collections.abc import Sequence
from importlib import metadata
from typing import Final

import msgspec

from callkeeper.app.certification.evidence import CallEvidence
from callkeeper.app.certification.verdicts import PromiseState, PromiseVerdict, all_hold
from callkeeper.app.terminal import safe

FORMAT: Final = 1


def conclusion(found: Sequence[PromiseVerdict]) -> str:
    """Return the result of all verdicts in a sentence."""
    if all_hold(found):
        return "Every required promise holds."
    broken = [verdict.id for verdict in found if verdict.state is PromiseState.DOES_NOT_HOLD]
    unseen = [verdict.id for verdict in found if verdict.state is PromiseState.NOT_SEEN and verdict.is_required]
    parts = [
        f"{'; '.join(broken)} {'does' if len(broken) == 1 else 'do'} not hold" if broken else "",
        f"{'; '.join(unseen)} {'was' if len(unseen) == 1 else 'were'} not seen" if unseen else "",
    ]
    return f"Do not switch effects on yet: {', and '.join(part for part in parts if part)}."


def markdown(evidence: CallEvidence, found: Sequence[PromiseVerdict]) -> str:
    """Return the certificate for people."""
    when = f"{evidence.began_at:%Y-%m-%d %H:%M:%S} to {evidence.taken_at:%Y-%m-%d %H:%M:%S} UTC"
    lines = [
        f"# Certificate of a test call at {_cell(evidence.institution_key)}",
        "",
        f"callkeeper {metadata.version('callkeeper')}, {when}. Instants are by Redis's clock.",
        "",
        conclusion(found),
        "",
        "| promise | verdict | what was seen |",
        "|---|---|---|",
        *(f"| {verdict.promise} | {_mark(verdict)} | {_cell(verdict.evidence)} |" for verdict in found),
        "",
    ]
    remedies = [verdict for verdict in found if not verdict.is_good and verdict.remedy]
    if remedies:
        lines += ["## What to do", "", *(f"- {each.promise}: {_cell(each.remedy)}." for each in remedies), ""]
    if evidence.survey:
        lines += [
            "## What was seen of the service",
            "",
            "| assumption | state | |",
            "|---|---|---|",
            *(f"| {_cell(row.id)} | {row.state.replace('_', ' ')} | {_cell(row.text)} |" for row in evidence.survey),
            "",
        ]
    return "\n".join(lines)


def as_json(evidence: CallEvidence, found: Sequence[PromiseVerdict]) -> bytes:
    """Return the certificate for programs."""
    content = {
        "format": FORMAT,
        "version": metadata.version("callkeeper"),
        "institution": evidence.institution_key,
        "began_at": evidence.began_at,
        "ended_at": evidence.taken_at,
        "rules": [rules.digest for rules in evidence.installation.rules],
        "all_hold": all_hold(found),
        "promises": [
            {
                "id": each.id,
                "promise": each.promise,
                "state": each.state.replace(" ", "_"),
                "required": each.is_required,
                "evidence": each.evidence,
                "remedy": each.remedy or None,
            }
            for each in found
        ],
        "survey": [{"id": row.id, "state": row.state, "text": row.text} for row in evidence.survey],
    }
    return msgspec.json.format(msgspec.json.encode(content), indent=2)


def _mark(verdict: PromiseVerdict) -> str:
    """Return a verdict in words; what stands in the way of effects is bold."""
    if not verdict.is_good:
        return f"**{verdict.state}**"
    return str(verdict.state) if verdict.is_required else f"{verdict.state}, not required"


def _cell(text: object) -> str:
    """Return a text as a cell of a table: one line, without characters that would end the cell."""
    return safe(text).replace("|", "\\|")
