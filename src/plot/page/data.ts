// The trace's JSON (plot.cpp writes it) as arrays to draw from. Times are nanoseconds after the trace's first event.

export type Sparse = number[]; // [columns further, count, ...]
interface Grid { begin: number; width: number; columns: number }
interface RawLane {
  kind: "cpu" | "thread" | "loss"; number: number;
  end: number[]; length: number[]; lost?: number[]; what?: number[]; ring?: number[]; text?: string[]; merged?: number[];
}
interface Raw {
  where: string; raw_times: boolean; origin: string; duration: number; events: number; lost: number; merge_ns: number;
  facts: [string, string][]; notes: string[];
  types: { name: string; count: number; rate: Sparse }[];
  rates: Grid & { lost: Sparse };
  names: [string, number][];
  threads: { tid: number; pid: number; events: number; name: string; process: string; shown?: string }[];
  rings: { ring: number; kernel: boolean; tid: number; events: number; lost: number; buffer: string }[];
  lanes: RawLane[];
  heat: (Grid & { name: string; count: number; rows: [number, ...unknown[]][] })[];
}

// Slices of one lane, sorted by begin within a depth.
export interface Items {
  size: number;
  begin: Float64Array; end: Float64Array; what: Int32Array; ring: Int32Array; text: string[];
  merged: Map<number, [number, number]>; // of merged ones: how many, summed time
  depths: Uint32Array[]; // by depth: indices, by begin, not overlapping
  bins: Bin[]; // merged ones, by time
  match?: Uint8Array;
}
export interface Bin { begin: number; end: number; count: number; items: number[] }
export interface Loss { begin: number; end: number; lost: number }
export interface Lane {
  kind: "cpu" | "thread"; label: string; id: string; group: string; groupKey: string; number: number; lost: number; events: number;
  items: Items; losses: Loss[];
  run: [Float64Array, Float64Array] | null; // threads: when on a processor
  ticks: { at: Float64Array; lane: Lane[]; item: Uint32Array } | null; // processors: events that were recorded there
  tooDeep: number;
}
export interface Heat extends Grid { name: string; count: number; low: number; high: number; rows: { bucket: number; counts: Float64Array }[] }
export interface Model {
  raw: Raw; lanes: Lane[]; heat: Heat[];
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

function items(lane: RawLane): [Items, number] {
  const size = lane.end.length;
  const begin = new Float64Array(size), end = new Float64Array(size);
  for (let i = 0, at = 0; i < size; ++i) {
    at += lane.end[i];
    end[i] = at;
    begin[i] = at - lane.length[i];
  }
  const merged = new Map<number, [number, number]>();
  for (let i = 0, at = 0, m = lane.merged ?? []; i < m.length; i += 3) {
    at += m[i];
    merged.set(at, [m[i + 1], m[i + 2]]);
  }
  const out: Items = {
    size, begin, end, what: Int32Array.from(lane.what ?? []), ring: lane.ring ? Int32Array.from(lane.ring) : new Int32Array(size).fill(lane.number),
    text: lane.text ?? [], merged, depths: [], bins: [],
  };
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

function model(raw: Raw): Model {
  const none: RawLane = { kind: "thread", number: 0, end: [], length: [] };
  const origin = BigInt(raw.origin);
  const make = (kind: "cpu" | "thread", number: number, from: RawLane): Lane => {
    const [found, tooDeep] = items(from);
    if (raw.merge_ns) bins(found, raw.merge_ns, origin);
    const common = { kind, number, items: found, losses: [], run: null, ticks: null, tooDeep, lost: 0 };
    if (kind === "cpu") {
      const r = raw.rings[number];
      return { ...common, label: `CPU ${r.ring}`, id: r.buffer, group: "Processors", groupKey: "cpu", events: r.events };
    }
    const t = raw.threads[number];
    return { ...common, label: t.tid < 0 ? t.name : `${t.name}-${t.shown ?? t.tid}`, id: "", events: t.events,
      group: t.pid > 0 ? `${t.process || t.name} (${t.pid})` : "Other threads", groupKey: t.pid > 0 ? `p${t.pid}` : "other" };
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
  // When threads ran, as the processors saw it.
  const runs = new Map<number, [number, number][]>();
  for (const cpu of cpus.values()) {
    for (const depth of cpu.items.depths) {
      for (const i of depth) {
        const who = cpu.items.what[i];
        let list = runs.get(who);
        if (!list) runs.set(who, (list = []));
        list.push([cpu.items.begin[i], cpu.items.end[i]]);
      }
    }
  }
  for (const [who, list] of runs) {
    const lane = threads.get(who);
    if (!lane) continue;
    list.sort((a, b) => a[0] - b[0]);
    lane.run = [Float64Array.from(list, (r) => r[0]), Float64Array.from(list, (r) => r[1])];
  }
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
  // Processors by number; processes by what they did, their threads alike.
  const weight = new Map<string, number>();
  for (const t of threads.values()) weight.set(t.groupKey, (weight.get(t.groupKey) ?? 0) + t.events + t.lost);
  const lanes = [
    ...[...cpus.values()].sort((a, b) => raw.rings[a.number].ring - raw.rings[b.number].ring || a.number - b.number),
    ...[...threads.values()].sort((a, b) =>
      (a.groupKey === "other" ? 1 : 0) - (b.groupKey === "other" ? 1 : 0) ||
      (a.groupKey === b.groupKey ? b.events - a.events || a.number - b.number
        : weight.get(b.groupKey)! - weight.get(a.groupKey)! || (a.groupKey < b.groupKey ? -1 : 1))),
  ];
  const { begin, width, columns } = raw.rates;
  const total = new Float64Array(columns);
  for (const t of raw.types) dense(t.rate, columns).forEach((n, c) => (total[c] += n));
  return {
    raw, lanes, losses,
    rates: { at: Float64Array.from({ length: columns }, (_, c) => begin + c * width), width, lost: dense(raw.rates.lost, columns), total },
    order: raw.types.map((_, n) => n).sort((a, b) => raw.types[b].count - raw.types[a].count || a - b),
    heat: raw.heat.map((h) => {
      const rows = h.rows.map(([bucket, counts]) => ({ bucket, counts: dense(counts as Sparse, h.columns) }));
      return { ...h, rows, low: rows[0].bucket, high: rows[rows.length - 1].bucket + 1 };
    }).sort((a, b) => b.count - a.count),
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
