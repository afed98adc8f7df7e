// The lanes: drawing what is in view, and what lies under the pointer. A row of pixels costs as many steps as it has columns, however
// many slices are in it.
import { Bin, Lane, Loss, Model, State, label, lowerBound } from "./data";
import { ofEvents, ofThreads, various } from "./colours";
import { drawCurve, drawRunning, drawStates, drawWakes, pointAt, scaleOf, stateNames } from "./strips";
import { axisLabel, inkOn, short, step } from "./words";

export interface View { begin: number; end: number; top: number }
export interface Theme { ink: string; soft: string; line: string; faint: string; panel: string; ground: string; lost: string; run: string; runnable: string; preempted: string; blocked: string; sleep: string; accent: string; shade: string; dark: boolean }
export type Hit =
  | { kind: "item"; lane: Lane; item: number }
  | { kind: "bin"; lane: Lane; bin: Bin }
  | { kind: "loss"; lane: Lane; loss: Loss }
  | { kind: "state"; lane: Lane; item: number }
  | { kind: "point"; lane: Lane; point: number }
  | { kind: "lane"; lane: Lane };
export interface Row { top: number; height: number; lane: Lane | null; group: string; title: string; size: number }

const slice = 15, states = 13, ticks = 7, densities = 11, curve = 34, head = 18;

export class Lanes {
  rows: Row[] = [];
  height = 0;
  folded = new Set<string>();
  hidden = new Set<number>(); // types
  selected: { lane: Lane; item: number; state?: boolean } | null = null;
  searching = false;
  arrows = true;
  showsAllArrows = false;
  groups = new Map<string, Lane[]>();
  private context: CanvasRenderingContext2D;
  private hatch: CanvasPattern | null = null;
  private mostInBin = 1;

  readonly ofType: string[] = []; // colours
  private ofName: string[] = [];
  private used: Float64Array = new Float64Array(); // slices, by name
  private ofThread = new Map<string, string>();
  private ofCounter = new Map<string, string>();

  constructor(private canvas: HTMLCanvasElement, private model: Model) {
    this.context = canvas.getContext("2d")!;
    for (const lane of model.lanes) {
      for (const b of lane.items.bins) this.mostInBin = Math.max(this.mostInBin, b.count);
      const group = this.groups.get(lane.groupKey);
      if (group) group.push(lane);
      else this.groups.set(lane.groupKey, [lane]);
    }
    this.chooseColours();
    // What does not fit on a large screen comes folded, the busiest processes last.
    this.layout();
    for (const row of [...this.rows].reverse()) if (!row.lane && row.group !== "cpu" && row.top > 1200) this.folded.add(row.group);
    this.layout();
  }

  // One for each name, whatever it names: a type of events, spans of that name, counters; of threads, by their names without numbers.
  private chooseColours() {
    const { raw, order, lanes } = this.model, slices = (this.used = new Float64Array(raw.names.length)), counters = lanes.filter((l) => l.kind === "counter");
    for (const lane of lanes) if (lane.kind === "thread") lane.items.what.forEach((w, i) => w >= 0 && (slices[w] += lane.items.merged.get(i)?.[0] ?? 1));
    const counts = new Map<string, number>(order.map((type) => [raw.types[type].name, raw.types[type].count]));
    raw.names.forEach(([name], n) => slices[n] && counts.set(name, Math.max(counts.get(name) ?? 0, slices[n])));
    for (const c of counters) counts.set(c.name, Math.max(counts.get(c.name) ?? 0, c.events));
    const events = ofEvents([...counts].sort((a, b) => b[1] - a[1]).map(([name]) => name));
    raw.types.forEach((t, n) => (this.ofType[n] = events.get(t.name) ?? various));
    raw.names.forEach(([name], n) => (this.ofName[n] = events.get(name) ?? various));
    for (const c of counters) this.ofCounter.set(c.name, events.get(c.name)!);
    this.ofThread = ofThreads([...lanes.filter((l) => l.kind === "thread").map((l) => l.name), ...raw.threads.map((t) => t.name)]);
  }

