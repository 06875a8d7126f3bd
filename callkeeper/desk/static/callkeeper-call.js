// <callkeeper-call>: one call on an agent's page, as it is now, and what the agent can say about it.
//
//   <script type="module" src="https://callkeeper.example/desk/callkeeper-call.js"></script>
//   <callkeeper-call token-url="/callkeeper-token" institution="cu-1" call="VOICE_ID"></callkeeper-call>
//
// Attributes: `call` (voice id or alternate id) or `phone` (the caller's number); `institution`; `token-url` (an address of
// the page's own origin, whose back end mints a token with POST /desk/agent-tokens and passes the answer on) or the property
// `getToken` (a function that returns that answer); `theme` (`light` or `dark`; default: as the system). The property `desk`
// is where callkeeper is, if the script is not loaded from there. No attribute says that, nor another site's `token-url`:
// markup that somebody slips into the page must not send the token elsewhere. Events: `callkeeper-change` (detail: the call, or null) and
// `callkeeper-error` (detail: {status, code, message}).
//
// It needs no library, writes no markup from values, and works under a strict Content-Security-Policy: the page has to allow
// callkeeper's origin in script-src and connect-src, and no inline script or style.

const FIRST_WAIT_MS = 1000;
const LONGEST_WAIT_MS = 30_000;
const SILENCE_MS = 40_000; // the desk sends a comment every 15 s
const STALE_MS = 5000;
const RENEW_MS = 30_000; // how long before its end a token is replaced
const ACTION_WAIT_S = 10;
const ACTION_TRIES = 6;

/** Every text that is shown. Replace entries for another language before the element is used. */
export const WORDS = {
  label: "Voice of the caller",
  loading: "Looking for the call",
  absent: "No live call yet",
  unknown: "No call with this id is open at this institution: it is finished, or has not begun",
  unshown: "The call cannot be shown",
  several: "Several calls come from this number now. Choose one by its id.",
  gone: "The call does not exist any more",
  incomplete: "This element needs an institution, and a call or a phone",
  rejected: "Rejected",
  red: "Do not trust: red policy",
  distrusted: "Distrusted",
  mismatch: "The voice does not match",
  unenrolled: "The enroll was taken back",
  green: "Authenticated",
  enrolled: "Enrolled",
  manual: "Verified by a person",
  ask: "Please verify the caller",
  verified: "Verified",
  unassigned: "Nobody is assigned yet",
  waiting: "Listening to the voice",
  undecided: "Undecided",
  checks: (call) => `${call.checks_used} ${call.checks_used === 1 ? "check" : "checks"} made, ${call.checks_left} left`,
  person: (name) => `Caller: ${name}`,
  asked: (because) => `A rule asks: ${because}`,
  ended: "The call has ended.",
  optedOut: "The caller does not want to be enrolled.",
  paused: "Effects are paused: what you say is recorded and sent after the pause.",
  stale: "Not connected: what is shown may be old.",
  evidence: "Something speaks against the caller",
  known: (facts) => `Known of the caller: ${facts}.`,
  nobody: "So nobody can be enrolled in this call.",
  despite: "This speaks against it. Send it again only if you know all this, and it is the member all the same:",
  allTheSame: "Verified all the same",
  optedOutBefore: "The member did not want to be enrolled, in an earlier call.",
  onlyOptIn: "Who the caller is changes nothing: only if the member now agrees, and you say so, can the voice be enrolled.",
  actions: "What you know of the caller",
  doVerified: "Verified",
  doDistrusted: "Distrusted",
  doOptedOut: "Opted out",
  doOptedIn: "Opted in",
  doCheck: "Check now",
  who: "Who it is",
  other: "Somebody else",
  otherId: "Id of the member",
  how: "How you verified",
  choose: "choose …",
  notes: "Notes, sent with the enroll",
  agreed: "What the member agreed to, and how you asked",
  OneTimePasswordAuth: "One-time passcode",
  KnowledgeBasedAuth: "Questions",
  Other: "Another way",
  enroll: "The rules may then enroll this voice: in later calls it stands for this person.",
  why: "Why",
  distrust: "The voice is rejected. That cannot be undone here, and takes back every earlier manual enroll of the member.",
  send: "Send",
  cancel: "Cancel",
  again: "Try again",
  sending: "Sending",
  pending: "Accepted. What comes of it is shown here.",
  done: "Done.",
  held: "Recorded, and held:",
  superseded: "A later statement replaced it.",
  refused: "The service refused it.",
  failed: "A check was used, but it got no answer.",
  absentEffect: "It was sent, and not applied: the service refused it, or a person has looked.",
  unresolved: "It was sent, but nobody knows yet whether it was applied. A person has to look.",
  noToken: "This page gets no token from its server.",
  unauthorized: "This page's token is not accepted.",
  forbidden: "This page may not do that.",
  contradicted: "What is known of the caller forbids that.",
  evidence_against: "Not counted yet.",
  not_found: "The call is not known, or this page may not see it.",
  invalid: "Something is missing or wrong.",
  unreachable: "The desk cannot be reached.",
};

