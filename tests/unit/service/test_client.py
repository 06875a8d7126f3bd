"""What each method sends, and what it makes of the answer."""

from datetime import UTC, datetime, timedelta, timezone

import httpx
import pytest

from callkeeper.service import (
    AnswerUnreadable,
    CallNotFound,
    CoreType,
    InstitutionNotFound,
    MemoryTokenStore,
    OutcomeUnknown,
    ServiceRefused,
    ServiceUnavailable,
    Unsendable,
    ValidationType,
)
from callkeeper.service.client import Reseller
from callkeeper.service.endpoints import path_part
from tests.unit.service.service import Clock, Service, reseller_on, success


@pytest.fixture
def service() -> Service:
    """Return a service that agrees to everything."""
    return Service()


@pytest.fixture
def reseller(service: Service) -> Reseller:
    """Return a client of the service."""
    clock = Clock()
    return reseller_on(service, MemoryTokenStore(clock), clock)


def last(service: Service) -> tuple[str, str]:
    """Return method and target of the last request."""
    request = service.requests[-1]
    return request.method, request.url.raw_path.decode()


async def test_queue_sends_its_five_parameters(reseller: Reseller, service: Service) -> None:
    """Spec, Queue query: names as there, instants in UTC."""
    service.reply = lambda _: success(phoneCalls=[])
    await reseller.queue(
        "cu-1",
        continue_from=20,
        page_size=10,
        search_string="Jane & co",
        start_at=datetime(2026, 3, 1, 10, tzinfo=timezone(timedelta(hours=2))),
        end_at=datetime(2026, 3, 1, 10, 0, 0, 500_000, tzinfo=UTC),
    )
    assert dict(service.requests[-1].url.params) == {
        "continueFrom": "20",
        "pageSize": "10",
        "searchString": "Jane & co",
        "startDate": "2026-03-01T08:00:00.000Z",
        "endDate": "2026-03-01T10:00:00.500Z",
    }
    assert service.requests[-1].headers["RequestedBy"] == "callkeeper"


async def test_queue_leaves_out_what_is_not_asked(reseller: Reseller, service: Service) -> None:
    """Optional parameters are absent, not empty."""
    service.reply = lambda _: success(phoneCalls=[])
    await reseller.queue("cu-1", continue_from=0, page_size=5, requested_by="bot")
    assert last(service) == ("GET", "/external/calls/queue?continueFrom=0&pageSize=5")
    assert service.requests[-1].headers["RequestedBy"] == "bot"


async def test_queue_refuses_an_instant_without_zone(reseller: Reseller, service: Service) -> None:
    """A naive instant is a mistake of ours, not the service's to guess."""
    with pytest.raises(ValueError, match="no time zone"):
        await reseller.queue("cu-1", continue_from=0, page_size=5, start_at=datetime(2026, 3, 1))  # noqa: DTZ001
    assert service.requests == []


async def test_queue_marks_broken_entries(reseller: Reseller, service: Service) -> None:
    """An entry without a voice id is told from the others, and hides none of them."""
    entry = {"voiceId": "v-1", "phoneNumber": "1", "startDateTime": "2026-03-01T10:00:00Z"}
    service.reply = lambda _: success(phoneCalls=[{**entry, "voiceId": ""}, entry, 5])
    entries = await reseller.queue("cu-1", continue_from=0, page_size=5)
    assert [each.voice_id for each in entries] == ["", "v-1", ""]


@pytest.mark.parametrize("phone_calls", [None, []])
async def test_queue_without_calls_is_empty(reseller: Reseller, service: Service, phone_calls: object) -> None:
    """Null and empty are the same."""
    service.reply = lambda _: success(phoneCalls=phone_calls)
    assert await reseller.queue("cu-1", continue_from=0, page_size=5) == ()


async def test_queue_without_the_field_is_unreadable(reseller: Reseller, service: Service) -> None:
    """An answer without `phoneCalls` is not an empty queue: every live call would seem to be over."""
    with pytest.raises(AnswerUnreadable, match="phoneCalls is missing"):
        await reseller.queue("cu-1", continue_from=0, page_size=5)


