"""All log events: their names, their meanings, and the keys that each may have.

Values are ids, counts, names of kinds and durations, never phone numbers, persons, credentials or bodies. The logger
drops a key that is not listed here and names it in ``dropped``. A test compares the source code with the list.
"""

from typing import Final, NamedTuple

_CALL = ("institution", "voice_id")

ALWAYS: Final = frozenset({"event", "level", "timestamp", "process", "error", "trace", "dropped", "trace_id", *_CALL})
"""Keys of every line: time, level and process, the call and the event if there is one, and the exception (``trace``:
types and places, never the message). ``trace_id`` is the event's, as in requests and trails."""


class LogEvent(NamedTuple):
    """One kind of log line."""

    meaning: str
    keys: frozenset[str]
    allowed: frozenset[str]
    """The event's own keys, in addition to those of every line."""


def _event(meaning: str, *keys: str) -> LogEvent:
    return LogEvent(meaning, frozenset(keys), ALWAYS.union(keys))


LIBRARY_MESSAGE: Final = "library_message"
"""A line that a library has logged through Python's own logging."""

EVENTS: Final[dict[str, LogEvent]] = {
    LIBRARY_MESSAGE: _event("the first line of a library's message", "library", "message"),
    "crashed": _event("a bug ended this process or one of its threads"),
    "log_lines_lost": _event(
        "as many lines are missing before this one: nobody read the log for a while, or its disk was full", "lines"
    ),
    # receiver
    "push_accepted": _event(
        "an event was recorded and answered with 202",
        "event_id",
        "type",
        "institution",
        "voice_id",
        "alternate_id",
        "is_test",
    ),
    "push_refused": _event("an event was refused; reason credentials: wrong or missing headers", "reason", "field"),
    "push_not_recorded": _event("Redis did not confirm an event: 503, the queue will show the call", "institution"),
    "push_previous_headers_used": _event("an event came with the previous headers: the rotation is not finished"),
    "wake_failed": _event("no job could be enqueued; the next event or the watchdog enqueues one"),
    "attempts_limited": _event(
        "too many failed logins from an address or for a name: further ones are answered with 429 and not logged",
        "where",
        "address",
    ),
    # callkeeper web, callkeeper worker
    "not_migrated": _event(
        "Redis has data of an older release that were not copied, or that release works there; this process ends",
        "because",
    ),
    "secrets_removed": _event(
        "the environment held secrets of another process; this process was restarted without them", "variables"
    ),
    "redis_unverified": _event("the certificate of Redis is not verified, because the settings ask for that"),
    "redis_unencrypted": _event(
        "the connection to Redis is not encrypted and leaves the private network; use rediss://", "address"
    ),
    "redis_rights_missing": _event(
        "our user in Redis lacks rights, as rules of an access list; what needs them fails, often quietly",
        "rights",
        "remedy",
    ),
    "alert_address_wrong": _event(
        "an address of the setting is not valid for apprise; no alerts are sent there", "setting", "target"
    ),
    "alert_watch_failed": _event("a bug: one round of alerts failed; the next follows"),
    "alert_told": _event("an alert about an incident or its end was sent", "kind", "is_over", "target"),
    "alert_not_told": _event(
        "an address did not accept an alert; it is sent again", "kind", "is_over", "target", "because"
    ),
    "telemetry_off": _event(
        "this process sends no spans: an extra is missing, or the SDK refused a setting; variables: those that are set",
        "because",
        "variables",
    ),
    # desk
    "admin_refused": _event(
        "a page was requested without a login (no_login), with a wrong one (credentials), or from another site",
        "reason",
    ),
    "desk_refused": _event("a desk request had no valid token or ticket", "reason"),
    "desk_heard": _event("a person's statement about a call was stored; desk: the token", *_CALL, "action", "desk"),
    "board_failed": _event("a bug: the board could not be built; open pages reconnect and it starts again"),
    "feed_away": _event("a web process cannot read the stream of changes in Redis; listeners wait"),
    "feed_back": _event("a web process reads the stream of changes again"),
    # callkeeper web
    "web_listening": _event("the web process takes requests", "url", "release"),
    "connection_limit_reached": _event(
        "the connection limit is reached: clients that do not read, that send slowly or that are idle are cut",
        "connections",
    ),
    "web_stopped": _event("the web process has answered its last request"),
    # workers
    "account_shared": _event(
        "another installation in this Redis began to work with our account: both check, enroll and reject the same calls",
        "prefixes",
    ),
    "worker_started": _event("a worker takes jobs", "worker", "release"),
    "rules_in_force": _event(
        "the rules by which this worker decides; live, shadow: how many act, and how many only say what they would do",
        "rules",
        "digest",
        "assigns",
        "live",
        "shadow",
    ),
    "worker_stopped": _event("a worker was stopped by a signal", "worker"),
    "worker_restarts": _event(
        "RQ's loop ended, or Redis refuses writes (logged once); a new RQ worker starts",
        "worker",
        "because",
    ),
    "redis_away": _event("a worker cannot reach Redis, or it refuses; tried again until it works", "because"),
    "redis_back": _event("a worker reaches Redis again, and goes on"),
    "redis_failed": _event("Redis failed while a call was handled; its lease expires and another worker continues"),
    "shift_stopping": _event("a shift claims no more; calls in flight are finished", "in_flight"),
    "shift_cut_short": _event("hanging tasks were cancelled; their leases expire, their checks stay booked", "tasks"),
    "shift_stuck": _event("a shift has not moved for too long; the process ends itself", "after_s"),
    "lease_lost": _event("another worker took over the call or institution; this one stops", "member_kind", "why"),
    "step_failed": _event("a bug: handling a call or institution raised an error", "where", "failures", "parked"),
    "stored_unreadable": _event("a value in Redis is unreadable: it is replaced or left out", "what", "institution"),
    # calls
    "look_back_refused": _event("a call ended before it was listed; not read: too many such calls wait", *_CALL),
    "hint_dropped": _event("an event named a call that the queue never showed", *_CALL),
    "calls_merged": _event("two ids were one call", *_CALL, "into"),
    "answer_misnamed": _event("an answer about a call named another call and was ignored", *_CALL, "kind", "other"),
    "check_failed": _event("an authentication check got no answer; it counts as used", *_CALL, "n", "said"),
    "read_failed": _event("stored details could not be read", *_CALL, "said"),
    "effect_answered": _event("an assign, enroll or reject was answered", *_CALL, "kind", "state", "said"),
    "effect_not_sent": _event("an effect was certainly not sent; it is sent later", *_CALL, "kind"),
    "effect_in_doubt": _event("it is unknown if an effect was applied; the call is read", *_CALL, "kind", "said"),
    "effect_unresolved": _event("reading did not show if an effect was applied: a person must look", *_CALL, "kind"),
    "assign_ignored": _event(
        "the service accepted an assign, and neither its queue nor details show the member", *_CALL
    ),
    "effect_refused": _event("the service refused an effect, also when it was repeated", *_CALL, "kind", "said"),
    "enroll_taken_back": _event("a reject of the member undid an enroll: a person must look", *_CALL),
    "person_asked": _event("a rule asks a person to decide; nothing is sent", *_CALL, "rule"),
    "policy_unclassified": _event("the rules do not classify a policy; it prevents an enroll", *_CALL, "policy"),
    "status_unknown": _event("the service sent a status that its document does not define", *_CALL, "status"),
    "call_settled": _event("a call is finished and nothing more happens to it", *_CALL, "reason", "checks"),
    # outcomes
    "outcome_delivered": _event("the receiver accepted an outcome", *_CALL, "type"),
    "outcome_put_off": _event("the receiver did not accept an outcome; it is sent again", *_CALL, "type", "attempts"),
    "outcomes_failed": _event("a bug: a call's outcomes could not be made", *_CALL, "where", "failures", "parked"),
    "outbox_failed": _event("a bug: sending outcomes, or writing to the archive, raised an error", "where"),
    "archive_away": _event(
        "a worker cannot use the archive's database, logged once for each error; calls wait in Redis and do not expire"
    ),
    "archive_back": _event("a worker writes into the archive again; calls: how many still wait", "calls"),
    "archive_refused": _event(
        "a call, or an entry of the audit log, could not be written into the archive; other calls were",
        *_CALL,
        "where",
        "failures",
        "parked",
    ),
    "archive_head": _event(
        "the head of an institution's chain; `callkeeper archive verify --heads` compares it",
        "institution",
        "n",
        "hash",
        "before_n",
        "before_hash",
        "at_ms",
        "signature",
    ),
    "archive_rewritten": _event(
        "an institution's chain lost the head that was logged last, or does not lead from there to its new head, which is "
        "not signed",
        "institution",
        "n",
        "hash",
    ),
    "outcome_parked": _event("an outcome was not accepted for a day: a person must look", *_CALL, "type", "attempts"),
    # institutions and the service
    "listing_failed": _event("an institution's queue could not be read", "institution", "said"),
    "institution_foreign": _event("work is due for an institution that the account does not manage", "institution"),
    "setting_unknown": _event(
        "a variable has our prefix, but is no setting; nearest: the most similar setting", "setting", "nearest"
    ),
    "institution_unknown": _event(
        "a setting names an institution that the account does not have; nearest: the most similar key",
        "setting",
        "institution",
        "nearest",
    ),
    "pause_seen": _event("this worker obeys a new pause", "institution", "scope", "operator"),
    "pause_over": _event("a pause has ended for this worker", "institution", "scope"),
    "institution_spelled_twice": _event(
        "the service names an institution with two keys that differ in capitals only: calls under one are left out",
        "institution",
        "left_out",
    ),
    "institution_missing": _event(
        "a login did not list an institution that was listed before: it is kept until the service confirms it",
        "institution",
    ),
    "institution_dropped": _event(
        "two logins did not list the institution and its queue is refused: nothing is sent for it any more",
        "institution",
    ),
    "institution_unconfirmed": _event(
        "the state of an institution was asked for before an effect: no answer", "institution"
    ),
    "institution_unreadable": _event("the state of one institution could not be read", "institution"),
    "institutions_unlisted": _event("the list of institutions could not be read: each is read by its key"),
    "institutions_unknown": _event("neither the login nor Redis named the institutions"),
    "institutions_left_out": _event("entries of the institution list were unreadable", "institutions"),
    "queue_bound_misread": _event(
        "a listing by start time missed a live call: from now on listings ask for all calls",
        "institution",
    ),
    "queue_entries_skipped": _event(
        "entries of the queue were ignored: they have no voice id, or one that cannot be sent",
        "institution",
        "reason",
        "entries",
    ),
    "login_made": _event("the service account has logged in; institutions: how many it manages", "institutions"),
    "service_away": _event(
        "logins fail, or queues and calls of several institutions: all requests are stopped", "because"
    ),
    "service_back": _event("the service answers again"),
    "institution_away": _event(
        "five requests in a row about an institution's calls failed, or the service asked for a pause: they are stopped",
        "institution",
        "because",
    ),
    "own_way_broken": _event(
        "this worker gets no answers from the service, or none over new connections, while others do: it leaves the work to "
        "them; foreign_answer is what answers in its place",
        "failures",
        "foreign_answer",
    ),
    "own_way_back": _event("the service answers this worker again: it works on"),
    "institution_back": _event("the service answers for an institution again", "institution"),
    "queue_away": _event(
        "five listings in a row failed: they are stopped, for all if no institution is named; pushed calls are handled",
        "institution",
        "because",
    ),
    "queue_back": _event("the service lists calls again", "institution"),
    "checks_away": _event(
        "checks of three calls of an institution brought no result: further ones wait, and one call at a time tries",
        "institution",
        "because",
    ),
    "checks_back": _event("a check of an institution brought a result again", "institution"),
    "access_refused": _event(
        "401 with a token just issued: requests of this operation are stopped for the institution",
        "institution",
        "operation",
    ),
    "access_restored": _event("an operation that was refused is accepted again", "institution", "operation"),
    "login_failed": _event("the service account could not log in", "reason", "failures", "said"),
    "token_not_slid": _event("the token's expiry could not be extended in Redis"),
    "token_fault": _event("a token just issued was refused: a person must look"),
}
