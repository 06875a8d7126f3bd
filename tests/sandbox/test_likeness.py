"""``--like FILE``: the sandbox answers as the service was seen to answer, or refuses a file that it cannot follow."""

import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner

from callkeeper.app.cli import main
from callkeeper_sandbox.service import storage
from callkeeper_sandbox.service.likeness import LikenessError, load_likeness, with_own
from tests.sandbox.test_command import running

SEEN = """# Written by callkeeper service survey. No data about people.
format = 1
[variants]
seen = ["page-capped", "numbers-e164"]
usual = ["How large can `pageSize` be"]
"""


def written(path: Path, text: str) -> Path:
    """Write a file; return it."""
    path.write_text(text, encoding="utf-8")
    return path


def chosen(url: str) -> list[str]:
    """Return the variants in force at a sandbox."""
    names: list[str] = httpx.get(f"{url}/control/variants", trust_env=False).json()["chosen"]
    return names


def test_likeness_names_the_variants_that_were_seen(tmp_path: Path) -> None:
    """The names under ``seen`` are the answer; everything else in the file is ignored."""
    more = '\n[survey]\nwritten_by = "0.4.0"\n'
    assert load_likeness(written(tmp_path / "like.toml", SEEN + more)) == ("page-capped", "numbers-e164")


@pytest.mark.parametrize(
    ("text", "line", "problem", "remedy"),
    [
        ("format = [", "", "this is no TOML: ", "write it again with `callkeeper service survey --export FILE`"),
        ("", ":1", "`format` is missing", "write it again"),
        ("# a\nformat = 2\n", ":2", "format 2 is unknown", "this sandbox reads format 1: install the release"),
        ("format = true\n", ":1", "format True is unknown", "this sandbox reads format 1"),
        ("format = 1\n", ":1", "`variants.seen` is missing", "name the variants in the table `[variants]`"),
        ("format = 1\n\n[variants]\n", ":3", "`variants.seen` is missing", "[] is the usual service"),
        ('format = 1\n[variants]\nseen = "x"\n', ":3", "`variants.seen` is not a list", 'write seen = ["NAME", ...]'),
        (
            'format = 1\n[variants]\nusual = ["page-kapped"]\nseen = [\n  "list-bare",\n  "page-kapped",\n]\n',
            ":6",
            "no variant is called 'page-kapped'; the nearest is page-capped",
            "remove it or correct the name (docs/variants.md lists all)",
        ),
        (
            "format = 1\n[variants]\nseen = [\n  'list-bare',\n  'page-capped',\n  'list-items',\n]\n",
            ":6",
            "list-bare and list-items answer the same question: How is the list of institutions wrapped",
            "remove one of them",
        ),
    ],
    ids=["no-toml", "empty", "newer", "odd-format", "no-table", "no-list", "no-list-but-text", "misspelt", "both"],
)
def test_likeness_that_cannot_be_followed_is_refused(
    tmp_path: Path, text: str, line: str, problem: str, remedy: str
) -> None:
    """The message names the file, the line, the fault and the remedy."""
    path = written(tmp_path / "like.toml", text)
    with pytest.raises(LikenessError) as refused:
        load_likeness(path)
    message = str(refused.value)
    assert message.startswith(f"{path}{line}: {problem}")
    assert remedy in message


def test_missing_or_foreign_file_is_refused(tmp_path: Path) -> None:
    """A file that is missing, is a folder, has other letters than UTF-8 or is huge is refused with its name."""
    (tmp_path / "latin.toml").write_bytes(b"format = 1 # \xe9\n")
    (tmp_path / "huge.toml").write_bytes(b"#" * 200_000)
    for name, words in (
        ("gone.toml", "No such file or directory"),
        (".", "Is a directory"),
        ("latin.toml", "not UTF-8"),
        ("huge.toml", "too large"),
    ):
        with pytest.raises(LikenessError, match=words):
            load_likeness(tmp_path / name)


def test_own_variants_replace_those_of_the_file() -> None:
    """A variant chosen by hand replaces the file's answer to its question, and leaves the others."""
    assert with_own(("page-capped", "numbers-e164"), ("page-refused", "list-bare")) == (
        "numbers-e164",
        "page-refused",
        "list-bare",
    )


def test_command_answers_as_the_service_in_the_file(tmp_path: Path) -> None:
    """With ``--like`` the variants of the file are in force, with one replaced by ``--variant``.

    A later file with no variant is obeyed too: the state file's variants do not come back.
    """
    like, state = tmp_path / "like.toml", ("--scenario", "none", "--state-file", str(tmp_path / "state.json"))
    with running(*state, "--like", str(written(like, SEEN)), "--variant", "page-refused") as (process, url):
        assert chosen(url) == ["numbers-e164", "page-refused"]
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=10)
    with running(*state) as (process, url):
        assert chosen(url) == ["numbers-e164", "page-refused"]
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=10)
    with running(*state, "--like", str(written(like, "format = 1\nvariants.seen = []\n"))) as (_, url):
        assert chosen(url) == []


@pytest.mark.night
def test_demonstration_has_a_sandbox_like_the_file(tmp_path: Path) -> None:
    """``callkeeper run --like FILE`` passes the file to its sandbox, whose state shows the variants afterwards."""
    like, data = written(tmp_path / "like.toml", SEEN), tmp_path / "data"
    command = [sys.executable, "-m", "callkeeper", "run", "--seconds=1", "--workers=1", f"--data={data}"]
    subprocess.run([*command, f"--like={like}"], check=True, capture_output=True, timeout=60)  # noqa: S603  (our own)
    read = storage.load(data / "sandbox.json")
    assert read is not None
    assert storage.restore(read).world.state.variants == ["page-capped", "numbers-e164"]


@pytest.mark.parametrize("command", ["sandbox", "run"])
def test_command_refuses_a_file_before_it_starts_anything(tmp_path: Path, command: str) -> None:
    """A file that cannot be followed is one line and exit code 1."""
    path = written(tmp_path / "like.toml", "format = 1\n[variants]\nseen = ['list-bear']\n")
    answer = CliRunner().invoke(main, [command, "--like", str(path)])
    assert answer.exit_code == 1
    assert answer.output == (
        f"Error: {path}:3: no variant is called 'list-bear'; the nearest is list-bare; "
        "remove it or correct the name (docs/variants.md lists all)\n"
    )