  // What a slice is called, and its colour.
  name(lane: Lane, item: number): string {
    const what = lane.items.what[item], raw = this.model.raw;
    if (what < 0) return "various";
    return lane.kind === "cpu" ? label(raw.threads[what], lane.items.end[item] - 1) : raw.names[what][0];
  }
  // In an event's slice the system goes without saying. A span's name is as it was written.
  label(lane: Lane, item: number) {
    const name = this.name(lane, item), what = lane.items.what[item], { raw } = this.model;
    const isEvent = lane.kind !== "cpu" && what >= 0 && name === raw.types[raw.names[what][1]]?.name;
    return isEvent ? name.slice(name.indexOf(":") + 1) : name;
  }
  colour(lane: Lane, item: number): string {
    const what = lane.items.what[item];
    return what < 0 ? various : lane.kind === "cpu" ? this.threadColour(this.model.raw.threads[what].name) : this.ofName[what];
  }
  // Those of the names that a type's slices have, the first few.
  coloursOf(type: number): string[] {
    const { raw } = this.model, own = raw.names.flatMap(([name, of], n) => (of === type && name !== raw.types[type].name && this.used[n] ? [this.ofName[n]] : []));
    return own.length ? own.slice(0, 4) : [this.ofType[type]];
  }
  threadColour = (name: string) => this.ofThread.get(name) ?? various;
  counterColour = (lane: Lane) => this.ofCounter.get(lane.name) ?? various;
  shows(lane: Lane, item: number) {
    if (lane.kind === "cpu" || !this.hidden.size) return true;
    const what = lane.items.what[item];
    return what < 0 || !this.hidden.has(this.model.raw.names[what][1]);
  }

  private heights(lane: Lane) {
    const depth = lane.items.depths.length;
    return {
      states: lane.states ? states : 0, curve: lane.kind === "counter" ? curve : 0,
      slices: lane.kind === "cpu" ? 18 : lane.kind === "counter" ? 0 : (lane.states || lane.items.bins.length ? depth : Math.max(1, depth)) * slice,
      ticks: lane.ticks ? ticks : 0, densities: lane.items.bins.length ? densities : 0,
    };
  }

  // Whether anything of a lane is in view.
  private isActive(lane: Lane, view: View) {
    const it = lane.items;
    const meets = (size: number, begin: (n: number) => number, end: (n: number) => number) => {
      const n = lowerBound(size, end, view.begin);
      return n < size && begin(n) <= view.end;
    };
    return it.depths.some((d) => meets(d.length, (n) => it.begin[d[n]], (n) => it.end[d[n]])) ||
      meets(it.bins.length, (n) => it.bins[n].begin, (n) => it.bins[n].end) ||
      meets(lane.losses.length, (n) => lane.losses[n].begin, (n) => lane.losses[n].end) ||
      (lane.curve !== null && meets(lane.curve.at.length, (n) => lane.curve!.at[n], (n) => lane.curve!.at[n])) ||
      (lane.states !== null && this.isAwake(lane, view)) ||
      (lane.ticks !== null && meets(lane.ticks.at.length, (n) => lane.ticks!.at[n], (n) => lane.ticks!.at[n]));
  }

  // Sleeping is no activity.
  private isAwake({ states: s }: Lane, view: View) {
    const awake = (i: number) => s!.what[i] !== State.sleeping && s!.end[i] >= view.begin && s!.begin[i] <= view.end;
    for (let n = lowerBound(s!.plain.length, (k) => s!.end[s!.plain[k]], view.begin); n < s!.plain.length && s!.begin[s!.plain[n]] <= view.end; ++n) if (awake(s!.plain[n])) return true;
    return s!.dense.some(awake);
  }

