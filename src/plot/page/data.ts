// The trace's JSON (plot.cpp writes it) as arrays to draw from. Times are nanoseconds after the trace's first event.

export type Sparse = number[]; // [columns further, count, ...]
interface Grid { begin: number; width: number; columns: number }
interface RawLane {
  kind: "cpu" | "thread" | "loss" | "state"; number: number;
  end: number[]; length: number[]; lost?: number[]; what?: number[]; ring?: number[]; text?: string[]; waker?: number[]; merged?: number[]; stack?: number[];
}
interface RawCounter { name: string; thread: number; type: number; at: number[]; value: number[]; merged: number[] }
interface Thread { tid: number; pid: number; events: number; name: string; process: string; shown?: string; parent?: number; names?: [number | null, string][] }
interface Raw {
  where: string; raw_times: boolean; apart: number | null; origin: string; duration: number; events: number; lost: number; merge_ns: number; state_merge_ns: number;
  facts: [string, string][]; notes: string[];
  types: { name: string; count: number; rate: Sparse }[];
  rates: Grid & { lost: Sparse };
  names: [string, number][];
  threads: Thread[];
  rings: { ring: number; kernel: boolean; tid: number; events: number; lost: number; buffer: string }[];
  functions: string[]; calls: number[]; // a function and its caller's number, ...; the first call is number 1, and stands for a stack as well
  stack_counts: Grid & { rows: [number, number, Sparse][] }; // type, stack (0: left out), how often
  lanes: RawLane[]; counters: RawCounter[];
  heat: (Grid & { name: string; asked?: boolean; count: number; rows: [number, ...unknown[]][] })[];
}

// Of slices that were merged into one: how many, summed time, the longest.
export type Merged = [number, number, number];
// Slices of one lane, sorted by begin within a depth.
export interface Items {
  size: number;
  begin: Float64Array; end: Float64Array; what: Int32Array; ring: Int32Array; text: string[];
  merged: Map<number, Merged>;
  stack: Map<number, number>;
  depths: Uint32Array[]; // by depth: indices, by begin, not overlapping
  bins: Bin[]; // merged ones, by time
  match?: Uint8Array;
}
export interface Bin { begin: number; end: number; count: number; items: number[] }
export interface Loss { begin: number; end: number; lost: number }
// What a thread does, by time. Those that are not merged do not overlap.
export enum State { unknown, running, runnable, preempted, sleeping, blocked, stopped }
export interface States {
  begin: Float64Array; end: Float64Array; what: Int32Array; ring: Int32Array; waker: Int32Array; // waker: -1 an interrupt, -2 unknown
  merged: Map<number, Merged>;
  plain: Uint32Array; // those that are not merged
  dense: Uint32Array; // the others
}
export interface Curve { at: Float64Array; value: Float64Array; low: Float64Array; high: Float64Array; count: Float64Array; length: Float64Array; lowest: number; highest: number; type: number }
export interface Lane {
  kind: "cpu" | "thread" | "counter"; label: string; id: string; name: string; group: string; groupKey: string; number: number; lost: number; events: number;
  items: Items; losses: Loss[];
  states: States | null; curve: Curve | null;
  ticks: { at: Float64Array; lane: Lane[]; item: Uint32Array } | null; // processors: events that were recorded there
  tooDeep: number;
}
export interface Wakes { at: Float64Array; from: Int32Array; to: Int32Array; item: Uint32Array } // threads; the item is the woken one's state
export interface Heat extends Grid { name: string; asked?: boolean; count: number; low: number; high: number; rows: { bucket: number; counts: Float64Array }[] }
export interface Model {
  raw: Raw; lanes: Lane[]; heat: Heat[]; wakes: Wakes; byThread: Map<number, Lane>;
  rates: { at: Float64Array; width: number; lost: Float64Array; total: Float64Array };
  order: number[]; // types, the most frequent first
  losses: Loss[];
}

export const deepest = 12;

export async function load(element: Element): Promise<Model> {
  const text = atob(element.textContent!.trim());
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; ++i) bytes[i] = text.charCodeAt(i);
  element.remove();
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return model(JSON.parse(await new Response(stream).text()));
}

