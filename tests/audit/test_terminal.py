"""Foreign text is shown harmlessly on a terminal: no escape sequences, forged lines or invisible characters."""

import asyncio
import datetime as dt
import json
import os
import pty
import re
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from redis import Redis

from callkeeper.app.logs import quiet_log, render_console
from callkeeper.app.terminal import printable_json, safe, terminal_console
from callkeeper.calls.alerts import Alert, AlertTold, OpenAlert
from callkeeper.calls.causes import Weight
from callkeeper.calls.effect_ledger import Effect, EffectState
from callkeeper.calls.item_names import CallId, institution_member
from callkeeper.calls.pause import EVERYWHERE, Pause, PauseScope
from callkeeper.calls.record import Call, Phase, Reading, Reason
from callkeeper.calls.record_storage import encode_call
from callkeeper.calls.store.delivery_log import Attempt
from callkeeper.calls.store.job_queue import calls_queue
from callkeeper.calls.store.keys import Keys
from callkeeper.calls.store.last_listing import Standing
from callkeeper.calls.store.pausing import Change
from callkeeper.calls.trail import Entry, Result, Tried, What, encode_entry
from callkeeper_sandbox.commands.run import addresses, picture_panel, summary_lines
from callkeeper_sandbox.demo.comparison import Audit, Fate, Picture
from callkeeper_sandbox.demo.demonstration import Demo
from callkeeper_sandbox.demo.fleet import Fleet
from callkeeper_sandbox.service.server import address, bind, create_server, serve
from callkeeper_sandbox.service.service import Sandbox
from callkeeper_sandbox.service.world import World
from tests.records import with_stored
from tests.sandbox_fixtures import KEY, ServedSandbox

ROOT = Path(__file__).parents[2]
MARKUP = "[bold]markup[/nothing]"
EVIL = (
    f"{MARKUP}\x1b]0;owned\x07\x1b[2J\x9b2J\x00\r\n\x0b\u2028\x85FORGED enroll\u202e\u2066\u200b\ufeff\u3164\U000e0001"
)
"""A text with markup that breaks rich, escape sequences, all kinds of line breaks, bidi and invisible characters."""

OUR_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
NOW = dt.datetime.now(dt.UTC)


def evil(kind: Any, depth: int = 0, **given: Any) -> Any:
    """Return an instance of a record in which every text is hostile, also in inner records."""
    return (
        _filled(msgspec.inspect.type_info(kind), depth) if not given else msgspec.structs.replace(evil(kind), **given)
    )


def _filled(info: Any, depth: int) -> Any:
    match info:
        case msgspec.inspect.StructType():
            filled = {field.name: _filled(field.type, depth + 1) for field in info.fields}
            return info.cls(**filled)
        case msgspec.inspect.UnionType():
            kinds = [one for one in info.types if not isinstance(one, msgspec.inspect.NoneType)]
            return _filled(next((one for one in kinds if isinstance(one, msgspec.inspect.StrType)), kinds[0]), depth)
        case msgspec.inspect.StrType():
            return EVIL
        case msgspec.inspect.EnumType():
            return next(iter(info.cls))
        case msgspec.inspect.LiteralType():
            return info.values[0]
        case msgspec.inspect.VarTupleType():
            return (_filled(info.item_type, depth + 1),)
        case msgspec.inspect.DictType():
            return {EVIL: _filled(info.value_type, depth + 1)}
        case msgspec.inspect.RawType():
            return msgspec.Raw(msgspec.json.encode(EVIL))
        case msgspec.inspect.BoolType():
            return True
        case msgspec.inspect.DateTimeType():
            return NOW
        case msgspec.inspect.IntType() | msgspec.inspect.FloatType():
            return 1
    raise NotImplementedError(type(info))


def trail() -> list[Entry]:
    """Return a trail with a line of every kind, and in its decisions every result of a rule."""
    tried = tuple(evil(Tried, result=result) for result in get_args(Result))
    kinds = [evil(Entry, what=what, tried=tried) for what in get_args(What)]
    held = evil(Entry, what="decided", forbidden=(), tried=tried, asked=EVIL)
    assigned = evil(Entry, what="decided", asked="assign")
    gone = evil(Entry, what="read", policies=(), person_id=None, status=None)
    return [*kinds, held, assigned, gone, evil(Entry, what="facts", facts={EVIL: True})]


