"""The OpenAPI document of the desk, made from the records that the desk reads and writes."""

import sys
from functools import cache
from inspect import cleandoc
from typing import Any, Final

import msgspec

from callkeeper.calls.call_query import NEEDS_PERSON, OPEN, SETTLED
from callkeeper.calls.outcome_messages import MEANINGS, example_of, schema_name
from callkeeper.calls.outcome_messages import schemas as outcome_schemas
from callkeeper.calls.record import Reason
from callkeeper.desk.board.states import StateName
from callkeeper.desk.bodies import BODIES, AgentTokenBody, Body, VerifiedBody
from callkeeper.desk.problems import MEDIA_TYPE, ProblemView
from callkeeper.desk.views import ActionView, AgentTokenView, GoneView, PageView, StoryView, TicketView

_REF: Final = "#/components/schemas/{name}"
_VIEWS: Final = (PageView, StoryView, ActionView, TicketView, AgentTokenView, GoneView, ProblemView)

_REFUSALS: Final = {
    "400": "A part of the request is missing or wrong; `detail` is its name, a colon, and what belongs there.",
    "401": "No valid token.",
    "403": "The token's role, or its list of operators, does not include this.",
    "404": "No such call or action, or not this token's to see.",
    "405": "This address does not take that method.",
    "409": (
        "The word contradicts `facts`. It is recorded, and nothing follows from it. `evidence_against`: sent again with "
        "their names in `despite`, it counts. `forbidden`: no word overrules them."
    ),
    "413": "The body is longer than 8 KiB.",
    "415": "The body is not plain application/json.",
    "422": "The Idempotency-Key was used for another request.",
    "429": (
        "Too many requests without a valid token came from this address, too many streams of this token are open, too "
        "many searches run, too many tokens are minted, or too many statements about the call wait. `code` says which, "
        "`Retry-After` when to try again."
    ),
    "503": "Redis or the archive cannot be reached at this moment.",
}


@cache
def document() -> bytes:
    """Return the document as JSON."""
    return msgspec.json.format(msgspec.json.encode(_document()), indent=1)


def _document() -> dict[str, Any]:
    _, schemas = msgspec.json.schema_components((*_VIEWS, *BODIES.values(), AgentTokenBody), ref_template=_REF)
    call = "/desk/calls/{institution}/{voice_id}"
    paths = {
        "/desk/calls": {"get": _list()},
        call: {"get": _operation("show_call", "Show a call and its story", _PLACE, {"200": StoryView}, "400", "404")},
        **{f"{call}/{action}": {"post": _speak(body)} for action, body in BODIES.items()},
        f"{call}/actions/{{action_id}}": {"get": _watch()},
        "/desk/tickets": {
            "post": _operation("ticket", "Issue a ticket for the stream", (), {"201": TicketView}, "400", "413", "415")
        },
        "/desk/agent-tokens": {"post": _mint()},
        "/desk/stream": {"get": _stream()},
    }
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "callkeeper desk",
            "version": "1",
            "description": "Read calls, request actions, follow changes. The webhooks are outcomes that callkeeper posts.",
        },
        "security": [{"bearer": []}],
        "paths": paths,
        "webhooks": {kind: {"post": _webhook(kind)} for kind in MEANINGS},
        "components": {
            "schemas": {name: _dedented(schema) for name, schema in (schemas | outcome_schemas(_REF)).items()},
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
    }