  // Where lanes stand; with a view: only those with something in it.
  layout(view: View | null = null) {
    this.rows = [];
    let top = 0, group = "";
    const shown = view ? this.model.lanes.filter((l) => l.kind === "cpu" || this.isActive(l, view)) : this.model.lanes;
    for (const lane of shown) {
      if (lane.groupKey !== group) {
        group = lane.groupKey;
        this.rows.push({ top, height: head, lane: null, group, title: lane.group, size: this.groups.get(group)!.length });
        top += head;
      }
      if (this.folded.has(group)) continue;
      const h = this.heights(lane);
      const height = 3 + h.states + h.curve + h.slices + h.ticks + h.densities + 2;
      this.rows.push({ top, height, lane, group, title: lane.label, size: 1 });
      top += height;
    }
    this.height = top;
  }

  visible(view: View, height: number): Row[] {
    const first = lowerBound(this.rows.length, (i) => this.rows[i].top + this.rows[i].height, view.top);
    const out: Row[] = [];
    for (let i = first; i < this.rows.length && this.rows[i].top < view.top + height; ++i) out.push(this.rows[i]);
    return out;
  }

  retheme(theme: Theme) {
    const tile = document.createElement("canvas");
    tile.width = tile.height = 8;
    const c = tile.getContext("2d")!;
    c.strokeStyle = theme.lost;
    c.lineWidth = 2;
    c.beginPath();
    for (const x of [-8, 0, 8]) c.moveTo(x, 8), c.lineTo(x + 8, 0);
    c.stroke();
    this.hatch = this.context.createPattern(tile, "repeat");
  }

  draw(view: View, theme: Theme, width: number, height: number) {
    const c = this.context, scale = width / (view.end - view.begin);
    const x = (t: number) => (t - view.begin) * scale;
    c.clearRect(0, 0, width, height);
    c.font = '11px system-ui, "DejaVu Sans", sans-serif';
    c.textBaseline = "middle";
    c.fillStyle = theme.line;
    const by = step(view.end - view.begin, width / 110);
    for (let t = Math.ceil(view.begin / by) * by; t <= view.end; t += by) c.fillRect(Math.round(x(t)), 0, 0.5, height);
    for (const row of this.visible(view, height)) {
      const top = row.top - view.top;
      if (!row.lane) {
        c.fillStyle = theme.ground;
        c.fillRect(0, top, width, row.height);
        if (this.folded.has(row.group)) drawRunning(c, this.groups.get(row.group)!, theme, scaleOf(view, width), top + 3, row.height - 5);
        continue;
      }
      c.fillStyle = theme.faint;
      c.fillRect(0, top, width, 1);
      this.drawLane(row.lane, top + 3, row.height - 5, view, theme, width, x, scale);
    }
    this.drawArrows(view, theme, width, height);
  }

  private drawArrows(view: View, theme: Theme, width: number, height: number) {
    this.showsAllArrows = false;
    if (!this.model.wakes.at.length) return;
    const places = new Map<number, number>();
    for (const row of this.rows) if (row.lane?.kind === "thread") places.set(row.lane.number, row.top - view.top + 3 + states / 2);
    const chosen = this.selected?.lane.kind === "thread" ? this.selected.lane.number : null;
    this.showsAllArrows = drawWakes(this.context, this.model.wakes, chosen, this.arrows, theme, scaleOf(view, width), height, (thread) => {
      const known = places.get(thread);
      if (known !== undefined) return known;
      const head = this.rows.find((r) => !r.lane && r.group === this.model.byThread.get(thread)?.groupKey);
      return head ? head.top - view.top + head.height / 2 : null;
    });
  }