@pytest.fixture
def planted(redis_url: str) -> str:
    """Fill Redis with calls, pauses and alerts in which every text is hostile; return its URL."""
    keys = Keys()
    unresolved = evil(Effect, state=EffectState.UNRESOLVED)
    reading = evil(Reading)
    live = with_stored(
        evil(Call), phase=Phase.LIVE, institution_key=KEY, reason=None, reject=unresolved, reading=reading
    )
    settled = with_stored(
        evil(Call), phase=Phase.SETTLED, institution_key=EVIL, reason=Reason.UNRESOLVED, reject=unresolved
    )
    with Redis.from_url(redis_url) as redis:
        calls_queue(redis).enqueue("a.b", description=EVIL)
        for call, where in ((live, keys.live), (settled, keys.settled)):
            member = CallId(call.institution_key, call.voice_id).member
            listed = institution_member(call.institution_key)
            redis.hset(keys.item(listed), "rec", b"{}")
            redis.zadd(keys.due, {listed: NOW.timestamp() * 1000})
            redis.hset(
                keys.standings, call.institution_key, msgspec.json.encode(evil(Standing, key=call.institution_key))
            )
            redis.hset(keys.item(member), "rec", encode_call(call))
            redis.zadd(where, {member: NOW.timestamp() * 1000})
            redis.rpush(keys.trail(member), *map(encode_entry, trail()))
            redis.hset(keys.attention, member, EVIL)
            redis.hset(keys.outbox.attention, member, EVIL)
        attempt = msgspec.json.encode(evil(Attempt, at=NOW))
        redis.zadd(keys.outbox.deliveries, {attempt: NOW.timestamp() * 1000})
        alert = evil(Alert, weight=Weight.PAGE)
        open_alert = OpenAlert(alert=alert, since=NOW, told={"1": AlertTold(NOW)})
        redis.hset(keys.alerts, EVIL, msgspec.json.encode(open_alert))
        for key in (EVERYWHERE, EVIL):
            pause = Pause(scope=PauseScope.ALL, operator=EVIL, because=EVIL, at=NOW)
            redis.hset(keys.pause, key, msgspec.json.encode(pause))
            redis.lpush(keys.pause_history, msgspec.json.encode(evil(Change, institution=key)))
    return redis_url


@pytest.fixture
def service() -> Iterator[ServedSandbox]:
    """Run a service whose institutions, members and calls have hostile names."""
    with bind() as sock:
        sandbox = Sandbox(World())
        sandbox.world.add_institution(KEY, EVIL)
        sandbox.world.add_member(KEY, EVIL, [EVIL], first_name=EVIL, last_name=EVIL)
        server = create_server(sandbox)
        thread = threading.Thread(target=lambda: asyncio.run(serve(server, sandbox, sock)))
        thread.start()
        served = ServedSandbox(address(sock))
        try:
            yield served
        finally:
            served.close()
            server.should_exit = True
            thread.join()


def environ_of(served: ServedSandbox | None, redis_url: str) -> dict[str, str]:
    """Return settings for a service and a Redis."""
    credentials = served.credentials if served else None
    return {
        "PATH": os.environ["PATH"],
        "REDIS_URL": redis_url,
        "CALLKEEPER_SERVICE_URL": served.url if served else "http://127.0.0.1:1",
        "CALLKEEPER_ACCESS_TOKEN": credentials.access_token if credentials else "token-for-tests",
        "CALLKEEPER_EMAIL": credentials.email if credentials else "svc@reseller.example",
        "CALLKEEPER_PASSWORD": credentials.password if credentials else "password-for-tests",
        "CALLKEEPER_REQUESTED_BY": "bot",
        "CALLKEEPER_PUSH_HEADERS": "X-Push-Key: 7d1f0c2b9a8e4d6f-4c07a65e93d2-4c07a65e93d2",
        "COLUMNS": "9000",
        "TERM": "xterm-256color",
        "PYTHONPATH": str(ROOT),
    }


