"""Tasks end when they are cancelled, also if a cancellation is lost."""

import asyncio

from callkeeper.calls.store.cancelling import end


async def test_end_insists_where_a_cancellation_is_lost() -> None:
    """A task that swallows two cancellations is cancelled a third time."""
    lost = 0

    async def deaf() -> None:
        nonlocal lost
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                lost += 1
                if lost == 3:
                    raise

    task = asyncio.ensure_future(deaf())
    await asyncio.sleep(0)
    await end({task})
    assert (task.cancelled(), lost) == (True, 3)


async def test_end_leaves_no_error_unseen() -> None:
    """The results of tasks are retrieved, so asyncio logs nothing later. An empty list is accepted."""

    async def fails() -> None:
        raise RuntimeError

    task = asyncio.ensure_future(fails())
    await asyncio.sleep(0)
    await end({task})
    await end(())
    assert task.done()
