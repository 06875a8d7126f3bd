"""The names of calls and institutions in Redis."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callkeeper.calls.item_names import CallId, institution_member, parse_member


@given(institution=st.text(min_size=1), voice_id=st.text(min_size=1))
def test_member_names_one_call(institution: str, voice_id: str) -> None:
    """Whatever an institution's key or a voice id contains, colons included, the name leads back to both."""
    call_id = CallId(institution, voice_id)
    assert parse_member(call_id.member) == call_id


@given(institution=st.text(min_size=1))
def test_member_names_one_institution(institution: str) -> None:
    """An institution's name leads back to its key and is never taken for a call's."""
    assert parse_member(institution_member(institution)) == institution


@pytest.mark.parametrize("name", ["", "c", "c:", "c:cu-1", "i:", "i:a:b", "x:cu-1:v-1", "rq:job:1"])
def test_member_of_somebody_else_is_refused(name: str) -> None:
    """A name that we never write is an error, not a call."""
    with pytest.raises(ValueError, match="not the name"):
        parse_member(name)
