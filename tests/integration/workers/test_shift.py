"""Shifts against a slow service, in virtual time."""

import asyncio

import pytest

from callkeeper.calls.store.claims import MOST_OF_ONE
from tests.harness.redis_in_step import virtually
from tests.harness.virtual_time import KEY
from tests.harness.virtual_worker import OTHER, working
from workers.shift import IN_FLIGHT, Wakeups


class CountedWakeups(Wakeups):
    """Wake-ups that count the claims that found nothing."""

    in_vain = 0

    def claimed(self, *, found: bool) -> None:
        """Note how a claim ended."""
        self.in_vain += not found
        super().claimed(found=found)


@pytest.mark.parametrize(
    "answer_s", [3.6, pytest.param(1.2, marks=pytest.mark.night), pytest.param(5.5, marks=pytest.mark.night)]
)
def test_claim_lets_go_between_requests_of_a_slow_service(answer_s: float) -> None:
    """No claim lasts longer than a confirming read and an effect, and nothing counts as a bug."""

    async def law() -> None:
        async with working() as works:
            await asyncio.sleep(2)
            works.between.slow[KEY] = answer_s
            call = await works.call()
            await asyncio.sleep(400)
            assert works.longest_s <= 2 * answer_s + 2
            assert works.rig.shift.failures == []
            assert not [entry for entry in works.rig.log.entries if entry["event"] == "step_failed"]
            assert (await works.rig.record(call)).plan.checks_used >= 14

    virtually(law())


def test_slow_institution_with_many_calls_takes_no_slot_of_another() -> None:
    """If one institution's calls fill a worker and wait 5.5 s each, another institution is not delayed (e21)."""

    async def law() -> None:
        async with working(institutions=2) as works:
            works.between.slow[OTHER] = 5.5
            for _ in range(IN_FLIGHT + 50):
                await works.call(OTHER, pushed=False)
            await asyncio.sleep(25)
            assert works.in_flight[OTHER] >= MOST_OF_ONE, "its own calls fill what it may have"
            calls = []
            for _ in range(5):
                calls.append(await works.call())
                await asyncio.sleep(1)
            assert max(works.assigned_s(call) or 99.0 for call in calls) <= 1
            assert works.most_in_flight[OTHER] <= MOST_OF_ONE + 1, "its calls and its listing"

    virtually(law())


def test_several_slow_institutions_leave_slots_for_the_others() -> None:
    """Six institutions with more calls than a worker handles, which wait 5.5 s each, delay no call of another."""
    slow = [f"cu-{n}" for n in range(2, 8)]

    async def law() -> None:
        async with working(institutions=12) as works:
            await asyncio.sleep(10)
            works.between.slow |= dict.fromkeys(slow, 5.5)
            for key in slow:
                for _ in range(IN_FLIGHT // 4):
                    await works.call(key, pushed=False)
            calls = []
            for n in range(80):
                calls.append(await works.call(f"cu-{8 + n % 5}"))
                await asyncio.sleep(0.5)
            assert max(works.assigned_s(call) or 99.0 for call in calls) <= 1
            most = [works.most_in_flight[key] for key in slow]
            assert sum(most) > IN_FLIGHT // 2, "what is not kept free is used"

    virtually(law())


def test_only_institution_may_use_every_slot() -> None:
    """With one institution, no slots are kept free for others."""

    async def law() -> None:
        async with working() as works:
            works.between.slow[KEY] = 3.0
            for _ in range(2 * MOST_OF_ONE):
                await works.call(pushed=False)
            await asyncio.sleep(15)
            assert works.most_in_flight[KEY] > MOST_OF_ONE + 1

    virtually(law())


def test_calls_that_are_finished_with_make_no_claims_if_no_more_are_due() -> None:
    """With one institution nothing is held back, so a shift does not look for more whenever a call is finished with."""

    async def law() -> None:
        async with working() as works:
            wakeups = works.rig.shift.wakeups = CountedWakeups()
            works.between.slow[KEY] = 5.0
            for _ in range(200):
                await works.call()
                await asyncio.sleep(0.05)
            wakeups.in_vain = 0
            await asyncio.sleep(30)
            assert works.most_in_flight[KEY] > 2 * MOST_OF_ONE
            assert wakeups.in_vain <= 30, "once a second"

    virtually(law())
