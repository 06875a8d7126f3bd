"""Shows a call's story on a terminal of 120 columns."""

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from callkeeper.terminal import safe, shown
from calls.story import Line, Row, Story, Tone

_STYLES = {
    Tone.EVENT: "",
    Tone.READ: "dim",
    Tone.CHECK: "cyan",
    Tone.SAID: "magenta",
    Tone.DECIDED: "bold",
    Tone.EFFECT: "yellow",
    Tone.TROUBLE: "bold red",
}
_ROW_STYLES = {"+": "green", "-": "dim", "~": "blue", ".": "dim"}


def story_table(story: Story, *, with_rows: bool) -> RenderableType:
    """Return the story's lines; ``with_rows`` shows how every rule fared in every decision."""
    table = Table.grid(padding=(0, 1))
    table.add_column(justify="right", no_wrap=True)
    table.add_column()
    for line in story.lines:
        table.add_row(_when(line), shown(line.text, _STYLES[line.tone]))
        width = max((len(safe(row.rule)) for row in line.rows), default=0)
        for row in line.rows if with_rows else ():
            table.add_row("", _row(row, width))
    return table


def _when(line: Line) -> str:
    until = f" to {line.until_s:.1f}" if line.until_s is not None else ""
    return f"{line.at_s:.1f}{until} s"


def _row(row: Row, width: int) -> Text:
    return shown(f"    {row.mark} {safe(row.rule):<{width}}  {row.text}", _ROW_STYLES[row.mark])