const PALETTES = {
  light: {
    paper: "#ffffff", ink: "#18202b", dim: "#5a6675", edge: "#c3cad3", focus: "#1d4ed8", control: "#f3f4f6",
    good: "#17734a", bad: "#b42318", warn: "#8a5300", busy: "#2457a8", idle: "#566373",
  },
  dark: {
    paper: "#161c24", ink: "#e7ecf3", dim: "#98a5b6", edge: "#3a4758", focus: "#8db4ff", control: "#1b222c",
    good: "#5fcf97", bad: "#ff8a80", warn: "#e8b452", busy: "#86b3ff", idle: "#a0adbd",
  },
};

const palette = (name) =>
  Object.entries(PALETTES[name]).map(([part, value]) => `--${part}: var(--callkeeper-${part}, ${value});`).join(" ");

const SHEET = `
:host { color-scheme: light; ${palette("light")} display: block; }
@media (prefers-color-scheme: dark) { :host(:not([theme="light"])) { color-scheme: dark; ${palette("dark")} } }
:host([theme="dark"]) { color-scheme: dark; ${palette("dark")} }
:host([hidden]), [hidden] { display: none !important; }
* { box-sizing: border-box; }
section {
  background: var(--paper); color: var(--ink); border: 1px solid var(--edge);
  border-inline-start: .35rem solid var(--tone, var(--idle)); border-radius: var(--callkeeper-radius, .5rem);
  padding: .75rem 1rem; font: var(--callkeeper-font, 1rem/1.45 system-ui, "Segoe UI", "Noto Sans", Arial, sans-serif);
  font-variant-numeric: tabular-nums; display: flex; flex-direction: column; gap: .6rem;
}
section[data-tone="good"] { --tone: var(--good); } section[data-tone="bad"] { --tone: var(--bad); }
section[data-tone="warn"] { --tone: var(--warn); } section[data-tone="busy"] { --tone: var(--busy); }
p { margin: 0; overflow-wrap: anywhere; } section > :empty { margin-block-start: -.6rem; }
.state { font-size: 1.25em; font-weight: 650; color: var(--tone, var(--idle)); }
.state::before { content: attr(data-mark) / ""; margin-inline-end: .4em; }
.detail { color: var(--dim); }
.stale .state { text-decoration: line-through; }
.trouble, .note { color: var(--warn); } .answer[data-tone="bad"] { color: var(--bad); }
.answer[data-tone="good"] { color: var(--good); } .answer[data-tone="warn"] { color: var(--warn); }
.row { display: flex; flex-wrap: wrap; gap: .5rem; }
form { display: grid; gap: .6rem; border-top: 1px solid var(--edge); padding-top: .6rem; }
label { display: grid; gap: .2rem; font-size: .9em; }
button, select, input {
  font: inherit; color: var(--ink); background: var(--control); border: 1px solid var(--dim);
  border-radius: var(--callkeeper-radius, .4rem); padding: .4rem .75rem; min-height: 2.5rem; max-width: 100%;
}
button { cursor: pointer; font-weight: 600; } button[aria-expanded="true"] { border-color: var(--focus); }
button:disabled { opacity: .6; cursor: default; }
:focus-visible { outline: 3px solid var(--focus); outline-offset: 2px; }
`;

