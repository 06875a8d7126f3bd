"""Shows a call's story on a terminal of 120 columns."""

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

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


def wide_console() -> Console:
    """Return a console of the terminal's width, of 120 columns where there is none."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=120)


def story_table(story: Story, *, with_rows: bool) -> RenderableType:
    """Return the story's lines; ``with_rows`` shows how every rule fared in every decision."""
    table = Table.grid(padding=(0, 1))
    table.add_column(justify="right", no_wrap=True)
    table.add_column()
    for line in story.lines:
        table.add_row(_when(line), Text(line.text, style=_STYLES[line.tone]))
        width = max((len(row.rule) for row in line.rows), default=0)
        for row in line.rows if with_rows else ():
            table.add_row("", _row(row, width))
    return table


def _when(line: Line) -> str:
    until = f" to {line.until_s:.1f}" if line.until_s is not None else ""
    return f"{line.at_s:.1f}{until} s"


def _row(row: Row, width: int) -> Text:
    return Text(f"    {row.mark} {row.rule:<{width}}  {row.text}", style=_ROW_STYLES[row.mark])
