"use strict";
// A trace: pieces of blocks are loaded when they come into view, and new blocks when they are recorded.

(() => {
  const root = $("#blocks");
  const trace = root.dataset.trace;
  const size = Number(root.dataset.piece);
  const FAR = 6; // pieces that are more screens away than this are unloaded
  let total = Number(root.dataset.blocks);
  let restarts = Number(root.dataset.restarts);
  let known = root.dataset.known;
  let following = false;

  // Read once: reading it between two changes would lay out the page again.
  const across = Math.max(30, root.clientWidth / 8.5);

  /** Estimated height of a piece that was not loaded yet. */
  function guess(piece) {
    return Number(piece.dataset.count) * 120 + (Number(piece.dataset.bytes) / across) * 26;
  }

  function reserve(piece) {
    piece.style.minHeight = `${Math.round(piece.seen ?? guess(piece))}px`;
  }

  /** Blocks as HTML, escaped by the server's templates. Keeps trying while the viewer or its database does not answer. */
  async function fetched(first, end) {
    for (;;) {
      const answer = await fetch(`/traces/${trace}/blocks?first=${first}&end=${end}`).catch(() => null);
      if (answer?.ok) {
        away();
        return answer.text();
      }
      if (answer && answer.status < 500) throw new Error(answer.statusText);
      away(SILENT);
      await new Promise((done) => setTimeout(done, 1000));
    }
  }

  async function load(piece) {
    if (piece.loaded) return;
    piece.loaded ??= false;
    if (piece.loading) return piece.loading;
    const first = Number(piece.dataset.first);
    piece.loading = fetched(first, first + size)
      .then((html) => {
        piece.innerHTML = html;
        piece.loaded = true;
        piece.style.minHeight = "";
        clamp(piece);
      })
      .catch(() => announce("Some blocks could not be loaded."))
      .finally(() => {
        piece.loading = null;
      });
    return piece.loading;
  }

  function drop(piece) {
    if (!piece.loaded || piece.contains(document.activeElement)) return;
    piece.seen = piece.offsetHeight;
    reserve(piece);
    piece.replaceChildren();
    piece.loaded = false;
  }

  /** Show a very long body in part, with a button for all of it. */
  function clamp(within) {
    for (const body of $$("pre", within)) {
      if (body.dataset.clamped || body.textContent.length < 3000) continue;
      const lines = body.textContent.split("\n").length;
      if (lines < 60 && body.textContent.length < 6000) continue;
      body.dataset.clamped = "yes";
      body.classList.add("clamped");
      const more = document.createElement("button");
      more.type = "button";
      more.className = "more";
      more.textContent = `All ${lines} lines`;
      more.addEventListener("click", () => {
        body.classList.remove("clamped");
        more.remove();
      });
      body.after(more);
    }
  }

  const near = new IntersectionObserver(
    (entries) => entries.forEach((entry) => entry.isIntersecting && load(entry.target)),
    { rootMargin: "150% 0px" },
  );
  const far = new IntersectionObserver(
    (entries) => entries.forEach((entry) => entry.isIntersecting || drop(entry.target)),
    { rootMargin: `${FAR * 100}% 0px` },
  );

  function adopt(piece) {
    piece.loaded = piece.childElementCount > 0;
    if (!piece.loaded) reserve(piece);
    near.observe(piece);
    far.observe(piece);
  }

  const pieceOf = (index) => root.children[Math.floor(index / size)];

  /** Show a block and mark it. Infinity: the last block. */
  async function goTo(index) {
    index = Math.max(0, Math.min(index, total - 1));
    const piece = pieceOf(index);
    if (!piece) return;
    piece.scrollIntoView();
    await load(piece);
    const block = $(`#b${index}`);
    if (!block) return;
    go(block);
    block.scrollIntoView({ block: "start" });
    // Loading the pieces around it changes their heights, so scroll again.
    await Promise.all([piece.previousElementSibling, piece.nextElementSibling].filter(Boolean).map(load));
    block.scrollIntoView({ block: "start" });
  }
  window.weavegenGo = goTo;

  /** Go to the next block of a kind (error, backtrack, low, divergence) after the marked one, or to the previous one. */
  window.weavegenJump = async (kind, back) => {
    const here = current() ?? firstInView();
    const after = here?.dataset.index ?? 0;
    const address = `/traces/${trace}/next?kind=${kind}&after=${after}&back=${back ? 1 : 0}`;
    const answer = await fetch(address, { headers: { accept: "application/json" } }).catch(() => null);
    if (!answer?.ok) {
      away(SILENT);
      return;
    }
    away();
    const { index } = await answer.json();
    const none = `No ${kind === "low" ? "low score" : kind} ${back ? "before" : "after"} block ${after}.`;
    $("#jumped").textContent = index === null ? none : "";
    if (index !== null) await goTo(index);
  };
  for (const link of $$("[data-jump]")) {
    link.addEventListener("click", (event) => {
      event.preventDefault();
      window.weavegenJump(link.dataset.jump, event.shiftKey);
    });
  }

  root.addEventListener("went", (event) => {
    const index = event.target.dataset.index;
    if (index) history.replaceState(null, "", `/traces/${trace}/blocks/${index}`);
    const piece = event.target.closest(".piece");
    for (const next of [piece.previousElementSibling, piece.nextElementSibling]) if (next) load(next);
  });
  root.addEventListener("click", (event) => {
    const link = event.target.closest("a.index");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
    event.preventDefault();
    go(link.closest(".block"));
  });
  $("#goto").addEventListener("submit", (event) => {
    event.preventDefault();
    const wanted = $("#goto-index").value.trim();
    if (/^\d+$/.test(wanted)) goTo(Number(wanted));
  });

  // -------------------------------------------------------------------------------------- new blocks

  function setFollowing(on) {
    following = on;
    $("#follow").setAttribute("aria-pressed", String(on));
    if (on) $("#end").scrollIntoView({ block: "end" });
  }
  $("#follow").addEventListener("click", () => setFollowing(!following));
  /** Stop following where a person leaves the end: otherwise the next block would take them back to it. */
  const leave = () => following && setFollowing(false);
  addEventListener("wheel", (event) => event.deltaY < 0 && leave(), { passive: true });
  addEventListener("touchmove", leave, { passive: true });
  addEventListener("keydown", (event) => ["PageUp", "ArrowUp", "Home"].includes(event.key) && leave());
  root.addEventListener("went", (event) => Number(event.target.dataset.index) < total - 1 && leave());

  async function grow(now) {
    const before = total;
    total = now;
    for (let first = Math.floor(before / size) * size; first < total; first += size) {
      let piece = pieceOf(first);
      const fresh = !piece;
      if (fresh) {
        piece = document.createElement("section");
        piece.className = "piece";
        piece.dataset.first = first;
        root.append(piece);
      }
      const count = Math.min(size, total - first);
      piece.dataset.bytes = (Number(piece.dataset.bytes) || 0) + 900 * (count - (Number(piece.dataset.count) || 0));
      piece.dataset.count = count;
      await piece.loading; // a request that is under way may lack the new blocks
      if (fresh) {
        adopt(piece);
      } else if (piece.loaded) {
        const box = document.createElement("template");
        box.innerHTML = await fetched(Math.max(before, first), first + count);
        for (const block of $$(".block", box.content)) {
          if (!$(`#${block.id}`, piece)) {
            block.classList.add("fresh");
            piece.append(block);
          }
        }
        clamp(piece);
      } else {
        reserve(piece);
      }
    }
    announce(`${total} blocks`);
  }

  /** Show the rewards of blocks that are shown already: they get them at the end of their tick. */
  async function reward() {
    for (const piece of [...root.children]) {
      await piece.loading;
      if (!piece.loaded) continue;
      const first = Number(piece.dataset.first);
      const box = document.createElement("template");
      box.innerHTML = await fetched(first, first + size);
      for (const block of $$(".block", box.content)) {
        const header = $(`#${block.id} > header`, piece);
        if (header && !header.contains(document.activeElement)) header.replaceWith($("header", block));
      }
    }
  }

  let queue = Promise.resolve();
  async function update(state, id) {
    known = id || known;
    for (const name of ["bytes", "reward"]) $(`#${name}`).textContent = state[name];
    const status = $("#status .status");
    if (status.textContent !== state.status) {
      status.className = `status ${state.status}`;
      status.textContent = state.status;
    }
    if (state.status !== "running" && state.status !== "queued") {
      $("#end").textContent = "End of the trace.";
      $("#follow").hidden = true;
    }
    if (state.restarts !== restarts || state.blocks < total) {
      // A tick was started again: its blocks have changed.
      restarts = state.restarts;
      for (const piece of [...root.children]) {
        const first = Number(piece.dataset.first);
        if (first >= state.blocks) piece.remove();
        else {
          piece.dataset.count = Math.min(size, state.blocks - first);
          await piece.loading;
          if (!piece.loaded) continue;
          piece.loaded = false;
          await load(piece);
        }
      }
      total = Math.min(total, state.blocks);
    }
    if (state.blocks > total) await grow(state.blocks);
    if ($("#ticks").textContent !== String(state.ticks)) await reward();
    $("#ticks").textContent = state.ticks;
    $("#count").textContent = total.toLocaleString("en");
    if (following) $("#end").scrollIntoView({ block: "end" });
  }

  for (const piece of root.children) adopt(piece);
  clamp(root);
  if (root.dataset.at !== undefined) {
    if ("scrollRestoration" in history) history.scrollRestoration = "manual";
    goTo(Number(root.dataset.at));
  }
  if (["running", "queued"].includes(root.dataset.status)) {
    listen(() => `/events/traces/${trace}?known=${encodeURIComponent(known)}`, {
      // In order: an update must see the blocks that the previous one has added.
      state: (state, id) => {
        queue = queue.then(() => update(state, id)).catch(() => {});
      },
    });
  }
})();
