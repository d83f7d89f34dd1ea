/* Charts: <figure data-chart="stack|lines|burn"> holds .plot and a JSON data block:
   {x: [unix s], zone, step: s, unit: "usd"|"ms"|"n"|"tokens", series: [{label, color: "c1", data, dash?, width?, fill?}], zoom?: true,
    lines?: [{y, label, dash?}], marks?: [{x, y?, label}], now?, shade?: {x}, band?: [low, high], max?}
   Money arrives as integer nano-USD. Colours are CSS tokens, read again when the theme changes. */
(() => {
  const DAY_S = 86400, FONT = "11px Inter, system-ui, sans-serif", GROUP = "page";
  const probe = document.createElement("span");
  const colour = (token) => { probe.style.color = `var(--${token})`; return getComputedStyle(probe).color; };
  const grouped = (value) => Math.round(value).toLocaleString("en-US");
  const short = (value) => {
    for (const [unit, letter] of [[1e12, "T"], [1e9, "B"], [1e6, "M"], [1e3, "k"]]) if (Math.abs(value) >= unit) return +(value / unit).toPrecision(3) + letter;
    return grouped(value);
  };
  const usd = (nano) => {
    const value = nano / 1e9, size = Math.abs(value), sign = value < 0 ? "−" : "";
    return sign + (size === 0 ? "$0" : size >= 1 ? "$" + size.toLocaleString("en-US", { minimumFractionDigits: 2, maximumFractionDigits: 2 }) : "$" + +size.toPrecision(3));
  };
  const ms = (value) => (value < 1000 ? `${Math.round(value)} ms` : value < 9995 ? `${(value / 1000).toFixed(2)} s` : `${(value / 1000).toFixed(1)} s`);
  const axis = {
    usd: (nano) => { const v = nano / 1e9, a = Math.abs(v), s = v < 0 ? "−$" : "$"; return v === 0 ? "$0" : a >= 1e4 ? s + +(a / 1e3).toPrecision(3) + "k" : a >= 1000 ? s + a.toLocaleString("en-US") : s + +a.toPrecision(3); },
    ms: (value) => (value === 0 ? "0" : value < 1000 ? `${value} ms` : `${+(value / 1000).toFixed(1)} s`), n: short, tokens: short,
  };
  const told = { usd, ms, n: grouped, tokens: short };
  const WHOLE = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12].flatMap((zeros) => [1, 2, 5].map((one) => one * 10 ** zeros)); // steps of what is counted

  function clocks(zone) {
    const make = (options) => { const format = new Intl.DateTimeFormat("en-GB", { ...options, timeZone: zone }); return (t) => format.format(t * 1000); };
    return { day: make({ day: "numeric", month: "short" }), clock: make({ hour: "2-digit", minute: "2-digit" }) };
  }
  function element(kind, text, name) {
    const made = document.createElement(kind);
    if (text !== undefined) made.textContent = text;
    if (name) made.className = name;
    return made;
  }

  /* The box beside the cursor: series from top to bottom as drawn, and their sum. */
  function tooltip(spec, stacked, daily, time) {
    let box;
    const row = (name, ...parts) => { const made = element("div", undefined, name); made.append(...parts); return made; };
    return { hooks: {
      init: (u) => { box = element("div", undefined, "u-tip"); box.hidden = true; u.over.append(box); },
      setCursor: (u) => {
        const at = u.cursor.idx;
        box.hidden = at == null || u.cursor.left < 0 || !u.over.matches(":hover");
        if (box.hidden) return;
        const t = spec.x[at];
        box.replaceChildren(element("div", daily ? time.day(t) : `${time.day(t)}, ${time.clock(t)}`, "th"));
        let sum = 0;
        for (const series of [...spec.series].reverse()) {
          const value = series.data[at];
          if (value == null) continue;
          sum += value;
          box.append(row("tr", element("span", undefined, `dot k${(series.color || "c8").slice(1)}`), element("span", series.label), element("span", told[spec.unit](value))));
        }
        if (stacked) box.append(row("tr tt", element("span", "Total"), element("span", told[spec.unit](sum))));
        const right = u.cursor.left + 14 + box.offsetWidth > u.over.clientWidth;
        box.style.left = `${Math.max(0, right ? u.cursor.left - box.offsetWidth - 14 : u.cursor.left + 14)}px`;
        box.style.top = "6px";
      },
    } };
  }

  /* What lies over the curves: hatching after the run-out, objectives, now, marks. */
  function overlay(spec) {
    return { hooks: { draw: (u) => {
      const c = u.ctx, r = devicePixelRatio || 1, { left: L, top: T, width: W, height: H } = u.bbox;
      const x = (at) => u.valToPos(at, "x", true), y = (at) => u.valToPos(at, "y", true);
      const stroke = (token, width, dash, ...path) => { c.strokeStyle = colour(token); c.lineWidth = width * r; c.setLineDash(dash.map((n) => n * r)); c.beginPath(); c.moveTo(path[0], path[1]); c.lineTo(path[2], path[3]); c.stroke(); c.setLineDash([]); };
      const label = (text, left, base, right) => {
        const width = c.measureText(text).width + 8 * r, at = Math.min(Math.max(right ? left - width : left, L), L + W - width);
        c.fillStyle = colour("panel"); c.globalAlpha = .95; c.fillRect(at, base - 12 * r, width, 15 * r); c.globalAlpha = 1;
        c.fillStyle = colour("text"); c.textAlign = "left"; c.fillText(text, at + 4 * r, base);
      };
      c.save();
      c.font = `500 ${11 * r}px Inter, system-ui`;
      if (spec.shade) {
        const from = x(spec.shade.x);
        c.save(); c.beginPath(); c.rect(from, T, L + W - from, H); c.clip();
        c.fillStyle = colour("bad-soft"); c.globalAlpha = .6; c.fillRect(from, T, L + W - from, H); c.globalAlpha = .2;
        for (let k = from - H; k < L + W; k += 9 * r) stroke("bad-fill", 1, [], k, T + H, k + H, T);
        c.restore();
      }
      for (const line of spec.lines || []) { const at = Math.round(y(line.y)); stroke("objective", 1.5, line.dash ? [4, 4] : [], L, at, L + W, at); label(line.label, L, at - 5 * r); }
      if (spec.now) { const at = x(spec.now); stroke("text-3", 1, [2, 3], at, T, at, T + H); label("now", at - 4 * r, T + 12 * r, true); }
      for (const mark of spec.marks || []) {
        const at = x(mark.x);
        if (mark.y == null) { stroke("bad-fill", 1, [3, 3], at, T, at, T + H); label(mark.label, at + 4 * r, T + 12 * r); continue; }
        c.fillStyle = colour("bad-fill"); c.beginPath(); c.arc(at, y(mark.y), 4.5 * r, 0, 7); c.fill();
        c.strokeStyle = colour("panel"); c.lineWidth = 2 * r; c.stroke();
        label(mark.label, at + 8 * r, y(mark.y) - 8 * r);
      }
      c.restore();
    } } };
  }

  /* Dragging over a chart asks for what lies under it: from and to take the place of the range. */
  const zoomed = (spec, step) => (u) => {
    if (!spec.zoom || u.select.width < 8) return;
    const edge = (px) => new Date(Math.round(u.posToVal(px, "x") / step) * step * 1000).toISOString().replace(".000", "");
    const url = new URL(location.href), from = edge(u.select.left), to = edge(u.select.left + u.select.width);
    if (from === to) return;
    url.searchParams.delete("range"); url.searchParams.delete("after");
    url.searchParams.set("from", from); url.searchParams.set("to", to);
    location.assign(url);
  };

  function options(spec, kind, host) {
    const stacked = kind === "stack", step = spec.step || spec.x[1] - spec.x[0] || 3600, daily = step >= DAY_S;
    const at = stacked && spec.x.length > 1 ? [Math.min(spec.x[0], spec.x[1] - step), ...spec.x.slice(1)] : spec.x; // a day that is cut is as wide as the others
    const time = clocks(spec.zone || "UTC"), drawn = stacked ? [...spec.series].reverse() : spec.series;
    const bars = (series) => ({ fill: colour(series.color), stroke: colour("panel"), width: 1, points: { show: false }, paths: uPlot.paths.bars({ size: [.82, 46], radius: 0 }) });
    const alone = (u, at) => u.data[at].flatMap((value, i, all) => (value != null && all[i - 1] == null && all[i + 1] == null ? [i] : [])); // no line shows them
    const curve = (series) => ({ stroke: colour(series.color || "c1"), width: series.width || 1.75, dash: series.dash, fill: series.fill ? colour("band") : undefined, spanGaps: false, points: { show: true, size: 5, fill: colour(series.color || "c1"), filter: alone } });
    const edge = { stroke: "transparent", points: { show: false } };
    let sums = spec.x.map(() => 0);
    const stack = spec.series.map((series) => (sums = sums.map((sum, at) => sum + (series.data[at] || 0))));
    const data = stacked ? [at, ...stack.reverse()] : [spec.x, ...spec.series.map((series) => series.data), ...(spec.band || [])];
    const seen = data.slice(1).flat().filter((value) => value != null).concat((spec.lines || []).map((line) => line.y * 1.04));
    const top = spec.max || Math.max(0, ...seen) * 1.08 || 1, low = Math.min(0, ...seen), last = spec.x[spec.x.length - 1];
    const line = { stroke: colour("axis"), font: FONT, ticks: { show: false } };
    return [{
      width: host.clientWidth, height: host.clientHeight, padding: [10, 14, 0, 0], legend: { show: false },
      cursor: { y: false, points: { show: !stacked, size: 6 }, drag: { x: Boolean(spec.zoom), y: false, setScale: false }, sync: daily ? undefined : { key: GROUP } },
      scales: { x: { time: true, range: stacked ? [at[0] - step * .6, last + step * .6] : [spec.x[0], last] }, y: { range: [low, top] } },
      bands: spec.band ? [{ series: [drawn.length + 2, drawn.length + 1], fill: colour("band") }] : undefined,
      axes: [
        { ...line, grid: { show: false }, gap: 4, size: 26, space: host.clientWidth < 460 ? 58 : 70, values: (_, at) => at.map((t) => (daily || t % DAY_S === 0 && last - spec.x[0] > 2 * DAY_S ? time.day(t) : time.clock(t))) },
        { ...line, grid: { stroke: colour("grid"), width: 1 }, gap: 6, size: (_, told) => Math.max(54, 12 + 6.5 * Math.max(0, ...(told || []).map((text) => text.length))), space: 38, values: (_, at) => at.map(axis[spec.unit]), ...(spec.unit === "n" || spec.unit === "tokens" ? { incrs: WHOLE } : {}) },
      ],
      tzDate: (t) => uPlot.tzDate(new Date(t * 1000), spec.zone || "UTC"),
      series: [{}, ...drawn.map(stacked ? bars : curve), ...(spec.band ? [edge, edge] : [])],
      plugins: [tooltip(spec, stacked, daily, time), overlay(spec)],
      hooks: { setSelect: [zoomed(spec, step)] },
    }, data];
  }

  const charts = new Map();
  function build(figure) {
    const host = figure.querySelector(".plot"), spec = JSON.parse(figure.querySelector("script[type='application/json']").textContent);
    if (!spec.x.length || !host.clientWidth) return;
    const u = new uPlot(...options(spec, figure.dataset.chart, host), host);
    u.root.querySelector("canvas").setAttribute("aria-hidden", "true");
    charts.set(host, u);
  }
  const observer = new ResizeObserver((entries) => {
    for (const { target } of entries) {
      const u = charts.get(target);
      if (u && target.clientWidth && target.clientWidth !== u.width) u.setSize({ width: target.clientWidth, height: target.clientHeight });
      if (!u && target.clientWidth) build(target.closest("figure"));
    }
  });
  function draw() {
    observer.disconnect();
    charts.forEach((u) => u.destroy());
    charts.clear();
    document.querySelectorAll("figure[data-chart]").forEach((figure) => { build(figure); observer.observe(figure.querySelector(".plot")); });
  }
  addEventListener("DOMContentLoaded", async () => {
    probe.hidden = true;
    document.body.append(probe);
    await document.fonts?.ready;
    draw();
    addEventListener("tollway:theme", draw);
    document.addEventListener("htmx:afterSettle", (event) => { if (event.detail.elt?.querySelector?.("figure[data-chart]")) draw(); });  // swapped figures come without their canvases
    document.documentElement.dataset.ready = "1";
  });
})();
