"""The rights of a person or token: a role, and the institutions that it is limited to."""

from enum import StrEnum
from typing import Annotated, Final

import msgspec

Operator = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^ *[!-~]([ -~]{0,62}[!-~])? *$(?!\n)",
        description="Core username of whoever asks for this. Blanks around it are left out.",
    ),
]
"""Assumed (`core-username-alphabet`): core usernames are 1 to 64 printable ASCII characters: a header has to hold them.

Spec: Authentication, rule 2.
"""


def operator_in(text: str) -> str:
    """Return the core username in a text, without the blanks around it; empty if it can be none."""
    try:
        return msgspec.convert(text, Operator).strip()
    except msgspec.ValidationError:
        return ""


class Role(StrEnum):
    """The roles. Each includes those before it."""

    VIEWER = "viewer"
    """Sees how calls go, without names and numbers."""
    AGENT = "agent"
    """Sees callers, and acts on calls."""
    SUPERVISOR = "supervisor"
    """Pauses, resolves, redelivers; looks after jobs."""
    ADMIN = "admin"
    """Reads the audit log."""

    def includes(self, needed: "Role") -> bool:
        return _RANKS[self] >= _RANKS[needed]


_RANKS: Final = {role: rank for rank, role in enumerate(Role)}


class Rights(msgspec.Struct, frozen=True, kw_only=True):
    """A role, limited to institutions (None: all)."""

    role: Role
    institutions: frozenset[str] | None = None

    def may(self, needed: Role) -> bool:
        return self.role.includes(needed)

    def may_see(self, institution_key: str) -> bool:
        """Tell whether these rights cover an institution and its calls."""
        return self.institutions is None or institution_key in self.institutions

    @property
    def sees_people(self) -> bool:
        """Tell whether names and numbers are shown."""
        return self.may(Role.AGENT)


class Person(Rights, frozen=True, kw_only=True):
    """Somebody who is logged in. ``operator``: their core username, under which they act; empty if they have none."""

    id: str
    operator: str

    @property
    def shown_name(self) -> str:
        """Return how a page calls them. Its stream sends this too: a page that shows another name is loaded again."""
        return self.operator or self.role
