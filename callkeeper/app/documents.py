"""Generates docs/rules.md and docs/configuration.md from the code.

The prose is in the ``.md`` files beside this module. A name in double braces marks the place of a generated part.
`make generate` runs ``python -m callkeeper.app.documents``, with ``rules`` for docs/rules.md.
"""

import ast
import inspect
import re
import sys
from collections.abc import Iterable, Mapping
from importlib.resources import files
from itertools import chain, pairwise
from textwrap import wrap

from callkeeper.app import settings
from callkeeper.calls.facts import FACTS, Says
from callkeeper.calls.law import LAW
from callkeeper.calls.rules import RulesError, parse_rules
from callkeeper.calls.rules.condition_parsing import describe_condition, forms_of
from callkeeper.calls.rules.file import SEVERAL

MEANINGS: Mapping[str, Mapping[str, tuple[str, str, str]]] = {
    "checks": {
        "at": ("list of seconds", "required", "when checks are made, counted from the assignment; see The schedule"),
        "reserve": ("0 to 19", "2", "how many of the 20 checks are reserved for the desk"),
        "unassigned": (
            "whole number",
            "0",
            "how many checks may be made for a call while no caller is assigned, counted from when it was first seen",
        ),
    },
    "reads": {
        "undecided_s": (
            "seconds, 1 or more",
            "8",
            (
                "how often stored details (free) are read until a call is decided; less often if it is old and over 10 "
                "are live, and while workers are late or busy; half as often if the caller is verified and over 10 are "
                "live, as details are read again directly before an enroll"
            ),
        ),
        "decided_s": (
            "seconds, 1 or more",
            "60",
            "how often they are read after that; up to every 8 s while few calls are live",
        ),
    },
    "policies": {
        "green": ("list of names", "none", "policies that mean the voice is authenticated; `*` matches anything"),
        "red": ("list of names", "none", "policies that are evidence against the caller"),
        "neutral": ("list of names", "none", "policies without a meaning; a name in no list is unclassified"),
    },
    "assign": {
        "automatic": ("true or false", "true", "assign the one candidate of a call that nobody has claimed"),
        "institutions": ("list of keys", "all", "assign so at these institutions only"),
        "person_types": ("list of types", "any", "only a candidate of one of these person types"),
    },
    "consent": {
        "require_opt_in": (
            "true or false",
            "false, and the doctor asks to decide it",
            (
                "enroll only after an opt-in in the call. Most callers are never asked, so this enrolls few."
                " An opt-out always forbids an enroll"
            ),
        ),
    },
    "enroll": {
        "against_mismatch": (
            "list of keys",
            "nobody",
            (
                "institutions where a rule may enroll a verified caller although the voice does not match. The rule must"
                " name them too. `doctor` and `rules report` warn about it"
            ),
        ),
    },
    "reject": {
        "on_red_alone": (
            "list of keys",
            "nobody",
            (
                "institutions where a rule may reject on a red policy alone. The rule must name them too. `doctor` and"
                " `rules report` warn about it"
            ),
        ),
    },
    "history": {
        "days": (
            "0 to 365",
            "30",
            "how long a reject, an un-enroll, fraud or an opt-out of a call is remembered; see Other calls. 0: not at all",
        ),
    },
    "limit": {
        "institutions": ("list of keys", "required", "institutions that have a limit of their own"),
        "requests_per_s": (
            "number, 1 or more",
            "required",
            "the limit for each of them, for all workers together",
        ),
    },
    "zone": {
        "name": ("text", "required", 'a time zone for `hour` and `weekday`, for example "America/Chicago"'),
        "institutions": ("list of keys", "all others", "institutions in this zone"),
    },
    "rule": {
        "name": ("text", "required", "the name in trails and reports; unique"),
        "when": ("table of facts", "always", "conditions that must all hold; see Conditions"),
        "then": (
            "`enroll`, `reject`, `ask`, `hold`",
            "required",
            "what the rule does; `ask` asks a person to decide and sends nothing",
        ),
        "validation_type": (
            "a type, or `as_verified`",
            "required with enroll",
            "how identity was established; `as_verified` takes it from the call",
        ),
        "because": (
            "text",
            "required",
            "the reason in a sentence; it is written into the trail and sent as the notes of an enroll",
        ),
        "stage": (
            "`live`, `shadow`",
            "`live`",
            (
                "the result of a rule in shadow is recorded and not acted on. An ended call is read until the"
                " provider's final analysis for its sake, too"
            ),
        ),
        "institutions": ("list of keys", "all", "only for calls of these institutions"),
        "valid_from": (
            "instant with its zone",
            "always",
            "the rule is in force from this instant on",
        ),
        "valid_until": (
            "instant with its zone",
            "never",
            "the rule is in force before this instant",
        ),
    },
}
"""Every key of a rules file: its values, its default, its meaning. ``[lists]`` has keys of its own choice."""