def on_terminal(environ: dict[str, str], *arguments: str, answer: bytes = b"") -> str:
    """Run a command on a terminal and return everything that it wrote."""
    leader, follower = pty.openpty()
    process = subprocess.Popen(  # noqa: S603  (our own commands)
        [sys.executable, "-m", "callkeeper", *arguments], stdin=follower, stdout=follower, stderr=follower, env=environ
    )
    os.close(follower)
    if answer:
        os.write(leader, answer)
    got = b""
    try:
        while piece := os.read(leader, 65536):
            got += piece
    except OSError:
        pass  # Linux: the process has closed its side
    os.close(leader)
    process.wait(30)
    return got.decode(errors="replace")


def assert_harmless(got: str, *, quotes: bool = True) -> None:
    """Assert that the text has no control characters except our own colours and line breaks."""
    text = OUR_COLOURS.sub("", got).replace("\r\n", "\n")
    assert text.strip()
    assert "Traceback" not in text
    strange = {character for character in text if not character.isprintable() or character == "\u3164"} - {"\n"}
    assert strange == set(), text
    assert [line for line in text.splitlines() if line.strip().startswith("FORGED")] == []
    if quotes:
        assert MARKUP in text
        assert "FORGED" in text


REDIS_COMMANDS: tuple[tuple[str, ...], ...] = (
    ("calls", "list"),
    ("calls", "list", "--json"),
    ("calls", "explain", "v-1", "--institution", KEY),
    ("calls", "explain", "v-1", "--institution", KEY, "--all"),
    ("calls", "export"),
    ("calls", "resolve", "v-1", "--institution", KEY, "--absent", "--operator", f"{MARKUP} FORGED"),
    ("calls", "resolve", "v-1", "--institution", EVIL.replace("\x00", ""), "--absent", "--operator", "ann"),
    ("outcomes", "log"),
    ("alerts", "list"),
    ("outcomes", "replay", EVIL.replace("\x00", "")),
    ("pause", "--operator", "ann", "--reason", EVIL.replace("\x00", ""), "--all"),
    ("pauses",),
    ("rules", "report"),
    ("rules", "check", EVIL.replace("\x00", "")),
    ("doctor",),
    (EVIL.replace("\x00", ""),),
    ("calls", "export", "--since", EVIL.replace("\x00", "")),
)
"""One of every group of commands and of every way to print: these run for every change."""

THEIR_VARIANTS: tuple[tuple[str, ...], ...] = (
    ("calls", "explain", EVIL.replace("\x00", ""), "--institution", KEY),
    ("calls", "explain", "v-1"),
    ("calls", "explain", "v-1", "--institution", KEY, "--json"),
    ("calls", "resolve", EVIL.replace("\x00", ""), "--absent", "--operator", "ann"),
    ("outcomes", "log", "--json"),
    ("resume", "--operator", "ann", "--reason", "over"),
    ("pause", "--operator", "ann", "--reason", "drill", "--institution", "cu-x"),
    ("resume", "--operator", "ann", "--reason", "over", "--institution", "cu-x"),
    ("pauses", "--json"),
    ("rules", "report", "--json"),
    ("doctor", "--json"),
    ("--" + EVIL.replace("\x00", ""),),
    ("calls", EVIL.replace("\x00", "")),
)
"""Other options of the same commands: these run at night."""


@pytest.mark.parametrize(
    "command",
    [*REDIS_COMMANDS, *(pytest.param(words, marks=pytest.mark.night) for words in THEIR_VARIANTS)],
    ids=lambda words: " ".join(words).replace(MARKUP, "*")[:40],
)
def test_command_prints_what_is_in_redis_harmlessly(command: tuple[str, ...], planted: str) -> None:
    """Texts of records, trails, pauses and arguments are shown harmlessly."""
    keys = Keys()
    with Redis.from_url(planted) as redis:  # forward an id that can be typed to the call with the hostile id
        redis.hset(keys.item(CallId(KEY, "v-1").member), "moved", CallId(KEY, EVIL).member)
        redis.hset(keys.item(CallId(EVIL, "v-1").member), "moved", CallId(EVIL, EVIL).member)
        redis.hset(keys.item(CallId(KEY, "v-1").member), "rec", redis.hget(keys.item(CallId(KEY, EVIL).member), "rec"))
    assert_harmless(on_terminal(environ_of(None, planted), *command))


