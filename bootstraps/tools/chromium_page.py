"""Reads and operates the page that Chromium shows: the script that runs beside the page, and its text as lines."""

from .html_text import Attributes, Reader

SCRIPT = r"""
(() => {
if (globalThis.weave) return;
const UNSEEN = new Set(["script", "style", "template", "noscript", "head", "svg", "object", "embed"]);
const INLINE = /^(inline|inline-block|inline-flex|inline-grid|contents|none|ruby|table-cell)/;
const ROLES = new Set(["button", "link", "checkbox", "radio", "switch", "tab", "option", "menuitem", "treeitem"]);
const BUTTONS = new Set(["submit", "button", "reset", "image"]);
const MOST = 2 ** 21;
const elements = [], numbers = new WeakMap();
let html = "", seen = [], touched = null;

const escaped = (text) => String(text).replace(/[&<>"]/g, (sign) => `&#${sign.charCodeAt(0)};`);
const short = (text, most = 80) => {
  text = String(text ?? "").replace(/\s+/g, " ").trim();
  return text.length > most ? text.slice(0, most) + "..." : text;
};

function kindOf(element) {
  const tag = element.localName;
  if ((tag === "a" || tag === "area") && element.href) return "link";
  if (tag === "button" || (tag === "input" && BUTTONS.has(element.type))) return "button";
  if (tag === "textarea") return "text area";
  if (tag === "select") return "list";
  if (tag === "input") {
    const kinds = {checkbox: "box", radio: "choice", file: "file", hidden: null};
    return element.type in kinds ? kinds[element.type] : "field";
  }
  const parent = element.parentElement;
  if (element.isContentEditable && !parent?.isContentEditable) return "text area";
  if (tag === "label" || tag === "body" || tag === "html" || tag === "option") return null;
  const role = element.getAttribute("role");
  if (tag === "summary" || element.hasAttribute("onclick") || ROLES.has(role)) return "clickable";
  const inside = parent?.closest("a[href], button, label, summary, [onclick]");
  if (inside) return null;
  // A listener can't be seen from outside. Pages show a hand where a click does something.
  const pointed = (one) => one && getComputedStyle(one).cursor === "pointer";
  if (pointed(element) && !pointed(parent) && !element.querySelector("a[href], button, input")) return "clickable";
  return null;
}

function nameOf(element) {
  if (element.type === "radio") return short(`${element.name}=${element.value}`);
  const labels = [...(element.labels ?? [])].map((label) => {
    const copy = label.cloneNode(true);
    copy.querySelectorAll("input, select, textarea, button").forEach((one) => one.remove());
    return copy.textContent;
  });
  const candidates = [element.getAttribute("aria-label"), ...labels, element.placeholder, element.title, element.name,
                      element.id];
  return short(candidates.find((text) => text && text.trim()) ?? "").replace(/:$/, "");
}

function valueOf(element, kind) {
  if (kind === "link") return element.href;
  if (kind === "box" || kind === "choice") return element.checked;
  if (kind === "list") return [...element.selectedOptions].map((option) => option.label);
  if (kind === "file") return [...element.files].map((file) => file.name);
  if (element.type === "password") return "*".repeat(element.value.length);
  if (kind === "field" || kind === "text area") return element.value ?? element.textContent;
  return element.getAttribute("aria-checked") ?? element.getAttribute("aria-selected");
}

function describe(element, kind) {
  const name = nameOf(element), value = valueOf(element, kind);
  const what = name ? `${kind} ${name}` : kind, off = element.matches(":disabled") ? ", disabled" : "";
  switch (kind) {
    case "button": {
      const text = short(element.localName === "input" ? element.value || element.alt || element.type
                         : element.textContent) || name;
      return `(button "${text}"${off})`;
    }
    case "box": return `(${what}: ${value ? "checked" : "not checked"}${off})`;
    case "choice": return `(${what}: ${value ? "chosen" : "not chosen"}${off})`;
    case "list": {
      const all = [...element.options].slice(0, 20).map((option) => `"${short(option.label, 40)}"`).join(", ");
      const more = element.options.length > 20 ? `, and ${element.options.length - 20} more` : "";
      return `(${what}: ${value.map((text) => `"${short(text, 40)}"`).join(", ") || "nothing"} of ${all}${more}${off})`;
    }
    case "file": return `(${what}: a file can't be chosen here)`;
    default: return `(${what}: ${value ? `"${short(value, 400)}"` : "empty"}${off})`;
  }
}

function numberOf(element) {
  let number = numbers.get(element);
  if (number === undefined) {
    number = elements.push(element);
    numbers.set(element, number);
  }
  return number;
}

function children(element) {
  if (element.shadowRoot) return element.shadowRoot.childNodes;
  if (element.localName === "details" && !element.open) return element.querySelectorAll(":scope > summary");
  const assigned = element.localName === "slot" ? element.assignedNodes() : [];
  return assigned.length ? assigned : element.childNodes;
}

function walk(node) {
  if (html.length > MOST) return;
  if (node.nodeType === Node.TEXT_NODE) {
    const parent = node.parentElement;
    if (!parent || getComputedStyle(parent).visibility === "visible") html += escaped(node.data);
    return;
  }
  if (node.nodeType !== Node.ELEMENT_NODE || UNSEEN.has(node.localName)) return;
  const style = getComputedStyle(node), tag = node.localName;
  if (style.display === "none" || (style.display !== "contents" && !node.checkVisibility())) return;
  if (tag === "iframe" || tag === "frame") {
    const inner = node.contentDocument?.body;
    html += inner ? "<div>" : `<div>(a frame of another site: ${escaped(node.src)})`;
    if (inner) walk(inner);
    html += "</div>";
    return;
  }
  if (tag === "br" || tag === "hr") { html += `<${tag}>`; return; }
  if (tag === "img") { html += `<img alt="${escaped(node.alt)}">`; }
  const visible = style.visibility === "visible", kind = visible ? kindOf(node) : null;
  const block = !INLINE.test(style.display);
  const plain = !/^(h[1-6]|p|ul|ol|li|pre|blockquote|table|tr|td|th|thead|tbody|dl|dt|dd)$/.test(tag);
  const shown = plain ? (block ? "div" : "span") : tag;
  html += `<${shown}>`;
  if (kind) {
    const number = numberOf(node);
    const contained = kind === "link" || kind === "clickable";
    html += `${contained ? "" : " "}<weave-click n="${number}">`;
    const start = html.length;
    if (contained) children(node).forEach(walk);
    else html += escaped(describe(node, kind));
    if (contained && !html.slice(start).replace(/<(?!img alt="[^"])[^>]*>/g, "").trim())
      html += `(${escaped(nameOf(node) || "empty")})`;
    html += "</weave-click>";
    const text = contained ? short(node.innerText || nameOf(node)) : kind === "button"
      ? short(node.localName === "input" ? node.value : node.textContent) || nameOf(node) : nameOf(node);
    seen.push([number, kind, text, valueOf(node, kind)]);
  } else children(node).forEach(walk);
  html += `</${shown}>`;
}

function get(number, kinds, verb) {
  const element = elements[number - 1];
  if (!element || !element.isConnected) throw Error(`there is no [${number}] on this page`);
  const kind = kindOf(element);
  if (kinds && !kinds.includes(kind)) throw Error(`[${number}] is a ${kind}: ${verb} needs a ${kinds.join(" or ")}`);
  if (element.matches(":disabled") || element.readOnly) throw Error(`[${number}] is disabled: it can't be changed`);
  element.scrollIntoView({block: "center"});
  touched = element;
  return element;
}

function tell(element) {
  element.dispatchEvent(new InputEvent("input", {bubbles: true, composed: true}));
  element.dispatchEvent(new Event("change", {bubbles: true}));
}

function press(element) {
  const here = element.closest("[target]");  // there is one window
  if (here && !["_self", "_top", "_parent"].includes(here.target)) here.target = "_self";
  element.focus?.();
  const how = {bubbles: true, cancelable: true, composed: true, view: window, detail: 1};
  for (const [type, kind] of [["pointerdown", PointerEvent], ["mousedown", MouseEvent], ["pointerup", PointerEvent],
                              ["mouseup", MouseEvent]])
    element.dispatchEvent(new kind(type, how));
  if (element.click) element.click(); else element.dispatchEvent(new MouseEvent("click", how));
}

globalThis.weave = {
  read() {
    html = "", seen = [];
    if (document.title) html += `<title>${escaped(document.title)}</title>`;
    if (document.body) walk(document.body);
    return {url: location.href, html, controls: seen, cut: html.length > MOST};
  },
  click(number) { press(get(number, null, "click")); },
  follow(number) { press(get(number, ["link"], "follow")); },
  fill(number, text) {
    const element = get(number, ["field", "text area"], "fill");
    element.focus();
    if (element.value === undefined) element.textContent = text;
    else {
      if (element.maxLength >= 0) text = text.slice(0, element.maxLength);
      const kind = element.localName === "input" ? HTMLInputElement : HTMLTextAreaElement, before = element.value;
      const set = Object.getOwnPropertyDescriptor(kind.prototype, "value").set;
      set.call(element, text);
      if (text && !element.value) {
        set.call(element, before);
        throw Error(`[${number}] is a ${element.type} field: it can't hold ${JSON.stringify(text)}`);
      }
    }
    tell(element);
  },
  select(number, choices) {
    const element = get(number, ["list"], "select"), options = [...element.options];
    if (choices.length !== 1 && !element.multiple) throw Error(`[${number}] takes one choice`);
    const chosen = choices.map((choice) => {
      const found = options.find((option) => option.label.trim() === choice) ??
        options.find((option) => option.value === choice);
      if (!found) throw Error(`[${number}] has no ${JSON.stringify(choice)}: it has ` +
                              options.slice(0, 20).map((option) => JSON.stringify(option.label)).join(", "));
      if (found.disabled) throw Error(`${JSON.stringify(choice)} of [${number}] is disabled`);
      return found;
    });
    options.forEach((option) => { option.selected = chosen.includes(option); });
    tell(element);
  },
  check(number, on) {
    const element = get(number, ["box", "choice", "clickable"], "check");
    const state = () => element.checked ?? (element.getAttribute("aria-checked") === "true");
    if (element.type === "radio" && !on) throw Error(`[${number}] is a choice: check another one instead`);
    if (state() !== on) press(element);
  },
  submit(number) {
    const element = number ? get(number, null, "submit") : touched;
    const form = element?.form ?? element?.closest("form") ?? (document.forms.length === 1 ? document.forms[0] : null);
    if (!form) throw Error("there is no form to submit: give the number of one of its fields, or click a button");
    const bad = form.noValidate ? null : [...form.elements].find((one) => one.willValidate && !one.checkValidity());
    if (bad) throw Error(`[${numberOf(bad)}] ${nameOf(bad)}: ${bad.validationMessage}`);
    if (form.target && form.target !== "_self") form.target = "_self";
    const button = [...form.elements].find((one) => one.matches(":is(button, input):is([type=submit], [type=image], " +
      "button:not([type])):not(:disabled)"));
    form.requestSubmit(button);
  },
};
})()
"""
"""Defines `weave` in a world of its own: the page's JavaScript can't see or change it. A number stays with its
element as long as the page is shown."""

ONE_WINDOW = "window.open = (url) => { if (url) location.assign(url); return window; };"
"""Runs in each page before its own scripts: a second window would not be seen."""


class LiveReader(Reader):
    """Makes lines of what `weave.read` gives: the visible part of a page, with numbers on what can be operated."""

    def __init__(self) -> None:
        super().__init__("")
        self.open_numbers: list[str] = []

    def handle_starttag(self, tag: str, attrs: Attributes) -> None:
        if tag == "weave-click":
            self.open_numbers.append(dict(attrs).get("n") or "")
        else:
            super().handle_starttag(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        if tag == "weave-click":
            self.mark(self.open_numbers.pop())
        else:
            super().handle_endtag(tag)

    def mark(self, number: int | str) -> None:
        if not self.line.strip() and self.lines and self.lines[-1]:  # a block in what was read has ended
            self.lines[-1] += f" [{number}]"
        else:
            super().mark(number)


def live_lines(html: str) -> list[str]:
    """Return the lines of what `weave.read` gave as `html`."""
    reader = LiveReader()
    reader.feed(html)
    return reader.finish()
