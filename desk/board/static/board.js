// Puts pieces that the server has written in their places, as the stream sends them, and counts seconds up and down.
// It writes no markup of its own: without it the same page stands still.
"use strict";

const RETRY_MS = 2000;
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

function tick() {
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

function replace(place, piece) {
  if (isBusy(place)) return;
  const focused = place.contains(document.activeElement) ? document.activeElement : null;
  const href = focused && focused.getAttribute("href");
  const opened = [...place.querySelectorAll("details[open][id]")].map((details) => details.id);
  place.replaceWith(piece);
  for (const id of opened) document.getElementById(id)?.setAttribute("open", "");
  if (focused) [...piece.querySelectorAll("a")].find((link) => link.getAttribute("href") === href)?.focus();
}

function arrange(list, order, fresh) {
  let at = list.firstElementChild;
  for (const id of order) {
    const piece = fresh.get(id) ?? document.getElementById(id);
    if (!piece) continue;
    if (piece === at) at = at.nextElementSibling;
    else list.insertBefore(piece, at);
  }
  while (at) {
    const gone = at;
    at = at.nextElementSibling;
    const hadFocus = gone.contains(document.activeElement);
    gone.remove();
    if (hadFocus) list.focus();
  }
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
  for (const [id, order] of Object.entries(update.order)) {
    const list = document.getElementById(id);
    if (list) arrange(list, order, fresh);
  }
  if (update.said) say(update.said);
  tick();
}

function say(words) {
  const said = document.getElementById("said");
  if (said.textContent !== words) said.textContent = words;
}

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
  });
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

// Times that are typed, and days that are shown, are the viewer's own; the page says UTC without this script.

for (const field of document.querySelectorAll(".find input[name=zone]")) field.value = -new Date().getTimezoneOffset();
for (const time of document.querySelectorAll("time[data-day]")) time.title = new Date(time.dateTime).toLocaleString();

document.addEventListener("input", (event) => {
  const kept = event.target.closest("[data-keep]");
  if (kept) kept.dataset.touched = "yes";
});

if (address) {
  follow();
  addEventListener("pagehide", rest);
  // A browser allows a host few connections: a tab that nobody sees gives its own back.
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) rest();
    else again();
  });
}
setInterval(tick, 1000);
tick();
