"""The rules of institution management, without HTTP.

Spec: Endpoints 8 to 12; Rules per operation 6.
"""

import re
import uuid
from typing import Any

import msgspec

from callkeeper_sandbox.service.access import Ask
from callkeeper_sandbox.service.answers import (
    Base,
    LoginAnswer,
    Problem,
    ProblemError,
    RefusedError,
)
from callkeeper_sandbox.service.institutions import Core, SsoAction
from callkeeper_sandbox.service.operations import parse
from callkeeper_sandbox.service.records import Wire
from callkeeper_sandbox.service.state import Child
from callkeeper_sandbox.service.tokens import mint_user_token


class AddBody(Wire, frozen=True, kw_only=True):
    """The body of an addition (Assumed: the Spec does not show it). A missing key is derived from the name."""

    name: str
    key: str | None = None
    core: Core = Core.NONE


class UpdateBody(Wire, frozen=True, kw_only=True):
    """Spec: Endpoints 11. Assumed: a null name does not change the name."""

    name: str | None = None
    core: Core


def list_all(ask: Ask) -> object:
    """List the reseller's institutions.

    Spec: Endpoints 8.
    """
    options = ask.world.options
    children = [child for child in ask.world.state.institutions.values() if child.owned]
    wrapped = options.wrap_institutions([_shown(ask, child) for child in children])
    return {**_plain(Base()), **wrapped} if isinstance(wrapped, dict) else wrapped


def _shown(ask: Ask, child: Child) -> object:
    options, institutions = ask.world.options, ask.world.state.institutions
    shown = _plain(child)
    is_last = child is next(reversed(institutions.values()))
    if options.status_with_calls is not None and is_last and ask.world.has_had_calls(child.record.key or ""):
        shown["status"] = options.status_with_calls
    return shown


def _plain(what: Base | Child) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(what.record if isinstance(what, Child) else what)
    return plain


def add(ask: Ask) -> Base:
    """Add an institution.

    Raises:
        ProblemError: The body is malformed or the key is taken.

    Spec: Endpoints 9; Errors 3.
    """
    try:
        body = parse(ask.inbound.body, AddBody)
    except RefusedError as error:
        raise ProblemError(Problem(title="Invalid institution", detail=error.error)) from error
    key = body.key or re.sub(r"[^a-z0-9]+", "-", body.name.lower()).strip("-")
    if not key:
        raise _invalid("name", "A name is required.")
    if key in ask.world.state.institutions:
        raise _invalid("key", "The key is taken.")
    ask.world.add_institution(key, body.name, core=body.core)
    return Base(messages=[key])


def _invalid(field: str, detail: str) -> ProblemError:
    return ProblemError(Problem(title="Invalid institution", detail=detail, errors={field: [detail]}))


def _owned(ask: Ask, key: str | None) -> Child:
    child = ask.world.state.institutions.get(key or "")
    if child is None or not child.owned:
        raise RefusedError("Institution not found.", "InstitutionNotFound")
    return child


def get(ask: Ask) -> object:
    """Show one institution, secrets included.

    Spec: Endpoints 10; Core config.
    """
    child = _owned(ask, ask.inbound.path_id)
    return {**_plain(Base()), "institution": _shown(ask, child)}


def update(ask: Ask) -> Base:
    """Change the name and the core of an institution.

    Spec: Endpoints 11.
    """
    body = parse(ask.inbound.body, UpdateBody)
    child = _owned(ask, ask.inbound.path_id)
    name = body.name if body.name is not None else child.record.name
    child.record = msgspec.structs.replace(child.record, name=name, core=body.core)
    return Base()


def login_as(ask: Ask) -> object:
    """Log in as an institution.

    Spec: Endpoints 12; Rules per operation 6.
    """
    child = _owned(ask, ask.inbound.path_id)
    token = mint_user_token(ask.world.state, ask.inbound.path_id or "", ask.world.clock())
    url = f"https://{child.record.host_name}/sso/{uuid.uuid4()}"
    action = SsoAction(
        sso_url=url, action_text="Open the dashboard", is_hidden=False, sso_url_ie=f"{url}?ie", sso_url_new=f"{url}?new"
    )
    return LoginAnswer(token=token, actions=[action])