  private drawLane(lane: Lane, top: number, height: number, view: View, theme: Theme, width: number, x: (t: number) => number, scale: number) {
    const c = this.context, h = this.heights(lane), it = lane.items;
    let y = top;
    if (lane.curve) {
      drawCurve(c, lane.curve, this.counterColour(lane), theme, scaleOf(view, width), y + 2, curve - 4);
      return;
    }
    if (lane.states) {
      const s = lane.states, raw = this.model.raw;
      c.globalAlpha = this.searching ? 0.4 : 1;
      drawStates(c, s, theme, scaleOf(view, width), y, states - 2,
        (i) => (s.what[i] === State.running && raw.rings[s.ring[i]] ? `CPU ${raw.rings[s.ring[i]].ring}` : stateNames[s.what[i]]), (...of) => this.write(...of), inkOn);
      c.globalAlpha = 1;
      if (this.selected?.lane === lane && this.selected.state) {
        const left = x(s.begin[this.selected.item]), right = x(s.end[this.selected.item]);
        this.frame(theme, left, y, Math.max(right - left, 3), states - 2);
      }
      y += h.states;
    }
    const thick = lane.kind === "cpu" ? 18 : slice;
    it.depths.forEach((depth, d) => {
      const at = y + d * thick;
      let i = lowerBound(depth.length, (n) => it.end[depth[n]], view.begin - 3 / scale);
      while (i < depth.length) {
        const item = depth[i];
        const left = x(it.begin[item]), right = x(it.end[item]);
        if (left > width) break;
        const instant = it.end[item] === it.begin[item];
        if (!this.shows(lane, item)) {
          ++i;
          continue;
        }
        const dim = this.searching && !it.match?.[item];
        c.globalAlpha = dim ? 0.18 : 1;
        const fill = this.colour(lane, item);
        c.fillStyle = fill;
        if (instant) {
          c.fillRect(Math.round(left) - 0.5, at, 1.5, thick - 2);
          if (scale > 0) c.fillRect(Math.round(left) - 1.5, at, 3.5, 4);
        } else {
          const from = Math.max(-2, left), to = Math.min(width + 2, Math.max(right, left + 1));
          c.fillRect(from, at, to - from, thick - 2);
          if (to - from > 34) this.write(this.label(lane, item), from, to, at + (thick - 1) / 2, inkOn(fill));
          else if (to - from > 3) {
            c.fillStyle = theme.panel;
            c.fillRect(to - 0.5, at, 0.5, thick - 2);
          }
        }
        if (this.selected?.lane === lane && !this.selected.state && this.selected.item === item) this.frame(theme, left, at, Math.max(right - left, 3), thick - 2);
        c.globalAlpha = 1;
        // Whatever else falls into this column of pixels would not be seen; but a match must.
        const next = view.begin + (Math.floor(Math.max(right, left) + 0.0001) + (right - left < 1 ? 1 : 0)) / scale;
        let n = i + 1;
        if (right - left < 1 && !this.searching) n = Math.max(n, lowerBound(depth.length, (k) => it.end[depth[k]], next));
        i = n;
      }
    });
    y += h.slices;
    if (lane.ticks) {
      const { at, lane: of, item } = lane.ticks;
      for (let i = lowerBound(at.length, (n) => at[n], view.begin); i < at.length && at[i] <= view.end; ) {
        if (!this.shows(of[i], item[i])) {
          ++i;
          continue;
        }
        const left = Math.floor(x(at[i]));
        c.globalAlpha = this.searching && !of[i].items.match?.[item[i]] ? 0.18 : 1;
        c.fillStyle = this.colour(of[i], item[i]);
        c.fillRect(left, y, 1.2, ticks - 1);
        i = this.searching ? i + 1 : Math.max(i + 1, lowerBound(at.length, (n) => at[n], view.begin + (left + 1) / scale));
      }
      c.globalAlpha = 1;
      y += h.ticks;
    }
    if (h.densities) this.drawBins(lane, y, view, width, x);
    this.drawLosses(lane, top, height, view, theme, width, x);
  }

