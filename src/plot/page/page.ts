// The page of `ringside plot`: one view of time over all panes. charts.ts draws rates and heat maps, lanes.ts the lanes, range.ts the
// tables; here is how one moves, chooses and searches.
import "./page.css";
import { cards } from "./cards";
import { charts as makeCharts } from "./charts";
import { Lane, Model, State, load, lowerBound } from "./data";
import { by, fit, gutter, make, setGutter, theme } from "./dom";
import { showHead } from "./head";
import { Hit, Lanes, View, lossMarks, ruler } from "./lanes";
import { rangePane } from "./range";
import { makeSearch } from "./search";
import { stateNames } from "./strips";
import { count, short, time, useRawTimes } from "./words";

function start(model: Model) {
  const raw = model.raw;
  useRawTimes(raw.raw_times);
  const whole = Math.max(raw.duration, 1);
  const edge = whole * 0.004;
  const full: View = { begin: -edge, end: whole + edge, top: 0 };
  const view: View = { ...full };
  let look = theme();

  const canvasOf = (id: string) => by(id).querySelector("canvas") as HTMLCanvasElement;
  const laneCanvas = canvasOf("lanes"), overview = canvasOf("overview"), rulerCanvas = canvasOf("ruler");
  const lanes = new Lanes(laneCanvas, model);
  const panes = by("panes"), labels = by("labels"), tip = by("tip"), details = by("details"), hair = by("hair"), range = by("range");

  showHead(model);
  by("active").style.display = model.lanes.length > 8 ? "" : "none";

  const legend = by("legend");
  model.order.forEach((type) => {
    const t = raw.types[type];
    const chip = make("button") as HTMLButtonElement, dot = make("i");
    const colours = lanes.coloursOf(type); // spans and system calls have names of their own
    dot.style.background = colours.length > 1 ? `conic-gradient(${colours.map((c, n) => `${c} ${n / colours.length}turn ${(n + 1) / colours.length}turn`).join()})` : colours[0];
    chip.append(dot, make("b", t.name), make("span", count(t.count)));
    chip.title = `${t.name}: ${count(t.count)} events\nclick: hide or show · double click: this one alone`;
    chip.dataset.type = t.name;
    chip.setAttribute("aria-pressed", "true");
    chip.onclick = () => toggle(type);
    chip.ondblclick = () => {
      const alone = lanes.hidden.size === raw.types.length - 1 && !lanes.hidden.has(type);
      lanes.hidden = new Set(alone ? [] : model.order.filter((n) => n !== type));
      toggled();
    };
    legend.append(chip);
  });
  function toggle(type: number) {
    if (!lanes.hidden.delete(type)) lanes.hidden.add(type);
    toggled();
  }
  function toggled() {
    [...legend.children].forEach((chip, n) => {
      chip.classList.toggle("off", lanes.hidden.has(model.order[n]));
      chip.setAttribute("aria-pressed", String(!lanes.hidden.has(model.order[n])));
    });
    charts.toggled();
    pane.draw();
    refresh();
  }

  // --- drawing ------------------------------------------------------------------------------------------------------------
  let due = false, onlyActive = false;
  const relayout = () => lanes.layout(onlyActive ? view : null);
  const setActive = () => {
    onlyActive = !onlyActive;
    by("active").setAttribute("aria-pressed", String(onlyActive));
    relayout();
    sizePanes();
  };
  const refresh = () => {
    if (due) return;
    due = true;
    requestAnimationFrame(draw);
  };
  const areaWidth = () => by("lanes").clientWidth - gutter;
  const areaHeight = () => by("lanes").clientHeight;
  const timeAt = (x: number) => view.begin + ((x - panes.getBoundingClientRect().left - gutter) / areaWidth()) * (view.end - view.begin);
  const charts = makeCharts(model, lanes, view, full, areaWidth, timeAt, refresh);
  const { at, column, total } = charts;
  const pane = rangePane(model, lanes, view, { resized: () => sizePanes(), show: (begin, end) => show(begin, end), reveal: (lane) => reveal(lane), refresh });

  // All of the height is used: lanes get what they need, the charts the rest.
  function sizePanes() {
    setGutter();
    const rest = panes.clientHeight - by("overview").offsetHeight - by("ruler").offsetHeight - by("middle").offsetHeight;
    const withHeat = model.heat.length > 0 && !(pane.open && innerHeight < 1000);
    by("heat").style.display = withHeat ? "" : "none";
    const between = (low: number, n: number, high: number) => Math.max(low, Math.min(n, high));
    let rates = between(80, rest * 0.16, 150), heat = withHeat ? between(110, rest * 0.24, 260) : 0;
    const wanted = Math.max(120, lanes.height + 12);
    let tall = Math.min(wanted, rest - rates - heat);
    if (tall < 120) [rates, heat, tall] = [70, withHeat ? 90 : 0, Math.max(80, rest - 70 - (withHeat ? 90 : 0))];
    let spare = Math.max(0, rest - rates - heat - tall);
    const more = Math.min(spare, withHeat ? Math.max(0, 420 - heat) : 0);
    heat += more;
    spare -= more;
    const toRates = Math.min(spare, Math.max(0, 300 - rates));
    by("rates").style.height = Math.floor(rates + toRates) + "px";
    by("heat").style.height = Math.floor(heat) + "px";
    by("lanes").style.height = rest - Math.floor(rates + toRates) - Math.floor(heat) + "px";
    rebuild();
  }

  function draw() {
    due = false;
    const width = areaWidth();
    if (onlyActive) lanes.layout(view);
    const height = areaHeight();
    view.top = Math.max(0, Math.min(view.top, lanes.height - height));
    fit(laneCanvas, width, height);
    lanes.draw(view, look, width, height);
    ruler(fit(rulerCanvas, width, 21), view, look, width, 21);
    by("span").textContent = `${time(view.end - view.begin)} in view`;
    drawOverview(width);
    charts.draw();
    drawLabels(height);
    drawChosen(width);
    drawBand(hair.offsetLeft);
    if (!pane.chosen) pane.draw();
  }

  // Beside the hair: what another machine did at its moment may be anywhere in the band.
  function drawBand(x: number) {
    const width = areaWidth(), apart = ((raw.apart ?? Infinity) / (view.end - view.begin)) * width;
    hair.style.setProperty("--before", Math.min(apart, x - gutter) + "px");
    hair.style.setProperty("--after", Math.min(apart, gutter + width - x) + "px");
  }

  function drawChosen(width: number) {
    const e = by("chosen"), r = pane.chosen;
    e.style.display = r ? "" : "none";
    if (!r) return;
    const x = (t: number) => gutter + Math.max(-3, Math.min(width + 3, ((t - view.begin) / (view.end - view.begin)) * width));
    e.style.left = x(r.begin) + "px";
    e.style.width = Math.max(0, x(r.end) - x(r.begin)) + "px";
  }

  function drawOverview(width: number) {
    const height = 45, c = fit(overview, width, height);
    c.clearRect(0, 0, width, height);
    const scale = width / (full.end - full.begin);
    let most = 1;
    const tall = new Float64Array(Math.ceil(width) + 1);
    total.forEach((n, i) => {
      const x0 = Math.floor((at[i] - full.begin) * scale), x1 = Math.max(x0 + 1, Math.floor((at[i] + column - full.begin) * scale));
      for (let x = Math.max(0, x0); x < x1 && x < tall.length; ++x) tall[x] = Math.max(tall[x], n);
      most = Math.max(most, n);
    });
    c.fillStyle = look.accent;
    c.globalAlpha = 0.6;
    tall.forEach((n, x) => n && c.fillRect(x, height - 2 - (n / most) * (height - 10), 1, (n / most) * (height - 10) + 2));
    c.globalAlpha = 1;
    lossMarks(c, model.losses, full, look, 0, 0, width, height);
    const x0 = (view.begin - full.begin) * scale, x1 = (view.end - full.begin) * scale;
    c.fillStyle = look.ground;
    c.globalAlpha = 0.72;
    c.fillRect(0, 0, x0, height);
    c.fillRect(x1, 0, width - x1, height);
    c.globalAlpha = 1;
    if (pane.chosen) {
      c.globalAlpha = 0.3;
      c.fillStyle = look.accent;
      c.fillRect((pane.chosen.begin - full.begin) * scale, 0, Math.max(1.5, (pane.chosen.end - pane.chosen.begin) * scale), height);
      c.globalAlpha = 1;
    }
    c.strokeStyle = look.accent;
    c.lineWidth = 1.5;
    c.strokeRect(Math.max(0.75, x0), 0.75, Math.max(2, Math.min(x1, width - 0.75) - Math.max(0.75, x0)), height - 1.5);
  }

  const parentOf = (lane: Lane) => {
    const t = raw.threads[lane.number], parent = lane.kind !== "cpu" && t.parent ? raw.threads.find((o) => o.tid === t.parent) : undefined;
    return lane.kind !== "cpu" && t.parent ? `${parent?.name ?? ""} (${t.parent})`.trim() : "";
  };
  function toggleGroup(group: string) {
    if (!lanes.folded.delete(group)) lanes.folded.add(group);
    relayout();
    sizePanes();
  }
  const toggleGroups = () => {
    const groups = [...lanes.groups.keys()].filter((g) => g !== "cpu");
    if (groups.some((g) => lanes.folded.has(g))) lanes.folded.clear();
    else groups.forEach((g) => lanes.folded.add(g));
    relayout();
    sizePanes();
  };
  function drawLabels(height: number) {
    labels.replaceChildren(...lanes.visible(view, height).map((row) => {
      const e = make("div", "", row.lane ? "label" : "label group");
      e.style.top = row.top - view.top + "px";
      e.style.height = row.height + "px";
      if (row.lane) {
        const lane = row.lane;
        if (lane.kind !== "cpu") {
          const dot = make("i");
          dot.style.background = lane.kind === "counter" ? lanes.counterColour(lane) : lanes.threadColour(lane.name);
          e.append(dot);
        }
        e.append(make("span", lane.kind === "counter" ? lane.name : row.title));
        if (lane.kind === "counter") e.append(make("small", lane.id, "below"));
        else if (lane.id) e.append(" ", make("small", lane.id));
        if (lane.lost) e.append(make("span", "lost " + short(lane.lost), "badge"));
        e.title = `${row.title}\n${lane.group}\n${count(lane.events)} events` + (lane.lost ? `, lost ${count(lane.lost)}` : "");
        e.classList.toggle("match", search.lanes.has(lane));
        e.dataset.lane = row.title;
      } else {
        const first = lanes.groups.get(row.group)![0], parent = parentOf(first), folded = lanes.folded.has(row.group);
        e.append(make("span", `${folded ? "▸" : "▾"} ${row.title}`), " ", make("small", [folded || row.size > 1 ? String(row.size) : "", parent ? "of " + parent : ""].filter((p) => p).join(" · ")));
        e.title = `${row.title}: ${count(row.size)} ${row.group === "cpu" ? "processors" : "threads and counters"}${parent ? `\nstarted by ${parent}` : ""}\nclick: fold or unfold · g: all`;
        e.dataset.group = row.title;
        e.onclick = () => toggleGroup(row.group);
      }
      return e;
    }));
    const bar = by("bar"), thumb = bar.firstElementChild as HTMLElement;
    bar.style.display = lanes.height > height ? "" : "none";
    thumb.style.height = `max(18px, ${(100 * height) / lanes.height}%)`;
    thumb.style.top = (100 * view.top) / lanes.height + "%";
  }

  // --- moving -------------------------------------------------------------------------------------------------------------
  const shortest = Math.min(20, whole);
  function show(begin: number, end: number) {
    let length = Math.min(Math.max(end - begin, shortest), full.end - full.begin);
    if (!Number.isFinite(length)) length = full.end - full.begin;
    const middle = (begin + end) / 2;
    view.begin = Math.max(full.begin, Math.min(middle - length / 2, full.end - length));
    view.end = view.begin + length;
    hideTip();
    refresh();
  }
  const zoom = (factor: number, around: number) => show(around - (around - view.begin) * factor, around + (view.end - around) * factor);
  const pan = (share: number) => show(view.begin + (view.end - view.begin) * share, view.end + (view.end - view.begin) * share);
  function scroll(to: number) {
    view.top = to;
    hideTip();
    refresh();
  }
  function reveal(lane: Lane) {
    if (lanes.folded.delete(lane.groupKey)) {
      relayout();
      sizePanes();
    }
    const row = lanes.row(lane), height = areaHeight();
    if (row && (row.top < view.top || row.top + row.height > view.top + height)) view.top = row.top - height / 3;
    refresh();
  }

  panes.addEventListener("wheel", (e) => {
    e.preventDefault();
    const lines = e.deltaMode === 1 ? 20 : e.deltaMode === 2 ? 300 : 1;
    const inGutter = e.clientX - panes.getBoundingClientRect().left < gutter;
    if (inGutter) {
      if (by("lanes").contains(e.target as Node)) scroll(view.top + e.deltaY * lines);
    } else if (e.shiftKey || Math.abs(e.deltaX) > Math.abs(e.deltaY)) {
      pan(((Math.abs(e.deltaX) > Math.abs(e.deltaY) ? e.deltaX : e.deltaY) * lines) / 1000);
    } else {
      zoom(Math.exp(Math.max(-200, Math.min(200, e.deltaY * lines)) * 0.0022), timeAt(e.clientX));
    }
  }, { passive: false });

  type Drag = { x: number; y: number; begin: number; end: number; top: number; kind: "pan" | "range" | "choose" | "overview" | "scroll"; moved: boolean };
  let drag: Drag | null = null;
  panes.addEventListener("pointerdown", (e) => {
    const target = e.target as HTMLElement;
    if (e.button !== 0 || target.closest("button, select, #middle, .label.group")) return;
    const inGutter = e.clientX - panes.getBoundingClientRect().left < gutter;
    const kind = by("overview").contains(target) && !inGutter ? "overview" : inGutter ? "scroll" : e.shiftKey ? "range" : e.ctrlKey || e.metaKey || by("ruler").contains(target) ? "choose" : "pan";
    drag = { x: e.clientX, y: e.clientY, begin: view.begin, end: view.end, top: view.top, kind, moved: false };
    if (kind === "overview") overviewTo(e.clientX);
    panes.setPointerCapture(e.pointerId);
  });
  const overviewTo = (x: number) => {
    const t = full.begin + ((x - panes.getBoundingClientRect().left - gutter) / areaWidth()) * (full.end - full.begin);
    const half = (drag!.end - drag!.begin) / 2;
    show(t - half, t + half);
  };
  panes.addEventListener("pointermove", (e) => {
    const left = panes.getBoundingClientRect().left;
    const x = e.clientX - left;
    hair.style.display = x > gutter ? "block" : "none";
    hair.style.left = x + "px";
    drawBand(x);
    if (!drag) {
      point(e);
      return;
    }
    if (Math.abs(e.clientX - drag.x) + Math.abs(e.clientY - drag.y) > 4) drag.moved = true;
    if (!drag.moved) return;
    hideTip();
    const perPixel = (drag.end - drag.begin) / areaWidth();
    if (drag.kind === "pan") {
      panes.classList.add("panning");
      view.top = drag.top - (e.clientY - drag.y);
      show(drag.begin - (e.clientX - drag.x) * perPixel, drag.end - (e.clientX - drag.x) * perPixel);
    } else if (drag.kind === "scroll") {
      scroll(drag.top - (e.clientY - drag.y));
    } else if (drag.kind === "overview") {
      overviewTo(e.clientX);
    } else {
      const a = Math.max(gutter, Math.min(x, drag.x - left)), b = Math.max(x, drag.x - left);
      range.style.display = "block";
      range.style.left = a + "px";
      range.style.width = b - a + "px";
      range.textContent = time((b - a) * perPixel);
    }
  });
  panes.addEventListener("pointerup", (e) => {
    const d = drag;
    drag = null;
    panes.classList.remove("panning");
    range.style.display = "none";
    if (!d) return;
    if (d.kind === "choose" && d.moved) {
      const inside = (t: number) => Math.max(0, Math.min(whole, t)), a = inside(timeAt(d.x)), b = inside(timeAt(e.clientX));
      if (a !== b) pane.choose(Math.min(a, b), Math.max(a, b));
    } else if (d.kind === "choose" && pane.chosen) pane.clear();
    else if (d.kind === "range" && d.moved) show(Math.min(timeAt(d.x), timeAt(e.clientX)), Math.max(timeAt(d.x), timeAt(e.clientX)));
    else if (!d.moved && d.kind === "pan") pick(hitAt(e));
  });
  panes.addEventListener("pointerleave", () => {
    hair.style.display = "none";
    hideTip();
  });
  laneCanvas.addEventListener("dblclick", (e) => {
    const hit = hitAt(e);
    if (hit?.kind === "item") focus(hit.lane, hit.item);
    else if (hit?.kind === "state") around(hit.lane.states!.begin[hit.item], hit.lane.states!.end[hit.item]);
    else if (hit?.kind === "bin") around(hit.bin.begin, hit.bin.end);
    else if (hit?.kind === "loss") around(hit.loss.begin, hit.loss.end);
    else zoom(0.4, timeAt(e.clientX));
  });
  const around = (begin: number, end: number) => show(begin - (end - begin) * 0.6 - 5, end + (end - begin) * 0.6 + 5);
  const focus = (lane: Lane, item: number) => {
    const { begin, end } = lane.items;
    if (end[item] > begin[item]) around(begin[item], end[item]);
    else show(end[item] - (view.end - view.begin) / 10, end[item] + (view.end - view.begin) / 10);
  };

  // --- what is under the pointer ------------------------------------------------------------------------------------------
  function hitAt(e: MouseEvent): Hit | null {
    const box = laneCanvas.getBoundingClientRect();
    if (e.clientX < box.left || e.clientY < box.top || e.clientY > box.bottom) return null;
    return lanes.hit(view, areaWidth(), e.clientX - box.left, e.clientY - box.top);
  }
  const cardOf = cards(model, lanes, () => look);
  function point(e: PointerEvent) {
    const hit = hitAt(e);
    const shown = hit ? cardOf(hit) : charts.card(e);
    if (!shown) {
      hideTip();
      return;
    }
    tip.replaceChildren(shown);
    tip.hidden = false;
    const { width, height } = tip.getBoundingClientRect();
    tip.style.left = (e.clientX + 16 + width > innerWidth ? Math.max(4, e.clientX - width - 12) : e.clientX + 16) + "px";
    tip.style.top = Math.max(4, Math.min(e.clientY + 14, innerHeight - height - 8)) + "px";
  }
  const hideTip = () => (tip.hidden = true);
  function pick(hit: Hit | null) {
    lanes.selected = hit?.kind === "item" || hit?.kind === "state" ? { lane: hit.lane, item: hit.item, state: hit.kind === "state" } : null;
    const shown = hit && cardOf(hit);
    if (shown) details.replaceChildren(shown);
    else details.textContent = "Nothing chosen. Click a slice to keep its fields here.";
    refresh();
  }
  function select(lane: Lane, item: number, state = false) {
    pick({ kind: state ? "state" : "item", lane, item });
    reveal(lane);
    const { begin, end } = state ? lane.states! : lane.items;
    if (end[item] < view.begin || begin[item] > view.end) {
      const half = (view.end - view.begin) / 2, middle = (begin[item] + end[item]) / 2;
      show(middle - half, middle + half);
    }
  }
  // The next or previous one in the lane.
  function neighbour(way: 1 | -1) {
    const s = lanes.selected;
    if (!s) return;
    const { depths, begin } = s.lane.items;
    const order = s.state ? [...s.lane.states!.plain] : depths.flatMap((d) => [...d]).sort((a, b) => begin[a] - begin[b]);
    const next = order[order.indexOf(s.item) + way];
    if (next !== undefined) select(s.lane, next, s.state);
  }
  // What the thread did that woke the chosen one: from what it waited for to what it waits for.
  function waker() {
    const s = lanes.selected;
    if (!s || s.lane.kind !== "thread" || !s.lane.states) return;
    const st = s.lane.states, t = s.state ? st.begin[s.item] : s.lane.items.begin[s.item];
    const from = lowerBound(st.plain.length, (k) => st.end[st.plain[k]], t);
    const wokenAt = (n: number) => st.what[st.plain[n]] === State.runnable && st.waker[st.plain[n]] >= 0;
    const asleep = s.state && (st.what[s.item] === State.sleeping || st.what[s.item] === State.blocked);
    let n = s.state ? st.plain.indexOf(s.item) : from;
    if (asleep) ++n;
    else while (n >= 0 && !wokenAt(n)) --n;
    const of = n >= 0 && n < st.plain.length && wokenAt(n) ? model.byThread.get(st.waker[st.plain[n]]) : undefined;
    if (!of?.states) return;
    const o = of.states, when = st.begin[st.plain[n]], k = lowerBound(o.plain.length, (i) => o.end[o.plain[i]], when);
    if (k < o.plain.length && o.begin[o.plain[k]] <= when) select(of, o.plain[k], true);
    else reveal(of);
  }

  const search = makeSearch(model, lanes, view, (lane) => reveal(lane), (lane, item) => select(lane, item), refresh);

  // --- keys ---------------------------------------------------------------------------------------------------------------
  const help = by<HTMLDialogElement>("help");
  if (model.wakes.at.length || model.lanes.some((l) => l.states)) by("states").append("A thread is: ", ...[State.running, State.runnable, State.preempted, State.blocked, State.sleeping].map((state) => {
    const e = make("span"), dot = make("i");
    dot.style.background = `var(--${["", "run", "runnable", "preempted", "sleep", "blocked"][state]})`;
    e.append(dot, stateNames[state]);
    return e;
  }));
  const keys: [string, string, (e: KeyboardEvent) => void][] = [
    ["w +", "zoom in (wheel)", () => zoom(0.7, middle())],
    ["s -", "zoom out (wheel)", () => zoom(1 / 0.7, middle())],
    ["a ArrowLeft", "earlier (drag, Shift+wheel)", () => pan(-0.15)],
    ["d ArrowRight", "later", () => pan(0.15)],
    ["ArrowUp", "lanes up (wheel over their names)", () => scroll(view.top - 60)],
    ["ArrowDown", "lanes down", () => scroll(view.top + 60)],
    ["PageUp", "a page of lanes up", () => scroll(view.top - areaHeight() * 0.9)],
    ["PageDown", "a page of lanes down", () => scroll(view.top + areaHeight() * 0.9)],
    ["0 Home", "all of it", () => show(full.begin, full.end)],
    ["f", "zoom to what is chosen (double click)", () => {
      const s = lanes.selected;
      if (s?.state) around(s.lane.states!.begin[s.item], s.lane.states!.end[s.item]);
      else if (s) focus(s.lane, s.item);
    }],
    ["r", "tables of the chosen range, or of what is in view", () => pane.setOpen(!pane.open)],
    ["m", "choose what is in view as the range (drag on the times, Ctrl+drag)", () => pane.choose(Math.max(0, view.begin), Math.min(whole, view.end))],
    ["z", "zoom to the chosen range", () => pane.chosen && show(pane.chosen.begin, pane.chosen.end)],
    [", [", "the one before in the lane", () => neighbour(-1)],
    [". ]", "the next one in the lane", () => neighbour(1)],
    ["t", "the thread that is chosen on a processor", () => {
      const s = lanes.selected;
      const lane = s?.lane.kind === "cpu" && model.lanes.find((l) => l.kind === "thread" && l.number === s.lane.items.what[s.item]);
      if (lane) reveal(lane);
    }],
    ["u", "what the thread did that woke the chosen one", () => waker()],
    ["x", "arrows of wake-ups on or off", () => { lanes.arrows = !lanes.arrows; refresh(); }],
    ["g", "fold or unfold all processes", () => toggleGroups()],
    ["v", "only lanes with something in view", () => setActive()],
    ["/", "search events, threads and texts", (e) => { e.preventDefault(); search.focus(); }],
    ["n", "next match (Enter)", () => search.step(1)],
    ["N", "match before (Shift+Enter)", () => search.step(-1)],
    ["l", "rates: logarithmic", () => charts.setLog()],
    ["h", "next heat map", () => charts.nextHeat()],
    ["i", "about the recording", () => toggleAbout()],
    ["?", "these keys", () => help.showModal()],
    ["Escape", "choose nothing, leave search, close the tables", () => {
      if (pane.chosen) pane.clear();
      else if (!lanes.selected && search.isEmpty()) pane.setOpen(false);
      search.clear();
      pick(null);
    }],
  ];
  let pointerAt = -1;
  panes.addEventListener("pointermove", (e) => (pointerAt = e.clientX));
  panes.addEventListener("pointerleave", () => (pointerAt = -1));
  const middle = () => {
    const left = panes.getBoundingClientRect().left + gutter;
    return pointerAt > left ? timeAt(pointerAt) : (view.begin + view.end) / 2;
  };
  const shownKey = (k: string) => k.replace(/^Arrow(.).*/, (_, c) => ({ L: "←", R: "→", U: "↑", D: "↓" })[c as "L"]!);
  for (const [names, words] of [...keys.map(([k, w]) => [k, w] as const), ["Shift+drag", "zoom to a range"] as const]) {
    const line = make("tr"), cell = make("td");
    names.split(" ").forEach((k) => cell.append(make("kbd", shownKey(k)), " "));
    line.append(cell, make("td", words));
    by("keys").append(line);
  }
  addEventListener("keydown", (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey || help.open) return;
    if (e.target === search.input) {
      search.key(e);
      return;
    }
    if ((e.target as HTMLElement).tagName === "SELECT" && e.key !== "Escape") return;
    const key = keys.find(([names]) => names.split(" ").includes(e.key));
    if (!key) return;
    if (e.key.startsWith("Arrow") || e.key.startsWith("Page")) e.preventDefault();
    key[2](e);
  });
  const toggleAbout = () => {
    const about = by("about");
    about.hidden = !about.hidden;
    by("about-button").setAttribute("aria-pressed", String(!about.hidden));
    sizePanes();
  };
  by("log").onclick = charts.setLog;
  by("active").onclick = setActive;
  by("help-button").onclick = () => help.showModal();
  by("about-button").onclick = toggleAbout;
  by("notes").onclick = toggleAbout;

  // --- and off ------------------------------------------------------------------------------------------------------------
  function rebuild() {
    look = theme();
    lanes.retheme(look);
    charts.rebuild(look);
    refresh();
  }
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", rebuild);
  let size = "";
  const observer = new ResizeObserver(() => {
    const now = `${panes.clientWidth} ${panes.clientHeight} ${by("middle").offsetHeight} ${devicePixelRatio}`;
    if (now === size) return;
    size = now;
    sizePanes();
  });
  for (const id of ["panes", "middle"]) observer.observe(by(id));
  sizePanes();
  // For tests and the console: what is shown, and where.
  Object.assign(window, {
    ringside: {
      model, view, show, lanes, pane, charts,
      place: (label: string, t: number, of: "slices" | "states" = "slices") => {
        const row = lanes.rows.find((r) => r.lane?.label === label), box = laneCanvas.getBoundingClientRect();
        return row && { x: box.left + ((t - view.begin) / (view.end - view.begin)) * areaWidth(), y: box.top + row.top - view.top + lanes.middle(row.lane!, of) };
      },
      settled: () => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))),
    },
  });
  document.documentElement.dataset.ready = "yes";
}

load(by("data")).then(start).catch((e) => {
  document.documentElement.dataset.ready = "failed";
  by("details").textContent = "The page cannot be shown: " + (typeof DecompressionStream === "undefined" ? "this browser is older than 2023" : String(e));
  console.error(e);
});
