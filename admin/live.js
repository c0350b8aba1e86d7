// Keeps the live page fresh. The page works without this file: it is rendered
// whole by the gate, and this only puts the newly rendered parts in place when
// the stream of decisions says that something happened.
"use strict";
(function () {
  const soonest = 1000; // milliseconds between two renewals
  const latest = 5000; // renewed at least so often, for waits and clocks
  const conn = document.getElementById("conn"); // read out by screen readers: changes only when the state does
  const now = document.getElementById("now");
  const pause = document.getElementById("pause");
  let paused = false, pending = false, busy = false, last = Date.now(), missed = 0, connected = false;

  function status() {
    let text = "live";
    if (paused) text = "paused";
    else if (!connected) text = "connection lost, trying again";
    if (missed) text += " (" + missed + " events came too fast to show)";
    if (conn.textContent !== text) conn.textContent = text;
  }

  // renew asks for the page again and swaps the parts marked data-live, one by
  // one, so that open details, focus and places in tables stay.
  async function renew() {
    if (busy || paused || document.hidden) { pending = true; return; }
    busy = true;
    pending = false;
    try {
      const url = new URL(location.href);
      for (const k of ["explain", "as", "profile", "at"]) url.searchParams.delete(k);
      url.hash = "";
      const res = await fetch(url, { cache: "no-store", credentials: "same-origin" });
      if (!res.ok) throw new Error(String(res.status));
      const fresh = new DOMParser().parseFromString(await res.text(), "text/html");
      if (!paused) {
        swap(fresh);
        now.replaceChildren(...document.importNode(fresh.getElementById("now"), true).childNodes);
      }
      last = Date.now();
    } catch (e) {
      connected = false;
    }
    busy = false;
    status();
  }

  function swap(fresh) {
    const selected = String(document.getSelection() || "");
    for (const part of fresh.querySelectorAll("[data-live]")) {
      const old = document.getElementById(part.id);
      if (!old) {
        const before = fresh.getElementById(part.id).nextElementSibling;
        const place = before && document.getElementById(before.id);
        if (place) place.before(document.importNode(part, true));
        continue;
      }
      if (selected && old.contains(document.getSelection().anchorNode)) continue;
      const focus = old.contains(document.activeElement) ? document.activeElement : null;
      if (focus && focus.matches("input, select, textarea")) continue;
      const open = [...old.querySelectorAll("details[open]")].map((d) => d.id);
      const places = [...old.querySelectorAll(".table")].map((t) => [t.id, t.scrollTop, t.scrollLeft]);
      const mark = focus && (focus.id ? "#" + CSS.escape(focus.id) : focus.getAttribute("href") ? '[href="' + CSS.escape(focus.getAttribute("href")) + '"]' : "");
      const next = document.importNode(part, true);
      old.replaceWith(next);
      for (const id of open) {
        const d = document.getElementById(id);
        if (d) d.open = true;
      }
      for (const [id, top, left] of places) {
        const t = document.getElementById(id);
        if (t) { t.scrollTop = top; t.scrollLeft = left; }
      }
      const again = mark && next.querySelector(mark);
      if (again) again.focus({ preventScroll: true });
    }
    // What is not there any more goes, but never under somebody's hands.
    for (const old of document.querySelectorAll("section[data-live]")) {
      if (!fresh.getElementById(old.id) && !old.contains(document.activeElement)) old.remove();
    }
  }

  setInterval(function () {
    const age = Date.now() - last;
    if ((pending && age >= soonest) || age >= latest) renew();
  }, 250);

  pause.hidden = false;
  pause.addEventListener("click", function () {
    paused = !paused;
    pause.textContent = paused ? "go on" : "pause";
    pause.setAttribute("aria-pressed", String(paused));
    status();
    if (!paused) renew();
  });
  document.addEventListener("visibilitychange", function () {
    if (!document.hidden) renew();
  });

  const stream = new EventSource("/api/decisions?after=" + encodeURIComponent(document.body.dataset.seq));
  stream.addEventListener("open", function () { connected = true; status(); });
  stream.addEventListener("error", function () { connected = false; status(); });
  stream.addEventListener("decision", function () { pending = true; });
  stream.addEventListener("gap", function (e) {
    pending = true;
    const lost = JSON.parse(e.data).lost;
    if (Number.isFinite(lost)) missed += lost;
  });

  for (const block of document.querySelectorAll("pre.copy")) {
    if (!navigator.clipboard) break; // only on loopback and https
    const text = block.textContent;
    const b = document.createElement("button");
    b.type = "button";
    b.textContent = "copy";
    b.addEventListener("click", function () {
      navigator.clipboard.writeText(text).then(function () {
        b.textContent = "copied";
        setTimeout(function () { b.textContent = "copy"; }, 1500);
      }, function () { b.textContent = "not allowed"; });
    });
    block.append(b);
  }

  const form = document.getElementById("change");
  if (form) {
    form.hidden = false;
    form.addEventListener("submit", async function (e) {
      e.preventDefault();
      const out = document.getElementById("change-out");
      const f = new FormData(form);
      const body = { host: f.get("host").trim(), action: f.get("action"), reason: f.get("reason"), subdomains: f.get("subdomains") !== null };
      if (body.action === "slow") body.gap = f.get("gap");
      out.textContent = "...";
      try {
        const res = await fetch("/api/ledger", {
          method: "POST",
          headers: { "Content-Type": "application/json", Authorization: "Bearer " + f.get("token") },
          body: JSON.stringify(body),
        });
        const answer = await res.json();
        out.textContent = res.ok ? "done: " + answer.action + " " + answer.host : answer.error;
        if (res.ok) { form.elements.host.value = ""; form.elements.reason.value = ""; pending = true; last = 0; }
      } catch (err) {
        out.textContent = "the gate did not answer";
      }
    });
  }
})();
