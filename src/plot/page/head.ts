// The line on top, the notes, and what is said about the recording.
import { Model } from "./data";
import { by, make } from "./dom";
import { count, stamp, time } from "./words";

export function showHead(model: Model) {
  const raw = model.raw;
  document.title = `${raw.where} · ringside`;
  const ran = raw.facts.find(([label]) => label === "command")?.[1];
  by("where").textContent = ran ? `${raw.where}: ${ran}` : raw.where;
  by("where").title = by("where").textContent!;
  const chips = by("chips");
  chips.append(make("span", `${count(raw.events)} events`, "chip"), make("span", time(raw.duration), "chip"));
  const lostChip = make("span", raw.lost ? `lost ${count(raw.lost)}` : "nothing lost", raw.lost ? "chip lost" : "chip");
  lostChip.id = "lost";
  chips.append(lostChip);
  if (raw.apart !== 0) {
    const chip = make("span", raw.apart === null ? "clocks not synchronised" : `clocks ±${time(raw.apart)}`, "chip");
    chip.id = "apart";
    chip.title = "How far apart events of two machines may be that have the same time: the band beside the pointer";
    chips.append(chip);
  }
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
    ["events", `${count(raw.events)} of ${count(model.order.length)} types`], ["lost", count(raw.lost)], ...notes.map((n) => ["note", n] as [string, string])];
  for (const [label, text] of facts) list.append(make("dt", label), make("dd", text));
  about.append(list);
}
