"""Checks every outcome message that a test receives against the JSON Schema of its type in docs/openapi.json."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema_rs

OPENAPI = Path(__file__).parents[1] / "docs" / "openapi.json"


@cache
def _document() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(OPENAPI.read_bytes())
    return document


@cache
def validator_of(kind: str) -> Any:
    """Return a validator for messages of a type, with the schema that the document names for its webhook."""
    webhook = _document()["webhooks"][kind]["post"]
    schema = webhook["requestBody"]["content"]["application/json"]["schema"]
    whole = {**schema, "components": _document()["components"]}
    return jsonschema_rs.Draft202012Validator(whole)


def keeps_to_its_schema(body: bytes) -> dict[str, Any]:
    """Parse a message. It fails if the message breaks its schema or has a field that the schema does not name."""
    message: dict[str, Any] = json.loads(body)
    validator_of(message["type"]).validate(message)
    schemas = _document()["components"]["schemas"]
    whole = "TestMessage" if message["type"] == "callkeeper.test" else "OutcomeMessage"
    data = "TestData" if whole == "TestMessage" else "OutcomeData"
    assert message.keys() == schemas[whole]["properties"].keys()
    assert message["data"].keys() == schemas[data]["properties"].keys()
    return message
