"""The three authentication modes and the life of tokens."""

import pytest

from tests.sandbox_fixtures import CREDENTIALS, KEY, LOGIN, Asgi

MODES = {
    "user token": ("POST", "/token/request/user", "service"),
    "queue": ("GET", "/calls/queue?continueFrom=0&pageSize=1", "service"),
    "assign": ("POST", "/calls/assign", "service"),
    "details": ("GET", "/calls/v/details?checkVoiceAuthentication=false", "service"),
    "enroll": ("POST", "/calls/v/enroll", "service"),
    "reject-voice": ("POST", "/calls/v/reject-voice", "service"),
    "list": ("GET", "/institutions", "reseller"),
    "add": ("POST", "/institutions", "reseller"),
    "get": ("GET", "/institutions/cu-1", "reseller"),
    "update": ("PUT", "/institutions/cu-1", "reseller"),
    "login-as": ("POST", "/institutions/cu-1/login", "reseller"),
}
all_modes = pytest.mark.parametrize(("method", "path", "mode"), MODES.values(), ids=MODES)


async def test_login_returns_a_token_for_thirty_minutes_and_the_keys(sandbox_asgi: Asgi) -> None:
    """A login answers with an SSO token, its expiry in 30 minutes, and the keys of the reseller's institutions.

    Spec: Token response; Rules per operation 5; Limits.
    """
    sandbox_asgi.world.add_institution("not-ours", owned=False)
    answer = await sandbox_asgi.client.post(
        "/external/token/request", json=LOGIN, headers={"accessToken": CREDENTIALS.access_token}
    )
    body = answer.json()
    assert (answer.status_code, body["success"], body["institutionKeys"]) == (200, True, [KEY])
    assert body["expiresOn"] == "2026-11-21T12:30:00Z"


@pytest.mark.parametrize("headers", [{}, {"accessToken": "wrong"}, {"SsoToken": "x"}], ids=["none", "wrong", "other"])
async def test_login_without_the_access_token_is_401(sandbox_asgi: Asgi, headers: dict[str, str]) -> None:
    """Only the access token lets a login in.

    Spec: Authentication, access token.
    """
    answer = await sandbox_asgi.client.post("/external/token/request", json=LOGIN, headers=headers)
    assert (answer.status_code, answer.json()["success"]) == (401, False)


@pytest.mark.parametrize("wrong", [{"email": "x"}, {"password": "x"}, {"password": None}])
async def test_login_with_wrong_credentials_is_refused(sandbox_asgi: Asgi, wrong: dict[str, str | None]) -> None:
    """Wrong or malformed credentials give ``success`` false, an error and no token.

    Spec: Authentication, rule 1; Errors 1.
    """
    answer = await sandbox_asgi.client.post(
        "/external/token/request", json={**LOGIN, **wrong}, headers={"accessToken": CREDENTIALS.access_token}
    )
    assert (answer.json()["success"], "token" in answer.json()) == (False, False)
    assert answer.json()["error"]


@all_modes
async def test_request_without_a_token_is_401(sandbox_asgi: Asgi, method: str, path: str, mode: str) -> None:
    """Every endpoint but the login wants an SSO token.

    Spec: Authentication, service account; Authentication, reseller; Errors 2.
    """
    headers = {"InstitutionKey": KEY, "RequestedBy": "bot", "accessToken": CREDENTIALS.access_token}
    answer = await sandbox_asgi.client.request(method, f"/external{path}", headers=headers)
    assert answer.status_code == 401


@all_modes
async def test_request_needs_the_headers_of_its_mode_only(
    sandbox_asgi: Asgi, method: str, path: str, mode: str
) -> None:
    """The service account mode wants an owned institution and an operator; the reseller mode neither.

    Spec: Authentication, service account; Authentication, reseller; Authentication, rule 2.
    """
    token = (await sandbox_asgi.login())["SsoToken"]
    answer = await sandbox_asgi.client.request(method, f"/external{path}", headers={"SsoToken": token})
    assert answer.status_code in (200, 400)
    is_refused_for_the_key = (answer.json().get("error") or "") == "Institution not found."
    assert is_refused_for_the_key == (mode == "service")


