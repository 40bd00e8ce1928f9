"use strict";
// For all pages: keys, light and dark, and parts of a page that the server keeps up to date.

const $ = (selector, within = document) => within.querySelector(selector);
const $$ = (selector, within = document) => [...within.querySelectorAll(selector)];

/** Tell screen readers what changed. */
function announce(text) {
  $("#said").textContent = text;
}

// ---------------------------------------------------------------------------------------- light and dark

function toggleTheme() {
  const root = document.documentElement;
  const dark = root.dataset.theme
    ? root.dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  try {
    localStorage.setItem("theme", root.dataset.theme);
  } catch {
    // without storage, the choice applies to this page only
  }
}
$("#theme").addEventListener("click", toggleTheme);

// ---------------------------------------------------------------------------------------- live parts

const SILENT = "The viewer does not answer; this page keeps trying.";

/** Show what does not answer; without a text: everything answers again. */
function away(text) {
  $("#away").textContent = text ?? "";
  $("#away").hidden = !text;
}

/** An event stream that is open while the page is visible: browsers allow few connections to a host. */
function listen(address, handlers) {
  let source = null;
  let silent;
  const stop = () => {
    source?.close();
    source = null;
  };
  const start = () => {
    if (source || document.hidden) return;
    source = new EventSource(typeof address === "function" ? address() : address);
    for (const [name, handle] of Object.entries(handlers)) {
      source.addEventListener(name, (event) => handle(JSON.parse(event.data), event.lastEventId));
    }
    source.addEventListener("away", (event) => away(JSON.parse(event.data)));
    source.addEventListener("back", () => away());
    source.addEventListener("open", () => {
      silent = clearTimeout(silent);
      away();
    });
    source.addEventListener("error", () => {
      silent ??= setTimeout(away, 2000, SILENT);
      if (source?.readyState !== EventSource.CLOSED) return; // otherwise the browser reconnects by itself
      stop();
      setTimeout(start, 2000);
    });
    for (const name of ["over", "gone"]) {
      source.addEventListener(name, () => {
        stop();
        document.removeEventListener("visibilitychange", change);
      });
    }
  };
  const change = () => (document.hidden ? stop() : start());
  document.addEventListener("visibilitychange", change);
  addEventListener("pagehide", stop);
  addEventListener("pageshow", start);
  start();
}

for (const part of $$("[data-live]")) {
  const place = (row) => row && $("a", row)?.getAttribute("href");
  const show = (html) => {
    const marked = place($(".current", part));
    const focused = document.activeElement;
    const links = () => $$("a", part).filter((link) => link.getAttribute("href") === focused.getAttribute("href"));
    const nth = part.contains(focused) ? links().indexOf(focused) : -1;
    part.waiting = undefined;
    part.innerHTML = html;
    const row = marked && $$(".row", part).find((one) => place(one) === marked);
    if (row) mark(row);
    if (nth >= 0) links()[nth]?.focus({ preventScroll: true });
  };
  listen(part.dataset.live, {
    // From the server's templates, which escape the texts of traces.
    jobs: (html) => {
      // A link that is replaced while it is pressed gets no click: wait for the end of the press.
      if (part.matches(":active")) {
        part.waiting ?? addEventListener("pointerup", () => setTimeout(() => show(part.waiting)), { once: true });
        part.waiting = html;
      } else show(html);
    },
  });
}

// ---------------------------------------------------------------------------------------- keys

const rows = () => $$(".block[data-index], .candidate, .row");

function mark(row) {
  $(".current")?.classList.remove("current");
  row.classList.add("current");
}

/** The marked row, if it is in view: j and k start there. */
function current() {
  const marked = $(".current");
  if (marked) {
    const box = marked.getBoundingClientRect();
    if (box.bottom > 0 && box.top < innerHeight) return marked;
  }
  return null;
}

function go(row) {
  if (!row) return;
  mark(row);
  row.scrollIntoView({ block: row.offsetHeight > innerHeight * 0.8 ? "start" : "nearest" });
  row.focus?.({ preventScroll: true });
  row.dispatchEvent(new CustomEvent("went", { bubbles: true }));
}

const firstInView = () => rows().find((row) => row.getBoundingClientRect().bottom > 60);

function step(by) {
  const all = rows();
  const here = current();
  if (here) {
    go(all[all.indexOf(here) + by]);
    return;
  }
  const first = firstInView();
  go(by > 0 ? first : first && all[all.indexOf(first) - 1]);
}

