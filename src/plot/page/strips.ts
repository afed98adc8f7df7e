// What stands in a lane besides slices: the states of a thread, the curve of a counter; and the arrows of wake-ups across lanes.
import { Curve, Lane, State, States, Wakes, lowerBound } from "./data";
import { short } from "./words";
import type { Theme, View } from "./lanes";

export const stateNames = ["unknown", "running", "runnable", "preempted", "sleeping", "blocked", "stopped"];
export const stateColour = (theme: Theme, state: number) =>
  state === State.running ? theme.run : state === State.runnable ? theme.runnable : state === State.preempted ? theme.preempted
    : state === State.blocked ? theme.blocked : state === State.stopped ? theme.soft : theme.sleep;

type Scale = { view: View; width: number; x: (t: number) => number; perPixel: number };
export const scaleOf = (view: View, width: number): Scale => {
  const perPixel = (view.end - view.begin) / width;
  return { view, width, perPixel, x: (t) => (t - view.begin) / perPixel };
};

// Which part of each column of pixels each state takes, for those too short to draw by themselves: [state][column].
const shares: Float32Array[] = [];
function clear(width: number) {
  for (let s = 0; s <= State.stopped; ++s) {
    if (!shares[s] || shares[s].length < width + 1) shares[s] = new Float32Array(width + 1);
    else shares[s].fill(0);
  }
}
function share(of: Float32Array, left: number, right: number, busy: number, width: number) {
  const from = Math.max(0, left), to = Math.min(width, right);
  if (right <= left) {
    if (left >= 0 && left < width) of[Math.floor(left)] += busy;
    return;
  }
  const per = busy / (right - left);
  for (let p = Math.floor(from); p < to; ++p) of[p] += per * (Math.min(p + 1, to) - Math.max(p, from));
}

// label: what a wide one says.
export function drawStates(c: CanvasRenderingContext2D, s: States, theme: Theme, at: Scale, top: number, height: number, label: (i: number) => string, write: (text: string, from: number, to: number, y: number, ink: string) => void, inkOn: (colour: string) => string) {
  const { view, width, x, perPixel } = at;
  clear(Math.ceil(width));
  let narrow = false;
  const block = (i: number, left: number, right: number) => {
    const state = s.what[i], fill = stateColour(theme, state);
    c.fillStyle = fill;
    if (state === State.sleeping || state === State.stopped) {
      c.fillRect(left, top + height / 2 - 1, right - left, 2);
      return;
    }
    c.fillRect(left, top, right - left, height);
    if (right - left > 40) write(label(i), left, right, top + height / 2 + 0.5, inkOn(fill));
  };
  for (let n = lowerBound(s.plain.length, (k) => s.end[s.plain[k]], view.begin); n < s.plain.length; ++n) {
    const i = s.plain[n];
    if (s.begin[i] > view.end) break;
    const left = x(s.begin[i]), right = x(s.end[i]);
    if (right - left >= 2) {
      block(i, Math.max(-2, left), Math.min(width + 2, right));
      continue;
    }
    narrow = true;
    share(shares[s.what[i]], left, right, right - left, width);
  }
  for (const i of s.dense) {
    if (s.end[i] < view.begin || s.begin[i] > view.end) continue;
    narrow = true;
    share(shares[Math.max(0, s.what[i])], x(s.begin[i]), x(s.end[i]), s.merged.get(i)![1] / perPixel, width);
  }
  if (!narrow) return;
  // Running at the bottom; at least a pixel of everything that can run, or it would not be seen.
  const order = [State.running, State.preempted, State.runnable, State.blocked];
  for (let p = 0; p < width; ++p) {
    let low = top + height;
    for (const state of order) {
      const part = shares[state][p];
      if (part <= 0) continue;
      const tall = Math.min(Math.max(1.5, Math.min(1, part) * height), low - top);
      c.fillStyle = stateColour(theme, state);
      c.fillRect(p, low - tall, 1, tall);
      low -= tall;
    }
  }
}

// How much of the time a process runs, over its threads: a strip in its folded head.
export function drawRunning(c: CanvasRenderingContext2D, lanes: Lane[], theme: Theme, at: Scale, top: number, height: number) {
  const wide = Math.ceil(at.width);
  clear(wide);
  const sum = shares[State.running];
  for (const lane of lanes) {
    const s = lane.states;
    if (!s) continue;
    for (let n = lowerBound(s.plain.length, (k) => s.end[s.plain[k]], at.view.begin); n < s.plain.length && s.begin[s.plain[n]] <= at.view.end; ++n) {
      const i = s.plain[n];
      if (s.what[i] === State.running) share(sum, at.x(s.begin[i]), at.x(s.end[i]), at.x(s.end[i]) - at.x(s.begin[i]), wide);
    }
    for (const i of s.dense)
      if (s.what[i] === State.running && s.end[i] >= at.view.begin && s.begin[i] <= at.view.end) share(sum, at.x(s.begin[i]), at.x(s.end[i]), s.merged.get(i)![1] / at.perPixel, wide);
  }
  c.fillStyle = theme.run;
  for (let p = 0; p < wide; ++p) {
    if (sum[p] <= 0) continue;
    const tall = Math.max(1, Math.min(1, sum[p]) * height);
    c.fillRect(p, top + height - tall, 1, tall);
  }
}

