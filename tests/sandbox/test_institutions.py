"""Institution management."""

import pytest

from tests.sandbox_fixtures import KEY, Asgi

INSTITUTION = """
id name hostName allowedPhones allowedEmails isTestMode mailProviderDomain fromEmail key hasVoiceAuth core
coreConfig vpnConfig allowedOrigins contacts voiceConfig billingConfig classification status
usesIpWhitelisting
"""
CORE_CONFIG = """
createdDateUtc updatedDateUtc coreConfigId institutionId url edgeAccessKey coreTypeBSym coreTypeBDeviceName
coreTypeBDeviceNumber coreTypeBClientNumber coreTypeBSysUserNum coreTypeBAdminPassword
coreTypeBValidationTrackingRecord coreTypeAUsername coreTypeAPassword coreTypeADeviceName
coreTypeAInteractionTypeSerial coreTypeAInteractionVoice coreTypeAInteractionNonVoice
coreTypeAInteractionChannelSerial coreTypeAInteractionNoAuthSerial coreTypeAVoiceOptOutNoteTypeSerial
coreTypeAUiUrl
"""
VPN_CONFIG = """
gatewayIp deviceAndModel authenticationValue firmwareVersion tunnelInterface sourceIp destinationIp
createdDateUtc updatedDateUtc confirmStatus institutionStatus ticket
"""


async def test_list_shows_the_resellers_own_institutions(sandbox_asgi: Asgi) -> None:
    """The list holds the institutions of this reseller and no other's.

    Spec: Endpoints 8; What the service does.
    """
    sandbox_asgi.world.add_institution("not-ours", owned=False)
    answer = await sandbox_asgi.ask("GET", "/institutions")
    assert [child["key"] for child in answer["institutions"]] == [KEY]


async def test_get_shows_all_fields_with_secrets_as_stored(sandbox_asgi: Asgi) -> None:
    """An institution has the fields of its tables, copied here by hand; secret-bearing ones are not masked.

    Spec: Endpoints 10; Institution; Core config; VPN config.
    """
    child = (await sandbox_asgi.ask("GET", f"/institutions/{KEY}"))["institution"]
    assert set(child) == set(INSTITUTION.split())
    assert set(child["coreConfig"]) == set(CORE_CONFIG.split())
    assert set(child["vpnConfig"]) == set(VPN_CONFIG.split())
    assert child["coreConfig"]["coreTypeAPassword"] == "fake-core-password-cu-1"
    assert child["vpnConfig"]["authenticationValue"] == "fake-preshared-key-cu-1"


@pytest.mark.parametrize(("method", "path"), [("GET", ""), ("PUT", ""), ("POST", "/login")])
@pytest.mark.parametrize("key", ["unknown", "not-ours"])
async def test_unknown_or_foreign_institution_is_refused(sandbox_asgi: Asgi, method: str, path: str, key: str) -> None:
    """A key that the reseller does not own does not exist for it.

    Spec: What the service does; Errors 1.
    """
    sandbox_asgi.world.add_institution("not-ours", owned=False)
    answer = await sandbox_asgi.ask(method, f"/institutions/{key}{path}", {"name": "x", "core": "None"})
    assert (answer["success"], answer["error"]) == (False, "Institution not found.")


async def test_add_makes_an_institution_that_the_next_login_names(sandbox_asgi: Asgi) -> None:
    """A new institution is served at once and among the keys of the next login.

    Spec: Endpoints 9; Token response.
    """
    answer = await sandbox_asgi.ask("POST", "/institutions", {"name": "New Example Bank", "core": "CoreTypeB"})
    assert answer["success"] is True
    sandbox_asgi.headers = await sandbox_asgi.login(key="new-example-bank")
    assert await sandbox_asgi.queue() == []


@pytest.mark.parametrize("body", [{}, {"name": ""}, {"name": "x", "core": "CoreTypeZ"}, {"name": "x", "key": KEY}])
async def test_add_of_an_invalid_institution_is_a_400_problem(sandbox_asgi: Asgi, body: dict[str, str]) -> None:
    """Missing name, unknown core and a taken key give HTTP 400 with a problem body.

    Spec: Endpoints 9; Errors 3.
    """
    headers = await sandbox_asgi.login()
    answer = await sandbox_asgi.client.post("/external/institutions", json=body, headers=headers)
    assert (answer.status_code, answer.headers["content-type"]) == (400, "application/problem+json")
    assert answer.json()["status"] == 400


@pytest.mark.parametrize(("name", "shown"), [("Renamed", "Renamed"), (None, "First Example Credit Union")])
async def test_update_changes_name_and_core(sandbox_asgi: Asgi, name: str | None, shown: str) -> None:
    """An update sets the core, and the name unless it is null.

    Spec: Endpoints 11.
    """
    await sandbox_asgi.ask("PUT", f"/institutions/{KEY}", {"name": name, "core": "CoreTypeB"})
    child = (await sandbox_asgi.ask("GET", f"/institutions/{KEY}"))["institution"]
    assert (child["name"], child["core"]) == (shown, "CoreTypeB")


async def test_login_as_returns_a_token_and_actions(sandbox_asgi: Asgi) -> None:
    """Log-in-as answers with a token for that institution and links.

    Spec: Endpoints 12; Rules per operation 6; Other shapes.
    """
    answer = await sandbox_asgi.ask("POST", f"/institutions/{KEY}/login")
    assert sandbox_asgi.world.state.user_tokens[answer["token"]].institution_key == KEY
    assert set(answer["actions"][0]) == {"ssoUrl", "actionText", "isHidden", "ssoUrlIE", "ssoUrlNew"}