const TONES = { done: "good", held: "warn", superseded: "warn", refused: "bad", failed: "warn", absent: "warn", unresolved: "bad" };
const MARKS = { good: "✓", bad: "✕", warn: "!", busy: "◐", idle: "○" };
const IN_FORCE = new Set(["applied", "confirmed"]);

const later = (ms, signal) =>
  new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal?.addEventListener("abort", () => { clearTimeout(timer); resolve(); }, { once: true });
  });

/** What a router in front of the desk sends may be a date or years: a timer would take both for no time at all. */
const retryMsOf = (text) => (/^\d+$/.test(text ?? "") ? Math.min(1000 * Number(text), LONGEST_WAIT_MS) : 0);

/** Return facts about the caller as one text. */
const inWords = (facts) => facts.map((fact) => WORDS[`fact_${fact.name}`] ?? fact.meaning).join("; ");

/** A refusal of the desk, or a failure to reach it (status 0), in words for the agent. */
class Refusal extends Error {
  constructor(status, code, detail, retryMs = 0) {
    const word = status === 409 && code === "forbidden" ? "contradicted" : code;
    super([WORDS[word] ?? WORDS.unreachable, detail].filter(Boolean).join(" "));
    Object.assign(this, { status, code, retryMs });
  }

  get isPassing() {
    return this.status === 0 || this.status === 429 || this.status >= 500;
  }

  static async of(answer) {
    const problem = await answer.json().catch(() => ({}));
    const detail = problem.detail ?? (inWords(problem.facts ?? []) || (WORDS[problem.code] ? "" : problem.title));
    const refusal = new Refusal(answer.status, problem.code ?? "", detail, retryMsOf(answer.headers.get("retry-after")));
    return Object.assign(refusal, { facts: problem.facts ?? [] });
  }
}

/** The connection to the desk for one call or number. What it learns after `close` is dropped; what was said is still sent. */
class Watch {
  #tokens; #base; #filter; #tell; #aborter = new AbortController(); #calls = new Map(); #last = ""; #staleTimer = 0;

  constructor(base, filter, tokens, tell) {
    this.#base = base;
    this.#filter = filter;
    this.#tokens = tokens;
    this.#tell = tell;
    this.#run();
  }

  close() {
    clearTimeout(this.#staleTimer);
    this.#aborter.abort();
  }

  get #isOver() {
    return this.#aborter.signal.aborted;
  }

