"""What ``callkeeper run`` shows in the terminal: both sides of the demonstration, side by side."""

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from callkeeper.demo import Demo, Picture
from callkeeper.terminal import safe, shown

_REASONS = {
    "authenticated": "green",
    "enrolled": "green",
    "rejected": "red",
    "red": "red",
    "undecided": "yellow",
    "unassigned": "yellow",
    "lost": "yellow",
    "unresolved": "red",
}


def addresses(demo: Demo) -> Text:
    """Return where to look, with the login of the dashboard."""
    return Text.assemble(
        ("callkeeper  ", "bold"),
        f"{safe(demo.web_url)}/board  (jobs at /rq, figures at /metrics)\n",
        ("login       ", "bold"),
        f"{safe(demo.admin)}\n",
        ("sandbox     ", "bold"),
        f"{safe(demo.service_url)}/  (start calls, see pushes, send samples)\n",
        ("redis       ", "bold"),
        safe(demo.redis_url),
    )


def picture_panel(demo: Demo, picture: Picture, seconds: float) -> RenderableType:
    """Return the screen: addresses, our calls, the stand-in's counts."""
    tables = Table.grid(padding=(0, 4))
    tables.add_row(_ours(picture), _theirs(picture))
    faults = picture.faults()
    verdict = shown("; ".join(faults), "bold red") if faults else shown("no promise broken", "green")
    return Group(
        Panel(addresses(demo), title="running", subtitle=f"{seconds:.0f} s - Ctrl-C stops", title_align="left"),
        tables,
        verdict,
    )


def _ours(picture: Picture) -> Table:
    table = Table(title="callkeeper's calls", title_justify="left", show_header=False, box=None)
    table.add_row("live", str(picture.live))
    for reason, colour in _REASONS.items():
        if picture.reasons[reason]:
            table.add_row(shown(reason, colour), str(picture.reasons[reason]))
    table.add_row("checks used", str(picture.checks_used))
    table.add_row("need a human", str(picture.attention))
    return table


def _theirs(picture: Picture) -> Table:
    counts, pushes = picture.requests, picture.service["pushes"]
    table = Table(title="what the sandbox saw", title_justify="left", show_header=False, box=None)
    rows = {
        "calls": f"{picture.service['calls']} ({picture.service['live']} live)",
        "pushes accepted": f"{pushes['accepted']} of {pushes['sent']} sent, {pushes['lost']} lost on purpose",
        "listings": str(counts.get("queue", 0)),
        "assigns": str(counts.get("assign", 0)),
        "checks": f"{counts.get('check', 0)} (most for one call: {picture.service['most_checks_arrived']} of 20)",
        "reads": str(counts.get("read", 0)),
        "enrolls": str(counts.get("enroll", 0)),
        "rejects": str(counts.get("reject_voice", 0)),
    }
    for name, value in rows.items():
        table.add_row(name, value)
    return table


def summary_lines(picture: Picture) -> list[str]:
    """Return the words on leaving: what the stand-in counted, and whether that keeps the promises."""
    service, counts = picture.service, picture.requests
    settled = sum(picture.reasons.values())
    lines = [
        f"The sandbox saw {service['calls']} calls, {service['ended']} of them ended; callkeeper settled {settled}.",
        (
            f"Requests: {counts.get('assign', 0)} assigns, {counts.get('check', 0)} checks"
            f" (at most {service['most_checks_arrived']} for one call, 20 are allowed),"
            f" {counts.get('enroll', 0)} enrolls, {counts.get('reject_voice', 0)} rejects."
        ),
        "Settled as: "
        + (", ".join(f"{n} {reason}" for reason, n in picture.reasons.most_common()) or "none yet")
        + ".",
    ]
    faults = picture.faults()
    if faults:
        return [*lines, "BROKEN: " + "; ".join(faults) + "."]
    return [*lines, "Every ended call is settled, no budget exceeded, no effect sent twice."]