  private drawBins(lane: Lane, y: number, view: View, width: number, x: (t: number) => number) {
    const c = this.context, it = lane.items, all = Math.log2(1 + this.mostInBin);
    let column = -1, most = 0;
    for (let i = lowerBound(it.bins.length, (n) => it.bins[n].end, view.begin); i < it.bins.length; ++i) {
      const b = it.bins[i];
      const left = x(b.begin), right = x(b.end);
      if (left > width) break;
      const dim = this.searching && !b.items.some((n) => it.match?.[n]);
      const tall = (densities - 1) * (0.25 + 0.75 * Math.log2(1 + b.count) / all);
      // Narrow ones: the tallest of each column.
      const here = Math.floor(left);
      if (right - left < 1.5) {
        if (here === column && tall <= most) continue;
        column = here;
        most = tall;
      }
      c.globalAlpha = dim ? 0.18 : 0.9;
      const wide = Math.max(right - left, 1);
      let from = y + densities - 1;
      const shown = b.items.filter((n) => this.shows(lane, n));
      const sum = shown.reduce((s, n) => s + it.merged.get(n)![0], 0);
      for (const n of shown) {
        const part = (tall * it.merged.get(n)![0]) / sum;
        if (part < 0.3) break;
        c.fillStyle = this.colour(lane, n);
        c.fillRect(Math.max(left, -1), from - part, Math.min(wide, width + 2), part);
        from -= part;
      }
    }
    c.globalAlpha = 1;
  }

  private drawLosses(lane: Lane, y: number, height: number, view: View, theme: Theme, width: number, x: (t: number) => number) {
    const c = this.context;
    let last = -9;
    for (const l of lane.losses) {
      if (l.end < view.begin) continue;
      if (l.begin > view.end) break;
      const left = Math.max(-2, x(l.begin)), right = Math.min(width + 2, Math.max(x(l.end), x(l.begin) + 2));
      if (right < last + 1) continue;
      last = right;
      c.fillStyle = theme.panel;
      c.globalAlpha = 0.55;
      c.fillRect(left, y, right - left, height);
      c.globalAlpha = 0.8;
      if (this.hatch) c.fillStyle = this.hatch;
      c.fillRect(left, y, right - left, height);
      c.globalAlpha = 1;
      c.fillStyle = theme.lost;
      c.fillRect(left, y, 1, height);
      c.fillRect(right - 1, y, 1, height);
      if (right - left > 70) {
        const words = "lost " + short(l.lost);
        const wide = c.measureText(words).width + 8, middle = (left + right) / 2;
        c.fillStyle = theme.panel;
        c.fillRect(middle - wide / 2, y + 1, wide, 14);
        c.fillStyle = theme.lost;
        c.fillText(words, middle - wide / 2 + 4, y + 8.5);
      }
    }
  }

  private write(text: string, from: number, to: number, y: number, ink: string) {
    const c = this.context;
    const left = Math.max(from, 0) + 4, room = Math.min(to, this.canvas.clientWidth) - left - 3;
    if (room < 22) return;
    const fits = Math.floor(room / 6);
    c.fillStyle = ink;
    if (text.length > fits) text = text.slice(0, Math.max(1, fits - 1)) + "…";
    c.fillText(text, left, y, room);
  }
  private frame(theme: Theme, left: number, top: number, width: number, height: number) {
    const c = this.context;
    c.strokeStyle = theme.ink;
    c.lineWidth = 2;
    c.strokeRect(left - 1, top - 1, width + 2, height + 2);
  }

