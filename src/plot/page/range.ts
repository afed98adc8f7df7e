// The pane with the tables of a range, and its flame graph: of what is chosen, or of what is in view.
import type { Lane, Model } from "./data";
import { by, make } from "./dom";
import { makeFlame } from "./flame";
import type { Lanes, View } from "./lanes";
import { Table, csv, shownCell, sorted, tables } from "./table";
import { count, time } from "./words";

const mostRows = 400;

export interface Range { begin: number; end: number }

export function rangePane(model: Model, lanes: Lanes, view: View, use: { resized: () => void; show: (begin: number, end: number) => void; reveal: (lane: Lane) => void; refresh: () => void }) {
  const pane = by("table"), body = by("rows"), tabs = by("tabs"), title = by("range-title");
  let chosen: Range | null = null, open = false, tab = 0, due = 0;
  let all: Table[] = [];
  const flame = makeFlame(model, () => draw());
  const size = () => all.length + (flame ? 1 : 0);
  const order = new Map<string, [number, boolean]>(); // by table: column, downwards

  const range = (): Range => chosen ?? { begin: Math.max(0, view.begin), end: Math.min(Math.max(model.raw.duration, 1), view.end) };
  const orderOf = (t: Table) => order.get(t.title) ?? [t.sort, true];
  const rowsOf = (t: Table) => sorted(t, ...orderOf(t));

  function draw() {
    if (!open) return;
    const { begin, end } = range();
    all = tables(model, lanes, begin, end);
    tab = Math.min(tab, size() - 1);
    title.textContent = `${chosen ? "chosen" : "in view"}: +${time(begin, 7)} to +${time(end, 7)} · ${time(end - begin, 6)}`;
    by("range-clear").style.display = by("range-zoom").style.display = chosen ? "" : "none";
    const titles: [string, number][] = all.map((t) => [t.title, t.rows.length]);
    if (flame) titles.push(["Stacks", flame.total()]);
    tabs.replaceChildren(...titles.map(([title, rows], n) => {
      const b = make("button", title) as HTMLButtonElement;
      b.append(make("span", count(rows)));
      b.setAttribute("role", "tab");
      b.setAttribute("aria-selected", String(n === tab));
      b.onclick = () => {
        tab = n;
        draw();
      };
      return b;
    }));
    by("range-copy").textContent = tab < all.length ? "copy CSV" : "copy folded";
    if (tab === all.length && flame) {
      const { element, note } = flame.draw(begin, end);
      body.replaceChildren(element);
      by("range-note").textContent = note;
      return;
    }
    const t = all[tab], [column, down] = orderOf(t), rows = rowsOf(t);
    const table = make("table"), head = make("tr"), lines = make("tbody");
    t.columns.forEach(([name, kind], n) => {
      const cell = make("th", "", kind === "text" ? "" : "number"), b = make("button", name + (n === column ? (down ? " ▾" : " ▴") : "")) as HTMLButtonElement;
      cell.setAttribute("aria-sort", n !== column ? "none" : down ? "descending" : "ascending");
      b.onclick = () => {
        order.set(t.title, n === column ? [n, !down] : [n, kind !== "text"]);
        draw();
      };
      cell.append(b);
      head.append(cell);
    });
    for (const row of rows.slice(0, mostRows)) {
      const line = make("tr");
      row.cells.forEach((cell, n) => {
        const td = make("td", "", t.columns[n][1] === "text" ? "" : "number");
        if (n === 0 && row.colour) {
          const dot = make("span", "", "swatch");
          dot.style.background = row.colour;
          td.append(dot);
        }
        td.append(shownCell(cell, t.columns[n][1]));
        line.append(td);
      });
      if (row.lane) {
        line.className = "leads";
        line.tabIndex = 0;
        line.onclick = () => use.reveal(row.lane!);
        line.onkeydown = (e) => e.key === "Enter" && use.reveal(row.lane!);
      }
      lines.append(line);
    }
    const top = make("thead");
    top.append(head);
    table.append(top, lines);
    body.replaceChildren(table);
    const more = rows.length > mostRows ? `the first ${mostRows} of ${count(rows.length)}; the copy has all` : "";
    by("range-note").textContent = [t.note, more, rows.length ? "" : "nothing in this range"].filter((n) => n).join(" · ");
  }
  const later = () => {
    clearTimeout(due);
    if (open) due = window.setTimeout(draw, 60);
  };
  function setOpen(yes: boolean) {
    if (open === yes) return;
    open = yes;
    pane.hidden = !open;
    document.body.classList.toggle("with-table", open);
    by("table-button").setAttribute("aria-pressed", String(open));
    use.resized();
    draw();
  }
  function choose(begin: number, end: number) {
    chosen = { begin, end };
    setOpen(true);
    draw();
    use.refresh();
  }
  function clear() {
    chosen = null;
    draw();
    use.refresh();
  }
  const text = () => (all[tab] ? csv(all[tab], rowsOf(all[tab])) : flame ? flame.folded(range().begin, range().end) : "");
  async function copy() {
    const button = by("range-copy"), words = button.textContent!;
    try {
      await navigator.clipboard.writeText(text());
    } catch {
      // Where a page from a file has no clipboard.
      const area = document.createElement("textarea");
      area.value = text();
      document.body.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
    button.textContent = "copied";
    setTimeout(() => (button.textContent = words), 1200);
  }
  by("range-copy").onclick = copy;
  by("range-clear").onclick = clear;
  by("range-zoom").onclick = () => chosen && use.show(chosen.begin, chosen.end);
  by("range-close").onclick = () => setOpen(false);
  by("table-button").onclick = () => setOpen(!open);
  return {
    draw: later, now: draw, choose, clear, csv: text, setOpen,
    get chosen() { return chosen; },
    get open() { return open; },
    get tables() { return all; },
    next: () => {
      setOpen(true);
      tab = (tab + 1) % Math.max(1, size());
      draw();
    },
  };
}