FORM_MEANINGS: Mapping[str, tuple[str, str]] = {
    "at_least": ("checks_used = { at_least = 10 }", "the number is this or more"),
    "at_most": ("candidates = { at_most = 1 }", "the number is this or less; together with `at_least` a range"),
    "in": ('status = { in = ["AnsweredQuestions", "MFAValidated"] }', "one of several values"),
    "not": ('status = { not = { in = ["CallEnded"] } }', "the opposite, of a value or of a condition"),
    "includes": (
        'policies = { includes = "Zebra Device Policy" }',
        "a policy with this name is applied; `*` matches anything",
    ),
    "includes_any": ('policies = { includes_any = ["Zebra *", "Lion"] }', "a policy of one of these names is applied"),
    "includes_none": ('policies = { includes_none = ["Zebra *"] }', "no policy with these names is applied"),
    "in_list": ('person = { in_list = "vip" }', "the member, or the number, is in this list; see Lists"),
    "like": ('number = { like = "+1900*" }', "the number matches this pattern, which has a `*`"),
    "on_checks": (
        'policies = { includes = "Zebra *", on_checks = 2 }',
        "at least this many of the call's checks showed it, in a row or not",
    ),
}
"""Forms of a condition other than a plain value: an example of each, and its meaning."""

_HEAD = "[checks]\nat = [10, 20, 40]\n"
_HOLD = '[[rule]]\nname = "otherwise"\nthen = "hold"\nbecause = "Nothing to do."\n'


def _rule(when: str, then: str = 'then = "reject"', name: str = "mine") -> str:
    return f'[[rule]]\nname = "{name}"\nwhen = {when}\n{then}\nbecause = "Our reason."\n'


EXAMPLES: tuple[tuple[str, str], ...] = (
    ("a raw provider score", _HEAD + _rule("{ voiceScore = 3, distrusted = true }") + _HOLD),
    ("a reject on one piece of evidence", _HEAD + _rule("{ voice_mismatch = true }") + _HOLD),
    ("conditions that contradict each other", _HEAD + _rule('{ verified = false, validation_type = "Other" }') + _HOLD),
    (
        "an enroll that the law never allows",
        _HEAD + _rule("{ verified = true, green = true }", 'then = "enroll"\nvalidation_type = "as_verified"') + _HOLD,
    ),
    (
        "an enroll against a mismatch",
        _HEAD
        + _rule("{ verified = true, voice_mismatch = true }", 'then = "enroll"\nvalidation_type = "as_verified"')
        + _HOLD,
    ),
    (
        "a rule that is never reached",
        _HEAD
        + _rule("{ distrusted = true }", name="first")
        + _rule("{ distrusted = true, voice_mismatch = true }", name="second")
        + _HOLD,
    ),
    (
        "names that contradict a colour",
        '[policies]\nred = ["Red *"]\n'
        + _HEAD
        + _rule('{ policies = { includes = "Red Fraud" }, red = false }', 'then = "ask"')
        + _HOLD,
    ),
    (
        "a reject on red alone",
        '[policies]\nred = ["Red *"]\n' + _HEAD + _rule("{ red = true, checks_used = { at_least = 1 } }") + _HOLD,
    ),
    ("a reject on another call", _HEAD + _rule("{ fraud_elsewhere = true, voice_mismatch = true }") + _HOLD),
    ("a policy with two colours", '[policies]\ngreen = ["Green *"]\nred = ["*Risk"]\n' + _HEAD + _HOLD),
    ("a schedule that speeds up", "[checks]\nat = [10, 30, 40]\n" + _HOLD),
    ("no final hold", _HEAD + _rule("{ distrusted = true }")),
)
"""Faulty files that the document shows together with the validator's messages."""


