"""Probes of a service that was away."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from callkeeper.calls.item_names import CallId
from callkeeper.calls.store.breakers import QUEUES, WHOLE, EndpointKind, RequestResult, Scope
from callkeeper.calls.store.request_budget import Permit
from callkeeper.service import ServiceUnavailable
from workers.service_health import Probing

DOUBTED_SINCE_S = 7.0
TRIED = ("tried since", DOUBTED_SINCE_S)


class Stage:
    """Stands for a worker's tools and institutions; ``sent`` has what was asked of the service."""

    def __init__(
        self, *scopes: Scope, calls: tuple[CallId, ...] = (), keys: tuple[str, ...] = ("cu-1", "cu-2")
    ) -> None:
        self.sent: list[Any] = []
        self.may_be_late: list[bool] = []
        self.hangs = False
        self.fails = False
        self.fails_at: frozenset[str] = frozenset()
        self.times = 0
        self.reads_failed: dict[CallId, int] = {}
        self.barred: dict[str, float] = {}
        self.has_token = True
        self.way = SimpleNamespace(
            look=self._nothing,
            leaves_work=False,
            doubted_since_s=DOUBTED_SINCE_S,
            take_probe=lambda: True,
            answered=self._connected,
            probe_ended=self._way_tried,
        )
        store = SimpleNamespace(
            budget=SimpleNamespace(poll=self._nothing),
            breakers=SimpleNamespace(
                opened=[SimpleNamespace(institution_key="cu-1")], take_probes=self._give(list(scopes))
            ),
            some_calls=self._give(list(calls)),
            record=self._record,
        )
        tools = SimpleNamespace(
            store=store,
            requested_by=lambda _: "bot",
            gate=SimpleNamespace(probe=self._note("probe"), publish=self._note("publish"), way=self.way),
            service=SimpleNamespace(
                details=self._request("details"),
                queue=self._request("queue"),
                institution_keys=self._request("institution_keys"),
                institutions=self._request("institutions"),
                barred_s=lambda _, key: self.barred.get(key),
                has_token=self._tell_token,
            ),
        )
        self.institutions = SimpleNamespace(keys=frozenset(keys), are_known=True, refresh=self._note("refresh"))
        self.probing = Probing(
            cast("Any", tools), cast("Any", self.institutions), on_probed=self._probed, choose=lambda calls: calls[0]
        )

    def _connected(self, *, connects: bool) -> None:
        assert connects
        self.sent.append("connected")

    def _way_tried(self, since_s: float | None) -> None:
        self.sent.append(("tried since", since_s))

    def _probed(self) -> None:
        self.times += 1

    async def _nothing(self) -> None:
        pass

    async def _record(self, call_id: CallId) -> Any:
        failures = self.reads_failed.get(call_id)
        return None if failures is None else SimpleNamespace(plan=SimpleNamespace(reads_failed=failures))

    async def _tell_token(self) -> bool:
        return self.has_token

    def _give(self, value: Any) -> Any:
        async def give(*_: Any) -> Any:
            return value

        return give

    def _note(self, name: str) -> Any:
        async def note(*arguments: Any, **_: Any) -> None:
            self.sent.append((name, *arguments))

        return note

    def _request(self, name: str) -> Any:
        async def request(*arguments: Any, **more: Any) -> None:
            self.sent.append((name, *arguments))
            self.may_be_late.append(more.get("keep") is not None)
            if self.hangs:
                await asyncio.Event().wait()
            if self.fails or name in self.fails_at:
                raise ServiceUnavailable(name, "503")

        return request

    async def probe(self) -> list[Any]:
        """Send the probes that are due; return what they asked."""
        await asyncio.gather(*await self.probing.start_due())
        return self.sent


CALLS, QUEUE = (
    Scope(kind=EndpointKind.CALLS, institution_key="cu-1"),
    Scope(kind=EndpointKind.QUEUE, institution_key="cu-1"),
)


async def test_queue_of_an_institution_is_listed() -> None:
    """One entry of it, with a permit."""
    assert await Stage(QUEUE).probe() == [("probe", "cu-1", Permit.LISTING), ("queue", "cu-1")]


async def test_probe_may_be_answered_late_but_not_one_of_the_own_way() -> None:
    """A slow queue would else stay stopped for ever. Whether a host has a way is known in six seconds."""
    stage = Stage(QUEUE, CALLS, calls=(CallId("cu-1", "v-1"),))
    await stage.probe()
    assert stage.may_be_late == [True, True]
    stage.way.leaves_work = True
    await stage.probe()
    assert stage.may_be_late[2:] == [False, False]


async def test_calls_are_tried_by_a_free_read_of_one() -> None:
    """Stored details, no check."""
    sent = await Stage(CALLS, calls=(CallId("cu-1", "v-1"),)).probe()
    assert sent == [("probe", "cu-1", Permit.READ), ("details", "cu-1", "v-1")]


@pytest.mark.parametrize("failures", [None, 0, 2])
async def test_call_that_fails_less_than_others_is_tried(failures: int | None) -> None:
    """The service may fail for some calls only, for example after their end; others are not held up by these."""
    bad, good = CallId("cu-1", "v-1"), CallId("cu-1", "v-2")
    stage = Stage(CALLS, calls=(bad, good))
    stage.reads_failed = {bad: 3} if failures is None else {bad: 3, good: failures}
    assert ("details", "cu-1", "v-2") in await stage.probe()


