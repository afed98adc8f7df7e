// The page of `ringside plot`: one view of time over all panes; uPlot draws rates and heat maps, lanes.ts the rest.
// No text of the trace ever becomes HTML: everything goes in as textContent.
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import "./page.css";
import { Heat, Lane, Model, bucketBegin, bucketOf, dense, load, lowerBound } from "./data";
import { Hit, Lanes, Theme, View, lossMarks, ruler } from "./lanes";
import { colour, count, heat as heatColour, short, stamp, time, useRawTimes } from "./words";

const by = <T extends HTMLElement>(id: string) => document.getElementById(id) as T;
const make = (tag: string, text = "", className = "") => {
  const e = document.createElement(tag);
  e.textContent = text;
  if (className) e.className = className;
  return e;
};
const gutter = 190, mostLines = 12;

function theme(): Theme {
  const style = getComputedStyle(document.documentElement);
  const v = (name: string) => style.getPropertyValue("--" + name).trim();
  return { ink: v("ink"), soft: v("soft"), line: v("line"), faint: v("faint"), panel: v("panel"), ground: v("ground"), lost: v("lost"),
    run: v("run"), accent: v("accent"), shade: v("shade"), dark: matchMedia("(prefers-color-scheme: dark)").matches };
}

// A canvas as large as it looks, at the screen's resolution.
function fit(canvas: HTMLCanvasElement, width: number, height: number) {
  const ratio = devicePixelRatio || 1;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.width = width + "px";
    canvas.style.height = height + "px";
  }
  const c = canvas.getContext("2d")!;
  c.setTransform(ratio, 0, 0, ratio, 0, 0);
  return c;
}

