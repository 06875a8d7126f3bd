"""The rules of an institution: their records, the file they are read from, and everything that can be wrong with it.

``book`` holds the records, ``file`` reads one; ``reader``, ``sections``, ``conditions`` find what is wrong with single
things, ``proofs`` and ``world`` what is wrong with rules together, ``lines`` and ``faults`` say where and how.
"""

from calls.rules.book import AS_VERIFIED, AssignRule, Condition, Outcome, Rule, RuleBook, Stage
from calls.rules.faults import Fault, RulesError
from calls.rules.file import SHIPPED, load_rules, parse_rules
from calls.rules.reader import PERSON_TYPES

__all__ = [
    "AS_VERIFIED",
    "PERSON_TYPES",
    "SHIPPED",
    "AssignRule",
    "Condition",
    "Fault",
    "Outcome",
    "Rule",
    "RuleBook",
    "RulesError",
    "Stage",
    "load_rules",
    "parse_rules",
]
