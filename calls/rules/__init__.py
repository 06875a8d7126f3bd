"""The rules of an institution: reading their file, finding faults in it, applying them to calls, and replaying calls.

``book`` holds the records. ``file``, ``sections`` and ``conditions`` read a file and find faults in single entries.
``world``, ``solver``, ``patterns`` and ``proofs`` find faults in the combination of rules. ``matching_and_assignment``
applies rules to a call. ``cases``, ``replay``, ``report`` and ``diff`` try them out.
"""

from calls.rules.book import AS_VERIFIED, AssignRule, Condition, Outcome, Rule, RuleBook, Stage
from calls.rules.file import SHIPPED, load_rules, parse_rules
from calls.rules.sections import Fault, RulesError

__all__ = [
    "AS_VERIFIED",
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
