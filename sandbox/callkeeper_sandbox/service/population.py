"""The default data: three institutions with members, shared numbers and an ignored number.

Everything is invented: numbers of the unassigned exchange 555, hosts under `.example`.
"""

from callkeeper_sandbox.service.institutions import Core
from callkeeper_sandbox.service.records import PersonType
from callkeeper_sandbox.service.state import PushSettings
from callkeeper_sandbox.service.world import World

INSTITUTIONS = {
    "cu-1": ("Harbour Example Credit Union", Core.TYPE_A),
    "cu-2": ("Meadow Example Credit Union", Core.TYPE_B),
    "bank-1": ("First Example Bank", Core.NONE),
}
MEMBERS = 40
SHARED = 5

_FIRST = ("Ada", "Ben", "Cleo", "Dan", "Eve", "Finn", "Gwen", "Hugo", "Iris", "Jon")
_LAST = ("Alder", "Birch", "Cedar", "Elm", "Hazel", "Linden", "Maple", "Oak", "Rowan", "Willow")


def phone(institution_key: str, number: int) -> str:
    """Return the invented phone number of an institution's member."""
    return f"555{list(INSTITUTIONS).index(institution_key) + 1}{number:06}"


def ignored_phone(institution_key: str) -> str:
    """Return the number on an institution's ignore list."""
    return phone(institution_key, 999_999)


def settle(world: World, push: PushSettings) -> None:
    """Fill an empty world. The first `SHARED` numbers of an institution belong to two members each."""
    for key, (name, core) in INSTITUTIONS.items():
        child = world.add_institution(key, name, core=core, push=push)
        child.ignored = [ignored_phone(key)]
        for number in range(MEMBERS):
            first, last = _FIRST[number % len(_FIRST)], _LAST[number // 4 % len(_LAST)]
            world.add_member(key, f"{key}-m{number}", [phone(key, number)], first_name=first, last_name=last)
        for number in range(SHARED):
            world.add_member(
                key,
                f"{key}-j{number}",
                [phone(key, number)],
                first_name="Joint",
                last_name=_LAST[number],
                person_type=PersonType.JOINT,
            )
