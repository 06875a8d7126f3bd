// Puts pieces that the server has written in their places, as the stream sends them, and counts seconds up and down.
// It writes no markup of its own: without it the same page stands still.
"use strict";

const RETRY_MS = 2000;
const SENT_MS = 10_000;
const LAYOUTS = new Set(["groups", "first-rows"]);
const LOST = "Connection lost, trying again …";
const state = { ahead: 0, lost: LOST };

// Time: by the server's clock.

function length(ms) {
  const whole = Math.max(0, Math.floor(ms / 1000));
  const two = (n) => String(n).padStart(2, "0");
  const hours = Math.floor(whole / 3600);
  const rest = `${two(whole % 60)}`;
  return hours ? `${hours}:${two(Math.floor(whole / 60) % 60)}:${rest}` : `${Math.floor(whole / 60)}:${rest}`;
}

function write(time, now) {
  const last = time.lastChild;
  if (!last) return;
  let text;
  if (time.dataset.since) {
    text = length(now - time.dataset.since) + ("ago" in time.dataset ? " ago" : "");
    if (time.firstElementChild) say(time.firstElementChild, "for ");
  } else {
    const left = time.dataset.until - now;
    text = left > -1500 ? `in ${length(left + 999)}` : `${length(-left)} late`;
    time.classList.toggle("late", left < -5000);
  }
  if (last.nodeValue !== text) last.nodeValue = text;
}

