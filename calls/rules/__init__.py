"""The rules of an institution: their records, their file, what is wrong with it, what they decide and would have decided.

``book`` holds the records, ``file`` reads one; ``lines``, ``sections``, ``conditions`` and ``reader`` find what is wrong
with single things, ``world`` and ``proofs`` what is wrong with rules together. ``verdict`` applies rules to a call;
``cases``, ``replay`` and ``report`` rehearse them.
"""

from calls.rules.book import AS_VERIFIED, AssignRule, Condition, Outcome, Rule, RuleBook, Stage
from calls.rules.file import SHIPPED, load_rules, parse_rules
from calls.rules.reader import PERSON_TYPES
from calls.rules.sections import Fault, RulesError

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