// The values of a counter stand until the next one.
export function drawCurve(c: CanvasRenderingContext2D, curve: Curve, colour: string, theme: Theme, at: Scale, top: number, height: number) {
  const { view, width, x } = at, n = curve.at.length;
  if (!n) return;
  const low = Math.min(0, curve.lowest), high = curve.highest > low ? curve.highest : low + 1;
  const y = (v: number) => top + height - ((v - low) / (high - low)) * height;
  let i = Math.max(0, lowerBound(n, (k) => curve.at[k], view.begin) - 1);
  const from = i;
  c.beginPath();
  let last = -1;
  for (; i < n; ++i) {
    const left = x(curve.at[i] - curve.length[i]);
    if (left > width) break;
    if (last >= 0) c.lineTo(Math.min(left, width + 2), y(curve.value[last]));
    else c.moveTo(Math.max(left, -2), y(curve.value[i]));
    if (curve.count[i] > 1) {
      c.lineTo(left, y(curve.high[i]));
      c.lineTo(left, y(curve.low[i]));
    }
    c.lineTo(x(curve.at[i]), y(curve.value[i]));
    last = i;
  }
  if (last < 0) return;
  const right = i < n ? width + 2 : Math.min(width + 2, x(view.end));
  c.lineTo(right, y(curve.value[last]));
  c.strokeStyle = colour;
  c.lineWidth = 1.25;
  c.stroke();
  c.lineTo(right, y(low));
  c.lineTo(Math.max(-2, x(curve.at[from] - curve.length[from])), y(low));
  c.globalAlpha = 0.22;
  c.fillStyle = colour;
  c.fill();
  c.globalAlpha = 1;
  c.fillStyle = theme.soft;
  c.strokeStyle = theme.panel;
  c.lineWidth = 3;
  c.font = '10px system-ui, "DejaVu Sans", sans-serif';
  for (const [v, y_] of [[high, top + 5], [low, top + height - 4]]) {
    c.strokeText(short(v), 3, y_);
    c.fillText(short(v), 3, y_);
  }
  c.font = '11px system-ui, "DejaVu Sans", sans-serif';
}

// The last point at or before a time.
export function pointAt(curve: Curve, t: number): number {
  return lowerBound(curve.at.length, (k) => curve.at[k] - curve.length[k], t + 1e-6) - 1;
}

// From the thread that woke another one to that one. Few: all; else those of one thread. middle(thread): where its states stand, if
// it has a place at all; beyond the picture's edges is allowed.
export const mostArrows = 250;
export function drawWakes(c: CanvasRenderingContext2D, wakes: Wakes, chosen: number | null, all: boolean, theme: Theme, at: Scale, height: number, middle: (thread: number) => number | null) {
  const { view, x } = at;
  const first = lowerBound(wakes.at.length, (k) => wakes.at[k], view.begin);
  const last = lowerBound(wakes.at.length, (k) => wakes.at[k], view.end);
  const everyone = all && last - first <= mostArrows;
  for (const chosenOnes of [false, true]) {
    if (!everyone && !chosenOnes) continue;
    let column = -9;
    for (let n = first; n < last; ++n) {
      const mine = wakes.to[n] === chosen || wakes.from[n] === chosen;
      if (mine !== chosenOnes) continue;
      const to = middle(wakes.to[n]), px = x(wakes.at[n]);
      if (to === null) continue;
      const from = wakes.from[n] < 0 ? to - 13 : middle(wakes.from[n]) ?? to - 13;
      const inside = (y: number) => y >= -6 && y <= height + 6;
      if (!inside(from) && !inside(to)) continue;
      if (!everyone && px - column < 3) continue;
      column = px;
      c.strokeStyle = c.fillStyle = mine ? theme.accent : theme.ink;
      c.globalAlpha = mine ? 1 : 0.32;
      c.lineWidth = mine ? 1.5 : 1;
      const way = to > from ? 1 : -1, tip = to - way * 6;
      c.beginPath();
      c.moveTo(px, from);
      c.lineTo(px, tip - way * 3);
      c.stroke();
      c.beginPath();
      c.moveTo(px, tip);
      c.lineTo(px - 3.2, tip - way * 5);
      c.lineTo(px + 3.2, tip - way * 5);
      c.fill();
      c.beginPath();
      c.arc(px, from, 1.8, 0, 7);
      c.fill();
    }
  }
  c.globalAlpha = 1;
  return everyone;
}
