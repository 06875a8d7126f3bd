"""Texts of the service without whatever may name a person."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callkeeper.service.secret import WORDS, plain_words


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("Phone call not found", "Phone call not found"),
        ("Phone call not found for Ada Example (555-010-4821).", "Phone call not found for …."),
        ("A phone number or voice id must be provided", "A phone number or voice id must be provided"),
        ("ada.example@bank.example is locked", "… is locked"),
        ("PersonId p-1: invalid!", "PersonId …: invalid!"),
        ("", ""),
        ("x" * 5000, "…"),
    ],
)
def test_plain_words_keep_what_a_service_says_and_drop_whom_it_is_about(text: str, plain: str) -> None:
    """Known words stay, everything else becomes one ellipsis: names, numbers, addresses."""
    assert plain_words(text) == plain


@given(st.text(max_size=300))
def test_plain_words_never_pass_an_unknown_word(text: str) -> None:
    """Whatever the service writes, only words of the list come out, no digit, and never more than a line."""
    plain = plain_words(text)
    assert {word.lower() for word in re.findall(r"[^\W_]+", plain)} <= WORDS
    assert len(plain) <= 200
    assert plain.isprintable()