def rules_document() -> str:
    """Return the whole of docs/rules.md."""
    parts = {
        "keys": _keys(),
        "conditions": items(
            f"`{example}`: {meaning}. For {_takes(form)}." for form, (example, meaning) in FORM_MEANINGS.items()
        ),
        "facts": items(
            f"`{name}` ({_type(fact)}{', by the voice provider' if fact.by_voice else ''}): {fact.meaning}."
            for name, fact in FACTS.items()
        ),
        "law": _law(),
        "faults": "\n\n".join(f"**{what}**\n\n{_reported_faults(text)}" for what, text in EXAMPLES),
    }
    return filled("rules_document.md", parts)


def filled(template: str, parts: Mapping[str, str]) -> str:
    """Return a document: a template of this package with its parts filled in."""
    text = (files("callkeeper.app") / template).read_text(encoding="utf-8")
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found.group(1)], text)


def _keys() -> str:
    return items(
        f"`{f'[[{table}]]' if table in SEVERAL else f'[{table}]'} {key}`: {kind}; "
        f"{'' if left_out.startswith('required') else 'default: '}{left_out}. {meaning[0].upper()}{meaning[1:]}."
        for table, keys in MEANINGS.items()
        for key, (kind, left_out, meaning) in keys.items()
    )


def _type(fact: Says) -> str:
    if fact.kind is bool:
        return "true/false"
    if fact.kind is int:
        return fact.unit or "number"
    if fact.kind is tuple:
        return "names of lists" if fact.by_list else "names"
    return "text: " + ", ".join(f"`{value}`" for value in fact.named) if fact.named else "any text"


def _takes(form: str) -> str:
    """Return the facts with which a form can be used."""
    if form == "on_checks":
        return ", ".join(f"`{name}`" for name, fact in FACTS.items() if fact.by_check)
    kinds = {bool: "true or false", int: "numbers", str: "texts"}
    names = (kinds.get(fact.kind, f"`{name}`") for name, fact in FACTS.items() if form in forms_of(name))
    return ", ".join(dict.fromkeys(names))


def _law() -> str:
    return items(
        f"`{article.name}` forbids {', '.join(sorted(article.forbids))} while "
        + " and ".join(f"`{describe_condition(name, value)}`" for name, value in article.when)
        + (" and `require_opt_in = true`" if article.if_opt_in_required else "")
        + (" and the rule rejects on red alone" if article.if_on_red_alone else "")
        + (", except for the person who stands there" if article.unless_person_stays else "")
        + f": {article.meaning}."
        for article in LAW
    )


def _reported_faults(text: str) -> str:
    try:
        parse_rules(text.encode(), name="rules.toml")
    except RulesError as error:
        lines = chain.from_iterable(wrap(line, 110, break_on_hyphens=False) for line in error.lines)
        return "\n".join(["```text", *lines, "```"])
    raise AssertionError("an example of a faulty file has no fault")


def items(texts: Iterable[str]) -> str:
    """Return a list in Markdown, in lines of less than 120 characters."""
    return "\n".join(
        line
        for text in texts
        for line in wrap(
            text, 116, initial_indent="- ", subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
        )
    )


def meanings() -> dict[str, str]:
    """Return each variable's meaning: the text below its field in `callkeeper.app.settings`."""
    tree = ast.parse(inspect.getsource(settings))
    bodies = [node.body for node in tree.body if isinstance(node, ast.ClassDef)]
    found = {}
    for field, text in chain.from_iterable(map(pairwise, bodies)):
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
            name = re.search(r'"((?:CALLKEEPER_)?[A-Z_]+)"', ast.unparse(field).replace("'", '"'))
            found[name[1] if name else ""] = str(text.value.value)
    return found


def configuration_document() -> str:
    """Return docs/configuration.md: every environment variable, read from the settings themselves."""
    texts = meanings()
    readers = {"web": settings.WebSettings.variables(), "worker": settings.WorkerSettings.variables()}
    sections = []
    for name, variable in settings.VARIABLES.items():
        text = "\n".join(wrap(texts[name], 116, break_on_hyphens=False))
        by = " and ".join(process for process, variables in readers.items() if name in variables)
        sections.append(f"### `{name}`\n\n{text}\n\nFor {by}. Example: `{variable.example}`")
    required = items(
        f"{process}: " + ", ".join(f"`{name}`" for name, one in variables.items() if one.is_required)
        for process, variables in readers.items()
    )
    return filled("configuration_document.md", {"variables": "\n\n".join(sections), "required": required})


if __name__ == "__main__":
    sys.stdout.write(rules_document() if sys.argv[1:] == ["rules"] else configuration_document())
