"""docs/examples/outcome_receiver.py as a process: it verifies, acts once on what comes again, exchanges its secret."""

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from callkeeper.calls.outcome_messages import OutcomeMessage, example_of
from callkeeper.service import Secret
from tests.harness.courier import SECRET
from workers.signed_webhooks import Answer, WebhookClient

EXAMPLE = Path(__file__).parents[3] / "docs" / "examples" / "outcome_receiver.py"
OLD, NEW = SECRET, "whsec_bmV3LWNhbmFyeS1vdXRjb21lLWtleS0wMTIzNDU2Nzg5"


@contextmanager
def receiver(database: Path, *keys: str) -> Iterator[str]:
    """Run the example until the block ends; yield its address."""
    secrets = database.with_name("secrets.txt")
    secrets.write_text("\n".join(keys) + "\n", encoding="utf-8")
    command = [sys.executable, str(EXAMPLE), "0", str(database), str(secrets)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603  (our own)
        assert process.stdout is not None
        port = process.stdout.readline().split()[-1]
        try:
            yield f"http://127.0.0.1:{port}/"
        finally:
            process.kill()


async def post(url: str, message_id: str, *keys: str) -> Answer:
    """Post an outcome signed with these keys."""
    message = msgspec.convert(example_of("call.settled"), OutcomeMessage)
    client = WebhookClient.open(url, [Secret(key) for key in keys])
    try:
        return (await client.post(message_id, message)).answer
    finally:
        await client.aclose()


async def test_receiver_acts_once_and_exchanges_its_secret(tmp_path: Path) -> None:
    """The same message twice, also after kill -9, is one effect; old and new secret are good while both sign."""
    database = tmp_path / "outcomes.sqlite"
    with receiver(database, OLD) as url:
        assert await post(url, "m-1", OLD) is Answer.TAKEN
        assert await post(url, "m-1", OLD) is Answer.TAKEN
        assert await post(url, "m-2", NEW) is Answer.DECLINED
        assert await post(url, "m-2", NEW, OLD) is Answer.TAKEN
    with receiver(database, NEW) as url:
        assert await post(url, "m-2", NEW, OLD) is Answer.TAKEN
        assert await post(url, "m-3", NEW, OLD) is Answer.TAKEN
        assert await post(url, "m-4", NEW) is Answer.TAKEN
        assert await post(url, "m-5", OLD) is Answer.DECLINED
    with closing(sqlite3.connect(database)) as known:
        assert known.execute("SELECT count(*) FROM settled").fetchone() == (4,)


async def test_receiver_is_not_fooled(tmp_path: Path) -> None:
    """What is too old is refused: whoever has recorded a post cannot play it back later."""
    with receiver(tmp_path / "outcomes.sqlite", OLD) as url:
        client = WebhookClient.open(url, [Secret(OLD)])
        late = msgspec.convert(example_of("call.settled"), OutcomeMessage)
        client = type(client)(client.url, client.webhooks, client.client, lambda: datetime(2020, 1, 1, tzinfo=UTC))
        assert (await client.post("m-1", late)).answer is Answer.DECLINED
        await client.aclose()
