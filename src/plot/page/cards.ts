// What a place of the lanes says, under the pointer and when it is chosen.
import { Lane, Model, State, functionsOf, label } from "./data";
import { card, fields } from "./dom";
import type { Hit, Lanes, Theme } from "./lanes";
import { stateColour, stateNames } from "./strips";
import { count, stamp, time } from "./words";

const meaning: Record<number, string> = {
  [State.runnable]: "woken, and waits for a CPU", [State.preempted]: "taken off its CPU although it could run", [State.sleeping]: "waits, can be interrupted",
  [State.blocked]: "waits and takes no signal: most often for a disk", [State.stopped]: "stopped by a signal or a tracer",
};

export function cards(model: Model, lanes: Lanes, look: () => Theme) {
  const raw = model.raw;
  const when = (begin: number, end: number) => (end > begin ? `${stamp(raw.origin, begin)} to ${stamp(raw.origin, end)} · ${time(end - begin, 6)}` : stamp(raw.origin, end));
  const plus = (t: number) => `+${time(t, 7)}`;
  const cpu = (ring: number) => (raw.rings[ring] ? `CPU ${raw.rings[ring].ring}` : "");

  function wokenBy(lane: Lane, i: number): [string, string][] {
    const s = lane.states!, waker = s.waker[i];
    if (s.what[i] !== State.runnable || waker < -1 || s.merged.has(i)) return [];
    return [["woken by", `${waker < 0 ? "an interrupt" : label(raw.threads[waker], s.begin[i])} on ${cpu(s.ring[i])}`]];
  }
  function ofState(lane: Lane, i: number) {
    const s = lane.states!, state = Math.max(0, s.what[i]), rows: [string, string][] = [];
    if (s.merged.has(i)) {
      const [many, busy, longest] = s.merged.get(i)!;
      rows.push(["merged", count(many)], ["time", time(busy)], ["longest", time(longest)]);
      return card(s.what[i] < 0 ? "various states" : stateNames[state], stateColour(look(), state), `${lane.label} · ${plus(s.begin[i])} · ${when(s.begin[i], s.end[i])}`, rows);
    }
    if (meaning[state]) rows.push(["", meaning[state]]);
    rows.push(...wokenBy(lane, i));
    const n = s.plain.indexOf(i), before = s.plain[n - 1], after = s.plain[n + 1];
    if (state === State.running) {
      rows.push(["on", cpu(s.ring[i])]);
      if (before !== undefined && s.end[before] === s.begin[i] && (s.what[before] === State.runnable || s.what[before] === State.preempted)) {
        rows.push(["waited for it", time(s.end[before] - s.begin[before], 6)], ...wokenBy(lane, before));
      }
    }
    if (after !== undefined && s.begin[after] === s.end[i]) {
      if (state === State.sleeping || state === State.blocked) rows.push(...wokenBy(lane, after));
      rows.push(["then", stateNames[s.what[after]] + (s.what[after] === State.running ? " on " + cpu(s.ring[after]) : "")]);
    }
    return card(stateNames[state], stateColour(look(), state), `${lane.label} · ${plus(s.begin[i])} · ${when(s.begin[i], s.end[i])}`, rows);
  }

  return (hit: Hit): HTMLElement | null => {
    if (hit.kind === "lane") return null;
    const lane = hit.lane, it = lane.items;
    if (hit.kind === "state") return ofState(lane, hit.item);
    if (hit.kind === "point") {
      const c = lane.curve!, n = hit.point, many = c.count[n];
      return card(`${lane.name}: ${count(c.value[n])}`, lanes.counterColour(lane), `${label(raw.threads[lane.number])} · ${plus(c.at[n])} · ${stamp(raw.origin, c.at[n])}`,
        many > 1 ? [["merged", count(many)], ["lowest", count(c.low[n])], ["highest", count(c.high[n])], ["within", time(c.length[n])]] : []);
    }
    if (hit.kind === "loss")
      return card(`${count(hit.loss.lost)} events lost`, look().lost, `${lane.label} · ${plus(hit.loss.begin)} · ${when(hit.loss.begin, hit.loss.end)}`,
        [["", "between the last event before and the first one after the gap"]]);
    if (hit.kind === "bin") {
      const b = hit.bin;
      return card(`${count(b.count)} merged`, look().soft, `${lane.label} · ${plus(b.begin)} · ${when(b.begin, b.end)}`, b.items.slice(0, 8).map((n) => {
        const [many, busy] = it.merged.get(n)!;
        return [lanes.name(lane, n), `${count(many)}${busy ? `, ${time(busy)} in all` : ""}`] as [string, string];
      }));
    }
    const ring = raw.rings[it.ring[hit.item]];
    const onCpu = lane.kind === "thread" && ring?.kernel ? ` · CPU ${ring.ring}` : "";
    return card(lanes.name(lane, hit.item), lanes.colour(lane, hit.item), `${lane.label}${onCpu} · ${plus(it.begin[hit.item])} · ${when(it.begin[hit.item], it.end[hit.item])}`, fields(it.text[hit.item] ?? ""),
      functionsOf(raw, it.stack.get(hit.item) ?? 0));
  };
}
