"""Limits a frame to the institutions that its reader may see, without figures of all institutions together. Pure."""

from dataclasses import replace

from callkeeper.calls.pause import EVERYWHERE, Pauses
from callkeeper.desk.board.alarms import told
from callkeeper.desk.board.board_context import Pushes
from callkeeper.desk.board.frame import Frame

Institutions = frozenset[str] | None
"""The institutions that somebody is limited to; None: all."""


def frame_for(frame: Frame, institutions: Institutions) -> Frame:
    """Return a frame with only what concerns these institutions, or no particular one."""
    if institutions is None:
        return frame
    context = frame.context
    limited = replace(
        context,
        pauses=pauses_for(context.pauses, institutions),
        pushes=Pushes(
            context.pushes.last_at,
            {key: at for key, at in context.pushes.samples.items() if key in institutions},
        ),
        budget=[use for use in context.budget if not use.institution_key or use.institution_key in institutions],
    )
    return replace(
        frame,
        context=limited,
        groups=[group for group in frame.groups if group.key in institutions],
        alarms=[told(alarm, institutions) for alarm in frame.alarms if alarm.institution_key in {"", *institutions}],
        institutions=[row for row in frame.institutions if row.key in institutions],
        tiles=(),
    )


def pauses_for(pauses: Pauses, institutions: Institutions) -> Pauses:
    """Return the pauses that hold calls of these institutions."""
    if institutions is None:
        return pauses
    seen = {*institutions, EVERYWHERE}
    return Pauses({key: pause for key, pause in pauses.by_institution.items() if key in seen})