/** Open the candidates of the marked block, or of the next block that has candidates. */
function toCandidates() {
  const all = rows();
  const here = all.indexOf(current() ?? firstInView());
  const next = here < 0 ? null : all.slice(here).find((row) => $("a.candidates", row));
  if (next) follow("a.candidates", next);
}

/** Follow the first such link. */
function follow(selector, within = document) {
  const link = $(selector, within);
  if (link) location.assign(link.href);
}

// ---------------------------------------------------------------------------------------- annotations

/** Press a button of the annotation of the marked block or candidate, or of the first one in view. */
function annotate(selector, within = current() ?? firstInView()) {
  if (!within) return;
  if (within.matches(".block, .candidate")) mark(within);
  $(`.annotate ${selector}`, within)?.click();
}

function writeNote() {
  const here = current() ?? firstInView();
  const details = here && $(".annotate details", here);
  if (!details) return;
  mark(here);
  details.open = true;
  $("input[name=labels]", details).focus();
}

document.addEventListener("submit", async (event) => {
  const form = event.target;
  if (!form.matches(".annotate")) return;
  event.preventDefault();
  const body = new URLSearchParams(new FormData(form, event.submitter));
  const answer = await fetch(`${form.action}?part=1`, { method: "POST", body }).catch(() => null);
  if (!answer?.ok) {
    away(answer && answer.status < 500 ? "The annotation was not accepted." : SILENT);
    return;
  }
  away();
  const box = form.closest(".annotation");
  const row = form.closest(".block, .candidate");
  box.innerHTML = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector(".annotation").innerHTML;
  announce(body.get("verdict") ? `annotated: ${body.get("verdict")}` : "annotated");
  if (row) go(row.closest("#review") ? rows()[rows().indexOf(row) + 1] : row);
});

// ---------------------------------------------------------------------------------------- what keys do

const KEYS = {
  y: () => annotate(".verdict.good"),
  x: () => annotate(".verdict.bad"),
  Y: () => annotate(".verdict.good", $("#of-trace")),
  X: () => annotate(".verdict.bad", $("#of-trace")),
  a: writeNote,
  e: () => window.weavegenJump?.("error"),
  E: () => window.weavegenJump?.("error", true),
  b: () => window.weavegenJump?.("backtrack"),
  B: () => window.weavegenJump?.("backtrack", true),
  l: () => window.weavegenJump?.("low"),
  L: () => window.weavegenJump?.("low", true),
  v: () => window.weavegenJump?.("divergence"),
  V: () => window.weavegenJump?.("divergence", true),
  j: () => step(1),
  k: () => step(-1),
  Enter: () => follow("a", current() ?? $(".row") ?? document.createElement("p")),
  c: toCandidates,
  d: () => $("#differences button")?.click(),
  n: () => follow("[data-next]"),
  p: () => follow("[data-previous]"),
  u: () => {
    const up = $$("[data-up]").at(-1);
    if (up) location.assign(up.href);
  },
  g: () => (window.weavegenGo ? window.weavegenGo(0) : go(rows()[0])),
  G: () => (window.weavegenGo ? window.weavegenGo(Infinity) : go(rows().at(-1))),
  f: () => $("#follow")?.click(),
  t: toggleTheme,
  "/": () => {
    $("#find").focus();
    $("#find").select();
  },
  "?": () => $("#help").showModal(),
};

document.addEventListener("keydown", (event) => {
  const typing = event.target.closest("input, textarea, select, [contenteditable]");
  if (typing && event.key === "Escape") typing.blur();
  if (typing || event.ctrlKey || event.metaKey || event.altKey || $("#help").open) return;
  // Links and buttons handle Enter themselves.
  if (event.key === "Enter" && event.target.closest("a, button, summary")) return;
  const act = KEYS[event.key];
  if (!act) return;
  event.preventDefault();
  act();
});

// The other view of the candidates begins at the same candidate.
$("#differences")?.addEventListener("submit", (event) => {
  const here = current() ?? firstInView();
  if (here) event.target.action = `#${here.id}`;
});
const named = document.getElementById(location.hash.slice(1));
if (named?.matches(".candidate")) mark(named);

$("#help-button").addEventListener("click", () => $("#help").showModal());
