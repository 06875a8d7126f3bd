"""The rules of an institution: reading their file, finding faults in it, applying them to calls, and replaying calls.

``book`` holds the records. ``file``, ``toml_reader``, ``condition_parsing`` and ``lists_and_zones`` read a file and find
faults in single entries. ``possible_facts``, ``solver``, ``patterns`` and ``proofs`` find faults in the combination of
rules. ``matching`` applies rules to a call, ``assignment`` says whom to assign. ``cases``, ``replay``, ``report`` and
``diff`` try them out.
"""

from callkeeper.calls.rules.book import AS_VERIFIED, Outcome, Rule, RuleBook, Stage
from callkeeper.calls.rules.file import SHIPPED, load_rules, parse_rules
from callkeeper.calls.rules.toml_reader import Fault, RulesError
