"use strict";
// The chat box: what is said appears as it is written, and a message is sent without leaving the page.

(() => {
  const list = $("#chat");
  if (!list) return;
  const { trace, channel, over } = list.dataset;
  const last = () => Math.max(0, ...$$("[data-id]", list).map((one) => Number(one.dataset.id)));

  if (!over) {
    listen(() => `/events/traces/${trace}/chat?channel=${encodeURIComponent(channel)}&known=${last()}`, {
      said: (html) => {
        const box = document.createElement("template");
        box.innerHTML = html; // escaped by the server's template
        const one = box.content.firstElementChild;
        if ($(`[data-id="${Number(one.dataset.id)}"]`, list)) return;
        list.append(one);
        one.scrollIntoView({ block: "nearest" });
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
    const there = answer && answer.status < 500;
    problem.hidden = Boolean(answer?.ok);
    problem.textContent = there ? "It was not sent. Is the trace over?" : "It was not sent: nobody answers. Send it again.";
    if (answer?.ok) form.reset();
  });
  $("#text")?.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey) {
      event.preventDefault();
      form.requestSubmit();
    }
  });
})();