async def test_calls_of_an_institution_without_any_are_declared_well() -> None:
    """There is none that could fail."""
    sent = await Stage(CALLS, calls=(CallId("cu-9", "v-1"),)).probe()
    assert sent[-1] == ("publish", RequestResult.ANSWER, "cu-1", EndpointKind.CALLS)


async def test_institution_that_is_not_ours_any_more_is_asked_nothing() -> None:
    """Its breaker closes. While nobody knows yet which are ours, it is tried."""
    stage = Stage(QUEUE, keys=("cu-2",))
    assert await stage.probe() == [("publish", RequestResult.ANSWER, "cu-1", EndpointKind.QUEUE)]
    stage = Stage(QUEUE, keys=())
    stage.institutions.are_known = False
    assert ("queue", "cu-1") in await stage.probe()


async def test_all_queues_are_tried_at_institutions_that_are_not_failing_themselves() -> None:
    """Of two the one without a breaker of its own."""
    assert ("queue", "cu-2") in await Stage(QUEUES).probe()


async def test_all_queues_are_tried_at_an_institution_that_was_not_refused() -> None:
    """Every shift begins with the same keys: those of many that are refused must not come first again and again."""
    stage = Stage(QUEUES, keys=("cu-1", "cu-2", "cu-3"))
    stage.barred = {"cu-2": 1.0}
    assert ("queue", "cu-3") in await stage.probe()


async def test_account_is_tried_by_a_login_a_listing_and_a_read() -> None:
    """Whichever is possible."""
    unknown = Stage(WHOLE)
    unknown.institutions.are_known = False
    assert await unknown.probe() == [("refresh",)]
    assert await Stage(WHOLE, keys=()).probe() == [("institution_keys",)]
    both = await Stage(WHOLE, calls=(CallId("cu-1", "v-1"),)).probe()
    assert {name for name, *_ in both} == {"probe", "queue", "details"}


@pytest.mark.parametrize("fails", [False, True])
async def test_end_of_a_probe_is_told_whatever_it_found(fails: bool) -> None:
    """A failure is reported to the gate by the client itself."""
    stage = Stage(QUEUE)
    stage.fails = fails
    await stage.probe()
    assert stage.times == 1


async def test_hanging_probe_delays_no_other() -> None:
    """Each is a task; none outlives the block."""
    stage = Stage(QUEUE)
    stage.hangs = True
    async with stage.probing.running():
        await asyncio.sleep(0)
        await stage.probing.start_due()
        await asyncio.sleep(0)
        assert len(stage.sent) >= 2
        running = await stage.probing.start_due()
    assert all(task.done() for task in running)


async def test_process_that_doubts_its_own_way_probes_only_that() -> None:
    """It takes no probe of a breaker, which would fail and keep the others waiting. Any queue tells whether it arrives."""
    stage = Stage(WHOLE, QUEUES)
    stage.way.leaves_work = True
    assert [row for row in await stage.probe() if row[0] != "probe"] == [("queue", "cu-2"), "connected", TRIED]
    stage.way.take_probe = lambda: False
    stage.sent.clear()
    assert await stage.probe() == []


@pytest.mark.parametrize(
    ("fails", "connected"), [((), 2), (("queue",), 1), (("details",), 1), (("queue", "details"), 0)]
)
async def test_own_way_is_probed_by_a_listing_and_by_a_read(fails: tuple[str, ...], connected: int) -> None:
    """An endpoint that fails for everybody must not make a sound process leave its work."""
    stage = Stage(calls=(CallId("cu-1", "v-1"),))
    stage.way.leaves_work, stage.fails_at = True, frozenset(fails)
    sent = await stage.probe()
    assert {("queue", "cu-2"), ("details", "cu-1", "v-1")} <= {*sent}
    assert sent.count("connected") == connected


async def test_probe_of_the_own_way_has_failed_only_when_both_requests_have_ended() -> None:
    """A slow answer may still come."""
    stage = Stage(calls=(CallId("cu-1", "v-1"),))
    stage.way.leaves_work = stage.hangs = True
    async with stage.probing.running():
        for _ in range(20):
            await asyncio.sleep(0)
        assert ("details", "cu-1", "v-1") in stage.sent
        assert TRIED not in stage.sent
    failing = Stage(calls=(CallId("cu-1", "v-1"),))
    failing.way.leaves_work = failing.fails = True
    assert (await failing.probe())[-1] == TRIED


async def test_process_that_doubts_its_own_way_leaves_logins_to_others() -> None:
    """Its login would fail, and nobody else may log in meanwhile."""
    stage = Stage()
    stage.way.leaves_work, stage.has_token = True, False
    assert await stage.probe() == []


@pytest.mark.parametrize("fails", [False, True])
async def test_process_without_an_institution_lists_them_over_a_connection_of_its_own(fails: bool) -> None:
    """It has no queue that it could list. Only a new connection shows that one can be opened."""
    stage = Stage(keys=())
    stage.way.leaves_work, stage.fails = True, fails
    assert await stage.probe() == [("institutions",), *([] if fails else ["connected"]), TRIED]