@pytest.mark.night
def test_rules_files_are_shown_harmlessly(planted: str, tmp_path: Path) -> None:
    """Names in rules files, cases and exported calls are shown harmlessly."""
    exported = tmp_path / "calls.jsonl"
    exported.write_text(on_terminal({**environ_of(None, planted), "TERM": "dumb"}, "calls", "export"))
    name = json.dumps(EVIL.replace("\U000e0001", ""))  # TOML knows no surrogates
    (tmp_path / "rules.toml").write_text(
        f'[checks]\nat = [10, 20, 40]\n[[rule]]\nname = {name}\nthen = "hold"\nbecause = {name}\n'
    )
    cases = tmp_path / "cases.toml"
    cases.write_text(f'rules = "rules.toml"\n[[case]]\nname = {name}\nexpect = "enroll"\n')
    faulty = tmp_path / "faulty.toml"
    faulty.write_text(f'[checks]\nat = [10]\n[[rule]]\nname = {name}\nthen = {name}\nbecause = ""\n{name} = 1\n')
    broken = tmp_path / "broken.jsonl"
    broken.write_text(json.dumps({"format": EVIL}) + "\n")
    environ = environ_of(None, planted)
    for words, quotes in (
        (("rules", "check", str(tmp_path / "rules.toml")), False),
        (("rules", "check", str(faulty)), True),
        (("rules", "test", str(cases)), True),
        (("rules", "replay", str(tmp_path / "rules.toml"), "--calls", str(exported)), False),
        (("rules", "report", "--calls", str(exported)), True),
        (("rules", "replay", "default", "--calls", str(broken)), False),
    ):
        assert_harmless(on_terminal(environ, *words), quotes=quotes)


@pytest.mark.night
def test_service_is_shown_harmlessly(service: ServedSandbox, redis_url: str) -> None:
    """Names, phone numbers, ids and errors of the service are shown harmlessly."""
    voice_id = service.call(phone_number=EVIL)["voice_id"]
    environ = environ_of(service, redis_url)
    for words in (
        ("queue", KEY),
        ("queue", KEY, "--json"),
        ("details", KEY, voice_id),
        ("details", KEY, EVIL.replace("\x00", "")),
        ("institutions",),
        ("institutions", KEY),
        ("institutions", KEY, "--json"),
    ):
        assert_harmless(on_terminal(environ, "reseller", *words), quotes=words[0] in {"queue", "list"})
    assert_harmless(on_terminal(environ, "doctor"), quotes=False)


@pytest.mark.night
def test_errors_of_the_service_are_shown_harmlessly(service: ServedSandbox, redis_url: str) -> None:
    """An invalid answer with hostile texts is shown harmlessly, in one line."""
    environ = environ_of(service, redis_url)
    body = json.dumps({"success": False, "error": EVIL, "code": EVIL, "message": EVIL})
    for action, status in (("refused", None), ("answer", 400), ("answer", 500), ("html", None)):
        more = {} if status is None else {"status": status}
        service.fault("queue", action, times=2, body=body, **more)
        got = on_terminal(environ, "reseller", "queue", KEY)
        assert_harmless(got, quotes=False)
        assert len(got.strip().splitlines()) == 1
        assert_harmless(on_terminal(environ, "doctor"), quotes=False)


def test_damaged_record_is_not_quoted(planted: str) -> None:
    """A damaged record is left out of lists, and a command about it fails without quoting it."""
    keys = Keys()
    with Redis.from_url(planted) as redis:
        for voice_id in (EVIL, "v-9"):
            damaged = json.dumps({"institution_key": KEY, "phase": EVIL})
            redis.hset(keys.item(CallId(KEY, voice_id).member), "rec", damaged)
    assert_harmless(on_terminal(environ_of(None, planted), "calls", "list"), quotes=False)
    got = on_terminal(environ_of(None, planted), "calls", "explain", "v-9", "--institution", KEY)
    assert_harmless(got, quotes=False)
    assert "ValidationError" in got


def test_letters_that_a_terminal_lacks_do_not_end_a_command(planted: str) -> None:
    """A character that the terminal's encoding lacks is printed as an escape."""
    with Redis.from_url(planted) as redis:
        redis.hset(Keys().pause, "cu-1", msgspec.json.encode(Pause(scope="all", operator="Zoë", because="…", at=NOW)))  # type: ignore[arg-type]
    environ = {**environ_of(None, planted), "PYTHONIOENCODING": "iso-8859-1"}
    for words in (("pauses",), ("doctor",)):
        got = on_terminal(environ, *words)
        assert_harmless(got)
        assert r"Zo\xeb: \u2026" in got.replace("\N{REPLACEMENT CHARACTER}", r"\xeb")


