// The tables of a range of time: slices by name, threads, processes, processors, counters, losses. Times count inside the range only.
import { Lane, Model, State, States, label, lowerBound } from "./data";
import type { Lanes } from "./lanes";
import { count, time } from "./words";

type Kind = "text" | "count" | "time" | "share" | "number";
type Cell = string | number | null;
export interface Row { cells: Cell[]; colour?: string; lane?: Lane }
export interface Table { title: string; columns: [string, Kind][]; rows: Row[]; sort: number; note: string }

// Calls use(item, how many, time inside, the longest inside) for what lies in the range; false if a merged one lies across its edge.
function each(lane: Lane, begin: number, end: number, use: (item: number, many: number, busy: number, longest: number) => void) {
  const it = lane.items;
  let exact = true;
  for (const depth of it.depths) {
    for (let n = lowerBound(depth.length, (k) => it.end[depth[k]], begin); n < depth.length; ++n) {
      const i = depth[n];
      if (it.begin[i] > end) break;
      const inside = Math.min(it.end[i], end) - Math.max(it.begin[i], begin);
      if (inside > 0 || it.end[i] === it.begin[i]) use(i, 1, inside, inside);
    }
  }
  for (const [i, [many, busy, longest]] of it.merged) {
    if (it.end[i] < begin || it.begin[i] > end) continue;
    exact &&= it.begin[i] >= begin && it.end[i] <= end;
    if (it.end[i] <= end) use(i, many, busy, longest);
  }
  return exact;
}

export interface Spent { time: number[]; runs: number; exact: boolean } // time: by state
export function spent(s: States, begin: number, end: number): Spent {
  const out: Spent = { time: new Array(State.stopped + 1).fill(0), runs: 0, exact: true };
  for (let n = lowerBound(s.plain.length, (k) => s.end[s.plain[k]], begin); n < s.plain.length; ++n) {
    const i = s.plain[n];
    if (s.begin[i] >= end) break;
    out.time[s.what[i]] += Math.max(0, Math.min(s.end[i], end) - Math.max(s.begin[i], begin));
    if (s.what[i] === State.running) ++out.runs;
  }
  for (const i of s.dense) {
    if (s.end[i] < begin || s.begin[i] > end) continue;
    const [many, busy] = s.merged.get(i)!;
    out.exact &&= s.begin[i] >= begin && s.end[i] <= end;
    if (s.end[i] > end) continue;
    out.time[Math.max(0, s.what[i])] += busy;
    if (s.what[i] === State.running) out.runs += many;
  }
  return out;
}

const about = "merged slices across the edge count where they end";

function slices(model: Model, lanes: Lanes, begin: number, end: number): Table {
  const sums = new Map<number, { many: number; busy: number; longest: number; exact: number; lane: Lane; item: number }>();
  let exact = true;
  for (const lane of model.lanes) {
    if (lane.kind !== "thread") continue;
    exact = each(lane, begin, end, (item, many, busy, longest) => {
      if (!lanes.shows(lane, item)) return;
      const what = lane.items.what[item];
      let s = sums.get(what);
      if (!s) sums.set(what, (s = { many: 0, busy: 0, longest: 0, exact: 1, lane, item }));
      s.many += many;
      s.busy += busy;
      s.longest = Math.max(s.longest, longest);
    }) && exact;
  }
  const rows = [...sums.values()].map((s): Row => ({ cells: [lanes.name(s.lane, s.item), s.many, s.busy || null, s.busy ? s.busy / s.many : null, s.busy ? s.longest : null], colour: lanes.colour(s.lane, s.item) }));
  return { title: "Slices", columns: [["name", "text"], ["count", "count"], ["sum", "time"], ["mean", "time"], ["max", "time"]], rows, sort: 2, note: exact ? "" : about };
}

function threads(model: Model, lanes: Lanes, begin: number, end: number, byProcess: boolean): Table {
  const known = model.lanes.some((l) => l.states), length = Math.max(end - begin, 1);
  const groups = new Map<string, { first: Lane; time: number[]; runs: number; events: number; threads: number; states: boolean }>();
  let exact = true;
  for (const lane of model.lanes) {
    if (lane.kind !== "thread") continue;
    let events = 0;
    exact = each(lane, begin, end, (_, many) => (events += many)) && exact;
    const in_ = lane.states && spent(lane.states, begin, end);
    if (in_ && !in_.exact) exact = false;
    const key = byProcess ? lane.groupKey : String(lane.number);
    let g = groups.get(key);
    if (!g) groups.set(key, (g = { first: lane, time: new Array(State.stopped + 1).fill(0), runs: 0, events: 0, threads: 0, states: false }));
    in_?.time.forEach((t, n) => (g!.time[n] += t));
    g.runs += in_?.runs ?? 0;
    g.events += events;
    g.threads += 1;
    g.states ||= in_ !== null;
  }
  const columns: [string, Kind][] = byProcess ? [["process", "text"], ["threads", "count"], ["events", "count"]] : [["thread", "text"], ["process", "text"], ["events", "count"]];
  if (known) columns.push(["running", "time"], ["of a CPU", "share"], ["runs", "count"], ["runnable", "time"], ["preempted", "time"], ["blocked", "time"], ["sleeping", "time"]);
  const rows = [...groups.values()].filter((g) => g.events || g.time.some((t) => t)).map((g): Row => {
    const name = g.first.name, cells: Cell[] = byProcess ? [g.first.group, g.threads, g.events] : [g.first.label, g.first.group, g.events];
    const t = g.time;
    if (known) cells.push(...(g.states ? [t[State.running], t[State.running] / length, g.runs, t[State.runnable], t[State.preempted], t[State.blocked], t[State.sleeping]] : [null, null, null, null, null, null, null]));
    return { cells, colour: byProcess ? undefined : lanes.threadColour(name), lane: g.first };
  });
  return { title: byProcess ? "Processes" : "Threads", columns, rows, sort: known ? 3 : 2, note: exact ? "" : about };
}

