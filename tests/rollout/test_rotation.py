"""Secrets are rotated while several calls a second come in: no push is refused, and no call is lost."""

from pathlib import Path

from callkeeper_sandbox.service.access import Credentials
from tests.faults import audit
from tests.harness.processes import Stack, stack, web_url
from tests.rollout.load import PHASE, Load, evidence_of, pushes
from tests.waiting import until

NEW_HEADERS = "X-Push-Key: rotated-0123456789-rotated-4c07a65e93d2"
NEW_PASSWORD = "rotated-password-0123456789"


def wait_for_calls(load: Load, more: int) -> None:
    """Wait until ``more`` further calls have started."""
    goal = load.started + more
    until(lambda: load.started >= goal, 120, f"{more} more calls")


def hold_to_promises(running: Stack, load: Load) -> None:
    """Assert that the audit is clean, every call has a record, and every push was accepted."""
    evidence = evidence_of(running)
    assert audit.faults(evidence) == []
    assert len(evidence.records) == len(evidence.accounts) == load.started
    assert set(pushes(running)) == {202}
    assert pushes(running)[202] == 2 * load.started


def test_push_headers_are_rotated_without_a_refused_push(tmp_path: Path) -> None:
    """Rotating push headers as docs/rotate-secrets.md says refuses no push and loses no call."""
    with stack(tmp_path, workers=2) as running:
        load = Load(running.demo.service_url)
        old = running.demo.environ["CALLKEEPER_PUSH_HEADERS"]
        with load.running():
            wait_for_calls(load, PHASE)

            both = running.start(
                "web",
                "web-both",
                environ={
                    "CALLKEEPER_PUSH_HEADERS": NEW_HEADERS,
                    "CALLKEEPER_PUSH_HEADERS_PREVIOUS": old,
                },
            )
            running.push_to(web_url(both), old)
            wait_for_calls(load, PHASE)
            running.member("web").stop()

            running.push_to(web_url(both), NEW_HEADERS)
            wait_for_calls(load, PHASE)

            only_new = running.start("web", "web-new", environ={"CALLKEEPER_PUSH_HEADERS": NEW_HEADERS})
            running.push_to(web_url(only_new), NEW_HEADERS)
            wait_for_calls(load, PHASE)
            both.stop()
        hold_to_promises(running, load)
        assert '"push_previous_headers_used"' in both.log.read_text()


def test_service_account_is_rotated_without_a_lost_call(tmp_path: Path) -> None:
    """Changing the service's password and replacing workers one by one loses no call and needs one login."""
    with stack(tmp_path, workers=2) as running:
        load = Load(running.demo.service_url)
        with load.running():
            wait_for_calls(load, PHASE)
            known = Credentials()
            changed = {"access_token": known.access_token, "email": known.email, "password": NEW_PASSWORD}
            running.control("PUT", "/credentials", changed)
            wait_for_calls(load, PHASE)

            replaced = []
            for n in (1, 2):
                replaced.append(
                    running.start("worker", f"worker-new-{n}", environ={"CALLKEEPER_PASSWORD": NEW_PASSWORD})
                )
                running.member(f"worker-{n}").stop()
                wait_for_calls(load, PHASE // 2)

            running.control("POST", "/tokens/lapse")
            wait_for_calls(load, PHASE)
        hold_to_promises(running, load)
        logs = [each.log.read_text() for each in running.demo.fleet.members]
        assert not any('"login_failed"' in log for log in logs)
        assert sum(each.log.read_text().count('"login_made"') for each in replaced) == 1
