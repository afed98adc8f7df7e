// Elements of the page, and text in them. No text of the trace ever becomes HTML: everything goes in as textContent.
import type { Theme } from "./lanes";

export const by = <T extends HTMLElement>(id: string) => document.getElementById(id) as T;
export const make = (tag: string, text = "", className = "") => {
  const e = document.createElement(tag);
  e.textContent = text;
  if (className) e.className = className;
  return e;
};
// The width of the names at the left: more on a wide screen.
export let gutter = 190;
export function setGutter() {
  gutter = innerWidth < 1500 ? 190 : innerWidth < 2200 ? 230 : 280;
  document.documentElement.style.setProperty("--gutter", gutter + "px");
}

export function theme(): Theme {
  const style = getComputedStyle(document.documentElement);
  const v = (name: string) => style.getPropertyValue("--" + name).trim();
  return { ink: v("ink"), soft: v("soft"), line: v("line"), faint: v("faint"), panel: v("panel"), ground: v("ground"), lost: v("lost"),
    run: v("run"), runnable: v("runnable"), preempted: v("preempted"), blocked: v("blocked"), sleep: v("sleep"), accent: v("accent"), shade: v("shade"), dark: matchMedia("(prefers-color-scheme: dark)").matches };
}

// A canvas as large as it looks, at the screen's resolution.
export function fit(canvas: HTMLCanvasElement, width: number, height: number) {
  const ratio = devicePixelRatio || 1;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.width = width + "px";
    canvas.style.height = height + "px";
  }
  const c = canvas.getContext("2d")!;
  c.setTransform(ratio, 0, 0, ratio, 0, 0);
  return c;
}

// "fd: 0x3, count: 0x10 -> 0x10", "size=32 ptr=0x55": name and value where there are names.
export function fields(text: string): [string, string][] {
  const out: [string, string][] = [];
  text = text.replace(/ -> (?:ret(?:urns)?=)?/, " returns=");
  const names = /(?:^|[\s,(])([A-Za-z_][\w.]*)(?:=|: )/g;
  let name = "", from = 0;
  const put = (to: number) => {
    const value = text.slice(from, to).replace(/(\s|,|\(|==>)+$/, "").trim();
    if (name || value) out.push([name, value]);
  };
  for (let m = names.exec(text); m; m = names.exec(text)) {
    put(m.index);
    name = m[1];
    from = m.index + m[0].length;
  }
  put(text.length);
  return out.length > 40 ? [["", text]] : out;
}

export function card(title: string, swatch: string, where: string, rows: [string, string][], stack: string[] = []) {
  const e = make("div", "", "card"), first = make("div"), dot = make("span", "", "swatch");
  dot.style.background = swatch;
  first.append(dot, make("b", title));
  e.append(first, make("div", where, "when"));
  if (rows.length) {
    const table = make("table"), body = make("tbody");
    for (const [name, value] of rows) {
      const line = make("tr");
      line.append(make("td", name), make("td", value));
      body.append(line);
    }
    table.append(body);
    e.append(table);
  }
  if (stack.length) {
    const list = make("ol", "", "stack");
    list.append(...stack.map((name) => make("li", name)));
    e.append(list);
  }
  return e;
}
