"""``make controls``: switches every security control off, one at a time, and checks that its test then fails.

A test that still passes without its control does not test that control. This command changes each control in a copy of
the tree and runs its tests there, which have to fail. docs/security-controls.md lists the controls.
"""

import subprocess
import sys
import tarfile
import tempfile
from io import BytesIO
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
WITHIN_S: Final = 240
PROVIDER: Final = "tests/people/provider/node_modules"
"""The identity provider that `make people` has installed."""


class Control(NamedTuple):
    """One control: its file, the change that switches it off, and the tests that have to fail then."""

    name: str
    path: str
    old: str
    new: str
    tests: str
    only: str = ""


CONTROLS: Final = (
    Control(
        "every route needs its role",
        "desk/access/gate.py",
        "if rule.admits(found.person):",
        "if rule is not None:",
        "tests/people/test_sessions_and_roles.py",
        "every_role_on",
    ),
    Control(
        "sessions end if their account changes",
        "desk/access/people.py",
        "hmac.compare_digest(account.stamp, record.stamp)",
        "bool(account.stamp)",
        "tests/people/test_sessions_and_roles.py",
        "its_account_changes",
    ),
    Control(
        "sessions have a maximum age",
        "desk/access/people.py",
        "if left > timedelta(0):",
        "if left is not None:",
        "tests/people/test_sessions_and_roles.py",
        "while_it_is_used",
    ),
    Control(
        "a login ends the session before it",
        "desk/board/login_page.py",
        "        if before:\n",
        "        if before is None:\n",
        "tests/people/test_sessions_and_roles.py",
        "new_at_every_login",
    ),
    Control(
        "a login redirects to our own pages only",
        "desk/board/login_page.py",
        "_OURS.fullmatch(address) is not None",
        "_OURS is not None",
        "tests/people/test_sessions_and_roles.py",
        "own_pages_only",
    ),
    Control(
        "guesses at a name are counted across all addresses",
        "desk/board/login_page.py",
        "await self.doors.limiter.count(address, name)",
        "await self.doors.limiter.count(address)",
        "tests/people/test_sessions_and_roles.py",
        "counted_from_everywhere",
    ),
    Control(
        "guesses of one address wait for each other only",
        "desk/board/login_page.py",
        "self._turns.setdefault(address, asyncio.Lock())",
        "asyncio.Lock()",
        "tests/people/test_attacks.py",
        "wait_for_each_other",
    ),
    Control(
        "a change during a password change stands",
        "desk/access/people.py",
        "is_same = await self.find(account.id) == known",
        "is_same = True",
        "tests/people/test_attacks.py",
        "change_during",
    ),
    Control(
        "form tokens belong to a session",
        "desk/access/gate.py",
        'form_tokens(cookie.encode("utf-8", "replace"))',
        'form_tokens(b"the same")',
        "tests/people/test_sessions_and_roles.py",
        "another_session",
    ),
    Control(
        "the state of a login belongs to the browser",
        "desk/access/oidc.py",
        "if not state or not hmac.compare_digest(",
        "if not state and not hmac.compare_digest(",
        "tests/people/test_provider.py",
        "changed_callback or somebody_else",
    ),
    Control(
        "the nonce of a token belongs to the login",
        "desk/access/oidc.py",
        '{"nonce": begun.nonce, ',
        '{"nonce": None, ',
        "tests/people/test_provider.py",
        "wrong_in_one_thing and nonce",
    ),
    Control(
        "the audience of a token is callkeeper",
        "desk/access/oidc.py",
        '"aud": {"essential": True, "value": config.client_id}',
        '"aud": {"essential": True}',
        "tests/people/test_provider.py",
        "wrong_in_one_thing and audience",
    ),
    Control(
        "the issuer of a token is the provider",
        "desk/access/oidc.py",
        '"iss": {"essential": True, "value": config.issuer}',
        '"iss": {"essential": True}',
        "tests/people/test_provider.py",
        "wrong_in_one_thing and issuer",
    ),
    Control(
        "a login needs a role",
        "desk/access/oidc.py",
        "        if not given:\n            words",
        "        if given is None:\n            words",
        "tests/people/test_provider.py",
        "stay_outside",
    ),
    Control(
        "viewers see no numbers",
        "desk/board/templates/pieces.html",
        '{% if not sees_people %}<span class="phone">',
        '{% if false %}<span class="phone">',
        "tests/people/test_what_is_shown.py",
        "no_names",
    ),
    Control(
        "viewers see no names",
        "desk/board/templates/pieces.html",
        "{% if is_named and sees_people and row.assignee %}",
        "{% if is_named and row.assignee %}",
        "tests/people/test_what_is_shown.py",
        "no_names",
    ),
    Control(
        "viewers cannot search by number",
        "desk/board/find_page.py",
        "sees_people=person.sees_people,",
        "sees_people=True,",
        "tests/people/test_what_is_shown.py",
        "no_names",
    ),
    Control(
        "the search finds only calls of one's institutions",
        "desk/call_search.py",
        "return may_see(call.institution_key) and query",
        "return query",
        "tests/people/test_what_is_shown.py",
        "finds_nothing",
    ),
    Control(
        "the board shows only one's institutions",
        "desk/board/audience.py",
        "if group.key in institutions",
        "if group.key",
        "tests/people/test_what_is_shown.py",
        "finds_nothing",
    ),
    Control(
        "issued tokens expire",
        "desk/access/desk_tokens.py",
        "if issued.expires_at is not None and issued.expires_at <= now:",
        "if issued.expires_at is None and now is None:",
        "tests/people/test_commands_and_tokens.py",
        "has_expired",
    ),
    Control(
        "tokens act only for their operators",
        "desk/api.py",
        "body.operator not in token.operators",
        "body.operator is None",
        "tests/people/test_commands_and_tokens.py",
        "rights_of_its_role",
    ),
    Control(
        "push headers are compared",
        "receiver/authentication.py",
        "return all(verdicts)",
        "return True",
        "tests/unit/receiver/test_authentication.py",
    ),
    Control(
        "JSON is strict",
        "reseller/push_event.py",
        "if len(fields) != len(pairs):",
        "if False:",
        "tests/unit/reseller/test_push.py",
        "strict_json",
    ),
    Control(
        "bodies have a cap",
        "receiver/push.py",
        "_length(declared) > limit",
        "_length(declared) > 10 * limit",
        "tests/unit/receiver/test_push_endpoint.py",
        "declared_length",
    ),
    Control(
        "requests have a deadline",
        "callkeeper/connection_limit.py",
        "(self.receiving, limits.request_s)",
        "(self.receiving, 3600)",
        "tests/integration/web/test_serving.py",
        "cuts_a_slow_request",
    ),
    Control(
        "connections have a cap",
        "callkeeper/connection_limit.py",
        "if total <= self._most:",
        "if total > 0:",
        "tests/integration/web/test_serving.py",
        "makes_room",
    ),
    Control(
        "connections whose answers are not read are closed",
        "callkeeper/connection_limit.py",
        "(self.not_reading, limits.read_s)",
        "(self.not_reading, 3600)",
        "tests/integration/web/test_serving.py",
        "cuts_who_does_not_read",
    ),
    Control(
        "answers have a deadline as a whole",
        "callkeeper/connection_limit.py",
        "(self.answering, limits.answer_s)",
        "(self.answering, 3600)",
        "tests/integration/web/test_serving.py",
        "takes_too_long",
    ),
    Control(
        "slow readers are closed too",
        "callkeeper/http_protocol.py",
        "if not self.transport.get_write_buffer_size():",
        "if True:",
        "tests/integration/web/test_serving.py",
        "too_slowly",
    ),
    Control(
        "reset connections are forgotten",
        "callkeeper/http_protocol.py",
        "super().connection_lost(exc)\n        self._stop_keep_alive()",
        "super().connection_lost(exc)",
        "tests/integration/web/test_serving.py",
        "were_reset",
    ),
    Control(
        "pipelined requests are not parsed early",
        "callkeeper/http_protocol.py",
        "(self._is_arriving or not self._is_answering())",
        "True",
        "tests/audit/test_connections.py",
        "costs_no_memory",
    ),
    Control(
        "one connection does not delay others",
        "callkeeper/http_protocol.py",
        "PIECES_PER_TURN: Final = 32",
        "PIECES_PER_TURN: Final = 10_000_000",
        "tests/audit/test_connections.py",
        "what_looks_like",
    ),
    Control(
        "a connection is not read while its bytes wait",
        "callkeeper/http_protocol.py",
        "        self.transport.pause_reading()\n",
        "",
        "tests/audit/test_connections.py",
        "costs_no_memory",
    ),
    Control(
        "clients that do not read make room first",
        "callkeeper/connection_limit.py",
        "oldest = self._oldest(self.not_reading, STUCK_S) or self",
        "oldest = self",
        "tests/integration/web/test_serving.py",
        "that_do_not_read",
    ),
    Control(
        "clients that pipeline make room",
        "callkeeper/connection_limit.py",
        "oldest = oldest or self._oldest(self.waiting)\n",
        "pass\n",
        "tests/audit/test_connections.py",
        "pipeline_make_room",
    ),
    Control(
        "streams of a token have a cap",
        "desk/quotas.py",
        "if self._open[who] >= self._most:",
        "if self._open[who] < 0:",
        "tests/audit/test_connections.py",
        "have_a_cap",
    ),
    Control(
        "some connections are kept for events",
        "callkeeper/connection_limit.py",
        "if self._busy >= self._most:",
        "if self._busy < 0:",
        "tests/audit/test_connections.py",
        "room_is_kept",
    ),
    Control(
        "trailers are dropped",
        "callkeeper/http_protocol.py",
        "        if not self._is_in_head:\n            return\n",
        "",
        "tests/audit/test_connections.py",
        "in_a_trailer",
    ),
    Control(
        "upgrades are ignored",
        "callkeeper/http_protocol.py",
        "                self._ignore_upgrade()\n",
        "",
        "tests/audit/test_connections.py",
        "pipelined_upgrades",
    ),
    Control(
        "a request has exactly one Host header",
        "callkeeper/http_protocol.py",
        "hosts == 1 and (is_chunked",
        "(is_chunked",
        "tests/audit/test_connections.py",
        "read_differently",
    ),
    Control(
        "a request target is a plain path",
        "callkeeper/http_protocol.py",
        'if not self.url.startswith(b"/") or b"#" in self.url or not',
        "if not",
        "tests/audit/test_connections.py",
        "read_differently",
    ),
    Control(
        "only HTTP/1.0 and 1.1",
        "callkeeper/http_protocol.py",
        'return version == "1.1" and',
        "return",
        "tests/audit/test_connections.py",
        "read_differently",
    ),
    Control(
        "HTTP/1.0 has no chunked bodies",
        "callkeeper/http_protocol.py",
        "return hosts <= 1 and not codings",
        "return hosts <= 1",
        "tests/audit/test_connections.py",
        "read_differently",
    ),
    Control(
        "the only transfer coding is chunked",
        "callkeeper/http_protocol.py",
        "(is_chunked or not codings)",
        "(is_chunked or codings < 9)",
        "tests/audit/test_connections.py",
        "read_differently",
    ),
    Control(
        "Host headers are valid names",
        "callkeeper/http_protocol.py",
        'not _HOST.fullmatch(values.get(b"host", b""))',
        "hosts is None",
        "tests/audit/test_connections.py",
        "read_differently",
    ),
    Control(
        "the number of headers has a cap",
        "callkeeper/http_protocol.py",
        "if len(self.headers) >= MAX_HEADERS:",
        "if not self.headers and not name:",
        "tests/audit/test_connections.py",
        "read_differently",
    ),
    Control(
        "the size of headers has a cap",
        "callkeeper/http_protocol.py",
        "if self._overhead > MAX_OVERHEAD or not",
        "if not",
        "tests/audit/test_connections.py",
        "read_differently",
    ),
    Control(
        "the bytes of a request besides its body have a cap",
        "callkeeper/http_protocol.py",
        "if self._is_arriving and self._overhead > MAX_OVERHEAD:",
        "if self._overhead < 0:",
        "tests/integration/web/test_serving.py",
        "endless_headers",
    ),
    Control(
        "refusals of the parser carry safe headers",
        "callkeeper/http_protocol.py",
        "_REFUSAL: Final = {**EVERYWHERE, ",
        "_REFUSAL: Final = {",
        "tests/audit/test_connections.py",
        "refusals_of_the_parser",
    ),
    Control(
        "an event is answered whatever follows it",
        "callkeeper/http_protocol.py",
        "if is_of_next and not self.pipeline:",
        "if is_of_next and self.pipeline:",
        "tests/audit/test_connections.py",
        "garbage_behind",
    ),
    Control(
        "forwarded addresses are read without their ports",
        "callkeeper/middleware.py",
        'elif entry.count(":") == 1:',
        'elif entry.count(":") == 99:',
        "tests/audit/test_connections.py",
        "with_ports",
    ),
    Control(
        "guesses at passwords are limited",
        "calls/store/attempt_limiter.py",
        "        if wait_s:\n",
        "        if wait_s is None:\n",
        "tests/audit/test_login.py",
        "for_all_pages",
    ),
    Control(
        "guesses are counted across all processes",
        "calls/store/attempt_limiter.py",
        "return ceil(wait_ms / 1000), max(",
        "return 0, max(",
        "tests/audit/test_login.py",
        "all_processes",
    ),
    Control(
        "guesses of a browser that has logged in are counted separately",
        "desk/access/gate.py",
        "if self._known is not None and self._known.is_valid(cookie):",
        "if self._known is None:",
        "tests/audit/test_login.py",
        "locked_out",
    ),
    Control(
        "other sites cannot embed pages",
        "desk/access/gate.py",
        "        if is_embedded(request.headers):\n",
        "        if request is None:\n",
        "tests/unit/desk/test_access.py",
        "may_link",
    ),
    Control(
        "keys of cookies are derived slowly",
        "desk/signing.py",
        "_SCRYPT_N: Final = 2**15",
        "_SCRYPT_N: Final = 2",
        "tests/unit/desk/test_signing.py",
        "slowly",
    ),
    Control(
        "changes in the dashboard need a form token",
        "desk/dashboard.py",
        'if request.method == "POST" and not _visitor',
        'if request.method == "NEVER" and not _visitor',
        "tests/integration/web/test_dashboard.py",
        "token_of_a_page",
    ),
    Control(
        "the dashboard serves listed addresses only",
        "desk/dashboard.py",
        "        if not is_known:\n",
        "        if parts is None:\n",
        "tests/audit/test_dashboard.py",
        "odd_addresses or other_queues",
    ),
    Control(
        "other sites cannot link to the dashboard",
        "desk/dashboard.py",
        'not in {"same-origin", "none"}',
        "is None",
        "tests/audit/test_dashboard.py",
        "started_by_other_sites",
    ),
    Control(
        "the dashboard's scripts get JSON",
        "desk/dashboard.py",
        'if template.endswith((".js", "/inline_js.html")):',
        "if template is None:",
        "tests/audit/test_dashboard.py",
        "write_json",
    ),
    Control(
        "jobs of other queues do not exist",
        "desk/dashboard.py",
        'if job.origin not in {"", _own_queue()}:',
        "if job is None:",
        "tests/audit/test_dashboard.py",
        "jobs_of_other_queues",
    ),
    Control(
        "the dashboard does not redirect to the request's host",
        "desk/dashboard.py",
        "self.url_map.redirect_defaults = False",
        "self.url_map.redirect_defaults = True",
        "tests/audit/test_dashboard.py",
        "host_is_never",
    ),
    Control(
        "other sites cannot change anything",
        "desk/access/gate.py",
        "not is_same_site(request.headers)",
        "request is None",
        "tests/integration/web/test_dashboard.py",
        "from_other_sites",
    ),
    Control(
        "answers carry safe headers",
        "desk/browser_headers.py",
        "if pair[0] not in present",
        "if pair[0] in present",
        "tests/unit/desk/test_browser_headers.py",
    ),
    Control(
        "ambiguous request paths are refused",
        "callkeeper/middleware.py",
        "_PLAIN.match(raw_path) is not None",
        "raw_path is not None",
        "tests/unit/callkeeper/test_middleware.py",
    ),
    Control(
        "the desk routes by the raw path",
        "desk/api.py",
        'if scope["type"] == "http" and scope.get("raw_path"):',
        'if scope["type"] == "never":',
        "tests/integration/desk/test_desk_reading.py",
        "whatever_id",
    ),
    Control(
        "forwarded addresses count only if a number of routers is set",
        "callkeeper/middleware.py",
        "if self._hops and",
        "if",
        "tests/unit/callkeeper/test_middleware.py",
        "forwarded",
    ),
    Control(
        "invented tickets cost Redis nothing",
        "desk/stream.py",
        "if signer.is_valid(ticket)), None)",
        "if ticket and signer), None)",
        "tests/audit/test_tickets.py",
        "invented",
    ),
    Control(
        "Redis holds hashes of tickets",
        "desk/stream.py",
        'self._keys.ticket(sha256(ticket.encode("utf-8", "replace")).hexdigest())',
        "self._keys.ticket(ticket)",
        "tests/audit/test_tickets.py",
        "no_ticket_that",
    ),
    Control(
        "half-sent requests take no room",
        "callkeeper/connection_limit.py",
        "        receive = await _arrived(receive)\n",
        "        assert receive\n",
        "tests/audit/test_connections.py",
        "half_sent",
    ),
    Control(
        "answers of the identity provider have a cap",
        "desk/access/oidc.py",
        "if len(body) > LONGEST_ANSWER:",
        "if body is None:",
        "tests/people/test_provider_answers.py",
        "without_end",
    ),
    Control(
        "answers of the identity provider have a deadline as a whole",
        "desk/access/oidc.py",
        "asyncio.timeout(WITHIN_S), ",
        "asyncio.timeout(None), ",
        "tests/people/test_provider_answers.py",
        "given_up",
    ),
    Control(
        "the identity provider cannot redirect our requests",
        "desk/access/oidc.py",
        '"follow_redirects": False',
        '"follow_redirects": True',
        "tests/people/test_provider_answers.py",
        "elsewhere",
    ),
    Control(
        "invented institutions share one label",
        "workers/measurements.py",
        "return institution_key if self.ours is None or institution_key in self.ours else NOT_OURS",
        "return institution_key",
        "tests/audit/test_figures.py",
    ),
    Control(
        "the sandbox's control interface takes JSON only",
        "sandbox/control.py",
        'if (body or kind) and kind != "application/json":',
        "if body is None:",
        "tests/audit/test_sandbox.py",
        "json_only",
    ),
    Control(
        "other sites cannot change the sandbox",
        "sandbox/page.py",
        'if site not in {None, "same-origin", "none"} and',
        "if site is None and",
        "tests/audit/test_sandbox.py",
        "are_refused",
    ),
    Control(
        "tokens are limited to institutions",
        "desk/access/rights.py",
        "return self.institutions is None or",
        "return True or",
        "tests/integration/desk/test_desk_reading.py",
        "hides_other",
    ),
    Control(
        "outcomes reach public addresses only",
        "workers/webhook_client.py",
        "socket_factory=make_socket",
        "socket_factory=None",
        "tests/integration/desk/test_webhook_connections.py",
        "inside or judges",
    ),
    Control(
        "alerts follow no redirect",
        "callkeeper/alert_child.py",
        '["DEFAULT_REDIRECT_LIMIT"] = 0',
        '["DEFAULT_REDIRECT_LIMIT"] = 30',
        "tests/acceptance/test_alert_courier.py",
        "redirect",
    ),
    Control(
        "outcomes follow no redirect",
        "workers/webhook_client.py",
        "follow_redirects=False",
        "follow_redirects=True",
        "tests/integration/desk/test_webhook_connections.py",
        "redirect",
    ),
    Control(
        "certificates are verified",
        "reseller/transport.py",
        "httpx.create_ssl_context(trust_env=False)",
        "httpx.create_ssl_context(verify=False, trust_env=False)",
        "tests/integration/reseller/test_reseller_tls.py",
    ),
    Control(
        "foreign webhooks are dropped",
        "workers/jobs.py",
        "        self.webhooks = []\n",
        "",
        "tests/faults/test_case_jobs.py",
        "webhooks",
    ),
    Control(
        "the decompressed size of a job has a cap",
        "workers/jobs.py",
        "_hold_to_size(raw_data)\n            super()",
        "super()",
        "tests/integration/calls/test_jobs.py",
        "never_unfolded",
    ),
    Control(
        "the dashboard never unpickles",
        "desk/readable_jobs.py",
        "super().__init__(id, connection, JSONSerializer)",
        "super().__init__(id, connection, None)",
        "tests/integration/web/test_dashboard.py",
        "unpickles",
    ),
    Control(
        "failed jobs store places in the code only",
        "workers/jobs.py",
        '        what = "\\n".join(filtered_traceback(error))\n',
        "        raise\n",
        "tests/unit/workers/test_jobs.py",
    ),
    Control(
        "log lines have only listed keys",
        "callkeeper/logs.py",
        "for key, value in event.items() if key in allowed",
        "for key, value in event.items()",
        "tests/unit/callkeeper/test_logs.py",
    ),
    Control(
        "only names and ids of people are stored",
        "reseller/phone_calls.py",
        '    name: str = ""\n    value_for_core',
        '    name: str = field(name="fullSsn", default="")\n    value_for_core',
        "tests/integration/desk/test_canaries.py",
    ),
    Control(
        "secrets are masked",
        "reseller/secret.py",
        'return f"Secret({MASK})"',
        'return f"Secret({self._text})"',
        "tests/unit/reseller/test_reseller_secret.py",
    ),
    Control(
        "processes do not start with weak credentials",
        "callkeeper/credentials.py",
        "all(_guesses_log10(each) >= SECRET_WITHSTANDS for",
        "all(each for",
        "tests/unit/callkeeper/test_credentials.py",
        "secrets_of_software",
    ),
    Control(
        "processes do not start with secrets of repeated or ascending characters",
        "callkeeper/credentials.py",
        "len(set(content)) >= _MIN_DISTINCT and len(steps) >= _MIN_DISTINCT",
        "steps is not None",
        "tests/unit/callkeeper/test_credentials.py",
        "secrets_of_software or outcome_key",
    ),
    Control(
        "keys of outcomes are hard to guess",
        "callkeeper/credentials.py",
        'ensure(_is_hard_to_guess(text.removeprefix("whsec_"))',
        'ensure(text.removeprefix("whsec_")',
        "tests/unit/callkeeper/test_credentials.py",
        "outcome_key",
    ),
    Control(
        "the archive's key is hard to guess",
        "callkeeper/settings.py",
        '"CALLKEEPER_ARCHIVE_KEY", credentials.strong_secret',
        '"CALLKEEPER_ARCHIVE_KEY", credentials.issued',
        "tests/unit/callkeeper/test_credentials.py",
        "ARCHIVE_KEY",
    ),
    Control(
        "the secret at the identity provider is hard to guess",
        "callkeeper/settings.py",
        '"CALLKEEPER_OIDC_CLIENT_SECRET", credentials.strong_secret',
        '"CALLKEEPER_OIDC_CLIENT_SECRET", credentials.issued',
        "tests/unit/callkeeper/test_credentials.py",
        "CLIENT_SECRET",
    ),
    Control(
        "processes do not start with weak passwords",
        "callkeeper/credentials.py",
        " and _guesses_log10(password, name) >= PASSWORD_WITHSTANDS",
        "",
        "tests/unit/callkeeper/test_credentials.py",
    ),
    Control(
        "outcomes reach no reserved IPv6 address",
        "workers/webhook_client.py",
        "host in _PUBLIC_IPV6 and not any(host in each for each in _NOT_PUBLIC_IPV6)",
        "host is not None",
        "tests/unit/desk/test_webhook_client.py",
    ),
    Control(
        "outcome URLs are https",
        "callkeeper/parsing.py",
        'parts.scheme == "https" or parts.hostname in _LOOPBACK or not why_https',
        "True",
        "tests/unit/callkeeper/test_settings.py",
        "outcome",
    ),
    Control(
        "addresses in settings have no hidden characters",
        "callkeeper/parsing.py",
        'is_visible(text) and " " not in text  #',
        "True  #",
        "tests/audit/test_addresses.py",
    ),
    Control(
        "an unencrypted Redis connection is warned of",
        "callkeeper/connections.py",
        "if place.is_exposed:",
        "if place is None:",
        "tests/unit/callkeeper/test_redis_location.py",
        "warned_of",
    ),
    Control(
        "the Kubernetes files give web its own secrets only",
        "deploy/kubernetes/web.yaml",
        "            - secretRef:\n                name: callkeeper-web\n",
        "            - secretRef:\n                name: callkeeper-web\n"
        "            - secretRef:\n                name: callkeeper-worker\n",
        "tests/audit/test_secrets_of_processes.py",
        "is_given",
    ),
    Control(
        "a process removes the other's secrets",
        "callkeeper/process.py",
        "    if environ is not None:",
        "    if environ is None:",
        "tests/audit/test_secrets_of_processes.py",
        "removes",
    ),
    Control(
        "web's Redis user is refused the token",
        "deploy/redis/users.acl.example",
        "~ck:[^t]*",
        "~ck:*",
        "tests/audit/test_redis_users.py",
        "refused_the_token",
    ),
    Control(
        "network policies restrict both sides",
        "deploy/kubernetes/network.yaml",
        "    - from:\n        - namespaceSelector:\n            matchLabels:\n"
        "              kubernetes.io/metadata.name: ingress-nginx\n        - namespaceSelector:\n"
        "            matchLabels:\n              kubernetes.io/metadata.name: monitoring\n      ports:",
        "    - ports:",
        "tests/unit/deploy/test_manifests.py",
        "both_sides",
    ),
    Control(
        "Redis refuses clients without a password",
        "deploy/redis/users.acl.example",
        "user default off resetpass resetkeys resetchannels -@all",
        "user default on nopass ~* +@all",
        "tests/audit/test_redis_users.py",
        "has_no_password",
    ),
    Control(
        "foreign text is printed without control characters",
        "callkeeper/terminal.py",
        "return text if is_visible(text) else",
        "return text if text else",
        "tests/audit/test_terminal.py",
        "in_redis_harmlessly and list",
    ),
    Control(
        "foreign text is not read as markup",
        "callkeeper/terminal.py",
        "markup=False",
        "markup=True",
        "tests/audit/test_terminal.py",
        "in_redis_harmlessly and list",
    ),
    Control(
        "JSON is printed without control characters",
        "callkeeper/terminal.py",
        "return document if is_visible(text) else",
        "return document if text else",
        "tests/audit/test_terminal.py",
        "means_the_same",
    ),
)


