"use strict";
// The chat box: new messages appear, and a message is sent without leaving the page.

(() => {
  const list = $("#chat");
  if (!list) return;
  const { trace, channel, over } = list.dataset;
  const last = () => Math.max(0, ...$$("[data-id]", list).map((message) => Number(message.dataset.id)));

  if (!over) {
    listen(() => `/events/traces/${trace}/chat?channel=${encodeURIComponent(channel)}&known=${last()}`, {
      message: (html) => {
        const box = document.createElement("template");
        box.innerHTML = html; // escaped by the server's template
        const message = box.content.firstElementChild;
        if ($(`[data-id="${Number(message.dataset.id)}"]`, list)) return;
        list.append(message);
        message.scrollIntoView({ block: "nearest" });
      },
      over: () => {
        const form = $("#say");
        if (form) form.hidden = true;
      },
    });
  }
  const form = $("#say");
  let sending = false;
  form?.addEventListener("submit", async (event) => {
    event.preventDefault();
    const text = $("#text").value.trim();
    if (!text || sending) return;
    sending = true;
    const answer = await fetch(form.action, {
      method: "POST",
      headers: { accept: "application/json" },
      body: new URLSearchParams({ channel, text }),
    }).catch(() => null);
    sending = false;
    const problem = $("#problem");
    const reached = answer && answer.status < 500;
    problem.hidden = Boolean(answer?.ok);
    problem.textContent = reached ? "Not sent. Is the trace over?" : "Not sent: the viewer does not answer. Send it again.";
    if (answer?.ok) form.reset();
  });
  $("#text")?.addEventListener("keydown", (event) => {
    // While an input method composes a character, Enter chooses it.
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      form.requestSubmit();
    }
  });
})();