@pytest.mark.parametrize("phone_calls", ["none", {}, 5])
async def test_queue_of_a_wrong_type_is_unreadable(reseller: Reseller, service: Service, phone_calls: object) -> None:
    """A list that cannot be read is not an empty one."""
    service.reply = lambda _: success(phoneCalls=phone_calls)
    with pytest.raises(AnswerUnreadable):
        await reseller.queue("cu-1", continue_from=0, page_size=5)


async def test_assign_sends_the_voice_id_alone(reseller: Reseller, service: Service) -> None:
    """A phone number that is not given is not sent: the service would prefer it to the voice id."""
    service.reply = lambda _: success(voiceId="v-real")
    assert await reseller.assign("cu-1", person_id="p-1", requested_by="bot", voice_id="v-alt") == "v-real"
    assert last(service) == ("POST", "/external/calls/assign")
    assert service.sent == {"personId": "p-1", "voiceId": "v-alt"}


async def test_assign_without_an_id_in_the_answer_keeps_the_one_given(reseller: Reseller, service: Service) -> None:
    """Applied is applied: the id we know goes on."""
    assert await reseller.assign("cu-1", person_id="p-1", requested_by="bot", voice_id="v-1") == "v-1"


async def test_assign_by_number_needs_the_id_in_the_answer(reseller: Reseller, service: Service) -> None:
    """By phone number only the answer says which call it was."""
    with pytest.raises(OutcomeUnknown):
        await reseller.assign("cu-1", person_id="p-1", requested_by="bot", phone_number="+1")
    assert service.sent == {"personId": "p-1", "phoneNumber": "+1"}


@pytest.mark.parametrize(("check", "text"), [(True, "true"), (False, "false")])
async def test_details_says_whether_to_check(reseller: Reseller, service: Service, check: bool, text: str) -> None:
    """Spec, Endpoints 5: the query parameter is always there."""
    service.reply = lambda _: success(phoneCall={"voiceId": "v-1"})
    await reseller.details("cu-1", "v-1", check=check, requested_by="bot")
    assert last(service) == ("GET", f"/external/calls/v-1/details?checkVoiceAuthentication={text}")


@pytest.mark.parametrize(
    ("body", "voice_id"),
    [
        ({"phoneCall": {"voiceId": "inner"}}, "inner"),
        ({"phoneCall": {"voiceId": "inner"}, "voiceId": "outer"}, "inner"),
        ({"phoneCall": None, "voiceId": "outer"}, "outer"),
        ({"voiceId": "outer"}, "outer"),
        ({"phoneCall": None, "phoneCallId": 5}, None),
        ({"phoneCall": {"phoneCallId": 5}, "voiceId": "outer"}, None),
    ],
)
async def test_details_come_from_phone_call_or_the_top_level(
    reseller: Reseller, service: Service, body: dict[str, object], voice_id: str | None
) -> None:
    """D9: `phoneCall` if it is there, whole; else the top level, if a call is named there."""
    service.reply = lambda _: success(**body)
    assert (await reseller.details("cu-1", "v-1", check=False, requested_by="bot")).voice_id == voice_id


@pytest.mark.parametrize("body", [{}, {"phoneCall": None}, {"phoneCall": None, "status": "CallEnded"}])
async def test_details_without_a_record_are_not_found(
    reseller: Reseller, service: Service, body: dict[str, object]
) -> None:
    """D9: success without a record anywhere: no such call."""
    service.reply = lambda _: success(**body)
    with pytest.raises(CallNotFound):
        await reseller.details("cu-1", "v-1", check=False, requested_by="bot")


@pytest.mark.parametrize("body", [{"phoneCall": "x", "voiceId": "outer"}, {"voiceId": "outer", "callEnded": "no"}])
async def test_details_that_cannot_be_read_are_not_guessed(
    reseller: Reseller, service: Service, body: dict[str, object]
) -> None:
    """A record of the wrong type does not make the top level count, and a vital field is not guessed there."""
    service.reply = lambda _: success(**body)
    with pytest.raises(AnswerUnreadable):
        await reseller.details("cu-1", "v-1", check=False, requested_by="bot")