  async #run() {
    let waitMs = FIRST_WAIT_MS;
    while (!this.#isOver) {
      let refusal = null;
      try {
        await this.#follow(() => { waitMs = FIRST_WAIT_MS; });
      } catch (error) {
        refusal = error instanceof Refusal ? error : new Refusal(0, "unreachable");
      }
      if (this.#isOver) return;
      this.#staleTimer ||= setTimeout(() => this.#tell.stale(true), STALE_MS);
      if (refusal && !refusal.isPassing) return this.#tell.trouble(refusal);
      if (refusal) this.#tell.retrying(refusal);
      await later(Math.max(waitMs * (0.8 + 0.4 * Math.random()), refusal?.retryMs ?? 0), this.#aborter.signal);
      waitMs = Math.min(waitMs * 2, LONGEST_WAIT_MS);
    }
  }

  /** Open the stream, then list the call. The revisions say which of two views is newer, so no order is needed. */
  async #follow(succeeded) {
    const silence = new AbortController();
    let timer = 0;
    const listen = () => {
      clearTimeout(timer);
      timer = setTimeout(() => silence.abort(), SILENCE_MS);
    };
    const signal = AbortSignal.any([this.#aborter.signal, silence.signal]);
    listen();
    try {
      const headers = this.#last ? { "Last-Event-ID": this.#last } : {};
      const answer = await this.request("GET", `/desk/stream?${new URLSearchParams(this.#filter)}`, { headers, signal });
      if (!this.#last) await this.#list(signal);
      succeeded();
      this.#connected();
      for await (const event of events(answer.body, listen)) await this.#take(event, signal);
    } finally {
      clearTimeout(timer);
      silence.abort();
    }
  }

  #connected() {
    clearTimeout(this.#staleTimer);
    this.#staleTimer = 0;
    this.#tell.stale(false);
  }

  async #list(signal) {
    for (let after = ""; after !== null; ) {
      const query = new URLSearchParams({ ...this.#filter, ...(after && { after }) });
      const page = await (await this.request("GET", `/desk/calls?${query}`, { signal })).json();
      for (const call of page.calls) this.#learn(call);
      after = page.next ?? null;
    }
    this.#tell.calls([...this.#calls.values()]);
  }

  async #take({ id, event, data }, signal) {
    if (event === "reset") {
      this.#last = ""; // if the list fails, the next connection lists again
      this.#calls.clear();
      await this.#list(signal);
      this.#last = id;
      return undefined;
    }
    if (id) this.#last = id;
    const told = JSON.parse(data);
    if (event === "call") this.#learn(told);
    else if (event === "gone") this.#calls.delete(told.voice_id);
    else return undefined;
    return this.#tell.calls([...this.#calls.values()]);
  }

  #learn(call) {
    const known = this.#calls.get(call.voice_id);
    if (!known || known.revision <= call.revision) this.#calls.set(call.voice_id, call);
  }

  /** Send a request; after a 401 once more with a new token. Throws a Refusal. */
  async request(method, path, { headers = {}, body, signal } = {}) {
    for (let isSecond = false; ; isSecond = true) {
      const token = await this.#tokens(isSecond);
      const answer = await fetch(this.#base + path, {
        method,
        signal,
        body: body && JSON.stringify(body),
        headers: { Authorization: `Bearer ${token.token}`, ...(body && { "Content-Type": "application/json" }), ...headers },
        cache: "no-store",
        credentials: "omit",
        referrerPolicy: "no-referrer",
      }).catch(() => { throw new Refusal(0, "unreachable"); });
      if (answer.ok) return answer;
      if (answer.status !== 401 || isSecond) throw await Refusal.of(answer);
    }
  }

  /** Say something about a call, under one key however often it is sent; yield every state that it gets. */
  async *say(call, action, body) {
    const place = `/desk/calls/${encodeURIComponent(call.institution_key)}/${encodeURIComponent(call.voice_id)}`;
    const headers = { "Idempotency-Key": crypto.randomUUID() };
    const { operator } = await this.#tokens(false);
    const said = { headers, body: { operator, ...body } };
    let answer = await this.#patiently("POST", `${place}/${action}?wait=${ACTION_WAIT_S}`, said);
    for (let tries = 1; ; tries += 1) {
      const result = await answer.json();
      yield result;
      if (result.state !== "pending" || tries === ACTION_TRIES) return;
      answer = await this.#patiently("GET", `${result.watch}?wait=${ACTION_WAIT_S}`);
    }
  }

  async #patiently(method, path, said) {
    for (let waitMs = FIRST_WAIT_MS; ; waitMs *= 2) {
      try {
        return await this.request(method, path, said);
      } catch (refusal) {
        if (!refusal.isPassing || waitMs > 8 * FIRST_WAIT_MS) throw refusal;
        await later(Math.max(waitMs, refusal.retryMs));
      }
    }
  }
}

/** Yield the server-sent events of a body. `heard` is called for everything that arrives, comments too. */
async function* events(body, heard) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let fields = {};
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    heard();
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      const [, name, text] = /^([^:]*):? ?(.*)$/.exec(line);
      if (name) fields[name] = text;
      else if (line === "") {
        if (fields.data !== undefined) yield fields;
        fields = {};
      }
    }
  }
}

/** Return the state of a call: its word and its tone. What speaks against the caller comes first. */
export function stateOf(call) {
  const enrolled = IN_FORCE.has(call.effects.enroll.state);
  const states = [
    [call.rejected, "rejected", "bad"],
    [call.red, "red", "bad"],
    [call.distrusted, "distrusted", "bad"],
    [call.voice_mismatch, "mismatch", "warn"],
    [call.unenrolled, "unenrolled", "warn"],
    [call.asked, "ask", "warn"],
    [call.green && call.person_id, "green", "good"],
    [enrolled, "enrolled", "good"],
    [call.manual, "manual", "good"],
    [call.verified, "verified", "good"],
    [call.evidence.length + call.forbidding.length > 0, "evidence", "warn"],
    [call.phase === "ended" || call.phase === "settled", "undecided", "idle"],
    [!call.person_id, "unassigned", "idle"],
    [true, "waiting", "busy"],
  ];
  const [, name, tone] = states.find(([holds]) => holds);
  return { name, tone };
}