def test_screen_of_a_demonstration_is_harmless(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The counts and addresses on the screen of ``callkeeper run`` are shown harmlessly."""
    counts = {"calls": EVIL, "live": EVIL, "ended": EVIL, "most_checks_arrived": EVIL}
    broken = {"checks_over_budget": EVIL, "enrolled_twice": EVIL, "rejected_twice": EVIL}
    pushes = {"accepted": EVIL, "sent": EVIL, "lost": EVIL}
    requests = {"authenticated": dict.fromkeys(("queue", "assign", "check", "read", "enroll", "reject_voice"), EVIL)}
    summary = {**counts, **broken, "pushes": pushes, "requests": requests}
    picture = Picture(1, Counter({EVIL: 1}), 1, 1, summary)
    audit = Audit(Counter({Fate.SETTLED: 1}), Counter({EVIL: 1}), summary)
    redis: Any = None
    demo = Demo(EVIL, EVIL, EVIL, EVIL, EVIL, Fleet(tmp_path), redis, (), {}, tmp_path / EVIL.replace("\0", ""))
    console = terminal_console(width_if_piped=9000)
    console.print(addresses(demo))
    console.print(picture_panel(picture, 1.0))
    for line in summary_lines(audit):
        console.print(line)
    assert_harmless(capsys.readouterr().out)


def test_log_lines_on_a_terminal_are_harmless(capsys: pytest.CaptureFixture[str]) -> None:
    """Log events on a terminal are shown harmlessly, in one line each."""
    event = {"timestamp": NOW, "level": "info", "event": "push_received", "process": 1, "voice_id": EVIL}
    assert_harmless(render_console(None, "info", event))
    quiet_log().warning("request_failed", endpoint=EVIL)
    got = capsys.readouterr().err
    assert_harmless(got)
    assert got.count("\n") == 1


def test_libraries_and_threads_print_harmlessly() -> None:
    """Log messages of libraries and errors of threads are shown harmlessly, in one line each."""
    code = (
        "import logging, threading; from callkeeper.app.terminal import prepare_terminal; prepare_terminal()\n"
        f"evil = {EVIL!r}\n"
        "def fall(): raise ValueError(evil)\n"
        "try: fall()\n"
        "except ValueError: logging.getLogger('asyncio').exception('lost: %s', evil)\n"
        "thread = threading.Thread(target=fall); thread.start(); thread.join()\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, cwd=ROOT, check=False, timeout=30)  # noqa: S603
    got = ended.stderr.decode()
    assert_harmless(got)
    assert got.startswith("asyncio: lost: ")
    assert "ValueError < " in got.splitlines()[-1]


def test_json_means_the_same_after_it_was_made_printable() -> None:
    """JSON has the same meaning after special characters were escaped."""
    for indent in (0, 2):
        document = msgspec.json.format(msgspec.json.encode({EVIL: [EVIL, "Zoë \U0001f600"]}), indent=indent)
        printed = printable_json(document)
        assert json.loads(printed) == json.loads(document)
        assert_harmless(printed.decode())


BLANK = (0x34F, 0x115F, 0x1160, 0x17B4, 0x180B, 0x180F, 0x2800, 0x3164, 0xFE0F, 0xFFA0, 0x1D159, 0xE0100, 0xE01EF)
"""Fillers, selectors and blanks that Python's ``isprintable`` accepts."""


@pytest.mark.parametrize(
    "character", [chr(n) for n in (*range(32), *range(127, 160), 0x061C, 0xD800, 0x2028, 0x2029, *BLANK)], ids=ascii
)
def test_safe_escapes_control_and_invisible_characters(character: str) -> None:
    """Control and invisible characters become printable escapes, also in JSON."""
    assert safe(f"a{character}b") == f"a{character.encode('unicode_escape').decode()}b"
    if character != "\n" and character != "\ud800":
        assert character not in printable_json(json.dumps(character, ensure_ascii=False).encode()).decode()
    safe(f"a{character}b").encode()
