// Searches names of lanes, processes and slices, and texts of events.
import { Lane, Model, lowerBound } from "./data";
import { by } from "./dom";
import type { Lanes, View } from "./lanes";
import { count, short } from "./words";

export function makeSearch(model: Model, lanes: Lanes, view: View, reveal: (lane: Lane) => void, select: (lane: Lane, item: number) => void, refresh: () => void) {
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
      const earlier = lane.kind === "cpu" ? [] : (model.raw.threads[lane.number].names ?? []).map((n) => n[1]);
      const whole = [lane.label, lane.group, ...earlier].some((n) => n.toLowerCase().includes(wanted));
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
    if (first && !found.list.length && wanted.length > 1) reveal(first);
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
  const clear = () => {
    search.value = "";
    find("");
  };
  return {
    input: search, lanes: found.lanes, step, clear,
    isEmpty: () => !search.value,
    focus: () => {
      search.focus();
      search.select();
    },
    // In the field: Enter and Escape.
    key: (e: KeyboardEvent) => {
      if (e.key === "Enter") {
        clearTimeout(typing);
        if (found.at < 0) find(search.value);
        step(e.shiftKey ? -1 : 1);
      } else if (e.key === "Escape") {
        clear();
        search.blur();
      }
    },
  };
}