// "fd: 0x3, count: 0x10 -> 0x10", "size=32 ptr=0x55": name and value where there are names.
function fields(text: string): [string, string][] {
  const out: [string, string][] = [];
  text = text.replace(/ -> (?:ret(?:urns)?=)?/, " returns=");
  const names = /(?:^|[\s,(])([A-Za-z_][\w.]*)(?:=|: )/g;
  let name = "", from = 0;
  const put = (to: number) => {
    const value = text.slice(from, to).replace(/(\s|,|\(|==>)+$/, "").trim();
    if (name || value) out.push([name, value]);
  };
  for (let m = names.exec(text); m; m = names.exec(text)) {
    put(m.index);
    name = m[1];
    from = m.index + m[0].length;
  }
  put(text.length);
  return out.length > 40 ? [["", text]] : out;
}

function start(model: Model) {
  const raw = model.raw;
  useRawTimes(raw.raw_times);
  document.title = `${raw.where} · ringside`;
  const whole = Math.max(raw.duration, 1);
  const edge = whole * 0.004;
  const full: View = { begin: -edge, end: whole + edge, top: 0 };
  const view: View = { ...full };
  const rank: number[] = [];
  model.order.forEach((type, n) => (rank[type] = n));
  let look = theme();

  const canvasOf = (id: string) => by(id).querySelector("canvas") as HTMLCanvasElement;
  const laneCanvas = canvasOf("lanes"), overview = canvasOf("overview"), rulerCanvas = canvasOf("ruler");
  const lanes = new Lanes(laneCanvas, model, rank);
  const panes = by("panes"), labels = by("labels"), tip = by("tip"), details = by("details"), hair = by("hair"), range = by("range");

  // --- the head -----------------------------------------------------------------------------------------------------------
  const ran = raw.facts.find(([label]) => label === "command")?.[1];
  by("where").textContent = ran ? `${raw.where}: ${ran}` : raw.where;
  by("where").title = by("where").textContent!;
  const chips = by("chips");
  chips.append(make("span", `${count(raw.events)} events`, "chip"), make("span", time(raw.duration), "chip"));
  const lostChip = make("span", raw.lost ? `lost ${count(raw.lost)}` : "nothing lost", raw.lost ? "chip lost" : "chip");
  lostChip.id = "lost";
  chips.append(lostChip);
  const notes = [...raw.notes];
  const tooDeep = model.lanes.reduce((s, l) => s + l.tooDeep, 0);
  if (tooDeep) notes.push(`${count(tooDeep)} slices lie deeper than 12 levels and are not drawn`);
  if (notes.length) {
    by("notes").hidden = false;
    by("notes").textContent = notes.join(" · ");
    by("notes").title = notes.join("\n");
  }
  const about = by("about"), list = make("dl");
  const facts: [string, string][] = [["source", raw.where], ...raw.facts, ["begins", raw.events ? stamp(raw.origin, 0) : "-"], ["lasts", time(raw.duration, 9)],
    ["events", `${count(raw.events)} of ${count(raw.types.length)} types`], ["lost", count(raw.lost)], ...notes.map((n) => ["note", n] as [string, string])];
  for (const [label, text] of facts) list.append(make("dt", label), make("dd", text));
  about.append(list);
  by("active").style.display = model.lanes.length > 8 ? "" : "none";

  // --- rates --------------------------------------------------------------------------------------------------------------
  const { at, width: column, lost: lostRate, total } = model.rates;
  const seconds = raw.raw_times ? 1 : column / 1e9;
  if (raw.raw_times) (document.querySelector("#rates .title") as HTMLElement).textContent = "events / column";
  // Columns are drawn at least four pixels wide: neighbours add up.
  let together = 1;
  const wanted = (columns: number, length: number, pixels: number) =>
    2 ** Math.max(0, Math.ceil(Math.log2((columns * ((view.end - view.begin) / Math.max(length, 1)) * pixels) / Math.max(areaWidth(), 1))));
  function added(counts: Float64Array, by: number) {
    const out = new Float64Array(Math.ceil(counts.length / by));
    counts.forEach((n, i) => (out[Math.floor(i / by)] += n));
    return out;
  }
  const kept = new Map<number, Float64Array>();
  function dense_(type: number) {
    let d = kept.get(type);
    if (!d) kept.set(type, (d = dense(raw.types[type].rate, at.length)));
    return d;
  }
  const lines = model.order.slice(0, mostLines);
  let logarithmic = false;
  let rates: uPlot | null = null, chart: uPlot | null = null;
  const chartBox = (id: string) => document.querySelector(`#${id} .chart`) as HTMLElement;
  const axes = (): uPlot.Axis[] => [
    { show: true, size: 0, gap: 0, ticks: { show: false }, values: () => [], grid: { show: false } },
    { size: gutter, gap: 4, stroke: look.soft, font: '11px system-ui, "DejaVu Sans", sans-serif', ticks: { show: false }, grid: { stroke: look.faint, width: 1 }, values: (_, v) => v.map((n) => (n === null ? "" : short(n))) },
  ];
  function makeRates() {
    rates?.destroy();
    const box = chartBox("rates");
    rates = new uPlot({
      width: box.clientWidth + gutter, height: box.clientHeight, padding: [6, 0, 6, 0], legend: { show: false }, cursor: { show: false },
      scales: {
        x: { time: false, range: () => [view.begin, view.end] },
        y: logarithmic ? { distr: 3, log: 10, range: (_, low, high) => [10 ** Math.floor(Math.log10(Math.max(low || 1, 1e-3))), 10 ** Math.ceil(Math.log10(Math.max(high || 1, 1)) + 1e-9)] }
          : { range: (_, __, high) => [0, Math.max(high || 0, 1e-9) * 1.08] },
      },
      axes: axes(),
      series: [{}, ...lines.map((type) => ({
        label: raw.types[type].name, stroke: colour(rank[type]), fill: colour(rank[type]) + "26", width: 1.25, points: { show: false },
        show: !lanes.hidden.has(type), paths: uPlot.paths.stepped!({ align: 1 }),
      }))],
      hooks: { draw: [(u) => {
        const p = devicePixelRatio || 1;
        u.ctx.save();
        u.ctx.scale(p, p);
        lossMarks(u.ctx, model.losses, view, look, u.bbox.left / p, u.bbox.top / p, u.bbox.width / p, u.bbox.height / p);
        u.ctx.restore();
      }] },
    }, ratesData(), box);
  }
  function ratesData() {
    together = wanted(at.length, at.length * column, 2.5);
    const xs: number[] = [];
    for (let n = 0; n < at.length; n += together) xs.push(at[n]);
    if (at.length) xs.push(xs[xs.length - 1] + column * together);
    by("rate-width").textContent = at.length && !raw.raw_times ? `in ${time(column * together, 3)}` : "";
    return [xs, ...lines.map((type) => [...Array.from(added(dense_(type), together), (n) => (n || !logarithmic ? n / seconds / together : null)), null])] as uPlot.AlignedData;
  }

  const legend = by("legend");
  model.order.forEach((type) => {
    const t = raw.types[type];
    const chip = make("button") as HTMLButtonElement, dot = make("i");
    dot.style.background = colour(rank[type]);
    chip.append(dot, make("b", t.name), make("span", count(t.count)));
    chip.title = `${t.name}: ${count(t.count)} events\nclick: hide or show · double click: this one alone`;
    chip.dataset.type = t.name;
    chip.style.order = String(rank[type]);
    chip.onclick = () => toggle(type);
    chip.ondblclick = () => {
      const alone = lanes.hidden.size === raw.types.length - 1 && !lanes.hidden.has(type);
      lanes.hidden = new Set(alone ? [] : model.order.filter((n) => n !== type));
      toggled();
    };
    legend.append(chip);
  });
  function toggle(type: number) {
    if (!lanes.hidden.delete(type)) lanes.hidden.add(type);
    toggled();
  }
  function toggled() {
    [...legend.children].forEach((chip, n) => chip.classList.toggle("off", lanes.hidden.has(model.order[n])));
    lines.forEach((type, n) => rates?.setSeries(n + 1, { show: !lanes.hidden.has(type) }));
    refresh();
  }

  // --- heat map -----------------------------------------------------------------------------------------------------------
  const choice = by<HTMLSelectElement>("heat-choice");
  let map: Heat | null = model.heat[0] ?? null;
  model.heat.forEach((h, n) => choice.append(new Option(`${h.name} (${short(h.count)})`, String(n))));
  choice.onchange = () => {
    map = model.heat[+choice.value];
    makeHeat();
    refresh();
  };
  by("heat").style.display = map ? "" : "none";
  let inks: string[] = [], heatTogether = 1;
  function drawCells(u: uPlot) {
    if (!map) return;
    const c = u.ctx, { left, top, width, height } = u.bbox;
    c.save();
    c.beginPath();
    c.rect(left, top, width, height);
    c.clip();
    heatTogether = wanted(map.columns, map.columns * map.width, 2.5);
    const k = heatTogether, wide = map.width * k;
    const from = Math.max(0, Math.floor((view.begin - map.begin) / wide)), to = Math.min(Math.ceil(map.columns / k), Math.ceil((view.end - map.begin) / wide));
    const x = (n: number) => Math.round(left + ((map!.begin + n * wide - view.begin) / (view.end - view.begin)) * width);
    const rows = map.rows.map((r) => added(r.counts, k));
    let most = 1;
    for (const counts of rows) for (let n = from; n < to; ++n) most = Math.max(most, counts[n]);
    const all = Math.log2(1 + most);
    rows.forEach((counts, r) => {
      const bucket = map!.rows[r].bucket;
      const low = Math.round(u.valToPos(bucket, "y", true)), high = Math.round(u.valToPos(bucket + 1, "y", true));
      for (let n = from; n < to; ++n) {
        if (!counts[n]) continue;
        c.fillStyle = inks[Math.round((Math.log2(1 + counts[n]) / all) * (inks.length - 1))];
        c.fillRect(x(n), high, Math.max(x(n + 1) - x(n), 1), Math.max(low - high, 1));
      }
    });
    drawScale(most);
    c.restore();
    const p = devicePixelRatio || 1;
    c.save();
    c.scale(p, p);
    lossMarks(c, model.losses, view, look, left / p, top / p, width / p, height / p);
    c.restore();
  }
  function makeHeat() {
    chart?.destroy();
    chart = null;
    if (!map) return;
    const box = chartBox("heat"), low = map.low - 1, high = map.high + 1;
    inks = Array.from({ length: 64 }, (_, n) => heatColour(n / 63, look.dark));
    const tens: number[] = [];
    for (let v = 1; v < 2 ** 64; v *= 10) if (bucketOf(v) >= low && bucketOf(v) <= high) tens.push(bucketOf(v));
    if (tens.length < 2) for (let b = Math.ceil(low / 4) * 4; b <= high; b += 4) if (b >= 0) tens.push(b);
    const [x, y] = axes();
    chart = new uPlot({
      width: box.clientWidth + gutter, height: box.clientHeight, padding: [6, 0, 6, 0], legend: { show: false }, cursor: { show: false },
      scales: { x: { time: false, range: () => [view.begin, view.end] }, y: { range: () => [low, high] } },
      axes: [x, { ...y, splits: () => [...new Set(tens)].sort((a, b) => a - b), values: (_, v) => v.map((b) => time(Math.round(bucketBegin(Math.floor(b)) * (1 + (b % 1) / (4 + (Math.floor(b) % 4)))), 3)) }],
      series: [{}, { show: false }],
      hooks: { draw: [drawCells] },
    }, [[full.begin, full.end], [null, null]] as uPlot.AlignedData, box);
  }
  function drawScale(most: number) {
    const c = fit(by<HTMLCanvasElement>("heat-scale"), 104, 26);
    c.clearRect(0, 0, 104, 26);
    inks.forEach((ink, n) => {
      c.fillStyle = ink;
      c.fillRect(n * 1.5, 0, 2, 9);
    });
    c.fillStyle = look.soft;
    c.font = '10px system-ui, "DejaVu Sans", sans-serif';
    c.textBaseline = "top";
    c.textAlign = "left";
    c.fillText("1", 0, 13);
    c.textAlign = "right";
    c.fillText(short(most), 97, 13);
  }

  // --- drawing ------------------------------------------------------------------------------------------------------------
  let due = false, onlyActive = false;
  const setActive = () => {
    onlyActive = !onlyActive;
    by("active").setAttribute("aria-pressed", String(onlyActive));
    lanes.layout();
    refresh();
  };
  const refresh = () => {
    if (due) return;
    due = true;
    requestAnimationFrame(draw);
  };
  const areaWidth = () => by("lanes").clientWidth - gutter;
  const areaHeight = () => by("lanes").clientHeight;

  function draw() {
    due = false;
    const width = areaWidth(), height = areaHeight();
    if (onlyActive) lanes.layout(view);
    by("lanes").style.maxHeight = lanes.height + 24 + "px";
    view.top = Math.max(0, Math.min(view.top, lanes.height - height));
    fit(laneCanvas, width, height);
    lanes.draw(view, look, width, height);
    ruler(fit(rulerCanvas, width, 21), view, look, width, 21);
    by("span").textContent = `${time(view.end - view.begin)} in view`;
    drawOverview(width);
    if (wanted(at.length, at.length * column, 2.5) !== together) rates?.setData(ratesData(), false);
    for (const u of [rates, chart]) u?.setScale("x", { min: view.begin, max: view.end });
    drawLabels(height);
  }

  function drawOverview(width: number) {
    const height = 45, c = fit(overview, width, height);
    c.clearRect(0, 0, width, height);
    const scale = width / (full.end - full.begin);
    let most = 1;
    const tall = new Float64Array(Math.ceil(width) + 1);
    total.forEach((n, i) => {
      const x0 = Math.floor((at[i] - full.begin) * scale), x1 = Math.max(x0 + 1, Math.floor((at[i] + column - full.begin) * scale));
      for (let x = Math.max(0, x0); x < x1 && x < tall.length; ++x) tall[x] = Math.max(tall[x], n);
      most = Math.max(most, n);
    });
    c.fillStyle = look.accent;
    c.globalAlpha = 0.6;
    tall.forEach((n, x) => n && c.fillRect(x, height - 2 - (n / most) * (height - 10), 1, (n / most) * (height - 10) + 2));
    c.globalAlpha = 1;
    lossMarks(c, model.losses, full, look, 0, 0, width, height);
    const x0 = (view.begin - full.begin) * scale, x1 = (view.end - full.begin) * scale;
    c.fillStyle = look.ground;
    c.globalAlpha = 0.72;
    c.fillRect(0, 0, x0, height);
    c.fillRect(x1, 0, width - x1, height);
    c.globalAlpha = 1;
    c.strokeStyle = look.accent;
    c.lineWidth = 1.5;
    c.strokeRect(Math.max(0.75, x0), 0.75, Math.max(2, Math.min(x1, width - 0.75) - Math.max(0.75, x0)), height - 1.5);
  }

  function drawLabels(height: number) {
    labels.replaceChildren(...lanes.visible(view, height).map((row) => {
      const e = make("div", "", row.lane ? "label" : "label group");
      e.style.top = row.top - view.top + "px";
      e.style.height = row.height + "px";
      if (row.lane) {
        e.append(make("span", row.title));
        if (row.lane.id) e.append(" ", make("small", row.lane.id));
        if (row.lane.lost) e.append(make("span", "lost " + short(row.lane.lost), "badge"));
        e.title = `${row.title}\n${count(row.lane.events)} events` + (row.lane.lost ? `, lost ${count(row.lane.lost)}` : "");
        e.classList.toggle("match", found.lanes.has(row.lane));
        e.dataset.lane = row.title;
      } else {
        e.textContent = `${lanes.folded.has(row.group) ? "▸" : "▾"} ${row.title}` + (row.size > 1 ? `  ·  ${row.size}` : "");
        e.onclick = () => {
          if (!lanes.folded.delete(row.group)) lanes.folded.add(row.group);
          lanes.layout(onlyActive ? view : null);
          refresh();
        };
      }
      return e;
    }));
    const bar = by("bar"), thumb = bar.firstElementChild as HTMLElement;
    bar.style.display = lanes.height > height ? "" : "none";
    thumb.style.height = `max(18px, ${(100 * height) / lanes.height}%)`;
    thumb.style.top = (100 * view.top) / lanes.height + "%";
  }

  // --- moving -------------------------------------------------------------------------------------------------------------
  const shortest = Math.min(20, whole);
  function show(begin: number, end: number) {
    let length = Math.min(Math.max(end - begin, shortest), full.end - full.begin);
    if (!Number.isFinite(length)) length = full.end - full.begin;
    const middle = (begin + end) / 2;
    view.begin = Math.max(full.begin, Math.min(middle - length / 2, full.end - length));
    view.end = view.begin + length;
    hideTip();
    refresh();
  }
  const zoom = (factor: number, around: number) => show(around - (around - view.begin) * factor, around + (view.end - around) * factor);
  const pan = (share: number) => show(view.begin + (view.end - view.begin) * share, view.end + (view.end - view.begin) * share);
  const timeAt = (x: number) => view.begin + ((x - panes.getBoundingClientRect().left - gutter) / areaWidth()) * (view.end - view.begin);
  function scroll(to: number) {
    view.top = to;
    hideTip();
    refresh();
  }
  function reveal(lane: Lane) {
    lanes.folded.delete(lane.groupKey);
    lanes.layout(onlyActive ? view : null);
    const row = lanes.row(lane), height = areaHeight();
    if (row && (row.top < view.top || row.top + row.height > view.top + height)) view.top = row.top - height / 3;
    refresh();
  }

  panes.addEventListener("wheel", (e) => {
    e.preventDefault();
    const lines = e.deltaMode === 1 ? 20 : e.deltaMode === 2 ? 300 : 1;
    const inGutter = e.clientX - panes.getBoundingClientRect().left < gutter;
    if (inGutter) {
      if (by("lanes").contains(e.target as Node)) scroll(view.top + e.deltaY * lines);
    } else if (e.shiftKey || Math.abs(e.deltaX) > Math.abs(e.deltaY)) {
      pan(((Math.abs(e.deltaX) > Math.abs(e.deltaY) ? e.deltaX : e.deltaY) * lines) / 1000);
    } else {
      zoom(Math.exp(Math.max(-200, Math.min(200, e.deltaY * lines)) * 0.0022), timeAt(e.clientX));
    }
  }, { passive: false });

  type Drag = { x: number; y: number; begin: number; end: number; top: number; kind: "pan" | "range" | "overview" | "scroll"; moved: boolean };
  let drag: Drag | null = null;
  panes.addEventListener("pointerdown", (e) => {
    const target = e.target as HTMLElement;
    if (e.button !== 0 || target.closest("button, select, #middle, .label.group")) return;
    const inGutter = e.clientX - panes.getBoundingClientRect().left < gutter;
    const kind = by("overview").contains(target) && !inGutter ? "overview" : inGutter ? "scroll" : e.shiftKey ? "range" : "pan";
    drag = { x: e.clientX, y: e.clientY, begin: view.begin, end: view.end, top: view.top, kind, moved: false };
    if (kind === "overview") overviewTo(e.clientX);
    panes.setPointerCapture(e.pointerId);
  });
  const overviewTo = (x: number) => {
    const t = full.begin + ((x - panes.getBoundingClientRect().left - gutter) / areaWidth()) * (full.end - full.begin);
    const half = (drag!.end - drag!.begin) / 2;
    show(t - half, t + half);
  };
  panes.addEventListener("pointermove", (e) => {
    const left = panes.getBoundingClientRect().left;
    const x = e.clientX - left;
    hair.style.display = x > gutter ? "block" : "none";
    hair.style.left = x + "px";
    if (!drag) {
      point(e);
      return;
    }
    if (Math.abs(e.clientX - drag.x) + Math.abs(e.clientY - drag.y) > 4) drag.moved = true;
    if (!drag.moved) return;
    hideTip();
    const perPixel = (drag.end - drag.begin) / areaWidth();
    if (drag.kind === "pan") {
      panes.classList.add("panning");
      view.top = drag.top - (e.clientY - drag.y);
      show(drag.begin - (e.clientX - drag.x) * perPixel, drag.end - (e.clientX - drag.x) * perPixel);
    } else if (drag.kind === "scroll") {
      scroll(drag.top - (e.clientY - drag.y));
    } else if (drag.kind === "overview") {
      overviewTo(e.clientX);
    } else {
      const a = Math.max(gutter, Math.min(x, drag.x - left)), b = Math.max(x, drag.x - left);
      range.style.display = "block";
      range.style.left = a + "px";
      range.style.width = b - a + "px";
      range.textContent = time((b - a) * perPixel);
    }
  });
  panes.addEventListener("pointerup", (e) => {
    const d = drag;
    drag = null;
    panes.classList.remove("panning");
    range.style.display = "none";
    if (!d) return;
    if (d.kind === "range" && d.moved) show(Math.min(timeAt(d.x), timeAt(e.clientX)), Math.max(timeAt(d.x), timeAt(e.clientX)));
    else if (!d.moved && d.kind === "pan") pick(hitAt(e));
  });
  panes.addEventListener("pointerleave", () => {
    hair.style.display = "none";
    hideTip();
  });
  laneCanvas.addEventListener("dblclick", (e) => {
    const hit = hitAt(e);
    if (hit?.kind === "item") focus(hit.lane, hit.item);
    else if (hit?.kind === "bin") around(hit.bin.begin, hit.bin.end);
    else if (hit?.kind === "loss") around(hit.loss.begin, hit.loss.end);
    else zoom(0.4, timeAt(e.clientX));
  });
  const around = (begin: number, end: number) => show(begin - (end - begin) * 0.6 - 5, end + (end - begin) * 0.6 + 5);
  const focus = (lane: Lane, item: number) => {
    const { begin, end } = lane.items;
    if (end[item] > begin[item]) around(begin[item], end[item]);
    else show(end[item] - (view.end - view.begin) / 10, end[item] + (view.end - view.begin) / 10);
  };

  // --- what is under the pointer ------------------------------------------------------------------------------------------
  function hitAt(e: MouseEvent): Hit | null {
    const box = laneCanvas.getBoundingClientRect();
    if (e.clientX < box.left || e.clientY < box.top || e.clientY > box.bottom) return null;
    return lanes.hit(view, areaWidth(), e.clientX - box.left, e.clientY - box.top);
  }
  const when = (begin: number, end: number) =>
    end > begin ? `${stamp(raw.origin, begin)} to ${stamp(raw.origin, end)} · ${time(end - begin, 6)}` : stamp(raw.origin, end);
  const at_ = (t: number) => `+${time(t, 7)}`;
  function card(title: string, swatch: string, where: string, rows: [string, string][]) {
    const e = make("div", "", "card"), first = make("div"), dot = make("span", "", "swatch");
    dot.style.background = swatch;
    first.append(dot, make("b", title));
    e.append(first, make("div", where, "when"));
    if (rows.length) {
      const table = make("table"), body = make("tbody");
      for (const [name, value] of rows) {
        const line = make("tr");
        line.append(make("td", name), make("td", value));
        body.append(line);
      }
      table.append(body);
      e.append(table);
    }
    return e;
  }
  function cardOf(hit: Hit): HTMLElement | null {
    if (hit.kind === "lane") return null;
    const lane = hit.lane, it = lane.items;
    if (hit.kind === "loss")
      return card(`${count(hit.loss.lost)} events lost`, look.lost, `${lane.label} · ${at_(hit.loss.begin)} · ${when(hit.loss.begin, hit.loss.end)}`,
        [["", "between the last event before and the first one after the gap"]]);
    if (hit.kind === "bin") {
      const b = hit.bin;
      return card(`${count(b.count)} merged`, look.soft, `${lane.label} · ${at_(b.begin)} · ${when(b.begin, b.end)}`, b.items.slice(0, 8).map((n) => {
        const [many, busy] = it.merged.get(n)!;
        return [lanes.name(lane, n), `${count(many)}${busy ? `, ${time(busy)} in all` : ""}`] as [string, string];
      }));
    }
    const ring = raw.rings[it.ring[hit.item]];
    const onCpu = lane.kind === "thread" && ring?.kernel ? ` · CPU ${ring.ring}` : "";
    return card(lanes.name(lane, hit.item), lanes.colour(lane, hit.item), `${lane.label}${onCpu} · ${at_(it.begin[hit.item])} · ${when(it.begin[hit.item], it.end[hit.item])}`,
      fields(it.text[hit.item] ?? ""));
  }
  function chartCard(e: MouseEvent): HTMLElement | null {
    const target = e.target as Node, t = timeAt(e.clientX);
    if (e.clientX - panes.getBoundingClientRect().left < gutter) return null;
    if (chartBox("rates").contains(target) || by("rates").contains(target)) {
      const n = Math.floor((t - (at[0] ?? 0)) / column / together) * together;
      if (!(n >= 0 && n < at.length)) return null;
      const sum = (counts: Float64Array) => counts.subarray(n, n + together).reduce((a, b) => a + b, 0);
      const rows = model.order.filter((type) => !lanes.hidden.has(type)).map((type) => [type, sum(dense_(type))]).filter(([, c]) => c)
        .sort((a, b) => b[1] - a[1]).slice(0, 10).map(([type, c]) => [raw.types[type].name, `${short(c / seconds / together)}/s  (${count(c)})`] as [string, string]);
      if (sum(lostRate)) rows.unshift(["lost", count(sum(lostRate))]);
      return card(`${count(sum(total))} events`, look.accent, `${at_(at[n])} · ${time(column * together)}`, rows);
    }
    if (map && by("heat").contains(target) && chart) {
      const y = e.clientY - chart.over.getBoundingClientRect().top;
      const bucket = Math.floor(chart.posToVal(y, "y")), n = Math.floor((t - map.begin) / map.width / heatTogether) * heatTogether;
      const many = map.rows.find((r) => r.bucket === bucket)?.counts.subarray(Math.max(0, n), Math.max(0, n + heatTogether)).reduce((a, b) => a + b, 0);
      if (!many) return null;
      return card(`${count(many)} times`, look.accent, `${at_(map.begin + n * map.width)} · ${time(map.width * heatTogether)}`,
        [[map.name, `${time(bucketBegin(bucket), 3)} to ${time(bucketBegin(bucket + 1), 3)}`]]);
    }
    return null;
  }
  function point(e: PointerEvent) {
    const hit = hitAt(e);
    const shown = hit ? cardOf(hit) : chartCard(e);
    if (!shown) {
      hideTip();
      return;
    }
    tip.replaceChildren(shown);
    tip.hidden = false;
    const { width, height } = tip.getBoundingClientRect();
    tip.style.left = (e.clientX + 16 + width > innerWidth ? Math.max(4, e.clientX - width - 12) : e.clientX + 16) + "px";
    tip.style.top = Math.max(4, Math.min(e.clientY + 14, innerHeight - height - 8)) + "px";
  }
  const hideTip = () => (tip.hidden = true);
  function pick(hit: Hit | null) {
    lanes.selected = hit?.kind === "item" ? { lane: hit.lane, item: hit.item } : null;
    const shown = hit && cardOf(hit);
    if (shown) details.replaceChildren(shown);
    else details.textContent = "Nothing chosen. Click a slice to keep its fields here.";
    refresh();
  }
  function select(lane: Lane, item: number) {
    pick({ kind: "item", lane, item });
    reveal(lane);
    const { begin, end } = lane.items;
    if (end[item] < view.begin || begin[item] > view.end) {
      const half = (view.end - view.begin) / 2, middle = (begin[item] + end[item]) / 2;
      show(middle - half, middle + half);
    }
  }
  // The next or previous one in the lane.
  function neighbour(way: 1 | -1) {
    const s = lanes.selected;
    if (!s) return;
    const { depths, begin } = s.lane.items;
    const order = depths.flatMap((d) => [...d]).sort((a, b) => begin[a] - begin[b]);
    const next = order[order.indexOf(s.item) + way];
    if (next !== undefined) select(s.lane, next);
  }

  // --- search -------------------------------------------------------------------------------------------------------------
  const search = by<HTMLInputElement>("search"), matches = by("matches");
  const found = { lanes: new Set<Lane>(), list: [] as [Lane, number][], at: -1, merged: 0 };
  function find(text: string) {
    const wanted = text.trim().toLowerCase();
    found.lanes.clear();
    found.list = [];
    found.at = -1;
    found.merged = 0;
    lanes.searching = wanted !== "";
    for (const lane of model.lanes) {
      const it = lane.items;
      it.match = undefined;
      if (!wanted) continue;
      it.match = new Uint8Array(it.size);
      const whole = lane.label.toLowerCase().includes(wanted);
      if (whole) found.lanes.add(lane);
      const names = new Map<number, boolean>();
      for (let i = 0; i < it.size; ++i) {
        let yes = names.get(it.what[i]);
        if (yes === undefined) names.set(it.what[i], (yes = lanes.name(lane, i).toLowerCase().includes(wanted)));
        if (!yes && !whole && !it.text[i]?.toLowerCase().includes(wanted)) continue;
        it.match[i] = 1;
        const many = it.merged.get(i);
        if (many) found.merged += many[0];
        else if (!whole || yes) found.list.push([lane, i]);
      }
    }
    found.list.sort((a, b) => a[0].items.begin[a[1]] - b[0].items.begin[b[1]]);
    // A name of a thread alone leads to its lane.
    const first = [...found.lanes][0];
    if (first) reveal(first);
    say();
    refresh();
  }
  function say() {
    const parts = [];
    if (found.lanes.size) parts.push(`${count(found.lanes.size)} ${found.lanes.size === 1 ? "lane" : "lanes"}`);
    if (found.list.length) parts.push(found.at >= 0 ? `${count(found.at + 1)} of ${count(found.list.length)}` : `${count(found.list.length)} found`);
    if (found.merged) parts.push(`${short(found.merged)} merged`);
    matches.textContent = lanes.searching ? parts.join(", ") || "nothing" : "";
  }
  function step(way: 1 | -1) {
    if (!found.list.length) return;
    // The first one from what is in view.
    if (found.at < 0) found.at = (lowerBound(found.list.length, (n) => found.list[n][0].items.begin[found.list[n][1]], view.begin) - (way > 0 ? 1 : 0) + found.list.length) % found.list.length;
    found.at = (found.at + way + found.list.length) % found.list.length;
    select(...found.list[found.at]);
    say();
  }
  let typing = 0;
  search.oninput = () => {
    clearTimeout(typing);
    typing = window.setTimeout(() => find(search.value), 80);
  };

  // --- keys ---------------------------------------------------------------------------------------------------------------
  const help = by<HTMLDialogElement>("help");
  const keys: [string, string, (e: KeyboardEvent) => void][] = [
    ["w +", "zoom in (wheel)", () => zoom(0.7, middle())],
    ["s -", "zoom out (wheel)", () => zoom(1 / 0.7, middle())],
    ["a ArrowLeft", "earlier (drag, Shift+wheel)", () => pan(-0.15)],
    ["d ArrowRight", "later", () => pan(0.15)],
    ["ArrowUp", "lanes up (wheel over their names)", () => scroll(view.top - 60)],
    ["ArrowDown", "lanes down", () => scroll(view.top + 60)],
    ["PageUp", "a page of lanes up", () => scroll(view.top - areaHeight() * 0.9)],
    ["PageDown", "a page of lanes down", () => scroll(view.top + areaHeight() * 0.9)],
    ["0 Home", "all of it", () => show(full.begin, full.end)],
    ["f", "zoom to what is chosen (double click)", () => lanes.selected && focus(lanes.selected.lane, lanes.selected.item)],
    [", [", "the one before in the lane", () => neighbour(-1)],
    [". ]", "the next one in the lane", () => neighbour(1)],
    ["t", "the thread that is chosen on a processor", () => {
      const s = lanes.selected;
      const lane = s?.lane.kind === "cpu" && model.lanes.find((l) => l.kind === "thread" && l.number === s.lane.items.what[s.item]);
      if (lane) reveal(lane);
    }],
    ["v", "only lanes with something in view", () => setActive()],
    ["/", "search events, threads and texts", (e) => { e.preventDefault(); search.focus(); search.select(); }],
    ["n", "next match (Enter)", () => step(1)],
    ["N", "match before (Shift+Enter)", () => step(-1)],
    ["l", "rates: logarithmic", () => setLog()],
    ["h", "next heat map", () => { if (model.heat.length) { choice.selectedIndex = (choice.selectedIndex + 1) % model.heat.length; choice.onchange!(new Event("change")); } }],
    ["i", "about the recording", () => toggleAbout()],
    ["?", "these keys", () => help.showModal()],
    ["Escape", "leave search, choose nothing", () => { search.value = ""; find(""); pick(null); }],
  ];
  let pointerAt = -1;
  panes.addEventListener("pointermove", (e) => (pointerAt = e.clientX));
  panes.addEventListener("pointerleave", () => (pointerAt = -1));
  const middle = () => {
    const left = panes.getBoundingClientRect().left + gutter;
    return pointerAt > left ? timeAt(pointerAt) : (view.begin + view.end) / 2;
  };
  const shownKey = (k: string) => k.replace(/^Arrow(.).*/, (_, c) => ({ L: "←", R: "→", U: "↑", D: "↓" })[c as "L"]!);
  for (const [names, words] of [...keys.map(([k, w]) => [k, w] as const), ["Shift+drag", "zoom to a range"] as const]) {
    const line = make("tr"), cell = make("td");
    names.split(" ").forEach((k) => cell.append(make("kbd", shownKey(k)), " "));
    line.append(cell, make("td", words));
    by("keys").append(line);
  }
  addEventListener("keydown", (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey || help.open) return;
    if (e.target === search) {
      if (e.key === "Enter") {
        clearTimeout(typing);
        if (found.at < 0) find(search.value);
        step(e.shiftKey ? -1 : 1);
      } else if (e.key === "Escape") {
        search.value = "";
        find("");
        search.blur();
      }
      return;
    }
    if ((e.target as HTMLElement).tagName === "SELECT" && e.key !== "Escape") return;
    const key = keys.find(([names]) => names.split(" ").includes(e.key));
    if (!key) return;
    if (e.key.startsWith("Arrow") || e.key.startsWith("Page")) e.preventDefault();
    key[2](e);
  });
  const setLog = () => {
    logarithmic = !logarithmic;
    by("log").setAttribute("aria-pressed", String(logarithmic));
    makeRates();
    refresh();
  };
  const toggleAbout = () => {
    about.hidden = !about.hidden;
    by("about-button").setAttribute("aria-pressed", String(!about.hidden));
  };
  by("log").onclick = setLog;
  by("active").onclick = setActive;
  by("help-button").onclick = () => help.showModal();
  by("about-button").onclick = toggleAbout;
  by("notes").onclick = toggleAbout;

  // --- and off ------------------------------------------------------------------------------------------------------------
  if (!raw.events && !raw.lost) panes.append(Object.assign(make("div", "No event is in here."), { id: "empty" }));
  const rebuild = () => {
    look = theme();
    lanes.retheme(look);
    makeRates();
    makeHeat();
    refresh();
  };
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", rebuild);
  let size = "";
  const observer = new ResizeObserver(() => {
    const now = ["lanes", "rates", "heat"].map((id) => `${by(id).clientWidth} ${by(id).clientHeight}`).join();
    if (now === size) return;
    size = now;
    rebuild();
  });
  for (const id of ["lanes", "rates", "heat"]) observer.observe(by(id));
  rebuild();
  // For tests and the console: what is shown, and where.
  Object.assign(window, {
    ringside: {
      model, view, show, lanes,
      place: (label: string, t: number) => {
        const row = lanes.rows.find((r) => r.lane?.label === label), box = laneCanvas.getBoundingClientRect();
        return row && { x: box.left + ((t - view.begin) / (view.end - view.begin)) * areaWidth(), y: box.top + row.top - view.top + 12 };
      },
      settled: () => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))),
    },
  });
  document.documentElement.dataset.ready = "yes";
}

load(by("data")).then(start).catch((e) => {
  document.documentElement.dataset.ready = "failed";
  by("details").textContent = "The page cannot be shown: " + (typeof DecompressionStream === "undefined" ? "this browser is older than 2023" : String(e));
  console.error(e);
});