const make = (kind, properties = {}, ...children) => {
  const element = Object.assign(document.createElement(kind), properties);
  element.append(...children);
  return element;
};
const labelled = (text, field) => make("label", {}, text, field);

// A server that renders pages may import this file too: there is no HTMLElement, and nothing to define.
export class CallkeeperCall extends (globalThis.HTMLElement ?? Object) {
  static observedAttributes = ["institution", "call", "phone", "token-url"];
  #watch = null; #wanted = ""; #call = null; #parts = {}; #form = null; #saying = new Set(); #last = {};
  #isQueued = false; #why = "";

  constructor() {
    super();
    const sheet = new CSSStyleSheet();
    sheet.replaceSync(SHEET);
    this.attachShadow({ mode: "open" }).adoptedStyleSheets = [sheet];
  }

  /** The call that is shown, as the desk API describes it; null if there is none. */
  get current() {
    return this.#call;
  }

  connectedCallback() {
    if (!this.#parts.section) this.#build();
    this.refresh();
  }

  disconnectedCallback() {
    this.#watch?.close();
    this.#watch = null;
  }

  attributeChangedCallback(_name, before, now) {
    if (before !== now && this.isConnected) this.refresh();
  }

  /** Begin anew, with another token: after the attributes have changed, or a refusal. */
  refresh() {
    this.#watch?.close();
    this.#watch = null;
    if (this.#isQueued) return;
    this.#isQueued = true;
    queueMicrotask(() => {
      this.#isQueued = false;
      if (this.isConnected) this.#begin();
    });
  }

  #begin() {
    const filter = Object.fromEntries(
      [["institution", "institution"], ["id", "call"], ["phone", "phone"]]
        .map(([name, attribute]) => [name, this.getAttribute(attribute)])
        .filter(([, value]) => value),
    );
    const wanted = JSON.stringify(CallkeeperCall.observedAttributes.map((name) => this.getAttribute(name)));
    if (wanted !== this.#wanted || !this.#form) this.#show(null); // what is typed for the same call stays
    this.#wanted = wanted;
    this.#answer("");
    this.#parts.trouble.hidden = true;
    if (!filter.institution || !(filter.id || filter.phone)) return this.#state("incomplete", "warn");
    if (!this.#call) this.#state("loading", "idle");
    const base = (this.desk ?? new URL(import.meta.url).origin).replace(/\/+$/, "");
    const watch = new Watch(base, filter, this.#tokens(), {
      calls: (calls) => this.#watch === watch && this.#choose(calls),
      stale: (isStale) => this.#watch === watch && this.#stale(isStale),
      retrying: (refusal) => this.#watch === watch && this.#retrying(refusal),
      trouble: (refusal) => this.#watch === watch && this.#trouble(refusal),
    });
    this.#watch = watch;
    return undefined;
  }

  /** Return a function that returns a token: the last one while it is valid and not refused, else a new one. */
  #tokens() {
    let token = null;
    return async (isNew) => {
      if (!isNew && token && performance.now() < token.until) return token;
      const minted = await this.#minted();
      token = { ...minted, until: performance.now() + 1000 * minted.expires_in_s - RENEW_MS };
      return token;
    };
  }

  async #minted() {
    const from = this.getAttribute("token-url");
    const isOurs = from && new URL(from, location.href).origin === location.origin;
    if (!this.getToken && !isOurs) throw new Refusal(401, "noToken");
    let minted;
    try {
      if (this.getToken) minted = await this.getToken();
      else {
        const answer = await fetch(from, { method: "POST", credentials: "same-origin", cache: "no-store" });
        minted = answer.ok ? await answer.json() : null;
      }
    } catch {
      throw new Refusal(0, "noToken");
    }
    if (!minted?.token) throw new Refusal(401, "noToken");
    return minted;
  }

  // What is shown

