// Keeps the parts of the page that live up to date: asks for the page again and exchanges what has changed.
"use strict";

const EVERY_MS = 1000;

function exchange(page) {
  for (const fresh of page.querySelectorAll("[data-live]")) {
    const place = document.getElementById(fresh.id);
    if (!place || place.contains(document.activeElement)) continue;
    if (place.innerHTML !== fresh.innerHTML) place.replaceWith(fresh);
  }
}

async function look() {
  const lamp = document.getElementById("lamp");
  try {
    const answer = await fetch(location.pathname + location.search, { cache: "no-store" });
    exchange(new DOMParser().parseFromString(await answer.text(), "text/html"));
    lamp.className = "lamp live";
    lamp.lastElementChild.textContent = "Live";
  } catch {
    lamp.className = "lamp cut";
    lamp.lastElementChild.textContent = "No answer, trying again …";
  }
  setTimeout(look, EVERY_MS);
}

setTimeout(look, EVERY_MS);
