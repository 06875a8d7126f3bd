/** The client waits where waiting helps, repeats under one key, resumes its stream, and fails at once on a wrong token. */

import assert from "node:assert/strict";
import { createServer } from "node:http";
import { once } from "node:events";
import { test } from "node:test";

import { Desk, DeskRefused, DeskUnavailable } from "../dist/index.js";

const CALL = { institution_key: "cu-1", voice_id: "v-1", revision: 1, phase: "live" };
const ACTION = { action_id: "a-1", action: "verified", state: "done", reasons: [], operator: "agent-7", watch: "/" };
const VERIFIED = { operator: "agent-7", person_id: "p-1", validation_type: "Other" };

/** Run a desk that gives some answers in turn, the last one for ever; `answer` gets the request's number and address. */
async function desk(t, answer) {
  const asked = [];
  const server = createServer(async (request, response) => {
    let body = "";
    for await (const chunk of request) body += chunk;
    asked.push({ url: request.url, headers: request.headers, body });
    const { status = 200, headers = {}, json, stream, cut } = answer(asked.length - 1, request.url);
    response.writeHead(status, headers);
    if (stream) response.write(stream);
    if (cut) setTimeout(() => response.destroy(), 20);
    else response.end(json === undefined ? "" : JSON.stringify(json));
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => { server.closeAllConnections(); server.close(); });
  return { url: `http://127.0.0.1:${server.address().port}`, asked };
}

const inTurn = (...given) => (number) => given[Math.min(number, given.length - 1)];
const event = (number, kind, data) => `event: ${kind}\nid: ${number}-0\ndata: ${JSON.stringify(data)}\n\n`;
const quick = { firstWaitS: 0.001 };

async function take(changes, count) {
  const taken = [];
  for await (const change of changes) if (taken.push(change) === count) break;
  return taken;
}

test("an action waits for restarts and an exchanged token, under one key", async (t) => {
  const { url, asked } = await desk(t, inTurn({ status: 503 }, { status: 429 }, { status: 401 }, { status: 202, json: ACTION }));
  const tokens = ["old", "old", "old"];
  const said = await new Desk(url, () => tokens.shift() ?? "new", quick).act("cu/1", "v 1", "verified", VERIFIED);
  assert.equal(said.state, "done");
  assert.deepEqual(asked.map((each) => each.headers.authorization), ["Bearer old", "Bearer old", "Bearer old", "Bearer new"]);
  assert.equal(new Set(asked.map((each) => each.headers["idempotency-key"])).size, 1);
  assert.equal(asked[0].url, "/desk/calls/cu%2F1/v%201/verified");
  assert.deepEqual(JSON.parse(asked[0].body), VERIFIED);
});

for (const token of ["wrong", () => "wrong"]) {
  test(`a wrong token is an error at once: a ${typeof token}`, async (t) => {
    const problem = { status: 401, code: "unauthorized", title: "A valid bearer token or ticket is required." };
    const { url, asked } = await desk(t, inTurn({ status: 401, json: problem }));
    for (const ask of [(d) => d.calls().next(), (d) => d.changes().next(), (d) => d.call("cu-1", "v-1")]) {
      await assert.rejects(ask(new Desk(url, token)), (error) => error instanceof DeskRefused && error.code === "unauthorized");
    }
    assert.equal(asked.length, 3);
  });
}

test("a token that was accepted may be exchanged", async (t) => {
  const page = { json: { calls: [], next: null } };
  const { url, asked } = await desk(t, inTurn(page, { status: 401 }, { status: 401 }, page));
  const client = new Desk(url, () => "t", quick);
  for (let n = 0; n < 2; n += 1) for await (const call of client.calls()) assert.fail(call);
  assert.equal(asked.length, 4);
});

test("a refusal is not repeated, and an error of the token's function is not hidden", async (t) => {
  const { url, asked } = await desk(t, inTurn({ status: 400, json: { status: 400, code: "invalid", title: "", detail: "phne" } }));
  await assert.rejects(new Desk(url, "t").calls({ phne: "1" }).next(), { status: 400, code: "invalid", detail: "phne" });
  assert.equal(asked.length, 1);
  const failing = () => { throw new RangeError("no token file"); };
  await assert.rejects(new Desk(url, failing).call("cu-1", "v-1"), RangeError);
  await assert.rejects(new Desk(url, failing).changes().next(), RangeError);
});

test("patience ends", async (t) => {
  const { url } = await desk(t, inTurn({ status: 503, headers: { "Retry-After": "20" } }));
  await assert.rejects(new Desk(url, "t", { patienceS: 5 }).call("cu-1", "v-1"), DeskUnavailable);
});

test("calls are read page by page", async (t) => {
  const { url, asked } = await desk(t, inTurn({ json: { calls: [CALL], next: "2:x" } }, { json: { calls: [CALL], next: null } }));
  const found = [];
  for await (const call of new Desk(url, "t").calls({ institution: "cu-1" })) found.push(call.voice_id);
  assert.deepEqual(found, ["v-1", "v-1"]);
  assert.deepEqual(asked.map((each) => each.url), ["/desk/calls?limit=500&institution=cu-1", "/desk/calls?limit=500&after=2%3Ax&institution=cu-1"]);
});

test("the stream lists first, goes on where it was cut, and never goes back", async (t) => {
  const newer = { ...CALL, revision: 3 };
  const streams = [
    { stream: `retry: 1000\n\n: hello\n\n${event(1, "call", { ...CALL, revision: 2 })}${event(2, "call", newer)}`, cut: true },
    { status: 503 },
    { stream: event(3, "gone", { institution_key: "cu-1", voice_id: "v-1" }), cut: true },
  ];
  const { url, asked } = await desk(t, (_, address) =>
    address.startsWith("/desk/calls") ? { json: { calls: [newer], next: null } } : streams.shift());
  const seen = await take(new Desk(url, "t", quick).changes({ id: "v-1" }), 3);
  assert.deepEqual(seen.map((each) => [each.kind, each.call?.revision]), [["call", 3], ["call", 3], ["gone", undefined]]);
  assert.deepEqual(asked.map((each) => [each.url.split("?")[0], each.headers["last-event-id"]]), [
    ["/desk/stream", undefined], ["/desk/calls", undefined], ["/desk/stream", "2-0"], ["/desk/stream", "2-0"],
  ]);
  assert.equal(asked[0].url, "/desk/stream?id=v-1");
});

test("after a reset the calls are listed again, and a lower revision counts", async (t) => {
  const { url } = await desk(t, (_, address) =>
    address.startsWith("/desk/calls") ? { json: { calls: [CALL], next: null } }
      : { stream: event(8, "call", { ...CALL, revision: 9 }) + event(9, "reset", {}), cut: true });
  const seen = await take(new Desk(url, "t", quick).changes({}, "3-0"), 3);
  assert.deepEqual(seen.map((each) => [each.kind, each.call?.revision]), [["call", 9], ["reset", undefined], ["call", 1]]);
});