export function dense(counts: Sparse, columns: number): Float64Array {
  const out = new Float64Array(columns);
  for (let i = 0, column = 0; i < counts.length; i += 2) {
    column += counts[i];
    out[column] = counts[i + 1];
  }
  return out;
}

function times(lane: RawLane): [Float64Array, Float64Array, Map<number, Merged>] {
  const size = lane.end.length;
  const begin = new Float64Array(size), end = new Float64Array(size);
  for (let i = 0, at = 0; i < size; ++i) {
    at += lane.end[i];
    end[i] = at;
    begin[i] = at - lane.length[i];
  }
  const merged = new Map<number, Merged>();
  for (let i = 0, at = 0, m = lane.merged ?? []; i < m.length; i += 4) {
    at += m[i];
    merged.set(at, [m[i + 1], m[i + 2], m[i + 3]]);
  }
  return [begin, end, merged];
}

function statesOf(lane: RawLane): States {
  const [begin, end, merged] = times(lane);
  const all = Array.from({ length: begin.length }, (_, i) => i);
  return {
    begin, end, merged, what: Int32Array.from(lane.what!), ring: Int32Array.from(lane.ring!), waker: Int32Array.from(lane.waker!),
    plain: Uint32Array.from(all.filter((i) => !merged.has(i))), dense: Uint32Array.from(merged.keys()),
  };
}

function curveOf(raw: RawCounter): Curve {
  const value = Float64Array.from(raw.value), at = new Float64Array(value.length);
  for (let i = 0, t = 0; i < at.length; ++i) at[i] = t += raw.at[i];
  const low = value.slice(), high = value.slice(), count = new Float64Array(at.length).fill(1), length = new Float64Array(at.length);
  for (let i = 0, n = 0, m = raw.merged; i < m.length; i += 6) {
    n += m[i];
    [count[n], length[n], , low[n], high[n]] = m.slice(i + 1, i + 6);
  }
  return { at, value, low, high, count, length, lowest: low.reduce((a, b) => Math.min(a, b), Infinity), highest: high.reduce((a, b) => Math.max(a, b), -Infinity), type: raw.type };
}

function items(lane: RawLane): [Items, number] {
  const size = lane.end.length;
  const [begin, end, merged] = times(lane);
  const out: Items = {
    size, begin, end, what: Int32Array.from(lane.what ?? []), ring: lane.ring ? Int32Array.from(lane.ring) : new Int32Array(size).fill(lane.number),
    text: lane.text ?? [], merged, stack: new Map(), depths: [], bins: [],
  };
  for (let i = 0, at = 0, s = lane.stack ?? []; i < s.length; i += 2) out.stack.set((at += s[i]), s[i + 1]);
  // Outer slices begin first and lie above what they enclose.
  const order = Array.from({ length: size }, (_, i) => i).filter((i) => !merged.has(i));
  order.sort((a, b) => begin[a] - begin[b] || end[b] - end[a]);
  const rows: number[][] = [], free: number[] = [];
  let tooDeep = 0;
  for (const i of order) {
    let depth = 0;
    while (depth < free.length && free[depth] > begin[i]) ++depth;
    if (depth === deepest) {
      ++tooDeep;
      continue;
    }
    if (depth === free.length) rows.push([]);
    rows[depth].push(i);
    free[depth] = end[i];
  }
  out.depths = rows.map((r) => Uint32Array.from(r));
  return [out, tooDeep];
}

// Merged slices of the same stretch of time stand together.
function bins(of: Items, width: number, origin: bigint) {
  if (!of.merged.size) return;
  const offset = Number(origin % BigInt(width));
  let bin: Bin | null = null, place = -1;
  for (const i of [...of.merged.keys()].sort((a, b) => of.end[a] - of.end[b])) {
    const here = Math.floor((of.end[i] + offset) / width);
    if (!bin || here !== place) {
      of.bins.push((bin = { begin: of.begin[i], end: of.end[i], count: 0, items: [] }));
      place = here;
    }
    bin.begin = Math.max(Math.min(bin.begin, of.begin[i]), here * width - offset);
    bin.end = Math.max(bin.end, of.end[i]);
    bin.count += of.merged.get(i)![0];
    bin.items.push(i);
  }
  for (const b of of.bins) b.items.sort((x, y) => of.merged.get(y)![0] - of.merged.get(x)![0]);
}