@pytest.mark.parametrize("headers", [{"InstitutionKey": "not-ours"}, {"InstitutionKey": "?"}, {"RequestedBy": ""}])
async def test_service_account_must_name_its_own_institution_and_an_operator(
    sandbox_asgi: Asgi, headers: dict[str, str]
) -> None:
    """Another reseller's institution, an unknown one and a missing operator are refused.

    Spec: Authentication, rule 2; What the service does.
    """
    sandbox_asgi.world.add_institution("not-ours", owned=False)
    sandbox_asgi.headers = {**await sandbox_asgi.login(), **headers}
    answer = await sandbox_asgi.ask("GET", "/calls/queue", continueFrom=0, pageSize=1)
    assert answer["success"] is False


async def test_operator_is_recorded_on_the_activity(sandbox_asgi: Asgi) -> None:
    """``RequestedBy`` is written to the activity that a request leaves.

    Spec: Authentication, rule 2.
    """
    call = sandbox_asgi.call()
    sandbox_asgi.headers = await sandbox_asgi.login(by="teller-7")
    await sandbox_asgi.enroll(call.voice_id)
    assert [activity.by for activity in call.activities[-2:]] == ["teller-7", "teller-7"]


async def test_token_slides_with_each_successful_request(sandbox_asgi: Asgi) -> None:
    """A token lives 30 minutes from its last success, however long it is used.

    Spec: Authentication, rule 3; Limits.
    """
    for _ in range(3):
        await sandbox_asgi.queue()
        sandbox_asgi.advance(29 * 60)
    assert (await sandbox_asgi.ask("GET", "/institutions"))["success"]


async def test_token_lapses_thirty_minutes_after_its_last_success(sandbox_asgi: Asgi) -> None:
    """After 30 minutes without a success the answer is 401, and a new login helps.

    Spec: Authentication, rule 3; Authentication, rule 4; Errors 2.
    """
    headers = await sandbox_asgi.login()
    sandbox_asgi.advance(30 * 60)
    lapsed = await sandbox_asgi.client.get("/external/institutions", headers=headers)
    again = await sandbox_asgi.client.get("/external/institutions", headers=await sandbox_asgi.login())
    assert (lapsed.status_code, again.status_code) == (401, 200)


async def test_refused_request_does_not_slide_the_token(sandbox_asgi: Asgi) -> None:
    """A refusal is no success: it leaves the expiry where it was.

    Spec: Authentication, rule 3.
    """
    await sandbox_asgi.queue()
    sandbox_asgi.advance(29 * 60)
    assert (await sandbox_asgi.details("unknown"))["success"] is False
    sandbox_asgi.advance(60)
    assert (await sandbox_asgi.ask("GET", "/institutions"))["code"] == "Unauthorized"


async def test_user_token_is_for_the_institution_of_the_request(sandbox_asgi: Asgi) -> None:
    """The exchange mints a token for the institution in the header, good for 30 minutes.

    Spec: User token response; Rules per operation 5; Limits.
    """
    answer = await sandbox_asgi.ask("POST", "/token/request/user")
    minted = sandbox_asgi.world.state.user_tokens[answer["token"]]
    assert minted.institution_key == KEY
    assert (minted.expires_at - sandbox_asgi.clock()).total_seconds() == 1800


async def test_surplus_authentication_headers_are_counted(sandbox_asgi: Asgi) -> None:
    """A client that sends headers of another mode is served, and the ledger says so.

    Spec: Authentication, reseller.
    """
    headers = {**await sandbox_asgi.login(), "accessToken": "x"}
    await sandbox_asgi.client.get("/external/institutions", headers=headers)
    assert sandbox_asgi.sandbox.ledger.entries.surplus_headers == {
        "institutions accesstoken": 1,
        "institutions institutionkey": 1,
        "institutions requestedby": 1,
    }
