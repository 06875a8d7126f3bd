/** The answer of POST /desk/agent-tokens, as your back end passes it on. */
export interface AgentToken {
  token: string;
  operator: string;
  institutions: string[];
  expires_in_s: number;
}

/** A call as the desk API describes it; callkeeper-client has all of its fields. */
export interface ShownCall {
  institution_key: string;
  voice_id: string;
  revision: number;
  phase: string;
  green: boolean;
  red: boolean;
  [name: string]: unknown;
}

/** The element. Events: `callkeeper-change` (detail: the call, or null), `callkeeper-error` (detail: CallkeeperProblem). */
export class CallkeeperCall extends HTMLElement {
  /** A function that returns a new token, instead of the attribute `token-url`. */
  getToken: (() => AgentToken | Promise<AgentToken>) | null;
  /** The call that is shown; null if there is none. */
  readonly current: ShownCall | null;
  /** Begin anew, with another token. */
  refresh(): void;
}

export interface CallkeeperProblem {
  status: number;
  code: string;
  message: string;
}

/** Every text that is shown. Replace entries for another language before the element is used. */
export const WORDS: Record<string, string | ((value: never) => string)>;

/** Return the name and the tone of a call's state. */
export function stateOf(call: ShownCall): { name: string; tone: "good" | "bad" | "warn" | "busy" | "idle" };

declare global {
  interface HTMLElementTagNameMap {
    "callkeeper-call": CallkeeperCall;
  }
  interface HTMLElementEventMap {
    "callkeeper-change": CustomEvent<ShownCall | null>;
    "callkeeper-error": CustomEvent<CallkeeperProblem>;
  }
}