  #build() {
    const part = (kind, name, { className = "", ...properties } = {}) => {
      const element = make(kind, { className: `${name} ${className}`.trim(), part: name, hidden: true, ...properties });
      this.#parts[name] = element;
      return element;
    };
    const live = { role: "status", hidden: false };
    const buttons = part("div", "actions", { className: "row", role: "group", ariaLabel: WORDS.actions });
    for (const [action, word] of [["verified", "doVerified"], ["distrusted", "doDistrusted"], ["opted-out", "doOptedOut"],
      ["opted-in", "doOptedIn"], ["check", "doCheck"]]) {
      const button = part("button", action, { type: "button", textContent: WORDS[word] });
      if (FORMS[action]) button.ariaExpanded = "false";
      button.addEventListener("click", () => (FORMS[action] ? this.#toggle(action) : this.#sayOnce(action)));
      buttons.append(button);
    }
    const again = make("button", { type: "button", textContent: WORDS.again });
    again.addEventListener("click", () => { this.refresh(); this.#parts.state.focus(); });
    const section = part("section", "section", { hidden: false, ariaLabel: WORDS.label });
    section.append(
      part("p", "state", { ...live, tabIndex: -1 }),
      part("p", "old", { ...live, className: "note" }),
      part("p", "detail"),
      part("p", "ask", { ...live, className: "note" }), part("p", "notes", { ...live, className: "note" }),
      buttons, part("div", "place", { hidden: false }), part("p", "answer", live),
      part("div", "trouble", { className: "row" }),
    );
    this.#parts.trouble.append(again);
    section.addEventListener("keydown", (event) => { if (event.key === "Escape" && this.#form) this.#close(); });
    this.shadowRoot.append(section);
  }

  #choose(calls) {
    const open = calls.filter((call) => call.phase !== "settled");
    if (this.hasAttribute("phone") && open.length > 1) {
      this.#show(null);
      return this.#state("several", "warn");
    }
    const same = calls.find((call) => call.voice_id === this.#call?.voice_id);
    const call = open.at(-1) ?? same ?? calls.at(-1) ?? null;
    if (call) return this.#show(call);
    const name = this.#call ? "gone" : this.hasAttribute("call") ? "unknown" : "absent";
    this.#show(null);
    return this.#state(name, "idle");
  }

  #show(call) {
    const { section, state, detail, ask, notes, actions } = this.#parts;
    const hadFocus = this.shadowRoot.activeElement !== null;
    if (this.#form && this.#form.call.voice_id !== call?.voice_id) this.#close();
    if (this.#call?.voice_id !== call?.voice_id) this.#answer("");
    const isOther = JSON.stringify(this.#call) !== JSON.stringify(call);
    this.#call = call;
    for (const each of [detail, actions]) each.hidden = !call;
    if (call) {
      const { name, tone } = stateOf(call);
      this.#state(name, tone);
      const hasEnded = call.phase === "ended" || call.phase === "settled";
      write(detail, [nameOf(call, call.person_id) && WORDS.person(nameOf(call, call.person_id)), WORDS.checks(call)].filter(Boolean).join(" · "));
      write(ask, call.asked ? WORDS.asked(call.asked.because || call.asked.rule) : "");
      const facts = [...call.forbidding.filter((fact) => fact.name !== "green"), ...call.evidence];
      const isOut = call.opted_out || call.opted_out_before;
      const said = [
        [facts.length, WORDS.known(inWords(facts))], [call.forbidding.length > 0 && !call.green, WORDS.nobody],
        [call.opted_out, WORDS.optedOut], [call.opted_out_before, WORDS.optedOutBefore], [isOut, WORDS.onlyOptIn],
        [hasEnded, WORDS.ended], [call.paused && !hasEnded, WORDS.paused],
      ];
      write(notes, said.filter(([holds]) => holds).map(([, words]) => words).join(" "));
      const isDecided = call.green || call.rejected || call.red || IN_FORCE.has(call.effects.enroll.state);
      const isAsked = !IN_FORCE.has(call.effects.enroll.state) || Boolean(call.asked);
      this.#offer("verified", call.forbidding.length === 0 && isAsked);
      this.#offer("distrusted", !call.rejected);
      this.#offer("opted-out", !call.opted_out && !hasEnded);
      this.#offer("opted-in", isOut);
      this.#offer("check", !isDecided && !hasEnded && call.checks_left > 0);
      section.ariaBusy = null;
    } else for (const each of [ask, notes]) write(each, "");
    if (hadFocus && !this.shadowRoot.activeElement?.checkVisibility()) state.focus();
    if (isOther) this.#emit("change", call);
  }

  #offer(action, isOffered) {
    if (!isOffered && this.#form?.action === action) this.#close();
    this.#parts[action].hidden = !isOffered;
  }

  #state(name, tone) {
    this.#parts.section.dataset.tone = tone;
    this.#parts.state.dataset.mark = MARKS[tone];
    write(this.#parts.state, WORDS[name]);
    this.dataset.state = name;
  }

  #stale(isStale) {
    if (!isStale) this.#why = "";
    this.#parts.section.classList.toggle("stale", isStale && this.#call !== null);
    write(this.#parts.old, isStale ? [this.#call && WORDS.stale, this.#why].filter(Boolean).join(" ") : "");
  }

  #retrying(refusal) {
    this.#why = refusal.message;
    this.#emit("error", problemOf(refusal));
  }

  #trouble(refusal) {
    this.#why = "";
    this.#stale(this.#call !== null);
    this.#answer(refusal.message, "bad");
    if (!this.#call) this.#state("unshown", "warn");
    this.#parts.trouble.hidden = false;
    this.#emit("error", problemOf(refusal));
  }

  #answer(text, tone = "") {
    this.#parts.answer.dataset.tone = tone;
    write(this.#parts.answer, text);
  }

  // What the agent says

  #toggle(action) {
    const isOpen = this.#form?.action === action;
    if (this.#form) this.#close();
    if (!isOpen && this.#call) this.#open(action);
  }

  #open(action) {
    this.#ask(action, FORMS[action](this.#call), WORDS.send);
    this.#form.form.querySelector("select, input").focus();
  }

  #ask(action, { fields, body }, word) {
    const cancel = make("button", { type: "button", textContent: WORDS.cancel });
    cancel.addEventListener("click", () => this.#close());
    const row = make("div", { className: "row" }, make("button", { type: "submit", textContent: word }), cancel);
    const form = make("form", { ariaLabel: this.#parts[action].textContent }, ...fields, row);
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#send(body());
    });
    this.#unfold({ action, form, call: this.#call });
  }

  /** Ask again, after a word that contradicts what is known: send it with what it overrules, or not at all. */
  #askAgain(action, said, facts) {
    const known = facts.map((fact) => make("li", { textContent: inWords([fact]) }));
    const despite = [...(said.despite ?? []), ...facts.map((fact) => fact.name)];
    const fields = [make("p", { textContent: WORDS.despite }), make("ul", {}, ...known)];
    this.#ask(action, { fields, body: () => ({ ...said, despite }) }, WORDS.allTheSame);
    this.#form.form.querySelector("[type=button]").focus();
  }

  #unfold(shown) {
    this.#form = shown;
    this.#parts[shown.action].ariaExpanded = "true";
    this.#parts.place.replaceChildren(shown.form);
  }

  /** Say what was typed. If it is not accepted, the form comes back with it, or asks again. */
  async #send(said) {
    const sent = this.#form;
    this.#close();
    const refusal = await this.#say(sent.action, said);
    const isSame = this.#call?.voice_id === sent.call.voice_id && !this.#parts[sent.action].hidden;
    if (!refusal || !isSame || this.#form) return;
    if (refusal.code === "evidence_against") this.#askAgain(sent.action, said, refusal.facts);
    else this.#unfold(sent);
  }

  #close() {
    const { action, form } = this.#form;
    const hadFocus = form.contains(this.shadowRoot.activeElement);
    this.#form = null;
    form.remove();
    this.#parts[action].ariaExpanded = "false";
    if (hadFocus) this.#parts[action].focus();
  }

  /** Say what needs no form; a hasty second click says nothing. */
  async #sayOnce(action) {
    const what = `${action} ${this.#call?.voice_id}`;
    if (this.#saying.has(what)) return;
    this.#saying.add(what);
    await this.#say(action, {});
    this.#saying.delete(what);
  }

  /** Say something about the call, and show what comes of it, until it is said anew. Return the refusal, if it was refused. */
  async #say(action, body) {
    const watch = this.#watch;
    const call = this.#call;
    const own = (this.#last[action] = {});
    const isStill = () => this.#call?.voice_id === call?.voice_id && this.#last[action] === own;
    if (!watch || !call) return null;
    const name = this.#parts[action].textContent;
    this.#answer(WORDS.sending);
    try {
      for await (const said of watch.say(call, action, body)) {
        if (!isStill()) break;
        const by = said.because ? `${said.operator}: ${said.because}` : "";
        const why = [...said.reasons.map((reason) => reason.meaning), by].filter(Boolean).join("; ");
        const word = said.state === "absent" ? WORDS.absentEffect : WORDS[said.state];
        this.#answer(`${name}: ${[word ?? said.state, why].filter(Boolean).join(" ")}`, TONES[said.state]);
      }
    } catch (error) {
      const refusal = error instanceof Refusal ? error : new Refusal(0, "unreachable");
      if (isStill()) this.#answer(`${name}: ${refusal.message}`, "bad");
      this.#emit("error", problemOf(refusal));
      return refusal;
    }
    return null;
  }

  #emit(name, detail) {
    this.dispatchEvent(new CustomEvent(`callkeeper-${name}`, { detail, bubbles: true, composed: true }));
  }
}

const problemOf = ({ status, code, message }) => ({ status, code, message });

const nameOf = (call, personId) => call.candidates.find((each) => each.person_id === personId)?.name || personId || "";

/** Write a text, only if it is another one: a screen reader reads what is written again. */
function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

const FORMS = {
  verified(call) {
    const ids = new Set([call.person_id, ...call.candidates.map((each) => each.person_id)].filter(Boolean));
    const options = [...ids].map((id) => new Option(nameOf(call, id), id, id === call.person_id, id === call.person_id));
    const who = make("select", {}, ...options, new Option(WORDS.other, ""));
    const id = make("input", { maxLength: 128, autocomplete: "off", spellcheck: false });
    const other = labelled(WORDS.otherId, id);
    const choose = () => {
      other.hidden = who.value !== "";
      id.required = !other.hidden;
    };
    who.addEventListener("change", choose);
    choose();
    const proofs = ["OneTimePasswordAuth", "KnowledgeBasedAuth", "Other"];
    const how = make("select", { required: true }, new Option(WORDS.choose, ""), ...proofs.map((proof) => new Option(WORDS[proof], proof)));
    const notes = make("input", { maxLength: 500, autocomplete: "off" });
    how.addEventListener("change", () => { notes.required = how.value === "Other"; });
    const isOut = call.opted_out || call.opted_out_before;
    const before = make("p", { textContent: [call.evidence.length && WORDS.known(inWords(call.evidence)), isOut ? WORDS.onlyOptIn : WORDS.enroll].filter(Boolean).join(" ") });
    return {
      fields: [before, labelled(WORDS.who, who), other, labelled(WORDS.how, how), labelled(WORDS.notes, notes)],
      body: () => ({ person_id: who.value || id.value.trim(), validation_type: how.value, ...(notes.value.trim() && { notes: notes.value }) }),
    };
  },
  "opted-in"() {
    const notes = make("input", { required: true, maxLength: 500, autocomplete: "off" });
    return { fields: [labelled(WORDS.agreed, notes)], body: () => ({ notes: notes.value }) };
  },
  distrusted() {
    const why = make("input", { required: true, maxLength: 500, autocomplete: "off" });
    const warning = make("p", { textContent: WORDS.distrust });
    return { fields: [warning, labelled(WORDS.why, why)], body: () => ({ reason: why.value }) };
  },
};

/** A function that returns the answer of POST /desk/agent-tokens, or a promise of it; instead of `token-url`. */
CallkeeperCall.prototype.getToken = null; // not a field: it would replace what the page set before this script was loaded

/** Where callkeeper is, if this script is not loaded from there. */
CallkeeperCall.prototype.desk = null;

const known = globalThis.customElements;
if (known && !known.get("callkeeper-call")) known.define("callkeeper-call", CallkeeperCall);
