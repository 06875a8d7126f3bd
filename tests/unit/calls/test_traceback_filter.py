"""An exception as types and code places, without what it says."""

import pytest

from callkeeper.calls.traceback_filter import filtered_traceback, innermost_place


def fails() -> None:
    """Raise an error that names somebody, because of another one."""
    try:
        dict[str, int]()["Ada Example"]
    except KeyError as error:
        raise ValueError("Ada Example") from error


def hides() -> None:
    """Raise an error that hides another one."""
    try:
        dict[str, int]()["a"]
    except KeyError:
        raise ValueError("b") from None


def test_lines_name_types_and_places_innermost_first_and_no_text() -> None:
    """One line for the error and one for its cause; what they say is left out."""
    with pytest.raises(ValueError, match="Ada") as caught:
        fails()
    first, second = filtered_traceback(caught.value)
    assert first.startswith("ValueError < calls/test_traceback_filter.py:")
    assert first.index(" fails") < first.index(" test_lines_name")
    assert second.startswith("KeyError < ")
    assert "Ada" not in first + second


def test_suppressed_context_is_left_out_and_a_groups_errors_are_not() -> None:
    """``from None`` hides a context; each error of a group has a line."""
    with pytest.raises(ValueError, match="b") as caught:
        hides()
    assert len(list(filtered_traceback(caught.value))) == 1
    group = ExceptionGroup("several", [TypeError("c"), OSError("d")])
    assert [line.split(" ")[0] for line in filtered_traceback(group)] == ["ExceptionGroup", "TypeError", "OSError"]


def test_innermost_place_names_function_and_line() -> None:
    """The place of an error that was never raised is unknown."""
    with pytest.raises(ValueError, match="Ada") as caught:
        fails()
    assert innermost_place(caught.value).startswith("fails:")
    assert innermost_place(ValueError("x")) == "?"
