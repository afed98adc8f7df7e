// Numbers, times and colours as people read them.

export const count = (n: number) => n.toLocaleString("en-US", Number.isInteger(n) ? {} : { maximumSignificantDigits: 6 });
export const short = (n: number) =>
  n >= 1e9 ? trim(n / 1e9) + "G" : n >= 1e6 ? trim(n / 1e6) + "M" : n >= 1e3 ? trim(n / 1e3) + "k" : trim(n);
const trim = (n: number) => String(+n.toPrecision(3));

let raw = false;
export const useRawTimes = (yes: boolean) => (raw = yes);

export function time(ns: number, digits = 4) {
  const a = Math.abs(ns);
  const show = (v: number, unit: string) => +v.toPrecision(digits) + " " + unit;
  if (raw) return count(ns);
  if (a < 1e3) return show(ns, "ns");
  if (a < 1e6) return show(ns / 1e3, "µs");
  if (a < 1e9) return show(ns / 1e6, "ms");
  return show(ns / 1e9, "s");
}

// As report prints it, but to the nanosecond. BigInt: a clock may stand anywhere in 64 bits.
export function stamp(origin: string, ns: number) {
  const t = BigInt(origin) + BigInt(Math.round(ns));
  if (raw) return t.toString();
  return `${t / 1000000000n}.${(t % 1000000000n).toString().padStart(9, "0")} s`;
}

// For an axis: steps of 1, 2, 5 with `room` of them at most; labels exact to the step.
export function step(range: number, room: number) {
  const raw_step = Math.max(range / Math.max(room, 1), 1e-9);
  const ten = 10 ** Math.floor(Math.log10(raw_step));
  return ten * ([1, 2, 5, 10].find((m) => m * ten >= raw_step) ?? 10);
}
export function axisLabel(ns: number, by: number) {
  if (raw) return count(ns);
  const unit = [[1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]].find(([u]) => Math.max(Math.abs(ns), by) >= (u as number)) ?? [1, "ns"];
  const size = unit[0] as number;
  const decimals = Math.min(9, Math.max(0, -Math.floor(Math.log10(by / size) + 1e-9)));
  return (ns / size).toFixed(decimals) + " " + unit[1];
}

const parts = (c: string) => [1, 3, 5].map((i) => parseInt(c.slice(i, i + 2), 16));
export function mix(a: string, b: string, share: number) {
  const x = parts(a), y = parts(b);
  return "#" + x.map((v, i) => Math.round(v + (y[i] - v) * share).toString(16).padStart(2, "0")).join("");
}
const inks = new Map<string, string>();
export function inkOn(c: string) {
  let ink = inks.get(c);
  if (!ink) {
    const [r, g, b] = parts(c);
    inks.set(c, (ink = 0.299 * r + 0.587 * g + 0.114 * b > 140 ? "#15181b" : "#ffffff"));
  }
  return ink;
}

// Viridis: even steps of lightness. The few end is the ground's.
const viridis = ["#440154", "#482878", "#3e4989", "#31688e", "#26828e", "#1f9e89", "#35b779", "#6ece58", "#b5de2b", "#fde725"];
export function heat(share: number, dark: boolean) {
  const at = (dark ? share : 1 - share) * (viridis.length - 1);
  const n = Math.min(Math.floor(at), viridis.length - 2);
  return mix(viridis[n], viridis[n + 1], at - n);
}
