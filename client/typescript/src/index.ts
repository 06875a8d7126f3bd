/**
 * A client of callkeeper's desk API: read calls, state who a caller is, follow changes. It behaves as the Python client does.
 *
 * The types are generated from the OpenAPI document, so a call has exactly the fields that the desk describes. For servers
 * and browsers: it uses `fetch` alone.
 */

import type { components } from "./schema.js";

type Schemas = components["schemas"];
export type Call = Schemas["CallView"];
export type Story = Schemas["StoryView"];
export type Action = Schemas["ActionView"];
export type AgentToken = Schemas["AgentTokenView"];
export type Problem = Schemas["ProblemView"];

/** What each action says, by its name. */
export interface Bodies {
  assign: Schemas["AssignBody"];
  verified: Schemas["VerifiedBody"];
  distrusted: Schemas["DistrustedBody"];
  "opted-out": Schemas["OptedOutBody"];
  check: Schemas["CheckBody"];
  withdraw: Schemas["WithdrawBody"];
  resolve: Schemas["ResolveBody"];
}

export interface Filters {
  institution?: string;
  phone?: string;
  id?: string;
  phase?: "live" | "ended" | "settled" | "all";
  state?: string;
  outcome?: string;
  rule?: string;
  policy?: string;
  operator?: string;
  since?: string;
  until?: string;
  q?: string;
}

/** One event of the stream. `gone`: the call was pushed but never listed. `reset`: changes were missed. */
export type Change =
  | { kind: "call"; call: Call }
  | { kind: "gone"; institution_key: string; voice_id: string }
  | { kind: "reset" };

export interface Options {
  /** How long a request is repeated if it gets no answer, 429, 502, 503 or 504; and 401 while a token is exchanged. */
  patienceS?: number;
  /** The wait before the second attempt. It doubles for each further one, up to 30 s. */
  firstWaitS?: number;
  /** Replaces `fetch`, for tests. */
  fetch?: typeof fetch;
}

export class DeskError extends Error {}

/** There was no usable answer within `patienceS`. */
export class DeskUnavailable extends DeskError {}

/** The desk refuses the request, so repeating it does not help. `code` says why. */
export class DeskRefused extends DeskError {
  constructor(
    readonly status: number,
    readonly code: string,
    readonly detail: string,
  ) {
    super(`${status} ${code}: ${detail}`);
  }

  static async of(response: Response): Promise<DeskRefused> {
    const problem = (await response.json().catch(() => ({}))) as Partial<Problem>;
    return new DeskRefused(response.status, problem.code ?? "", problem.detail ?? problem.title ?? "");
  }
}

/** No answer came, or it was cut. */
class NoAnswer extends Error {}

const unanswered = (): never => {
  throw new NoAnswer();
};

export type Token = string | (() => string | Promise<string>);

const RETRIED = new Set([429, 502, 503, 504]);
const LONGEST_S = 30;
const EXCHANGE_S = 300;
const SILENCE_S = 40;
const TIMEOUT_S = 15;

const sleep = (seconds: number) => new Promise<void>((resolve) => setTimeout(resolve, seconds * 1000));
const nowS = () => performance.now() / 1000;
const part = encodeURIComponent;

/** The token of a client. A wrong one is an error at once; only one that is being exchanged is waited for. */
class Tokens {
  #sent = "";
  #wasAccepted = false;

  constructor(private readonly token: Token) {}

  async read(): Promise<string> {
    this.#sent = typeof this.token === "string" ? this.token : await this.token();
    return this.#sent;
  }

  accepted(): void {
    this.#wasAccepted = true;
  }

  async mayChange(response: Response | null): Promise<boolean> {
    if (response?.status !== 401 || typeof this.token === "string") return false;
    return this.#wasAccepted || (await this.token()) !== this.#sent;
  }
}

/** Waits before the next attempt, or ends the attempts. */
class Retry {
  #begunS = nowS();
  #exchangeBegunS: number | null = null;
  #attempts = 0;

  constructor(
    private readonly patienceS: number,
    private readonly firstS: number,
  ) {}

  succeeded(): void {
    this.#begunS = nowS();
    this.#exchangeBegunS = null;
    this.#attempts = 0;
  }

