/* The playground's stream: sends the form, reads the events, shows text and figures as they come. Without it the form works whole. */
(() => {
  const $ = (id) => document.getElementById(id);
  const PAINT_MS = 250, WHY_TRIES = 8, WHY_MS = 700;
  let stop = null;

  const ms = (value) => (value < 1000 ? `${Math.round(value)} ms` : `${(value / 1000).toFixed(2)} s`);
  const usd = (text) => { const value = Number(text); return Number.isFinite(value) ? (value === 0 ? "$0" : value >= 1 ? `$${value.toFixed(2)}` : `$${+value.toPrecision(3)}`) : text; };
  const put = (id, text) => { $(id).textContent = text; };
  const state = (word, kind = "") => { const place = $("state"); place.textContent = word; place.className = `tag ${kind}`; };

  function fresh() {
    const answer = $("answer"), text = document.createElement("p"), cursor = document.createElement("span");
    text.id = "text"; cursor.className = "cur"; cursor.setAttribute("aria-hidden", "true");
    answer.replaceChildren(text); text.append(document.createTextNode(""), cursor);
    for (const [id, word] of [["a-backend", "none"], ["a-ttft", "none"], ["a-tokens", "0"], ["a-rate", "none"], ["a-cost", "at its end"], ["a-note", ""], ["a-headers", "none yet"]]) put(id, word);
    $("a-link").hidden = true; $("answered").setAttribute("aria-busy", "true"); $("stop").hidden = false;
    return text.firstChild;
  }
  function refused(title, message) {
    const box = document.createElement("div"), bold = document.createElement("b");
    box.className = "note-box bad"; box.setAttribute("role", "alert");
    bold.textContent = title; box.append(bold, ` ${message}`);
    $("answer").replaceChildren(box); state("refused", "bad");
  }
  function heads(response) {
    const told = [...response.headers].filter(([name]) => name.startsWith("x-tollway-") || name === "retry-after");
    put("a-headers", told.map(([name, value]) => `${name}: ${value}`).join("\n") || "none");
    put("a-backend", response.headers.get("x-tollway-backend") || "none");
    const cache = response.headers.get("x-tollway-cache");
    put("a-note", cache ? `Response cache: ${cache}` : "Response cache: not asked");
    const id = response.headers.get("x-tollway-request-id");
    if (id) { $("a-link").href = `/console/requests/${id}`; $("a-link").hidden = false; }
    return id;
  }
  async function why(id) {
    for (let tries = 0; id && tries < WHY_TRIES; tries++) {
      await new Promise((done) => setTimeout(done, WHY_MS));
      const answer = await fetch(`/console/playground/-/why/${id}`, { headers: { "hx-request": "true" } });
      if (!answer.ok) continue;
      const parsed = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("why");
      if (parsed) $("why").replaceWith(document.adoptNode(parsed));
      return;
    }
  }

  async function send(form) {
    const fields = Object.fromEntries([...new FormData(form)].filter(([name]) => name !== "csrf"));
    const text = fresh(), began = performance.now();
    let first = 0, tokens = 0, whole = "", painted = 0, cost = "", failed = "";
    stop = new AbortController();
    state("waiting", "info");
    const paint = (now, last) => {
      if (!last && now - painted < PAINT_MS) return;
      painted = now; text.data = whole; put("a-tokens", tokens.toLocaleString("en-US"));
      const spent = (now - first) / 1000;
      if (first && tokens > 1 && spent > 0) put("a-rate", (tokens / spent).toFixed(1));
    };
    const take = (event) => {
      for (const line of event.split("\n")) {
        if (line.startsWith(": tollway-cost-usd ")) cost = line.slice(19).trim();
        if (!line.startsWith("data: ") || line === "data: [DONE]") continue;
        const data = JSON.parse(line.slice(6));
        if (data.error) failed = data.error.message;
        const delta = data.choices?.[0]?.delta?.content;
        if (delta) { if (!first) { first = performance.now(); put("a-ttft", ms(first - began)); state("streaming", "info"); } whole += delta; tokens += 1; }
        if (data.usage) tokens = data.usage.completion_tokens;
      }
    };
    let id = null;
    try {
      const response = await fetch(form.dataset.send, {
        method: "POST", signal: stop.signal, body: JSON.stringify(fields),
        headers: { "content-type": "application/json", "x-csrf-token": form.elements.csrf.value },
      });
      id = heads(response);
      if (!(response.headers.get("content-type") || "").startsWith("text/event-stream")) {
        const said = await response.text();
        let message = `HTTP ${response.status}`;
        try { message = JSON.parse(said).error.message; } catch { /* a page of the console */ }
        refused("Refused.", message);
        return;
      }
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      for (;;) {
        const { value, done } = await reader.read();
        if (done) break;
        const events = (rest + value).split("\n\n");
        rest = events.pop();
        events.forEach(take);
        paint(performance.now(), false);
      }
      paint(performance.now(), true);
      if (cost) put("a-cost", cost === "unknown" ? "unpriced" : usd(cost));
      if (failed) refused("Failed.", failed); else state("done", "ok");
    } catch (error) {
      if (error.name === "AbortError") { text.data = whole; state("stopped", "warn"); put("a-note", "Stopped: what was generated is charged."); }
      else refused("Not sent.", "The gateway does not answer. What you wrote is kept: try again.");
    } finally {
      stop = null; $("stop").hidden = true; $("answered").removeAttribute("aria-busy");
      document.querySelector("#answer .cur")?.remove();
      const say = $("say"); if (say) say.textContent = `Answer ${$("state").textContent}`;
      why(id);
    }
  }

  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (form.id !== "play" || event.submitter?.value === "would") return;
    event.preventDefault();
    if (!stop) send(form);
  });
  document.addEventListener("click", (event) => { if (event.target.closest("#stop")) stop?.abort(); });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") stop?.abort();
    const on = document.documentElement.dataset.keys !== "off";
    if (on && event.key === "Enter" && (event.ctrlKey || event.metaKey) && event.target.closest("#play")) { event.preventDefault(); $("play").requestSubmit(); }
  });
})();