  // What is at a place of the canvas.
  hit(view: View, width: number, px: number, py: number): Hit | null {
    const scale = width / (view.end - view.begin), near = 4 / scale;
    const t = view.begin + px / scale, at = py + view.top;
    const n = lowerBound(this.rows.length, (i) => this.rows[i].top + this.rows[i].height, at);
    const row = this.rows[n], lane = row?.lane;
    if (!lane) return null;
    const it = lane.items, h = this.heights(lane);
    let y = at - row.top - 3;
    const loss = lane.losses.find((l) => l.begin - near / 2 <= t && t <= l.end + near / 2);
    if (loss) return { kind: "loss", lane, loss };
    if (lane.curve) {
      const point = pointAt(lane.curve, t);
      return point < 0 ? { kind: "lane", lane } : { kind: "point", lane, point };
    }
    if (lane.states && y < h.states) {
      const s = lane.states, n = lowerBound(s.plain.length, (k) => s.end[s.plain[k]], t);
      if (n < s.plain.length && s.begin[s.plain[n]] <= t) return { kind: "state", lane, item: s.plain[n] };
      const dense = s.dense.find((i) => s.begin[i] - near / 4 <= t && t <= s.end[i] + near / 4);
      return dense === undefined ? { kind: "lane", lane } : { kind: "state", lane, item: dense };
    }
    y -= h.states;
    if (y < h.slices) {
      const depth = it.depths[Math.max(0, Math.floor(y / (lane.kind === "cpu" ? 18 : slice)))];
      if (depth) {
        let best = -1, distance = near;
        for (let i = lowerBound(depth.length, (k) => it.end[depth[k]], t - near); i < depth.length && it.begin[depth[i]] <= t + near; ++i) {
          const item = depth[i];
          if (!this.shows(lane, item)) continue;
          const away = t < it.begin[item] ? it.begin[item] - t : t > it.end[item] ? t - it.end[item] : 0;
          if (away < distance || best < 0) [best, distance] = [item, away];
          if (away === 0) break;
        }
        if (best >= 0) return { kind: "item", lane, item: best };
      }
    } else if (lane.ticks && y < h.slices + h.ticks) {
      const { at: times } = lane.ticks;
      const i = lowerBound(times.length, (k) => times[k], t - near);
      let best = -1;
      for (let k = i; k < times.length && times[k] <= t + near; ++k) if (best < 0 || Math.abs(times[k] - t) < Math.abs(times[best] - t)) best = k;
      if (best >= 0) return { kind: "item", lane: lane.ticks.lane[best], item: lane.ticks.item[best] };
    }
    const i = lowerBound(it.bins.length, (k) => it.bins[k].end, t - near / 4);
    if (i < it.bins.length && it.bins[i].begin <= t + near / 4) return { kind: "bin", lane, bin: it.bins[i] };
    return { kind: "lane", lane };
  }

  // Where its first slices, or its states, have their middle, from the row's top.
  middle(lane: Lane, of: "slices" | "states") {
    const h = this.heights(lane);
    return 3 + (of === "states" ? h.states / 2 : h.states + (lane.kind === "cpu" ? 9 : slice / 2));
  }
  row(lane: Lane) {
    return this.rows.find((r) => r.lane === lane);
  }
}

// Hatched stretches over another chart.
export function lossMarks(c: CanvasRenderingContext2D, losses: Loss[], view: View, theme: Theme, left: number, top: number, width: number, height: number) {
  const scale = width / (view.end - view.begin);
  let last = -9;
  c.save();
  c.beginPath();
  c.rect(left, top, width, height);
  c.clip();
  for (const l of losses) {
    if (l.end < view.begin) continue;
    if (l.begin > view.end) break;
    const from = (l.begin - view.begin) * scale, to = Math.max(from + 1.5, (l.end - view.begin) * scale);
    if (to < last + 1) continue;
    last = to;
    c.fillStyle = theme.lost;
    c.globalAlpha = 0.16;
    c.fillRect(left + from, top, to - from, height);
    c.globalAlpha = 1;
    c.fillRect(left + from, top, to - from, 3);
    c.beginPath();
    const middle = left + (from + to) / 2;
    c.moveTo(middle - 4, top);
    c.lineTo(middle + 4, top);
    c.lineTo(middle, top + 6);
    c.fill();
  }
  c.restore();
}

export function ruler(c: CanvasRenderingContext2D, view: View, theme: Theme, width: number, height: number) {
  c.clearRect(0, 0, width, height);
  c.font = '11px system-ui, "DejaVu Sans", sans-serif';
  c.textBaseline = "middle";
  c.textAlign = "center";
  const by = step(view.end - view.begin, width / 110), scale = width / (view.end - view.begin);
  for (let t = Math.ceil(view.begin / by) * by; t <= view.end; t += by) {
    const x = (t - view.begin) * scale;
    c.fillStyle = theme.line;
    c.fillRect(Math.round(x), height - 5, 1, 5);
    c.fillStyle = theme.soft;
    if (x > 18 && x < width - 18) c.fillText(axisLabel(Math.abs(t) < by / 1e6 ? 0 : t, by), x, height / 2 - 1);
  }
}
