"""Everything that we log: the name of each event, what it means, and the keys that it may carry.

Ids, counts, names of kinds, durations; never a phone number, a person, a credential, a body. The logger drops a key
that is not listed here and names it in ``dropped``; a test holds the source code to the list.
"""

from typing import Final, NamedTuple

_CALL = ("institution", "voice_id")

ALWAYS: Final = frozenset({"event", "level", "timestamp", "process", "error", "trace", "dropped", "trace_id", *_CALL})
"""Keys of every line: its frame; the call and the event that it is about, where there is one; and what an exception leaves
in it (``trace``: the types and places, never the message). ``trace_id`` is the event's, as in requests and trails."""


class LogEvent(NamedTuple):
    """One kind of log line."""

    meaning: str
    keys: frozenset[str]
    allowed: frozenset[str]
    """These keys, and those of every line."""


def _event(meaning: str, *keys: str) -> LogEvent:
    return LogEvent(meaning, frozenset(keys), ALWAYS.union(keys))


LIBRARY_MESSAGE: Final = "library_message"
"""A line that a library has logged through Python's own logging."""

EVENTS: Final[dict[str, LogEvent]] = {
    LIBRARY_MESSAGE: _event("a library said this; its first line only", "library", "message"),
    "crashed": _event("a bug ended this process or one of its threads; where it was"),
    # receiver
    "push_accepted": _event(
        "an event is recorded and was answered with 202",
        *("event_id", "type", "institution", "voice_id", "alternate_id", "is_test"),
    ),
    "push_refused": _event("an event was not taken, and why; credentials: wrong or missing headers", "reason", "field"),
    "push_not_recorded": _event("Redis did not confirm an event: 503, the queue will show the call", "institution"),
    "push_previous_headers_used": _event("an event came with the previous headers: the rotation is not finished"),
    "wake_failed": _event("no job could be enqueued; the next event or the watchdog will"),
    "attempts_limited": _event(
        "an address failed to identify itself too often: its failures are answered with 429 and no longer logged",
        *("where", "address"),
    ),
    # callkeeper web, callkeeper worker
    "secrets_removed": _event(
        "the environment held secrets of another process; this process was restarted without them", "variables"
    ),
    "redis_unverified": _event("the certificate of Redis is not verified, because the settings ask for that"),
    "redis_unencrypted": _event(
        "the connection to Redis is not encrypted and leaves the private network; use rediss://", "address"
    ),
    "alert_address_wrong": _event(
        "an address of the setting is not valid for apprise; no alerts are sent there", "setting", "target"
    ),
    "alert_watch_failed": _event("a bug: one round of alerts failed; the next follows"),
    "alert_told": _event("an alert was sent: an incident, or its end", "kind", "is_over", "target"),
    "alert_not_told": _event("an address did not take a message; it is tried again", "kind", "is_over", "target"),
    # desk
    "admin_refused": _event("somebody without the login, or another site, asked for a page", "reason"),
    "desk_refused": _event("software without a valid token or ticket asked for something", "reason"),
    "desk_heard": _event("a person's statement about a call was stored; by which token", *_CALL, "action", "desk"),
    "board_failed": _event("a bug: the board could not be written; open pages reconnect and it starts again"),
    "feed_away": _event("the stream of changes cannot be read; listeners wait"),
    # callkeeper web
    "web_listening": _event("the web process takes requests", "url"),
    "connection_limit_reached": _event(
        "the connection limit is reached: clients that do not read, that send slowly or that are idle are cut",
        "connections",
    ),
    "web_stopped": _event("the web process has answered its last request"),
    # workers
    "worker_started": _event("a worker takes jobs", "worker"),
    "worker_stopped": _event("a worker was stopped by a signal", "worker"),
    "worker_restarts": _event(
        "RQ's loop ended by itself, or Redis cannot be reached or refuses writes, which is said once: a new worker begins",
        "worker",
    ),
    "redis_away": _event("the watchdog cannot reach Redis"),
    "redis_failed": _event("Redis failed while a call was moved; the lease runs out and somebody else moves it"),
    "shift_stopping": _event("a shift claims no more; calls in flight are finished", "in_flight"),
    "shift_cut_short": _event("what hung in a shift was cancelled; leases run out, bookings stand", "tasks"),
    "shift_stuck": _event("a shift has not moved for too long; the process ends itself", "after_s"),
    "lease_lost": _event("somebody else holds what this worker held; its work is dropped", "member_kind", "why"),
    "step_failed": _event("a bug: moving one call or institution raised", "where", "failures", "parked"),
    "stored_unreadable": _event(
        "a value in Redis cannot be read: it is replaced or left out, and everything else goes on",
        *("what", "institution"),
    ),
    # calls
    "look_back_refused": _event("an end was pushed for an unlisted call, and this minute's reads are used up", *_CALL),
    "hint_dropped": _event("an event named a call that the queue never showed", *_CALL),
    "calls_merged": _event("two ids were one call", *_CALL, "into"),
    "answer_misnamed": _event(
        "an answer about a call named another one; nothing of it was used", *_CALL, "kind", "other"
    ),
    "check_failed": _event("an authentication check brought no answer; it is spent", *_CALL, "n", "said"),
    "read_failed": _event("stored details could not be read", *_CALL, "said"),
    "effect_answered": _event("an assign, enroll or reject was answered", *_CALL, "kind", "state", "said"),
    "effect_not_sent": _event("an effect provably was not sent; it will be", *_CALL, "kind"),
    "effect_in_doubt": _event("an effect may or may not have been applied; it is being read", *_CALL, "kind", "said"),
    "effect_unresolved": _event("an effect could not be read either: a person has to look", *_CALL, "kind"),
    "enroll_taken_back": _event("a reject of the member took an enroll back: a person has to look", *_CALL),
    "person_asked": _event("a rule puts the call before a person; nothing is sent", *_CALL, "rule"),
    "policy_unclassified": _event("the rules give a policy no colour; nothing is enrolled under it", *_CALL, "policy"),
    "status_unknown": _event("the service wrote a status that its document does not know", *_CALL, "status"),
    "call_settled": _event("a call is over and all is written down", *_CALL, "reason", "checks"),
    # outcomes
    "outcome_delivered": _event("the receiver accepted an outcome", *_CALL, "type"),
    "outcome_put_off": _event(
        "an outcome was not taken; so often so far, it is tried again", *_CALL, "type", "attempts"
    ),
    "archive_away": _event("the archive's database cannot be used; calls wait in Redis and do not expire", "calls"),
    "archive_refused": _event(
        "a call could not be written into the archive; the others were", *_CALL, "where", "failures", "parked"
    ),
    "archive_head": _event(
        "where the chain of an institution ends: `callkeeper archive verify --heads` compares it",
        *("institution", "n", "hash", "signature"),
    ),
    "outcome_parked": _event("an outcome was not taken for a day: a person has to look", *_CALL, "type", "attempts"),
    # institutions and the service
    "listing_failed": _event("an institution's queue could not be read", "institution", "said"),
    "institution_foreign": _event("something is due for an institution that is not ours", "institution"),
    "setting_unknown": _event(
        "a variable begins like ours, but no setting has this name; the nearest that exists", "setting", "nearest"
    ),
    "institution_unknown": _event(
        "a setting names an institution that the account does not have; the nearest that it has",
        *("setting", "institution", "nearest"),
    ),
    "pause_seen": _event("a person paused; this worker has stopped", "institution", "scope", "operator"),
    "pause_over": _event("a person resumed; this worker goes on", "institution", "scope"),
    "institution_missing": _event(
        "a login did not list an institution that was listed before: it is kept until the service confirms it",
        "institution",
    ),
    "institution_dropped": _event(
        "two logins did not list the institution and its queue is refused: nothing is sent for it any more",
        "institution",
    ),
    "institution_unreadable": _event("the standing of one institution could not be read", "institution"),
    "institutions_unlisted": _event("the list of institutions could not be read: each is asked for by its key"),
    "institutions_unknown": _event("the login or Redis did not tell which institutions there are"),
    "institutions_left_out": _event("entries of the institution list were unreadable", "institutions"),
    "queue_bound_misread": _event(
        "a look missed the newest call, which is live: the service compares other starts than it shows; looks ask for all",
        "institution",
    ),
    "queue_entries_skipped": _event(
        "nothing can be done about entries of the queue: no voice id, or one that cannot be sent",
        *("institution", "reason", "entries"),
    ),
    "login_made": _event("the service account has logged in; for so many institutions", "institutions"),
    "service_away": _event(
        "logins fail, or three institutions (or all) fail together: all workers leave the service alone", "because"
    ),
    "service_back": _event("the service answers again"),
    "institution_away": _event(
        "five requests in a row failed for an institution, or the service asked for a pause: requests are stopped",
        *("institution", "because"),
    ),
    "institution_back": _event("the service answers for an institution again", "institution"),
    "access_refused": _event(
        "401 with a token just issued: requests of this operation are stopped for the institution",
        "institution",
        "operation",
    ),
    "access_restored": _event("an operation that was refused is accepted again", "institution", "operation"),
    "login_failed": _event("the service account could not log in; so often in a row", "reason", "failures", "said"),
    "token_not_slid": _event("the token's expiry could not be moved forward in Redis"),
    "token_fault": _event("a token just issued was refused: a person has to look"),
}