  /** Wait after an answer, or after none (null). Throws DeskRefused or DeskUnavailable if waiting does not help. */
  async wait(response: Response | null, tokens: Tokens): Promise<void> {
    const isExchanged = await tokens.mayChange(response);
    if (response && !RETRIED.has(response.status) && !isExchanged) throw await DeskRefused.of(response);
    let waitS = Math.min(this.firstS * 2 ** this.#attempts, LONGEST_S) * (0.8 + 0.4 * Math.random());
    this.#attempts = Math.min(this.#attempts + 1, 16);
    const asked = response?.headers.get("retry-after") ?? "";
    if (/^\d+$/.test(asked)) waitS = Math.max(waitS, Math.min(Number(asked), LONGEST_S));
    if (isExchanged) this.#exchangeBegunS ??= nowS();
    const [begunS, patienceS] = isExchanged
      ? [this.#exchangeBegunS ?? nowS(), Math.min(this.patienceS, EXCHANGE_S)]
      : [this.#begunS, this.patienceS];
    if (nowS() + waitS - begunS > patienceS) {
      if (response?.status === 401) throw await DeskRefused.of(response);
      throw new DeskUnavailable(`${response ? `status ${response.status}` : "no answer"} for ${this.patienceS} s`);
    }
    await response?.body?.cancel();
    await sleep(waitS);
  }
}

/** Joins a list and a stream, in whatever order they arrive: of two views of a call the higher revision is newer. */
class Joined {
  #revisions = new Map<string, number>();

  isNews(change: Change): boolean {
    if (change.kind === "reset") {
      this.#revisions.clear();
      return true;
    }
    const { institution_key, voice_id } = change.kind === "call" ? change.call : change;
    const place = JSON.stringify([institution_key, voice_id]);
    if (change.kind === "gone") return this.#revisions.delete(place) || true;
    const revision = change.call.revision ?? 0; // a desk before 0.4 has none
    if (revision < (this.#revisions.get(place) ?? 0)) return false;
    if (change.call.phase === "settled") this.#revisions.delete(place);
    else this.#revisions.set(place, revision);
    return true;
  }
}

interface Asked {
  method?: "GET" | "POST";
  query?: Record<string, string | undefined>;
  headers?: Record<string, string>;
  body?: unknown;
  patienceS?: number;
}

export class Desk {
  readonly #url: string;
  readonly #tokens: Tokens;
  readonly #patienceS: number;
  readonly #firstWaitS: number;
  readonly #fetch: typeof fetch;

  /** `url`: the address of the web process. `token`: a desk token, or a function that returns the current one. */
  constructor(url: string, token: Token, options: Options = {}) {
    this.#url = url.replace(/\/+$/, "");
    this.#tokens = new Tokens(token);
    this.#patienceS = options.patienceS ?? 60;
    this.#firstWaitS = options.firstWaitS ?? 0.5;
    this.#fetch = options.fetch ?? ((...asked) => fetch(...asked));
  }

  /** Yield calls, page by page. Without a phase, all that are not settled. */
  calls(filters: Filters = {}): AsyncGenerator<Call, void, undefined> {
    return this.#pages(filters, this.#patienceS);
  }

  /** Return a call with its story. */
  call(institutionKey: string, voiceId: string): Promise<Story> {
    return this.#json(`/desk/calls/${part(institutionKey)}/${part(voiceId)}`, {});
  }

  /** Say something about a call. It has an idempotency key, so that a repetition is the same action. */
  act<A extends keyof Bodies>(
    institutionKey: string,
    voiceId: string,
    action: A,
    body: Bodies[A],
    { waitS, key = crypto.randomUUID() }: { waitS?: number; key?: string } = {},
  ): Promise<Action> {
    return this.#json(`/desk/calls/${part(institutionKey)}/${part(voiceId)}/${action}`, {
      method: "POST",
      query: { wait: waitS?.toString() },
      headers: { "Idempotency-Key": key },
      body,
    });
  }

  /** Return the state of an action. */
  action(institutionKey: string, voiceId: string, actionId: string): Promise<Action> {
    return this.#json(`/desk/calls/${part(institutionKey)}/${part(voiceId)}/actions/${part(actionId)}`, {});
  }

  /** Mint a token for one agent's page, in your back end. */
  agentToken(body: Schemas["AgentTokenBody"]): Promise<AgentToken> {
    return this.#json("/desk/agent-tokens", { method: "POST", body });
  }

  /**
   * Yield the calls that are open now, then every change, for ever; resume after a lost connection. No call is yielded in an
   * older state than before. `filters` may name one institution, number or id.
   */
  async *changes(
    filters: Pick<Filters, "institution" | "phone" | "id"> = {},
    lastEventId: string | null = null,
  ): AsyncGenerator<Change, void, undefined> {
    const joined = new Joined();
    const retry = new Retry(Infinity, this.#firstWaitS);
    let last = lastEventId;
    for (;;) {
      let refusal: Response | null = null;
      const silence = new AbortController();
      let timer = setTimeout(() => silence.abort(), SILENCE_S * 1000);
      const heard = () => {
        clearTimeout(timer);
        timer = setTimeout(() => silence.abort(), SILENCE_S * 1000);
      };
      try {
        const headers = last === null ? {} : { "Last-Event-ID": last };
        const response = await this.#send("/desk/stream", { query: { ...filters }, headers }, silence.signal);
        if (!response.ok) refusal = response;
        else {
          this.#tokens.accepted();
          if (last === null) yield* this.#open(filters, joined);
          for await (const [id, change] of events(response, heard)) {
            retry.succeeded();
            last = id ?? last;
            if (change === null) continue;
            if (joined.isNews(change)) yield change;
            if (change.kind === "reset") yield* this.#open(filters, joined);
          }
        }
      } catch (error) {
        if (!(error instanceof NoAnswer)) throw error;
      } finally {
        clearTimeout(timer);
        if (!refusal) silence.abort(); // closes the connection, also if the caller stops listening
      }
      await retry.wait(refusal, this.#tokens);
    }
  }

  async *#open(filters: Filters, joined: Joined): AsyncGenerator<Change, void, undefined> {
    for await (const call of this.#pages(filters, Infinity)) {
      const change: Change = { kind: "call", call };
      if (joined.isNews(change)) yield change;
    }
  }

  async *#pages(filters: Filters, patienceS: number): AsyncGenerator<Call, void, undefined> {
    let after: string | undefined;
    do {
      const query = { limit: "500", after, ...filters };
      const page: Schemas["PageView"] = await this.#json("/desk/calls", { query, patienceS });
      yield* page.calls;
      after = page.next ?? undefined;
    } while (after !== undefined);
  }

  async #json<T>(path: string, asked: Asked): Promise<T> {
    const retry = new Retry(asked.patienceS ?? this.#patienceS, this.#firstWaitS);
    for (;;) {
      let response: Response | null = null;
      try {
        response = await this.#send(path, asked, AbortSignal.timeout(TIMEOUT_S * 1000));
        if (response.ok) {
          this.#tokens.accepted();
          return (await response.json().catch(unanswered)) as T;
        }
      } catch (error) {
        if (!(error instanceof NoAnswer)) throw error;
        response = null;
      }
      await retry.wait(response, this.#tokens);
    }
  }

  async #send(path: string, asked: Asked, signal: AbortSignal): Promise<Response> {
    const token = await this.#tokens.read();
    const query = Object.entries(asked.query ?? {}).filter((pair): pair is [string, string] => pair[1] !== undefined);
    const address = query.length ? `${path}?${new URLSearchParams(query)}` : path;
    const body = asked.body === undefined ? {} : { body: JSON.stringify(asked.body) };
    const type: Record<string, string> = asked.body === undefined ? {} : { "Content-Type": "application/json" };
    const headers = { Authorization: `Bearer ${token}`, ...type, ...asked.headers };
    const request = { method: asked.method ?? "GET", headers, signal, ...body };
    return this.#fetch(this.#url + address, request).catch(unanswered);
  }
}

/** Yield the id and the change of each event of a stream; null for an event of another kind, and for a comment. */
async function* events(response: Response, heard: () => void): AsyncGenerator<[string | null, Change | null]> {
  let rest = "";
  let fields: Record<string, string> = {};
  const decoder = new TextDecoder();
  const reader = response.body?.getReader();
  for (;;) {
    const { done, value: chunk } = (await reader?.read().catch(unanswered)) ?? { done: true, value: undefined };
    if (done) return;
    heard();
    const lines = (rest + decoder.decode(chunk, { stream: true })).split("\n");
    rest = lines.pop() ?? "";
    for (const line of lines) {
      if (line.startsWith(":")) yield [null, null];
      else if (line) {
        const [, name = "", value = ""] = /^([^:]*):? ?(.*)$/.exec(line) ?? [];
        fields[name] = value;
      } else {
        if (fields["data"] !== undefined) yield [fields["id"] ?? null, change(fields["event"], fields["data"])];
        fields = {};
      }
    }
  }
}

function change(kind: string | undefined, data: string): Change | null {
  if (kind === "reset") return { kind };
  if (kind === "call") return { kind, call: JSON.parse(data) as Call };
  if (kind === "gone") return { kind, ...(JSON.parse(data) as Schemas["GoneView"]) };
  return null;
}
