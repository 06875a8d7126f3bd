"""The client has every endpoint, record, field and word of the Spec, in its type and with its nulls."""

from datetime import datetime
from enum import StrEnum
from types import NoneType
from typing import Any, get_args, get_origin

import pytest
from msgspec.structs import fields

from callkeeper.service import answer_records, endpoints, enumerations, phone_calls
from callkeeper.service.answer_parsing import Record
from callkeeper.service.secret import Secret
from tests.unit.service.spec_tables import ENDPOINTS, ENUMERATIONS, RECORDS

FAMILIES = {"text": str, "word": str, "instant": datetime, "bool": bool, "int": int, "number": float, "secret": Secret}


def record(name: str) -> type[Record]:
    """Find a record by its name."""
    found: type[Record] = getattr(answer_records, name, None) or getattr(phone_calls, name)
    assert issubclass(found, Record)
    return found


def without_null(kind: Any) -> Any:
    """Return what a type allows beside null."""
    options = [option for option in get_args(kind) if option is not NoneType]
    return options[0] if NoneType in get_args(kind) else kind


def holds(kind: Any, family: str) -> bool:
    """Tell whether a type is of a family."""
    if family.startswith("["):
        return get_origin(kind) is tuple and holds(get_args(kind)[0], family[1:-1])
    expected = FAMILIES[family] if family in FAMILIES else record(family)
    return kind is expected


@pytest.mark.parametrize("name", RECORDS)
def test_record_has_exactly_the_fields_of_the_spec(name: str) -> None:
    """No field of the Spec is missing, none is invented."""
    assert {field.encode_name for field in fields(record(name))} == set(RECORDS[name])


@pytest.mark.parametrize("name", RECORDS)
def test_field_is_of_its_family_and_takes_its_null(name: str) -> None:
    """A field holds what the Spec says, and null where the Spec says so (more is tolerated)."""
    for field in fields(record(name)):
        family = RECORDS[name][field.encode_name]
        assert holds(without_null(field.type), family.removesuffix("?")), field.encode_name
        if family.endswith("?"):
            assert NoneType in get_args(field.type), field.encode_name


@pytest.mark.parametrize("name", RECORDS)
def test_vital_fields_exist(name: str) -> None:
    """A record's list of fields never to be guessed names real fields."""
    assert record(name).vital <= set(record(name).__struct_fields__)


OURS = [each for each in vars(endpoints).values() if isinstance(each, endpoints.Endpoint)]


@pytest.mark.parametrize("name", ENUMERATIONS)
def test_enumeration_has_exactly_the_words_of_the_spec(name: str) -> None:
    """No word is missing, none is invented."""
    enumeration = getattr(enumerations, name)
    assert issubclass(enumeration, StrEnum)
    assert [str(word) for word in enumeration] == ENUMERATIONS[name].split(", ")


def test_endpoints_are_those_of_the_spec() -> None:
    """Method, path and auth mode of all twelve."""
    modes = {
        endpoints.AuthMode.ACCESS_TOKEN: "Access token",
        endpoints.AuthMode.SERVICE_ACCOUNT: "Service account",
        endpoints.AuthMode.RESELLER: "Reseller",
    }
    assert [(each.method, each.path, modes[each.mode]) for each in OURS] == ENDPOINTS


def test_endpoint_names_are_unique() -> None:
    """An error's endpoint name says which one it was."""
    assert len({each.name for each in OURS}) == len(ENDPOINTS)
