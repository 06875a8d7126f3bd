"""Draws a schedule over F and S: as text for a terminal, and as SVG for a document."""

from collections.abc import Sequence
from html import escape
from itertools import pairwise

from callkeeper.calls.schedule.model import Model

WIDTH, HEIGHT = 860, 420
LEFT, RIGHT, TOP, BOTTOM = 60, 20, 60, 50
BAR = 30
TICKS_S = (1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0)


def draw_text(model: Model, at_s: Sequence[float]) -> str:
    """Draw a schedule as a table: each check with its gap, F and S at that moment, and a bar for its results."""
    lines = ["check       at      gap   result by then   call alive   found by this check"]
    widest = max((_found(model, a, b) for a, b in pairwise([0.0, *at_s])), default=1.0) or 1.0
    for n, (before, t) in enumerate(pairwise([0.0, *at_s]), 1):
        found = _found(model, before, t)
        bar = "█" * round(BAR * found / widest)
        known, alive = model.known_at(t), model.alive_at(t)
        lines.append(
            f"{n:5}  {t:6.2f} s {t - before:6.2f} s  {known:13.1%}  {alive:11.1%}   {found:5.1%} {bar}".rstrip()
        )
    lines.append(
        f"mean lag {model.lag(at_s):.2f} s, over the {model.decided_share:.1%} of calls that get a result in time"
    )
    return "\n".join(lines)


def _found(model: Model, a: float, b: float) -> float:
    """Return the share of calls whose result comes within a gap and is found at its end."""
    return (model.known_at(b) - model.known_at(a)) * model.alive_at(b)


def draw_svg(model: Model, at_s: Sequence[float], title: str) -> str:
    """Draw F, S and the checks as a complete SVG document. The time axis ends a little after the last check."""
    span_s = min(model.horizon_s, 1.15 * at_s[-1])
    body = [
        f'<text x="{LEFT}" y="24" class="title">{escape(title)}</text>',
        *_axes(span_s),
        *(_check(t, span_s) for t in at_s),
        _curve([model.known_at(t) for t in _samples(span_s)], "known"),
        _curve([model.alive_at(t) for t in _samples(span_s)], "alive"),
        _legend(WIDTH - 300, "known", "result exists (F)"),
        _legend(WIDTH - 130, "alive", "call lives (S)"),
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">\n'
        f"<style>{_STYLE}</style>\n" + "\n".join(body) + "\n</svg>\n"
    )


_STYLE = (
    "svg{background:#fff;font:12px sans-serif}.title{font-size:15px;font-weight:bold}.axis{stroke:#333}.grid{stroke:#ddd}"
    ".check{stroke:#d97706;stroke-width:1.5}.known{stroke:#1d4ed8}.alive{stroke:#15803d;stroke-dasharray:6 4}"
    "polyline{fill:none;stroke-width:2}"
)


def _samples(span_s: float) -> list[float]:
    return [n * span_s / 300 for n in range(301)]


def _x(t_s: float, span_s: float) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * t_s / span_s


def _y(share: float) -> float:
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * share


def _axes(span_s: float) -> list[str]:
    step_s = next((tick for tick in TICKS_S if span_s / tick <= 12), TICKS_S[-1])
    parts = []
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        y = _y(share)
        parts.append(f'<line class="grid" x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{share:.0%}</text>')
    for n in range(int(span_s / step_s) + 1):
        x = _x(n * step_s, span_s)
        parts.append(f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{n * step_s:g}</text>')
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(f'<text x="{middle}" y="{HEIGHT - 12}" text-anchor="middle">seconds after the watch began</text>')
    parts.append(f'<line class="axis" x1="{LEFT}" y1="{_y(0):.1f}" x2="{WIDTH - RIGHT}" y2="{_y(0):.1f}"/>')
    return parts


def _check(t_s: float, span_s: float) -> str:
    place = f'x1="{_x(t_s, span_s):.1f}" y1="{_y(0):.1f}" x2="{_x(t_s, span_s):.1f}" y2="{_y(0.06):.1f}"'
    return f'<line class="check" {place}><title>{t_s:g} s</title></line>'


def _curve(shares: Sequence[float], name: str) -> str:
    width = (WIDTH - LEFT - RIGHT) / (len(shares) - 1)
    points = " ".join(f"{LEFT + n * width:.1f},{_y(share):.1f}" for n, share in enumerate(shares))
    return f'<polyline class="{name}" points="{points}"/>'


def _legend(x: float, name: str, text: str) -> str:
    return f'<polyline class="{name}" points="{x},40 {x + 24},40"/><text x="{x + 30}" y="44">{text}</text>'
