"""The colours of policies."""

import pytest

from callkeeper.calls.policies import MANUAL_GREEN, Colour, Policies, canonical_policy

SHIPPED = Policies(green=("Green *",), red=("Red *",), neutral=("Yellow Review",))
COLOURS = {
    "Green Manual Authentication": Colour.GREEN,
    "Red High Risk": Colour.RED,
    "Yellow Review": Colour.NEUTRAL,
    "Yellow Revie": Colour.UNCLASSIFIED,
    "green voice": Colour.GREEN,
    "RED HIGH RISK": Colour.RED,
    "Manual green": Colour.UNCLASSIFIED,
    "Greenish": Colour.UNCLASSIFIED,
    "": Colour.UNCLASSIFIED,
}


@pytest.mark.parametrize(("name", "colour"), COLOURS.items(), ids=[name or "empty" for name in COLOURS])
def test_policy_has_the_colour_its_name_was_given(name: str, colour: Colour) -> None:
    """A policy is known by its name only, and a name that no pattern covers is never guessed (D11)."""
    assert SHIPPED.colour(name) is colour


def test_policy_that_is_both_is_red() -> None:
    """If a name matches a green and a red pattern, it is red."""
    assert Policies(green=("* Review",), red=("Red *",)).colour("Red Review") is Colour.RED


@pytest.mark.parametrize(
    "text", [" Green Manual Authentication ", "Green Manual Authentication v2", MANUAL_GREEN.lower()]
)
def test_manual_policy_is_known_with_a_suffix_and_in_small_letters(text: str) -> None:
    """A version behind the name does not make somebody's enroll a result of the voice."""
    assert canonical_policy(text) == MANUAL_GREEN
    assert canonical_policy(" Green Voice ") == "Green Voice"
