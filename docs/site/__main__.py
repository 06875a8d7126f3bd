"""``make docs``: gather the pages into a folder, from which zensical builds the site.

Pages keep their place in the repository; their links are rewritten here. A link to a file that is no page leads to a copy.
"""

import re
import shutil
import sys
from pathlib import Path
from typing import Final

from docs.site import reference

ROOT: Final = Path(__file__).parents[2]
HERE: Final = Path(__file__).parent

PAGES: Final = {
    "ARCHITECTURE.md": "architecture.md",
    "SECURITY.md": "security.md",
    "CHANGELOG.md": "changelog.md",
    "README.md": "index.md",
    "deploy/README.md": "deploy.md",
    "tests/README.md": "tests.md",
    **{f"docs/{path.name}": path.name for path in sorted((ROOT / "docs").glob("*.md"))},
    "docs/site/index.md": "index.md",
}
"""Where each page of the repository is on the site."""

WRITTEN: Final = {
    "commands.md": reference.commands,
    "desk-api.md": reference.desk_api,
    "webhook-messages.md": reference.webhooks,
    "metrics.md": reference.metrics,
}
"""Pages that are written from the code."""

_LINK: Final = re.compile(r"\[([^\]]*)\]\(([^)#:\s]+)(#[^)\s]*)?\)")


def gather(target: Path) -> None:
    """Write all pages, the files that they link to, and zensical's settings into an empty folder.

    Raises:
        FileNotFoundError: A page links to what is not there.
    """
    shutil.rmtree(target, ignore_errors=True)
    pages = target / "pages"
    shutil.copytree(HERE / "assets", pages / "assets")
    shutil.copy(HERE / "zensical.toml", target)
    for source, name in PAGES.items():
        if source != "README.md":
            text = _with_diagrams((ROOT / source).read_text(encoding="utf-8"))
            (pages / name).write_text(_relinked(text, (ROOT / source).parent, pages), encoding="utf-8")
    for name, write in WRITTEN.items():
        (pages / name).write_text(write() + "\n", encoding="utf-8")


def _relinked(text: str, folder: Path, pages: Path) -> str:
    def place(found: re.Match[str]) -> str:
        path = (folder / found[2]).resolve().relative_to(ROOT)
        name = PAGES.get(str(path)) or (found[2] if found[2] in WRITTEN else None) or _copy(path, pages)
        words = _title(path) if found[1].endswith(".md") else found[1]
        return f"[{words}]({name}{found[3] or ''})"

    return _LINK.sub(place, text)


def _title(path: Path) -> str:
    """Return the heading of a page: where a link shows a file's name, the site shows this."""
    return (ROOT / path).read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")


def _copy(path: Path, pages: Path) -> str:
    """Copy a file that is no page; return where it is."""
    copy = pages / "files" / path
    if (ROOT / path).is_dir():
        raise FileNotFoundError(f"{path} is a folder: link to a file")
    copy.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(ROOT / path, copy)
    return str(copy.relative_to(pages))


def _with_diagrams(text: str) -> str:
    """Put drawings into the page itself, so that they follow its light or dark colours."""

    def drawing(found: re.Match[str]) -> str:
        svg = (ROOT / "docs" / "diagrams" / found[2]).read_text(encoding="utf-8")
        return f'<figure class="diagram">\n{svg.strip()}\n</figure>'

    return re.sub(r"^!\[([^\]]*)\]\([\w/.]*diagrams/([\w-]+\.svg)\)$", drawing, text, flags=re.MULTILINE)


if __name__ == "__main__":
    gather(Path(sys.argv[1]))