function processors(model: Model, begin: number, end: number): Table {
  let exact = true;
  const rows = model.lanes.filter((l) => l.kind === "cpu").map((lane): Row => {
    let busy = 0, runs = 0, longest = 0;
    exact = each(lane, begin, end, (_, many, time, most) => {
      busy += time;
      runs += many;
      longest = Math.max(longest, most);
    }) && exact;
    const lost = lane.losses.filter((l) => l.end >= begin && l.begin <= end).reduce((s, l) => s + l.lost, 0);
    return { cells: [lane.label + (lane.id ? ` ${lane.id}` : ""), busy, busy / Math.max(end - begin, 1), runs, runs ? busy / runs : null, runs ? longest : null, lost], lane };
  });
  return { title: "Processors", columns: [["processor", "text"], ["busy", "time"], ["share", "share"], ["runs", "count"], ["mean run", "time"], ["max run", "time"], ["lost", "count"]], rows, sort: -1, note: exact ? "" : about };
}

function counters(model: Model, lanes: Lanes, begin: number, end: number): Table {
  const rows: Row[] = [];
  for (const lane of model.lanes) {
    const c = lane.curve;
    if (!c) continue;
    const from = lowerBound(c.at.length, (k) => c.at[k], begin), to = lowerBound(c.at.length, (k) => c.at[k] - c.length[k], end + 1e-6);
    const before = from > 0 ? c.value[from - 1] : null;
    let low = before ?? Infinity, high = before ?? -Infinity, changes = 0, area = 0, known = 0, t = before === null ? NaN : begin, v = before ?? 0;
    for (let n = from; n < to; ++n) {
      low = Math.min(low, c.low[n]);
      high = Math.max(high, c.high[n]);
      changes += c.count[n];
      if (!Number.isNaN(t)) area += v * (c.at[n] - t), known += c.at[n] - t;
      [t, v] = [c.at[n], c.value[n]];
    }
    if (!Number.isNaN(t)) area += v * (end - t), known += end - t;
    if (high === -Infinity) continue;
    rows.push({ cells: [lane.name, label(model.raw.threads[lane.number]), changes, before ?? c.value[from], v, low, high, known > 0 ? area / known : null], colour: lanes.counterColour(lane), lane });
  }
  return { title: "Counters", columns: [["counter", "text"], ["thread", "text"], ["changes", "count"], ["first", "number"], ["last", "number"], ["min", "number"], ["max", "number"], ["mean over time", "number"]], rows, sort: -1, note: "" };
}

function losses(model: Model, begin: number, end: number): Table {
  const rows = model.lanes.map((lane): Row => {
    const here = lane.losses.filter((l) => l.end >= begin && l.begin <= end);
    return { cells: [lane.label, here.length, here.reduce((s, l) => s + l.lost, 0), here.reduce((s, l) => s + Math.max(0, Math.min(l.end, end) - Math.max(l.begin, begin)), 0), here.reduce((m, l) => Math.max(m, l.end - l.begin), 0)], lane };
  }).filter((r) => r.cells[1]);
  return { title: "Losses", columns: [["where", "text"], ["gaps", "count"], ["lost", "count"], ["time", "time"], ["longest", "time"]], rows, sort: 2, note: rows.length ? "a gap counts whole, even if the range cuts it" : "" };
}

export function tables(model: Model, lanes: Lanes, begin: number, end: number): Table[] {
  const any = (kind: Lane["kind"]) => model.lanes.some((l) => l.kind === kind);
  return [
    slices(model, lanes, begin, end), threads(model, lanes, begin, end, false), threads(model, lanes, begin, end, true),
    ...(any("cpu") ? [processors(model, begin, end)] : []), ...(any("counter") ? [counters(model, lanes, begin, end)] : []),
    ...(model.losses.length ? [losses(model, begin, end)] : []),
  ];
}

export function sorted(table: Table, column: number, down: boolean): Row[] {
  if (column < 0) return table.rows;
  const rank = (a: Cell, b: Cell) => (a === b ? 0 : a === null ? -1 : b === null ? 1 : a < b ? -1 : 1);
  const other = column === 1 ? 0 : 1;
  return [...table.rows].sort((a, b) => (down ? -1 : 1) * rank(a.cells[column], b.cells[column]) || rank(b.cells[other], a.cells[other]));
}

export const shownCell = (cell: Cell, kind: Kind): string =>
  cell === null || (cell === 0 && kind === "time") ? "–" : typeof cell === "string" ? cell : kind === "time" ? time(cell) : kind === "share" ? (cell * 100).toFixed(1) + " %" : kind === "number" ? String(+cell.toPrecision(9)) : count(cell);

// Times in ns, shares as parts of 1. A text that a spreadsheet would calculate gets an apostrophe.
export function csv(table: Table, rows: Row[]): string {
  const text = (cell: Cell) => {
    if (cell === null) return "";
    if (typeof cell === "number") return String(cell);
    const plain = /^[=+\-@\t\r]/.test(cell) ? "'" + cell : cell;
    return /[",\n\r]/.test(plain) ? `"${plain.replace(/"/g, '""')}"` : plain;
  };
  return [table.columns.map(([name, kind]) => (kind === "time" ? name + " (ns)" : name)), ...rows.map((r) => r.cells)].map((line) => line.map(text).join(",")).join("\n") + "\n";
}
