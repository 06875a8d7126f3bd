"""An incident hides the lines of the doctor that follow from it, and no line that names a cause of its own."""

import pytest

from callkeeper.app.doctor.causes import follows
from callkeeper.app.doctor.finding import Topic, warning
from callkeeper.calls.causes import IncidentKind
from callkeeper.calls.incident import Incident


@pytest.mark.parametrize(
    ("kind", "topic", "is_hidden"),
    [
        (IncidentKind.INSTITUTION_FAILS, Topic.QUEUE, True),
        (IncidentKind.INSTITUTION_FAILS, Topic.INSTITUTIONS, False),
        (IncidentKind.NOT_ACTIVE, Topic.INSTITUTIONS, True),
    ],
    ids=["same thing", "cause", "told twice"],
)
def test_line_of_an_institution_is_hidden_if_it_follows(kind: IncidentKind, topic: Topic, is_hidden: bool) -> None:
    """That an institution is not Active explains why its queue is refused; it is told once."""
    line = warning(topic, "it is not Active", "ask", about="cu-2")
    assert follows(line, [Incident(kind, "Advice.", "cu-2", headline="Title")]) is is_hidden
    assert not follows(line, [Incident(kind, "Advice.", "cu-3", headline="Title")])