// The names of a stack's functions, innermost first.
export function functionsOf(raw: Raw, stack: number) {
  const out: string[] = [];
  for (let n = stack; n; n = raw.calls[2 * n - 1]) out.push(raw.functions[raw.calls[2 * n - 2]]);
  return out;
}

// A thread, with its number, as it was called at a time; the last name without one.
export function label(t: Thread, at?: number): string {
  let name = t.name;
  if (at !== undefined && t.names) for (const [from, n] of t.names) if (from === null || from <= at) name = n;
  return t.tid < 0 ? name : `${name}-${t.shown ?? t.tid}`;
}

function wakesOf(threads: Map<number, Lane>): Wakes {
  const all: [number, number, number, number][] = [];
  for (const [to, { states: s }] of threads) s?.plain.forEach((i) => s.waker[i] > -2 && s.what[i] === State.runnable && all.push([s.begin[i], s.waker[i], to, i]));
  all.sort((a, b) => a[0] - b[0]);
  return { at: Float64Array.from(all, (w) => w[0]), from: Int32Array.from(all, (w) => w[1]), to: Int32Array.from(all, (w) => w[2]), item: Uint32Array.from(all, (w) => w[3]) };
}

function model(raw: Raw): Model {
  const none: RawLane = { kind: "thread", number: 0, end: [], length: [] };
  const origin = BigInt(raw.origin);
  const make = (kind: Lane["kind"], number: number, from: RawLane): Lane => {
    const [found, tooDeep] = items(from);
    if (raw.merge_ns) bins(found, raw.merge_ns, origin);
    const common = { kind, number, items: found, losses: [], states: null, curve: null, ticks: null, tooDeep, lost: 0 };
    if (kind === "cpu") {
      const r = raw.rings[number];
      return { ...common, label: `CPU ${r.ring}`, name: `CPU ${r.ring}`, id: r.buffer, group: "Processors", groupKey: "cpu", events: r.events };
    }
    const t = raw.threads[number];
    return { ...common, label: label(t), name: t.name, id: "", events: t.events, group: t.pid > 0 ? `${t.process || t.name} (${t.pid})` : "Other threads", groupKey: t.pid > 0 ? `p${t.pid}` : "other" };
  };
  const cpus = new Map<number, Lane>(), threads = new Map<number, Lane>();
  raw.rings.forEach((r, n) => {
    if (r.kernel && (r.events || r.lost)) cpus.set(n, make("cpu", n, raw.lanes.find((l) => l.kind === "cpu" && l.number === n) ?? none));
  });
  for (const l of raw.lanes) if (l.kind === "thread") threads.set(l.number, make("thread", l.number, l));
  const byTid = new Map(raw.threads.map((t, n) => [t.tid, n]));
  const threadLane = (n: number) => {
    let lane = threads.get(n);
    if (!lane) threads.set(n, (lane = make("thread", n, none)));
    return lane;
  };
  for (const l of raw.lanes) if (l.kind === "state") threadLane(l.number).states = statesOf(l);
  const losses: Loss[] = [];
  for (const l of raw.lanes) {
    if (l.kind !== "loss") continue;
    const ring = raw.rings[l.number];
    let lane = cpus.get(l.number);
    if (!lane) {
      let n = byTid.get(ring.tid);
      if (n === undefined) {
        n = raw.threads.length;
        raw.threads.push({ tid: ring.tid, pid: 0, events: 0, name: "ring " + ring.ring, process: "" });
        byTid.set(ring.tid, n);
      }
      lane = threadLane(n);
    }
    for (let i = 0, at = 0; i < l.end.length; ++i) {
      at += l.end[i];
      const loss = { begin: at - l.length[i], end: at, lost: l.lost![i] };
      lane.losses.push(loss);
      losses.push(loss);
      lane.lost += loss.lost;
    }
    lane.losses.sort((a, b) => a.begin - b.begin);
  }
  losses.sort((a, b) => a.begin - b.begin);
  // Events of the kernel, on the processor that recorded them.
  for (const [ring, cpu] of cpus) {
    const found: [number, Lane, number][] = [];
    for (const lane of threads.values())
      for (let i = 0; i < lane.items.size; ++i)
        if (lane.items.ring[i] === ring && !lane.items.merged.has(i)) found.push([lane.items.end[i], lane, i]);
    if (!found.length) continue;
    found.sort((a, b) => a[0] - b[0]);
    cpu.ticks = { at: Float64Array.from(found, (f) => f[0]), lane: found.map((f) => f[1]), item: Uint32Array.from(found, (f) => f[2]) };
  }
  // Counters stand behind their thread.
  const counters = raw.counters.map((c): Lane => {
    const curve = curveOf(c), alone = raw.counters.filter((o) => o.name === c.name).length === 1;
    const of = make("thread", c.thread, none);
    return { ...of, kind: "counter", label: alone ? c.name : `${c.name} · ${of.label}`, name: c.name, id: of.label, curve, events: curve.count.reduce((a, b) => a + b, 0) };
  });
  // Processors by number; processes by what they did, their threads alike: by events, then by the time on a processor.
  const weight = new Map<string, number>();
  const ran = new Map<Lane, number>();
  for (const t of threads.values()) {
    let sum = 0;
    t.states?.what.forEach((w, i) => (sum += w === State.running ? t.states!.merged.get(i)?.[1] ?? t.states!.end[i] - t.states!.begin[i] : 0));
    ran.set(t, sum / Math.max(raw.duration, 1));
    weight.set(t.groupKey, (weight.get(t.groupKey) ?? 0) + t.events + t.lost + ran.get(t)!);
  }
  for (const c of counters) weight.set(c.groupKey, (weight.get(c.groupKey) ?? 0) + c.events);
  const busy = (l: Lane) => {
    const t = threads.get(l.number);
    return t ? t.events + ran.get(t)! : 0;
  };
  const last = (l: Lane) => (l.groupKey === "other" ? 1 : 0);
  const lanes = [
    ...[...cpus.values()].sort((a, b) => raw.rings[a.number].ring - raw.rings[b.number].ring || a.number - b.number),
    ...[...threads.values(), ...counters].sort((a, b) =>
      last(a) - last(b) ||
      (a.groupKey !== b.groupKey ? weight.get(b.groupKey)! - weight.get(a.groupKey)! || (a.groupKey < b.groupKey ? -1 : 1)
        : a.number === b.number ? (a.kind === "counter" ? 1 : 0) - (b.kind === "counter" ? 1 : 0) : busy(b) - busy(a) || a.number - b.number)),
  ];
  const { begin, width, columns } = raw.rates;
  const total = new Float64Array(columns);
  for (const t of raw.types) dense(t.rate, columns).forEach((n, c) => (total[c] += n));
  return {
    raw, lanes, losses, byThread: threads, wakes: wakesOf(threads),
    rates: { at: Float64Array.from({ length: columns }, (_, c) => begin + c * width), width, lost: dense(raw.rates.lost, columns), total },
    order: raw.types.map((_, n) => n).filter((n) => raw.types[n].count).sort((a, b) => raw.types[b].count - raw.types[a].count || a - b),
    heat: raw.heat.map((h) => {
      const rows = h.rows.map(([bucket, counts]) => ({ bucket, counts: dense(counts as Sparse, h.columns) }));
      return { ...h, rows, low: rows[0].bucket, high: rows[rows.length - 1].bucket + 1 };
    }).sort((a, b) => (b.asked ? 1 : 0) - (a.asked ? 1 : 0) || b.count - a.count),
  };
}

// Where bucket b of a heat map begins (LogBuckets of precision 2), and the other way round (between begins: evenly).
export const bucketBegin = (b: number) => (b < 4 ? b : (4 + (b % 4)) * 2 ** (Math.floor(b / 4) - 1));
export function bucketOf(value: number) {
  if (value < 4) return value;
  const octave = Math.floor(Math.log2(value));
  return 4 * (octave - 1) + 4 * (value / 2 ** octave - 1);
}

// The first index with array[index] >= value.
export function lowerBound(size: number, at: (i: number) => number, value: number) {
  let low = 0, high = size;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (at(middle) < value) low = middle + 1;
    else high = middle;
  }
  return low;
}
