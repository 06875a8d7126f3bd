// Puts pieces that the server has written in their places, as the stream sends them, and counts seconds up and down.
// It writes no markup of its own: without it the same page stands still.
"use strict";

const RETRY_MS = 2000;
const LAYOUTS = new Set(["groups", "first-rows"]);
const state = { ahead: 0, isLive: false };

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
    text = length(now - time.dataset.since);
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

function isBusy(place) {
  return place.hasAttribute("data-keep") && (place.contains(document.activeElement) || place.dataset.touched);
}

function twin(focused, piece) {
  if (focused.id) return document.getElementById(focused.id);
  const href = focused.getAttribute("href");
  return [...piece.querySelectorAll("a")].find((link) => link.getAttribute("href") === href);
}

function replace(place, piece) {
  if (isBusy(place)) return;
  const focused = place.contains(document.activeElement) ? document.activeElement : null;
  const opened = [...place.querySelectorAll("details[open][id]")].map((details) => details.id);
  place.replaceWith(piece);
  for (const id of opened) document.getElementById(id)?.setAttribute("open", "");
  if (focused) twin(focused, piece)?.focus();
}

function arrange(list, order, fresh) {
  const wanted = new Set(order);
  let at = list.firstElementChild;
  for (const id of order) {
    const piece = fresh.get(id) ?? document.getElementById(id);
    if (!piece) continue;
    while (at && !wanted.has(at.id)) at = at.nextElementSibling;
    if (piece === at) at = at.nextElementSibling;
    else put(list, piece, at);
  }
}

// A piece that moves from one list to another loses the focus on its way, and must not hide it in a closed fold.

function put(list, piece, before) {
  const focused = piece.contains(document.activeElement) ? document.activeElement : null;
  list.insertBefore(piece, before);
  if (!focused) return;
  list.closest("details")?.setAttribute("open", "");
  focused.focus();
}

function clear(list, order) {
  const wanted = new Set(order);
  for (const piece of [...list.children]) {
    if (wanted.has(piece.id)) continue;
    const hadFocus = piece.contains(document.activeElement);
    piece.remove();
    if (hadFocus) list.focus();
  }
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
    if (place) replace(place, piece);
    else fresh.set(id, piece);
  }
  // All lists are filled before any is cleared: a piece that changes lists is still there to be moved.
  for (const [step, id, order] of steps(update.order)) {
    const list = document.getElementById(id);
    if (list) step(list, order, fresh);
    else if (LAYOUTS.has(id)) location.reload(); // so many institutions came or went that the board has another layout
  }
  sift();
  if (update.said) say(update.said);
  tick();
}

function say(words) {
  const said = document.getElementById("said");
  if (said.textContent !== words) said.textContent = words;
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

sieve?.addEventListener("input", sift);

// The stream: whoever comes (again) is told how things are, so nothing has to be remembered.

function lamp(isLive, words) {
  if (state.isLive === isLive && isLive) return;
  state.isLive = isLive;
  const link = document.getElementById("link");
  link.classList.toggle("live", isLive);
  link.classList.toggle("cut", !isLive);
  link.querySelector(".words").textContent = words;
}

const address = document.body.dataset.stream;
let stream = null;

function follow() {
  stream?.close();
  const own = new EventSource(address);
  stream = own;
  own.addEventListener("updates", (event) => {
    const update = JSON.parse(event.data);
    lamp(!update.lamp, update.lamp || "Live");
    show(update);
  });
  own.addEventListener("dark", (event) => lamp(false, JSON.parse(event.data)));
  own.addEventListener("error", () => {
    lamp(false, "Connection lost, trying again …");
    if (own.readyState === EventSource.CLOSED) setTimeout(again, RETRY_MS);
    if (own.readyState === EventSource.CLOSED) leaveIfLoggedOut();
  });
}

// A session that is over leads to the login page and back; a form in which somebody types stays as it is.

async function leaveIfLoggedOut() {
  if (document.querySelector("[data-touched]")) return;
  const answer = await fetch(location.href, { headers: { Accept: "text/html" }, redirect: "manual" }).catch(() => null);
  if (answer?.type === "opaqueredirect") location.reload();
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

setInterval(tick, 1000);
tick();
