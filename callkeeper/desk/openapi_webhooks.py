"""The webhooks of the OpenAPI document: one for each type of outcome message, with its schema and an example."""

from typing import Any, Final

from callkeeper.calls.outcome_messages import MEANINGS, example_of, schema_name

_TEXT: Final = {"type": "string"}
_HEADERS: Final = (
    ("id", "The same each time this message is posted: handle it once."),
    ("timestamp", "When this post was signed, in seconds since 1970. Refuse a post that is older than five minutes."),
    ("signature", "`v1,` and the signature in base64; two, with a blank between, while a secret is rotated."),
)
_ANSWERS: Final = {
    "2XX": {"description": "Accepted. Answer within five seconds; the body is not read."},
    "410": {"description": "Like any other failure: after five in a row only one message is tried at a time."},
    "429": {"description": "Nothing is posted until `Retry-After` is over, for an hour at most."},
    "default": {"description": "Not accepted: posted again, for a day. Redirects are not followed."},
}


def webhooks(ref_template: str) -> dict[str, Any]:
    """Return the webhooks by their type."""
    return {kind: {"post": _post(kind, ref_template)} for kind in MEANINGS}


def _post(kind: str, ref_template: str) -> dict[str, Any]:
    schema = {"$ref": ref_template.format(name=schema_name(kind))}
    return {
        "operationId": f"on_{kind.replace('.', '_')}",
        "summary": MEANINGS[kind],
        "security": [],
        "parameters": [
            {"name": f"webhook-{name}", "in": "header", "required": True, "description": meaning, "schema": _TEXT}
            for name, meaning in _HEADERS
        ],
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": schema, "example": example_of(kind)}},
        },
        "responses": _ANSWERS,
    }