def without(control: Control, copy: Path) -> bool:
    """Switch a control off in a copy of the tree; return whether its tests fail."""
    path = copy / control.path
    text = path.read_text()
    if control.old not in text:
        raise LookupError(f"{control.name}: {control.path} does not contain the code to change")
    path.write_text(text.replace(control.old, control.new, 1))
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-x",
        "-n",
        "0",
        "--timeout",
        "25",
        "-p",
        "no:cacheprovider",
        control.tests,
    ]
    command += ["-k", control.only] if control.only else []
    try:
        ended = subprocess.run(  # noqa: S603  (our own arguments)
            command, cwd=copy, env=_environ(copy), capture_output=True, check=False, timeout=WITHIN_S
        )
    finally:
        path.write_text(text)
    return ended.returncode == 1 and b"failed" in ended.stdout


def _environ(copy: Path) -> dict[str, str]:
    return {
        "PATH": str(Path(sys.executable).parent) + ":/usr/bin:/bin",
        "PYTHONPATH": str(copy),
        "HOME": str(copy),
        "TEST_NIGHT": "1",
    }


def main(names: list[str]) -> int:
    """Switch off every control, or those whose names contain a word; return 1 if a test still passed."""
    chosen = [control for control in CONTROLS if not names or any(word in control.name for word in names)]
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, capture_output=True, check=True).stdout  # noqa: S607
    unnoticed = 0
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "tree"
        with tarfile.open(fileobj=BytesIO(archive)) as tree:
            tree.extractall(copy, filter="data")
        (copy / PROVIDER).symlink_to(ROOT / PROVIDER)
        for control in chosen:
            is_noticed = without(control, copy)
            unnoticed += not is_noticed
            print(f"{'red' if is_noticed else 'UNNOTICED':<10} {control.name}  ({control.tests})", flush=True)  # noqa: T201
    print(f"{len(chosen) - unnoticed} of {len(chosen)} controls made a test fail when switched off")  # noqa: T201
    return 1 if unnoticed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
