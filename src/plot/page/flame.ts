// The flame graph of a range: how often each stack led to events of one type. Callers stand above what they called.
import { Model, functionsOf } from "./data";
import { make } from "./dom";
import { count, inkOn, time } from "./words";

interface Node { name: string; count: number; below: Map<string, Node> }

const rowHeight = 18, deepestShown = 100, narrowest = 0.001; // of the width

// A name has one colour, in all graphs.
function colourOf(name: string) {
  let h = 2166136261;
  for (let i = 0; i < name.length; ++i) h = Math.imul(h ^ name.charCodeAt(i), 16777619);
  const part = (shift: number, low: number, room: number) => Math.round(low + (((h >>> shift) & 255) / 255) * room).toString(16).padStart(2, "0");
  return "#" + part(0, 205, 45) + part(8, 110, 110) + part(16, 50, 50);
}

export function makeFlame(model: Model, refresh: () => void) {
  const counts = model.raw.stack_counts;
  const types = new Map<number, number>(); // and how many of its events have a stack
  for (const [type, , sparse] of counts.rows) types.set(type, (types.get(type) ?? 0) + sparse.reduce((sum, n, i) => sum + (i % 2 ? n : 0), 0));
  const name = (type: number) => model.raw.types[type].name;
  const order = [...types.keys()].sort((a, b) => Number(name(b) === "ringside:sample") - Number(name(a) === "ringside:sample") || types.get(b)! - types.get(a)!);
  let type = order[0], zoomed: string[] = [];

  // A column counts where its middle is.
  function tree(begin: number, end: number): Node {
    const root: Node = { name: name(type), count: 0, below: new Map() };
    for (const [of, stack, sparse] of counts.rows) {
      if (of !== type) continue;
      let sum = 0;
      for (let i = 0, column = 0; i < sparse.length; i += 2) {
        column += sparse[i];
        const middle = counts.begin + (column + 0.5) * counts.width;
        if (middle >= begin && middle <= end) sum += sparse[i + 1];
      }
      if (!sum) continue;
      let at = root;
      at.count += sum;
      const functions = functionsOf(model.raw, stack);
      for (const f of functions.length ? functions.reverse() : ["[stack left out]"]) {
        let next = at.below.get(f);
        if (!next) at.below.set(f, (next = { name: f, count: 0, below: new Map() }));
        (at = next).count += sum;
      }
    }
    return root;
  }

  function draw(begin: number, end: number): { element: HTMLElement; note: string } {
    const whole = tree(begin, end), box = make("div", "", "flame"), out = make("div");
    const path: Node[] = [whole];
    for (const step of zoomed) {
      const next = path[path.length - 1].below.get(step);
      if (!next) break;
      path.push(next);
    }
    const top = path[path.length - 1];
    let rows = 0;
    const put = (node: Node, depth: number, left: number, width: number, names: string[]) => {
      const e = make("div", node.name, "frame"), colour = depth === 0 && names.length === 0 ? "" : colourOf(node.name);
      e.style.cssText = `left:${left * 100}%;width:${width * 100}%;top:${depth * rowHeight}px`;
      if (colour) [e.style.background, e.style.color] = [colour, inkOn(colour)];
      e.title = `${node.name}\n${count(node.count)} of ${count(whole.count)} ${name(type)} (${((100 * node.count) / Math.max(whole.count, 1)).toFixed(2)} %)`;
      e.onclick = () => {
        zoomed = names;
        refresh();
      };
      box.append(e);
      rows = Math.max(rows, depth + 1);
    };
    path.forEach((node, depth) => put(node, depth, 0, 1, zoomed.slice(0, depth)));
    const spread = (node: Node, depth: number, left: number, width: number, names: string[]) => {
      if (depth >= deepestShown) return;
      for (const child of [...node.below.values()].sort((a, b) => b.count - a.count || (a.name < b.name ? -1 : 1))) {
        const own = (width * child.count) / node.count;
        if (own < narrowest) break;
        put(child, depth, left, own, [...names, child.name]);
        spread(child, depth + 1, left, own, [...names, child.name]);
        left += own;
      }
    };
    spread(top, path.length, 0, 1, path.slice(1).map((n) => n.name));
    box.style.height = rows * rowHeight + "px";
    const choice = document.createElement("select");
    choice.setAttribute("aria-label", "Stacks of these events");
    choice.append(...order.map((n) => Object.assign(document.createElement("option"), { value: String(n), textContent: `${name(n)} (${count(types.get(n)!)})`, selected: n === type })));
    choice.onchange = () => {
      type = Number(choice.value);
      zoomed = [];
      refresh();
    };
    out.append(choice, box);
    return { element: out, note: [`${count(whole.count)} stacks, counted in steps of ${time(counts.width)}`, "click: that call alone"].join(" · ") };
  }

  // "outermost;...;innermost count" lines.
  function folded(begin: number, end: number): string {
    const lines: string[] = [];
    const walk = (node: Node, names: string) => {
      let inside = 0;
      for (const child of node.below.values()) {
        inside += child.count;
        walk(child, names ? `${names};${child.name}` : child.name);
      }
      if (names && node.count > inside) lines.push(`${names} ${node.count - inside}`);
    };
    walk(tree(begin, end), "");
    return lines.sort().join("\n") + "\n";
  }
  return order.length ? { draw, folded, total: () => order.reduce((sum, n) => sum + types.get(n)!, 0) } : null;
}