def _dedented(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema with a description that is the same on every Python: since 3.13 docstrings are dedented."""
    return schema | {"description": cleandoc(schema["description"])} if "description" in schema else schema


def _parameter(name: str, place: str, meaning: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "in": place, "required": place == "path", "description": meaning, "schema": schema}


_TEXT: Final = {"type": "string"}
_PLACE: Final = (
    _parameter("institution", "path", "The institution's key.", {"type": "string", "minLength": 1}),
    _parameter("voice_id", "path", "The call's voice id or alternate id.", {"type": "string", "minLength": 1}),
)
_INSTITUTION: Final = _parameter(
    "institution",
    "query",
    "Only calls of this institution; 400 if it does not exist, or this token may not see it.",
    _TEXT,
)
_PHONE: Final = _parameter("phone", "query", "Only calls from this number.", _TEXT)
_ID: Final = _parameter("id", "query", "Only the call of this voice id or alternate id.", _TEXT)
_TIME: Final = "A time such as `2026-11-22T10:40` (UTC) or a span before now such as `24h`."
_WAIT: Final = _parameter(
    "wait", "query", "Seconds to wait for the outcome.", {"type": "number", "minimum": 0, "maximum": 10}
)


def _operation(
    name: str, summary: str, parameters: tuple[dict[str, Any], ...], answers: dict[str, type], *refusals: str
) -> dict[str, Any]:
    return {
        "operationId": name,
        "summary": summary,
        "parameters": list(parameters),
        "responses": {
            **{status: _answer(view) for status, view in answers.items()},
            **{status: _refusal(status) for status in sorted({"401", "403", "405", "429", "503", *refusals})},
        },
    }


def _answer(view: type) -> dict[str, Any]:
    return {"description": (view.__doc__ or "").partition("\n")[0], "content": {"application/json": _schema(view)}}


def _refusal(status: str) -> dict[str, Any]:
    return {"description": _REFUSALS[status], "content": {MEDIA_TYPE: _schema(ProblemView)}}


def _schema(view: type) -> dict[str, Any]:
    return {"schema": {"$ref": _REF.format(name=view.__name__)}}


def _list() -> dict[str, Any]:
    filters = (
        _INSTITUTION,
        _PHONE,
        _parameter(
            "q",
            "query",
            "A search as on the board: words that all have to match, last digits, a time, "
            '`outcome:enrolled`, `person:ID`, `operator:NAME`, `rule:"NAME"`, `digest:DIGEST`.',
            _TEXT,
        ),
        _ID,
        _parameter(
            "phase",
            "query",
            "Only calls in this phase; `settled` and `all` go on in the archive, and `all` begins with the newest. "
            "Default: all that are not settled, the oldest first; the settled ones if `outcome` or `state=settled` asks "
            "for them.",
            {"enum": ["live", "ended", "settled", "all"]},
        ),
        _parameter(
            "state",
            "query",
            "Only calls that the board shows in this state, or that are `open`, `settled`, or wait for a person. "
            "The board's words are taken, too.",
            {"enum": [OPEN, SETTLED, NEEDS_PERSON, *StateName]},
        ),
        _parameter("outcome", "query", "Only calls that were settled for this reason.", {"enum": [*Reason]}),
        _parameter("rule", "query", "Only calls in which this rule decided.", _TEXT),
        _parameter("policy", "query", "Only calls with this policy, applied now or before.", _TEXT),
        _parameter("operator", "query", "Only calls about which this person made a statement. Not for viewers.", _TEXT),
        _parameter("since", "query", f"Only calls that began then or later. {_TIME}", _TEXT),
        _parameter("until", "query", f"Only calls that began before. {_TIME}", _TEXT),
        _parameter("limit", "query", "Maximum number of calls.", {"type": "integer", "minimum": 1, "maximum": 500}),
        _parameter("after", "query", "`next` of the previous page.", _TEXT),
    )
    return _operation("list_calls", "List calls", filters, {"200": PageView}, "400")


def _speak(body: type[Body]) -> dict[str, Any]:
    key = _parameter(
        "Idempotency-Key",
        "header",
        "Makes a repetition of this request within a day harmless.",
        {"type": "string", "pattern": "^[!-~]{1,128}$"},
    )
    answers: dict[str, type] = {"200": ActionView, "202": ActionView}
    refusals = ("400", "404", "413", "415", "422", *(("409",) if body is VerifiedBody else ()))
    operation = _operation(body.action, body.summary, (*_PLACE, _WAIT, key), answers, *refusals)
    operation["requestBody"] = {"required": True, "content": {"application/json": _schema(body)}}
    return operation


def _watch() -> dict[str, Any]:
    action_id = _parameter("action_id", "path", "The id of the action.", {"type": "string", "minLength": 1})
    answers: dict[str, type] = {"200": ActionView, "202": ActionView}
    return _operation("show_action", "Show the result of an action", (*_PLACE, action_id, _WAIT), answers, "400", "404")


def _mint() -> dict[str, Any]:
    operation = _operation(
        "agent_token", "Mint a token for one agent's page", (), {"201": AgentTokenView}, "400", "413", "415"
    )
    operation["requestBody"] = {"required": True, "content": {"application/json": _schema(AgentTokenBody)}}
    return operation


def _stream() -> dict[str, Any]:
    parameters = (
        _parameter("ticket", "query", "Instead of a token: a ticket, valid for one connection.", _TEXT),
        _parameter("last_event_id", "query", "The same as the header, for clients that cannot send one.", _TEXT),
        _parameter(
            "Last-Event-ID", "header", "Resume after this event.", {"type": "string", "pattern": "^[0-9]+-[0-9]+$"}
        ),
        _INSTITUTION,
        _PHONE,
        _ID,
    )
    operation = _operation("stream", "Follow the calls that change", parameters, {}, "400")
    operation["responses"]["200"] = {
        "description": "Events `call` (data: CallView), `gone` (data: GoneView), `reset` (list the calls anew).",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    }
    operation["security"] = [{"bearer": []}, {}]
    return operation


_WEBHOOK_HEADERS: Final = (
    ("id", "The same each time this message is posted: handle it once."),
    ("timestamp", "When this post was signed, in seconds since 1970. Refuse a post that is older than five minutes."),
    ("signature", "`v1,` and the signature in base64; two, with a blank between, while a secret is rotated."),
)
_WEBHOOK_ANSWERS: Final = {
    "2XX": {"description": "Accepted. Answer within five seconds; the body is not read."},
    "410": {"description": "Like any other failure: after five in a row only one message is tried at a time."},
    "429": {"description": "Nothing is posted until `Retry-After` is over, for an hour at most."},
    "default": {"description": "Not accepted: posted again, for a day. Redirects are not followed."},
}


def _webhook(kind: str) -> dict[str, Any]:
    """Return the webhook of one type of outcome message."""
    schema = {"$ref": _REF.format(name=schema_name(kind))}
    return {
        "operationId": f"on_{kind.replace('.', '_')}",
        "summary": MEANINGS[kind],
        "security": [],
        "parameters": [
            {"name": f"webhook-{name}", "in": "header", "required": True, "description": meaning, "schema": _TEXT}
            for name, meaning in _WEBHOOK_HEADERS
        ],
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": schema, "example": example_of(kind)}},
        },
        "responses": _WEBHOOK_ANSWERS,
    }


if __name__ == "__main__":
    sys.stdout.buffer.write(document() + b"\n")
