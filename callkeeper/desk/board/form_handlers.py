"""Reads the forms of the board, which must come from its own pages, and carries out those that request an action."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final
from urllib.parse import parse_qsl

import msgspec
from msgspec.structs import replace
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from callkeeper.calls.item_names import CallId
from callkeeper.desk.access.desk_tokens import DeskToken
from callkeeper.desk.access.rights import Person, operator_in
from callkeeper.desk.access.visitor import AuditNote, note_of, visitor_of
from callkeeper.desk.bodies import BODIES, Body, RequestTooLarge, SeenBody, bounded
from callkeeper.desk.problems import Problem
from callkeeper.desk.signed_tokens import FORM_FIELD
from callkeeper.desk.statements import Actions
from callkeeper.service import Secret

BOARD: Final = DeskToken(name="board", secret=Secret(""))
"""The board's name in trails, in place of a token's."""

SPEAKER: Final = ("said_by", "said_because")
"""The fields in which whoever uses the emergency login says who they are, and why."""

_LONGEST_NAME: Final = 40


def fields_of(action: str) -> tuple[str, ...]:
    """Return the fields of an action's form. Who acts is not among them: that is the person who is logged in."""
    own = [name for name in _FORMS[action].__struct_fields__ if name != "operator"]
    other = ("other_person_id",) if "person_id" in own else ()
    return (*own, *other, *(("confirmed",) if action == "distrusted" else ()))


_FORMS: Final[Mapping[str, type[Body]]] = {**BODIES, "resolve": SeenBody}


class FormRefused(Exception):
    """A form was not carried out; the message is for the person who filled it in. ``status`` is the HTTP status.

    ``despite``: what the form contradicts; it is asked again with these.
    """

    def __init__(self, status: int, words: str, despite: str = "") -> None:
        super().__init__(words)
        self.status = status
        self.despite = despite


async def read_form(request: Request, *known: str, changes: bool = True) -> dict[str, str]:
    """Return the fields of a form that one of our pages has sent; empty ones are left out.

    A form that changes nothing needs no token: it is a POST only to keep the query out of the address.

    Raises:
        FormRefused: It is too large, no form, or not from a page of ours, or has a field twice or one that is not
            ``known``.
    """
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/x-www-form-urlencoded":
        raise FormRefused(415, "This address accepts only a form.")
    try:
        pairs = parse_qsl(
            (await bounded(request)).decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=20
        )
    except RequestTooLarge:
        raise FormRefused(413, "The form is too large.") from None
    except ClientDisconnect:
        raise FormRefused(400, "The form was not received completely.") from None
    except ValueError:
        raise FormRefused(400, "This is not one of our forms.") from None
    form = {name: value.strip() for name, value in pairs if value.strip()}
    if changes and not visitor_of(request).forms.is_valid(form.pop(FORM_FIELD, None)):
        raise FormRefused(403, "This page was open for too long. Nothing was done; please send it again.")
    names = [name for name, _ in pairs]
    if unknown := sorted(set(names) - {*known, FORM_FIELD}):
        raise FormRefused(400, f"This form has no field {unknown[0][:_LONGEST_NAME]}.")
    if len(set(names)) != len(names):
        raise FormRefused(400, "A field occurs twice.")
    return form


def form_route(
    address: str,
    do: Callable[[Request, dict[str, str]], Awaitable[str]],
    refused: Callable[[Request, FormRefused, dict[str, str]], Awaitable[Response]],
    *fields: str,
) -> Route:
    """Return the route of a form with these fields: ``do`` returns the address of the next page."""

    async def answer(request: Request) -> Response:
        form: dict[str, str] = {}
        try:
            form = await read_form(request, *fields)
            return RedirectResponse(await do(request, form), 303)
        except FormRefused as problem:
            return await refused(request, problem, form)

    return Route(address, answer, methods=["POST"])


def speaker_of(request: Request, form: Mapping[str, str]) -> Person:
    """Return who says something about a call: who is logged in, or at the emergency login whom the form names.

    Raises:
        FormRefused: The emergency login is used, and the form does not say by whom and why.
    """
    visitor, note = visitor_of(request), note_of(request)
    if not visitor.is_emergency:
        return visitor.person
    operator, because = operator_in(form.get("said_by", "")), form.get("said_because", "")
    if not (operator and because):
        raise FormRefused(400, "Say who you are (your core username), and why you use the emergency login.")
    note.operator = operator
    note.add(because)
    return replace(visitor.person, operator=operator)


async def request_action(
    actions: Actions, person: Person, place: CallId, action: str, form: Mapping[str, str], note: AuditNote
) -> tuple[str, CallId]:
    """Request an action for a call by somebody; return its id, and the id that the call's record is kept under.

    ``note`` is completed with the evidence that was named.

    Raises:
        FormRefused: A field is wrong, there is no such call, or too many statements about it wait.
    """
    own = {name: value for name, value in form.items() if name not in SPEAKER}
    fields = {**_named_person(own), "operator": operator_of(person)}
    is_confirmed = fields.pop("confirmed", "") == "yes"
    if action == "distrusted" and not is_confirmed:
        raise FormRefused(400, "Confirm that this voice is to be rejected.")
    try:
        named = {"despite": fields["despite"].split(",")} if "despite" in fields else {}
        body: Body = msgspec.convert(fields | named, type=_FORMS[action], strict=False)
    except msgspec.ValidationError as error:
        raise FormRefused(400, _remedy(str(error))) from None
    try:
        return await actions.request(BOARD, place, action, body, None, note, assigns=True)
    except Problem as problem:
        facts, known = problem.view.facts, form.get("despite", "").split(",")
        is_asked = problem.view.code == "evidence_against"
        title = (
            "this speaks against the caller. Say below that you know it, or do not send it"
            if is_asked
            else problem.view.title
        )
        words = ": ".join(filter(None, (f"Not done: {title}", "; ".join(one.meaning for one in facts))))
        despite = ",".join(filter(None, (*known, *(one.name for one in facts)))) if is_asked else ""
        raise FormRefused(problem.view.status, words, despite) from None


def _named_person(form: Mapping[str, str]) -> dict[str, str]:
    """Return a form's fields with one person: one that was offered, or somebody else by id.

    Raises:
        FormRefused: Two are named, or somebody else without an id.
    """
    fields = dict(form)
    other = fields.pop("other_person_id", None)
    if fields.get("person_id") == "?":
        if other is None:
            raise FormRefused(400, "Type the person id of the other person.")
        fields["person_id"] = other
    elif other is not None and fields.get("person_id") not in {None, other}:
        raise FormRefused(400, "Two persons are named: choose one, or somebody else with a person id.")
    return fields


def operator_of(person: Person) -> str:
    """Return the core username of the person who is logged in."""
    if not person.operator:
        raise FormRefused(403, "Your account has no core username, so nothing can be done in your name.")
    return person.operator


def _remedy(message: str) -> str:
    """Return what to do about the field that a message of msgspec is about."""
    remedies = {
        "person_id": "Choose the person, or type their id: at most 128 characters of ASCII.",
        "validation_type": "Choose how the caller was verified.",
        "reason": "Say why, in at most 500 characters. Whoever takes back a distrust has to.",
        "applied": "Say whether it was applied.",
        "notes": "Say in the notes how the caller was verified, or how they agreed, in at most 500 characters.",
    }
    return next((remedy for name, remedy in remedies.items() if name in message), "A field is missing or invalid.")