function localTime(ms) {
  const at = new Date(ms);
  if (!at.getTimezoneOffset()) return "";
  const isSameDay = at.getDate() === at.getUTCDate();
  const day = isSameDay ? {} : { day: "2-digit", month: "short" };
  const zoned = { ...day, hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23", timeZoneName: "short" };
  return `(${at.toLocaleString("en-GB", zoned)})`;
}

function tick() {
  for (const local of document.querySelectorAll("[data-local]:empty")) local.textContent = localTime(+local.dataset.local);
  const now = Date.now() + state.ahead;
  for (const time of document.querySelectorAll("time[data-since],time[data-until]")) write(time, now);
}

// Pieces: each has the id of its place.

function parsed(markup) {
  const holder = document.createElement("template");
  holder.innerHTML = markup;
  return holder.content.firstElementChild;
}

// A place that has the focus, or a form that was just sent, gets its newest piece after that. One that was typed into
// keeps its own.

const waiting = new Map();

function isBusy(place) {
  const isInUse = place.contains(document.activeElement) || place.querySelector("[data-sent]");
  return place.hasAttribute("data-keep") && (isInUse || place.dataset.touched);
}

function replace(place, piece) {
  if (isBusy(place)) {
    waiting.set(place.id, piece);
    return;
  }
  waiting.delete(place.id);
  // A screen reader reads what is written into a region that it knows, and no region that is new.
  if (place.matches("[role=status]")) {
    if (place.innerHTML !== piece.innerHTML) place.replaceChildren(...piece.childNodes);
    return;
  }
  const opened = [...place.querySelectorAll("details[open][id]")].map((details) => details.id);
  place.replaceWith(piece);
  for (const id of opened) document.getElementById(id)?.setAttribute("open", "");
}

function showWaiting() {
  for (const [id, piece] of waiting) replace(document.getElementById(id), piece);
}

function arrange(list, order, fresh) {
  const wanted = new Set(order);
  let at = list.firstElementChild;
  for (const id of order) {
    const piece = fresh.get(id) ?? document.getElementById(id);
    if (!piece) continue;
    while (at && !wanted.has(at.id)) at = at.nextElementSibling;
    if (piece === at) at = at.nextElementSibling;
    else list.insertBefore(piece, at);
  }
}

function clear(list, order) {
  const wanted = new Set(order);
  for (const piece of [...list.children]) if (!wanted.has(piece.id)) piece.remove();
}

// What has the focus may be replaced, moved or removed: then the same link gets it, or what is nearest, also in a
// closed fold. The page moves only for somebody who had it in sight.

function keepFocus(change) {
  const was = document.activeElement;
  if (was === document.body) return change();
  const { top, bottom } = was.getBoundingClientRect();
  const places = [];
  for (let at = was; at; at = at.parentElement) if (at.id) places.push(at.id);
  change();
  if (document.activeElement === was) return undefined;
  const found = places.map((id) => target(document.getElementById(id), was.getAttribute("href"))).find(Boolean);
  if (found && !found.closest("summary")) found.closest("details")?.setAttribute("open", "");
  return found?.focus({ preventScroll: bottom < 0 || top > innerHeight });
}

function target(place, href) {
  if (!place || place.matches("a, summary, [tabindex]")) return place;
  const links = [...place.querySelectorAll("a[href]")];
  return links.find((link) => link.getAttribute("href") === href) ?? links[0];
}

function steps(orders) {
  const lists = Object.entries(orders);
  return [arrange, clear].flatMap((step) => lists.map(([id, order]) => [step, id, order]));
}

function show(update) {
  state.ahead = update.now - Date.now();
  const fresh = new Map();
  for (const [id, markup] of Object.entries(update.html)) {
    const piece = parsed(markup);
    const place = document.getElementById(id);
    if (!place) fresh.set(id, piece);
    else if (!piece.matches(".group")) replace(place, piece); // the parts of a group are pieces of their own
  }
  // All lists are filled before any is cleared: a piece that changes lists is still there to be moved.
  for (const [step, id, order] of steps(update.order)) {
    const list = document.getElementById(id);
    if (list) step(list, order, fresh);
    else if (LAYOUTS.has(id)) location.reload(); // so many institutions came or went that the board has another layout
  }
  sift();
  say(document.getElementById("said"), update.said);
  tick();
}

// A screen reader reads what is written, also if it is the same again.

function say(region, words) {
  if (region.textContent !== words) region.textContent = words;
}

// The filter of the table of institutions hides lines. Without this script the server leaves them out.

const sieve = document.getElementById("sift");
let sifted = "";

function sift() {
  const wanted = sieve ? sieve.value.trim().toLowerCase() : "";
  if (!wanted && !sifted) return;
  for (const line of document.querySelectorAll("#institutions tbody > tr, #quiet-rows > li")) {
    line.hidden = !line.textContent.toLowerCase().includes(wanted);
  }
  if (wanted !== sifted) for (const fold of document.querySelectorAll("#institutions .fold")) fold.open = wanted !== "";
  sifted = wanted;
}

// The address keeps it, so that a page that is loaded again, also by itself, is filtered by it.

sieve?.addEventListener("input", () => {
  sift();
  history.replaceState(null, "", sieve.value ? `?filter=${encodeURIComponent(sieve.value)}` : location.pathname);
});

// The stream: whoever comes (again) is told how things are, so nothing has to be remembered.

function lamp(isLive, words) {
  const link = document.getElementById("link");
  link.classList.toggle("live", isLive);
  link.classList.toggle("cut", !isLive);
  say(link.querySelector(".words"), words);
}

const address = document.body.dataset.stream;
let stream = null;

function follow() {
  stream?.close();
  const own = new EventSource(address);
  stream = own;
  own.addEventListener("who", (event) => {
    if (document.querySelector(".who span").textContent !== JSON.parse(event.data)) location.reload();
  });
  own.addEventListener("updates", (event) => {
    const update = JSON.parse(event.data);
    lamp(!update.lamp, update.lamp || "Live");
    keepFocus(() => show(update));
  });
  own.addEventListener("dark", (event) => lamp(false, JSON.parse(event.data)));
  own.addEventListener("gone", (event) => {
    own.close();
    lamp(false, JSON.parse(event.data));
  });
  own.addEventListener("error", () => {
    lamp(false, state.lost);
    if (own.readyState === EventSource.CLOSED) setTimeout(again, RETRY_MS);
    if (own.readyState === EventSource.CLOSED) leaveIfLoggedOut();
  });
}

// A session that is over leads to the login page and back; a form in which somebody types stays as it is.

async function leaveIfLoggedOut() {
  const answer = await fetch(location.href, { headers: { Accept: "text/html" }, redirect: "manual" }).catch(() => null);
  const isOver = answer?.type === "opaqueredirect";
  if (isOver && !document.querySelector("[data-touched]")) location.reload();
  state.lost = isOver ? "You are logged out: copy what you have typed, and log in again" : LOST;
}

function again() {
  const isOver = !stream || stream.readyState === EventSource.CLOSED;
  if (isOver && !document.hidden) follow();
}

function rest() {
  stream?.close();
  stream = null;
  lamp(false, "Resting while nobody looks");
}

// Times that are typed are the viewer's own; without this script they are UTC.

for (const field of document.querySelectorAll(".find input[name=zone]")) field.value = -new Date().getTimezoneOffset();

document.addEventListener("input", (event) => {
  const kept = event.target.closest("[data-keep]");
  if (kept) kept.dataset.touched = "yes";
});

// A hasty second click, while the first one is under way, sends nothing. Who comes back to the page may send again.

document.addEventListener("submit", (event) => {
  const form = event.target;
  if (!form.elements.form_token) return; // a search may be replaced
  if (form.dataset.sent) event.preventDefault();
  form.dataset.sent = "yes";
  setTimeout(sendable, SENT_MS, form);
});

function sendable(form) {
  delete form.dataset.sent;
}

addEventListener("pageshow", () => [...document.forms].forEach(sendable));

// A form that was refused shows its page under the form's address, which can be neither opened nor reloaded.

if (document.body.dataset.own) history.replaceState(null, "", document.body.dataset.own);

if (address) {
  follow();
  addEventListener("pagehide", rest);
  // A browser allows a host few connections: a tab that nobody sees gives its own back.
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) rest();
    else again();
  });
}
// Paper has no folds: they are open while the page is printed, and then as they were.

const onPaper = matchMedia("print");

onPaper.addEventListener("change", () => {
  for (const fold of document.querySelectorAll(".fold")) {
    if (onPaper.matches) fold.dataset.was = fold.open;
    fold.open = onPaper.matches || fold.dataset.was === "true";
  }
});

setInterval(() => {
  tick();
  showWaiting();
}, 1000);
tick();
