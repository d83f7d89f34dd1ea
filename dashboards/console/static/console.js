/* Small behaviour of the console: theme, zone, exact money, keys, dialogs, ticks. Pages work without it; htmx swaps them in place. */
(() => {
  const root = document.documentElement;
  const $ = (selector, within = document) => within.querySelector(selector);
  const $$ = (selector, within = document) => [...within.querySelectorAll(selector)];
  const YEAR_S = 31536000, TICK_MS = 10000, AFTER_G_MS = 900;
  const cookie = (name) => document.cookie.split("; ").find((one) => one.startsWith(name + "="))?.slice(name.length + 1);
  const remember = (name, value) => {
    const secure = location.protocol === "https:" ? "; secure" : "";
    document.cookie = `${name}=${value}; path=/; max-age=${YEAR_S}; samesite=lax${secure}`;
  };
  const say = (text) => { const place = $("#say"); if (place) place.textContent = text; };

  const theme = () => root.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  const flipTheme = () => {
    root.dataset.theme = theme() === "dark" ? "light" : "dark";
    remember("tollway_theme", root.dataset.theme);
    dispatchEvent(new Event("tollway:theme"));
  };
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => dispatchEvent(new Event("tollway:theme")));

  const browserZone = Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";
  if (!cookie("tollway_tz")) remember("tollway_tz", browserZone);
  const setZone = (name) => {
    remember("tollway_tz", name);
    const url = new URL(location.href);
    url.searchParams.delete("tz");
    location.assign(url);
  };

  const exact = () => root.toggleAttribute("data-exact");
  const open = (id) => {
    const dialog = document.getElementById(id);
    if (!(dialog instanceof HTMLDialogElement) || dialog.open) return;
    $$("dialog[open]").forEach((other) => other.close());
    dialog.showModal();
  };
  /* A link to a dialog of another page: opened as its own button does, and the address forgets it, else :target would show it again. */
  const fromAddress = () => {
    const id = location.hash.slice(1);
    if (!(document.getElementById(id) instanceof HTMLDialogElement)) return;
    location.hash = "";
    history.replaceState(null, "", location.pathname + location.search);
    open(id);
  };
  const find = () => { const search = $("[data-search]"); if (search) search.focus(); else open("help"); };
  const copy = (button) => navigator.clipboard?.writeText(button.dataset.copy).then(() => say("Copied"));
  const print = () => window.print();
  const move = (step) => {
    const rows = $$("[data-rows] a.rowlink");
    if (!rows.length) return;
    const at = rows.indexOf(document.activeElement);
    rows[Math.max(0, Math.min(rows.length - 1, at + step))].focus();
  };

  const keysOn = () => cookie("tollway_keys") !== "off";
  const setKeys = (on) => { remember("tollway_keys", on ? "on" : "off"); root.dataset.keys = on ? "on" : "off"; };
  root.dataset.keys = keysOn() ? "on" : "off"; /* for keys of single pages */
  let afterG = 0;
  const keys = (event) => {
    const shut = event.target.closest("dialog:not([open])"); /* the focus leaves a dialog that closed with the next frame only */
    if (event.metaKey || event.altKey || (!shut && event.target.closest("input,textarea,select,dialog,[contenteditable]"))) return;
    if (event.ctrlKey || !keysOn()) return;
    if (afterG && Date.now() - afterG < AFTER_G_MS) {
      afterG = 0;
      const link = $(`.side a[data-key="${CSS.escape(event.key)}"]`);
      if (link) { location.assign(link.href); return; }
    }
    const does = {
      g: () => { afterG = Date.now(); }, "/": find, x: exact, d: flipTheme, "?": () => open("help"), t: () => open("custom"),
      r: () => location.reload(), j: () => move(1), k: () => move(-1),
    }[event.key];
    if (does) { if (event.key === "/") event.preventDefault(); does(); }
  };

  const clicked = (event) => {
    const button = event.target.closest("[data-do]");
    if (!button) return;
    const does = { theme: flipTheme, exact, find, print, open: () => open(button.dataset.open), copy: () => copy(button),
      close: () => button.closest("dialog").close() }[button.dataset.do];
    if (does) { event.preventDefault(); does(); }
  };
  const changed = (event) => {
    if (event.target.matches("[data-zone]")) setZone(event.target.value);
    if (event.target.matches("[data-keys]")) setKeys(event.target.checked);
  };

  /* Live parts: each asks for itself again when it hears the tick, unless somebody is at work inside it. */
  const every = Number(root.dataset.tick) || TICK_MS;
  const tick = () => { if (!document.hidden) document.body.dispatchEvent(new CustomEvent("tollway:tick")); };
  const hold = (event) => {
    const part = event.detail.elt;
    if (event.detail.requestConfig?.triggeringEvent?.type === "tollway:tick" && part.contains(document.activeElement)) event.preventDefault();
  };
  const busy = (event) => event.detail.target?.setAttribute("aria-busy", "true");
  const settled = (event) => {
    event.detail.target?.removeAttribute("aria-busy");
    const told = event.detail.elt?.dataset?.say;
    if (told) say(told);
    const wrong = $("[aria-invalid=true]", event.detail.elt || document);
    if (wrong) wrong.focus();
  };

  /* What cannot be loaded: the page stays, and says from when it is; once it works again that is taken back. */
  let fresh = Date.now();
  const clock = (at) => new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", timeZone: $("[data-zone]")?.value }).format(at);
  const ticked = (told) => told.requestConfig?.triggeringEvent?.type === "tollway:tick";
  const stale = (on) => $$(".live").forEach((one) => {
    one.dataset.live ??= one.textContent;
    one.classList.toggle("stale", on);
    one.textContent = on ? `from ${clock(fresh)}` : one.dataset.live;
  });
  const answered = ({ detail }) => {
    const good = detail.xhr.status > 0 && detail.xhr.status < 400;
    if (good) fresh = Date.now();
    if (ticked(detail) && detail.xhr.status) { stale(!good); if (!good) detail.target?.removeAttribute("aria-busy"); }
  };
  const unanswered = ({ detail }) => {
    detail.target?.removeAttribute("aria-busy");
    if (ticked(detail)) stale(true); else lost(detail.requestConfig);
  };
  const lost = ({ verb, path }) => {
    const box = $("#work")?.content.firstElementChild.cloneNode(true);
    if (!box) return;
    const button = $("button", box), reads = verb === "get";
    $("progress", box).remove(); $("b", box).textContent = "The gateway does not answer.";
    $(".told", box).textContent = reads ? `What is shown is from ${clock(fresh)}.` : "It is not known whether that was done: look before you send it again.";
    button.textContent = reads ? "Try again" : "Close";
    button.addEventListener("click", () => { if (reads) location.assign(path); else box.remove(); });
    box.classList.add("is-bad"); box.setAttribute("role", "alert"); $("#works").replaceChildren(box);
  };

  /* What a filter does not say is not in the address. */
  const brief = (event) => {
    if (event.detail.verb !== "get") return;
    const told = event.detail.formData;
    for (const [name, value] of [...told]) if (value === "") told.delete(name);
  };

  addEventListener("DOMContentLoaded", () => {
    const select = $$("[data-zone]");
    select.forEach((one) => {
      if (![...one.options].some((option) => option.value === browserZone)) one.add(new Option(`${browserZone} (this browser)`, browserZone));
    });
    const box = $("[data-keys]");
    if (box) box.checked = keysOn();
    document.addEventListener("click", clicked);
    document.addEventListener("change", changed);
    document.addEventListener("keydown", keys);
    document.addEventListener("htmx:beforeRequest", (event) => { hold(event); if (!event.defaultPrevented) busy(event); });
    document.addEventListener("htmx:afterSettle", settled);
    document.addEventListener("htmx:afterRequest", answered);
    document.addEventListener("htmx:sendError", unanswered);
    document.addEventListener("htmx:configRequest", brief);
    setInterval(tick, every);
    fromAddress();
  });
})();