@pytest.mark.parametrize("notes", [None, "by passcode"])
async def test_enroll_sends_who_and_how(reseller: Reseller, service: Service, notes: str | None) -> None:
    """Spec, Endpoints 6."""
    await reseller.enroll(
        "cu-1",
        "v-1",
        person_id="p-1",
        validation_type=ValidationType.ONE_TIME_PASSWORD_AUTH,
        notes=notes,
        requested_by="jdoe",
    )
    assert last(service) == ("POST", "/external/calls/v-1/enroll")
    expected = {"personId": "p-1", "validationType": "OneTimePasswordAuth"}
    assert service.sent == (expected if notes is None else {**expected, "notes": notes})
    assert service.requests[-1].headers["RequestedBy"] == "jdoe"


async def test_reject_voice_has_no_body(reseller: Reseller, service: Service) -> None:
    """Spec, Endpoints 7."""
    await reseller.reject_voice("cu-1", "v-1", requested_by="jdoe")
    assert last(service) == ("POST", "/external/calls/v-1/reject-voice")
    assert service.requests[-1].content == b""


async def test_user_token_is_of_the_institution(reseller: Reseller, service: Service) -> None:
    """Spec, Endpoints 2: the header names the institution, there is no body."""
    service.reply = lambda _: success(token="user-1")
    assert (await reseller.user_token("cu-1")).reveal() == "user-1"
    assert last(service) == ("POST", "/external/token/request/user")
    assert service.requests[-1].headers["InstitutionKey"] == "cu-1"


@pytest.mark.parametrize("token", [None, ""])
async def test_user_token_not_granted_is_refused(reseller: Reseller, service: Service, token: str | None) -> None:
    """A null token is no token."""
    service.reply = lambda _: success(token=token)
    with pytest.raises(ServiceRefused):
        await reseller.user_token("cu-1")


async def test_institution_is_read_with_masked_secrets(reseller: Reseller, service: Service) -> None:
    """Spec, Endpoints 10: secrets come as stored, and show as masks."""
    stored = {"edgeAccessKey": "canary", "coreTypeBAdminPassword": "canary", "url": "https://core.test"}
    vpn = {"authenticationValue": "canary", "ticket": {"ticketMessages": [{"text": "canary"}]}}
    service.reply = lambda _: success(
        institution={
            "key": "cu-1",
            "coreConfig": stored,
            "vpnConfig": vpn,
            "contacts": [{"name": "canary"}],
            "voiceConfig": {"a": "canary"},
        }
    )
    institution = await reseller.institution("cu-1")
    assert "canary" not in repr(institution)
    assert institution.core_config is not None
    assert institution.core_config.edge_access_key is not None
    assert institution.core_config.edge_access_key.reveal() == "canary"
    assert institution.contacts[0].reveal() == '{"name":"canary"}'
    assert last(service) == ("GET", "/external/institutions/cu-1")


async def test_institution_null_is_not_found(reseller: Reseller, service: Service) -> None:
    """Spec, Endpoints 10: nullable."""
    service.reply = lambda _: success(institution=None)
    with pytest.raises(InstitutionNotFound):
        await reseller.institution("cu-1")


async def test_institution_added_as_given(reseller: Reseller, service: Service) -> None:
    """Spec, Endpoints 9: the body's fields are not shown, so it is the caller's."""
    await reseller.add_institution({"name": "CU One", "core": "None", "future": 1})
    assert last(service) == ("POST", "/external/institutions")
    assert service.sent == {"name": "CU One", "core": "None", "future": 1}


async def test_institution_not_added_by_problem(reseller: Reseller, service: Service) -> None:
    """Spec, Errors 3: a 400 problem response is a refusal."""
    problem = {"title": "Name is taken by Jane", "status": 400}
    service.reply = lambda _: httpx.Response(400, json=problem, headers={"content-type": "application/problem+json"})
    with pytest.raises(ServiceRefused) as caught:
        await reseller.add_institution({"name": "CU One"})
    assert caught.value.status == 400
    assert "Jane" not in str(caught.value)


