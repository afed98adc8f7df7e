// Rates of events and heat maps of durations, drawn by uPlot over the view's time.
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { Heat, Model, bucketBegin, bucketOf, dense } from "./data";
import { by, card, fit, gutter } from "./dom";
import { Lanes, Theme, View, lossMarks } from "./lanes";
import { count, heat as heatColour, short, step, time } from "./words";

const mostLines = 12;

// The value at a place between buckets.
const valueAt = (b: number) => bucketBegin(Math.floor(b)) + (bucketBegin(Math.floor(b) + 1) - bucketBegin(Math.floor(b))) * (b % 1);

// Where a heat map's axis has labels, as buckets: 1, 2, 5, 10, ... as far as they stand apart; powers of ten first.
function heatTicks(low: number, high: number, pixels: number): number[] {
  const apart = (14 * (high - low)) / Math.max(pixels, 1), out: number[] = [];
  const put = (value: number) => {
    const b = bucketOf(value);
    if (b >= low && b <= high && out.every((o) => Math.abs(o - b) >= apart)) out.push(b);
  };
  for (const first of [1, 2, 5]) for (let v = first; v < 2 ** 64; v *= 10) put(v);
  if (out.length < 2) {
    const from = bucketBegin(Math.max(0, Math.floor(low))), to = bucketBegin(Math.max(0, Math.floor(high)));
    const by = Math.max(1, step(to - from, (high - low) / apart));
    for (let v = Math.ceil(from / by) * by; v <= to; v += by) put(v);
  }
  return out.sort((a, b) => a - b);
}

export function charts(model: Model, lanes: Lanes, view: View, full: View, areaWidth: () => number, timeAt: (x: number) => number, refresh: () => void) {
  const raw = model.raw;
  let look!: Theme;
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
        label: raw.types[type].name, stroke: lanes.ofType[type], fill: lanes.ofType[type] + "26", width: 1.25, points: { show: false },
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

  // --- heat map -----------------------------------------------------------------------------------------------------------
  const choice = by<HTMLSelectElement>("heat-choice");
  let map: Heat | null = model.heat[0] ?? null;
  model.heat.forEach((h, n) => choice.append(new Option(`${h.name} (${short(h.count)})`, String(n))));
  choice.onchange = () => {
    map = model.heat[+choice.value];
    makeHeat();
    refresh();
  };
  let inks: string[] = [], labels: number[] = [], heatTogether = 1;
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
    const box = chartBox("heat");
    if (!map || !box.clientHeight) return;
    const low = map.low - 1, high = map.high + 1;
    inks = Array.from({ length: 64 }, (_, n) => heatColour(n / 63, look.dark));
    const [x, y] = axes();
    chart = new uPlot({
      width: box.clientWidth + gutter, height: box.clientHeight, padding: [6, 0, 6, 0], legend: { show: false }, cursor: { show: false },
      scales: { x: { time: false, range: () => [view.begin, view.end] }, y: { range: () => [low, high] } },
      axes: [x, { ...y, splits: (u) => (labels = heatTicks(low, high, u.bbox.height / (devicePixelRatio || 1))), values: (_, v) => v.map((b) => time(Math.round(valueAt(b)), 4)) }],
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

  function chartCard(e: MouseEvent): HTMLElement | null {
    const target = e.target as Node, t = timeAt(e.clientX);
    if (e.clientX - by("panes").getBoundingClientRect().left < gutter) return null;
    if (chartBox("rates").contains(target) || by("rates").contains(target)) {
      const n = Math.floor((t - (at[0] ?? 0)) / column / together) * together;
      if (!(n >= 0 && n < at.length)) return null;
      const sum = (counts: Float64Array) => counts.subarray(n, n + together).reduce((a, b) => a + b, 0);
      const rows = model.order.filter((type) => !lanes.hidden.has(type)).map((type) => [type, sum(dense_(type))]).filter(([, c]) => c)
        .sort((a, b) => b[1] - a[1]).slice(0, 10).map(([type, c]) => [raw.types[type].name, `${short(c / seconds / together)}/s  (${count(c)})`] as [string, string]);
      if (sum(lostRate)) rows.unshift(["lost", count(sum(lostRate))]);
      return card(`${count(sum(total))} events`, look.accent, `+${time(at[n], 7)} · ${time(column * together)}`, rows);
    }
    if (map && by("heat").contains(target) && chart) {
      const y = e.clientY - chart.over.getBoundingClientRect().top;
      const bucket = Math.floor(chart.posToVal(y, "y")), n = Math.floor((t - map.begin) / map.width / heatTogether) * heatTogether;
      const many = map.rows.find((r) => r.bucket === bucket)?.counts.subarray(Math.max(0, n), Math.max(0, n + heatTogether)).reduce((a, b) => a + b, 0);
      if (!many) return null;
      return card(`${count(many)} times`, look.accent, `+${time(map.begin + n * map.width, 7)} · ${time(map.width * heatTogether)}`,
        [[map.name, `${time(bucketBegin(bucket), 3)} to ${time(bucketBegin(bucket + 1), 3)}`]]);
    }
    return null;
  }

  return {
    at, column, total, card: chartCard,
    // For tests: where the heat map's labels stand.
    heatLabels: () => (chart ? labels.map((v) => chart!.valToPos(v, "y")) : []),
    rebuild: (theme: Theme) => {
      look = theme;
      makeRates();
      makeHeat();
    },
    draw: () => {
      if (wanted(at.length, at.length * column, 2.5) !== together) rates?.setData(ratesData(), false);
      for (const u of [rates, chart]) u?.setScale("x", { min: view.begin, max: view.end });
    },
    toggled: () => lines.forEach((type, n) => rates?.setSeries(n + 1, { show: !lanes.hidden.has(type) })),
    setLog: () => {
      logarithmic = !logarithmic;
      by("log").setAttribute("aria-pressed", String(logarithmic));
      makeRates();
      refresh();
    },
    nextHeat: () => {
      if (!model.heat.length) return;
      choice.selectedIndex = (choice.selectedIndex + 1) % model.heat.length;
      choice.onchange!(new Event("change"));
    },
  };
}
