/* Long work: files, and sums over many rows. A link with data-long becomes a row that tells rows done of all, with Cancel; without this
   file it is a link like any other. Leaving or cancelling closes the request, and the server stops. */
(() => {
  const PAINT_MS = 100, QUOTE = 34, NEWLINE = 10, ROWS = "x-tollway-rows", ABOUT = "x-tollway-rows-about";
  const $ = (id) => document.getElementById(id);
  const count = (number) => number.toLocaleString("en-US");
  const rows = (number) => `${count(number)} ${number === 1 ? "row" : "rows"}`;
  const of = (done, total, about) => (total === null ? rows(done) : `${count(done)} of ${about ? "about " : ""}${rows(total)}`);
  let running = 0;

  /* One row of work: what it is, how far, and a button that ends it or puts the row away. */
  function shown(word, cancel) {
    const box = $("work").content.firstElementChild.cloneNode(true), [what, bar, told] = ["b", "progress", ".told"].map((one) => box.querySelector(one)), button = box.querySelector("button");
    let painted = 0, over = false;
    what.textContent = word; bar.setAttribute("aria-label", word); box.setAttribute("aria-label", word);
    button.addEventListener("click", () => (over ? box.remove() : cancel()));
    box.dataset.word = word;
    for (const old of [...$("works").children]) if (old.dataset.over && old.dataset.word === word) old.remove();
    $("works").append(box);
    return {
      step(done, total, about) {
        const now = performance.now();
        if (now - painted < PAINT_MS && done !== total) return;
        painted = now; told.textContent = of(done, total, about);
        if (total) { bar.max = total; bar.value = Math.min(done, total); }
      },
      end(text, kind = "") {
        over = true; box.dataset.over = "yes"; bar.remove(); box.classList.toggle("is-bad", kind === "bad"); told.textContent = text; button.textContent = "Close";
        const say = $("say"); if (say) say.textContent = `${word}: ${text}`;
      },
      away() { over = true; box.remove(); },
    };
  }

  /* What a page says that is no file: its one sentence. */
  async function refusal(response) {
    const page = new DOMParser().parseFromString(await response.text(), "text/html");
    return page.querySelector("main [role=alert] p")?.textContent || `The gateway answered HTTP ${response.status}.`;
  }

  /* Lines of CSV, counted as they come: a line break inside quotes is none. */
  async function file(response, row) {
    const exact = response.headers.get(ROWS), about = response.headers.get(ABOUT), total = exact ?? about;
    const name = /filename="([^"]+)"/.exec(response.headers.get("content-disposition") || "")?.[1] || "tollway.csv";
    const reader = response.body.getReader(), parts = [];
    let lines = 0, quoted = false;
    for (;;) {
      const { value, done } = await reader.read();
      if (done) break;
      parts.push(value);
      for (const byte of value) { if (byte === QUOTE) quoted = !quoted; else if (byte === NEWLINE && !quoted) lines += 1; }
      row.step(Math.max(0, lines - 1), total === null ? null : Number(total), exact === null);
    }
    const found = Math.max(0, lines - 1);
    if (exact !== null && found !== Number(exact)) throw new TypeError("a part of the file is missing");
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob(parts, { type: "text/csv" })); link.download = name; link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60000);
    row.end(`${rows(found)} in ${name}`);
  }

  /* Lines of JSON: steps, then what the page shows from now on, in place of what has its id. */
  async function steps(response, row) {
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "", html = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) break;
      const lines = (rest + value).split("\n");
      rest = lines.pop();
      for (const line of lines) {
        const told = JSON.parse(line);
        if ("html" in told) html = told.html; else row.step(told.done, told.total, false);
      }
    }
    const made = new DOMParser().parseFromString(html, "text/html").body.firstElementChild;
    if (!made) throw new TypeError("it ended before its result");
    const place = $(made.id);
    if (place) place.replaceWith(document.adoptNode(made));
    const say = $("say"); if (say) say.textContent = made.textContent.trim();
    if (place) row.away(); else row.end(made.textContent.trim());
  }

  async function begin(link) {
    const stop = new AbortController(), row = shown(link.dataset.long, () => stop.abort());
    const saves = link.hasAttribute("download");
    running += 1; link.setAttribute("aria-disabled", "true");
    try {
      const response = await fetch(link.dataset.href || link.href, { signal: stop.signal });
      const kind = response.headers.get("content-type") || "";
      if (response.redirected) location.reload(); /* signed out */
      else if (kind.startsWith("text/csv")) await file(response, row);
      else if (kind.startsWith("application/x-ndjson")) await steps(response, row);
      else row.end(await refusal(response), "bad");
    } catch (error) {
      if (error.name === "AbortError") row.end(saves ? "Cancelled, nothing was saved." : "Cancelled.");
      else row.end(`It broke off before its end${saves ? ", nothing was saved" : ""}. Try again.`, "bad");
    } finally { running -= 1; link.removeAttribute("aria-disabled"); }
  }

  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-long]");
    if (!link || event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
    event.preventDefault(); event.stopPropagation();
    if (link.getAttribute("aria-disabled") !== "true") begin(link);
  }, true);
  addEventListener("beforeunload", (event) => { if (running) event.preventDefault(); });
})();