async def test_problem_response_says_what_is_not_found(reseller: Reseller, service: Service) -> None:
    """Assumed (`not-found-words`): a 404 is enough. Without `success` its media type shows that the service says so."""
    problem = httpx.Response(404, json={"title": "Not Found"}, headers={"content-type": "application/problem+json"})
    service.reply = lambda _: problem
    with pytest.raises(CallNotFound):
        await reseller.details("cu-1", "v-1", check=False, requested_by="bot")
    with pytest.raises(InstitutionNotFound):
        await reseller.institution("cu-1")
    with pytest.raises(OutcomeUnknown):
        await reseller.reject_voice("cu-1", "v-1", requested_by="bot")


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (httpx.Response(404, json={"message": "no Route matched with those values"}), AnswerUnreadable),
        (httpx.Response(404, text="<html>Not Found</html>"), ServiceUnavailable),
    ],
    ids=["json", "page"],
)
async def test_404_of_a_router_says_nothing_of_a_call(
    reseller: Reseller, service: Service, answer: httpx.Response, error: type[Exception]
) -> None:
    """Taken for the service's word, it would end every live call."""
    service.reply = lambda _: answer
    with pytest.raises(error):
        await reseller.details("cu-1", "v-1", check=False, requested_by="bot")


async def test_institution_updated(reseller: Reseller, service: Service) -> None:
    """Spec, Endpoints 11."""
    await reseller.update_institution("cu-1", name=None, core=CoreType.CORE_TYPE_A)
    assert last(service) == ("PUT", "/external/institutions/cu-1")
    assert service.sent == {"name": None, "core": "CoreTypeA"}


async def test_login_as_needs_no_base_response(reseller: Reseller, service: Service) -> None:
    """Spec, Endpoints 12: token and actions, masked; `success` may be missing."""
    actions = [{"ssoUrl": "https://x.test/?t=canary", "actionText": "Open", "isHidden": False, "ssoUrlIE": "canary"}]
    service.reply = lambda _: httpx.Response(200, json={"token": "canary", "actions": actions})
    answer = await reseller.login_as("cu-1")
    assert last(service) == ("POST", "/external/institutions/cu-1/login")
    assert answer.token is not None
    assert answer.token.reveal() == "canary"
    assert answer.actions[0].action_text == "Open"
    assert "canary" not in repr(answer)


@pytest.mark.parametrize("identifier", ["", ".", "..", "x" * 257, "\ud800"])
async def test_identifier_that_cannot_be_a_path_part_sends_nothing(
    reseller: Reseller, service: Service, identifier: str
) -> None:
    """A11: folder names, nothing, too much, and what is not text: refused before anything is sent."""
    with pytest.raises(Unsendable):
        await reseller.details("cu-1", identifier, check=True, requested_by="bot")
    with pytest.raises(Unsendable):
        await reseller.reject_voice("cu-1", identifier, requested_by="bot")
    with pytest.raises(Unsendable):
        await reseller.institution(identifier)
    assert service.requests == []
    assert service.logins == 0


def test_path_part_quotes_everything_that_steers() -> None:
    """Only letters, digits and four marks stand unquoted."""
    everything = "".join(map(chr, range(1, 128)))
    assert not set(path_part("details", everything)) & set("/?#&=;:@!$'()*+, \r\n\\\"<>[]{}|^`")


@pytest.mark.parametrize("requested_by", ["", "jane\r\nX: 1", "jané", "\t"])
async def test_operator_that_cannot_be_a_header_sends_nothing(
    reseller: Reseller, service: Service, requested_by: str
) -> None:
    """A12: an operator's name never becomes a second header."""
    with pytest.raises(Unsendable):
        await reseller.details("cu-1", "v-1", check=False, requested_by=requested_by)
    assert service.requests == []


async def test_token_tells_the_whole_login(reseller: Reseller, service: Service) -> None:
    """Spec, Endpoints 1."""
    answer = await reseller.token()
    assert answer.institution_keys == ("cu-1", "cu-login-1")
    assert "sso-1" not in repr(answer)
