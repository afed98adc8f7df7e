// usage: node plot_test.mjs CACHE RINGSIDE DIR CHROMIUM SCREENSHOT: opens pages of `ringside plot` and compares what they show with
// what `ringside report` says of the same recordings.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { createRequire } from "node:module";
import { mkdtempSync, statSync } from "node:fs";
import { join } from "node:path";

const [cache, ringside, dir, executablePath, screenshot] = process.argv.slice(2);
const { chromium } = createRequire(join(cache, "package.json"))("playwright-core");
const command = (...words) => execFileSync(ringside, words, { cwd: dir, stdio: ["ignore", "pipe", "ignore"], maxBuffer: 1 << 30 }).toString();
const number = (n) => n.toLocaleString("en-US");
const done = (what) => console.log("ok", what);

// What must be on the page, without ringside plot.
const records = command("report", "work", "--json").trim().split("\n").map((l) => JSON.parse(l));
const events = records.filter((r) => !r.lost), losses = records.filter((r) => r.lost);
const lost = losses.reduce((n, r) => n + r.lost, 0);
const first = Math.min(...records.map((r) => r.ts));
const byType = {};
for (const e of events) byType[e.event] = (byType[e.event] ?? 0) + 1;
const lanes = new Set(events.filter((e) => e.event === "sched:sched_switch").map((e) => `CPU ${e.cpu}`));
for (const e of events) if (e.event !== "sched:sched_switch") lanes.add(`${e.task}-${e.tid}`);
assert.equal(lost, 1234);
assert.ok(events.length > 1500 && lanes.size === 5);

const browser = await chromium.launchPersistentContext(mkdtempSync(join(dir, "profile-")), {
  executablePath, headless: true, viewport: { width: 1360, height: 860 }, colorScheme: "dark",
  args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"],
});
browser.setDefaultTimeout(60000);
const complaints = [];

async function open(where, ...options) {
  const file = join(dir, `${where}-${options.length}.html`);
  command("plot", where, "-o", file, ...options);
  const page = await browser.newPage();
  // willReadFrequently: our own reading of pixels.
  page.on("console", (m) => m.text().includes("willReadFrequently") || complaints.push("console: " + m.text()));
  page.on("pageerror", (e) => complaints.push("error: " + e.stack));
  page.on("dialog", (d) => complaints.push("dialog: " + d.message()));
  page.on("request", (r) => r.url() === "file://" + file || r.url().startsWith("data:") || complaints.push("request: " + r.url()));
  await page.goto("file://" + file);
  await page.waitForSelector("html[data-ready]");
  assert.equal(await page.getAttribute("html", "data-ready"), "yes", await page.textContent("#details"));
  await settled(page);
  return page;
}
const settled = (page) => page.evaluate(() => window.ringside.settled());
const view = (page) => page.evaluate(() => ({ ...window.ringside.view }));
const place = (page, label, t) => page.evaluate(([l, at]) => window.ringside.place(l, at), [label, t]);
// The tip that a place shows; the page may take a while on a loaded machine.
async function tip(page, { x, y }, wanted) {
  for (let n = 0; ; ++n) {
    await page.mouse.move(x + (n % 2), y);
    const text = await page.evaluate(() => (document.getElementById("tip").hidden ? "" : document.getElementById("tip").innerText));
    if (text.includes(wanted)) return text;
    assert.ok(n < 100, `no tip with "${wanted}" at ${x}, ${y} but "${text}"`);
    await settled(page);
  }
}

try {
  const page = await open("work");

  const chips = await page.locator("#chips .chip").allInnerTexts();
  assert.equal(chips[0], `${number(events.length)} events`);
  assert.equal(chips[2], `lost ${number(lost)}`);
  const legend = await page.locator("#legend button").evaluateAll((all) => all.map((b) => [b.querySelector("b").textContent, b.querySelector("span").textContent]));
  assert.deepEqual(Object.fromEntries(legend), Object.fromEntries(Object.entries(byType).map(([t, n]) => [t, number(n)])));
  const heaps = ["g++-4700", "</script><img src=x onerror=hacked=1>-4800"].map((process) => `heap: bytes held · ${process}`);  // of libc:malloc
  assert.deepEqual(new Set(await page.locator("#labels .label[data-lane]").evaluateAll((all) => all.map((e) => e.dataset.lane))), new Set([...lanes, ...heaps]));
  assert.equal(await page.locator('#labels .label[data-lane="cc1plus-4711"] .badge').innerText(), "lost 1.23k");
  await page.keyboard.press("i");
  const about = await page.innerText("#about");
  for (const words of ["make -j2", "mono", `${number(events.length)} of 3 types`]) assert.ok(about.includes(words), about);
  await page.keyboard.press("i");
  await settled(page);
  done("counts, lanes, losses and facts are the report's");

  // Slices and losses where the report has them.
  const read = events.find((e) => e.event === "libc:read" && e.tid === 4712 && e.fields.duration_ns > 200000);
  await page.evaluate(([a, b]) => window.ringside.show(a, b), [read.ts - first - 2e6, read.ts - first + 2e6]);
  await settled(page);
  let text = await tip(page, await place(page, "as-4712", read.ts - first - read.fields.duration_ns / 2), "libc:read");
  for (const words of ["as-4712", "fd", String(read.fields.duration_ns), `${String(BigInt(read.ts)).replace(/(\d{9})$/, ".$1")} s`]) assert.ok(text.includes(words), text);
  const gap = losses[0].ts - first;
  await page.evaluate(([a, b]) => window.ringside.show(a, b), [gap - 60e6, gap + 40e6]);
  await settled(page);
  text = await tip(page, await place(page, "cc1plus-4711", gap - 10e6), "events lost");
  assert.ok(text.includes("1,234 events lost"), text);
  const colours = async (label, from, to) => {
    const a = await place(page, label, from), b = await place(page, label, to);
    return page.evaluate(([p, q]) => {
      const canvas = document.querySelector("#lanes canvas"), box = canvas.getBoundingClientRect(), scale = canvas.width / box.width;
      const data = canvas.getContext("2d").getImageData((p.x - box.left) * scale, (p.y - 8 - box.top) * scale, Math.max(1, (q.x - p.x) * scale), 18 * scale).data;
      let orange = 0, painted = 0;
      for (let i = 0; i < data.length; i += 4) {
        if (data[i + 3] > 60 && data[i] > 1.4 * data[i + 2] && data[i] > data[i + 1]) ++orange;
        if (data[i + 3] > 60) ++painted;
      }
      return { orange: orange / (data.length / 4), painted: painted / (data.length / 4) };
    }, [a, b]);
  };
  assert.ok((await colours("cc1plus-4711", gap - 18e6, gap - 2e6)).orange > 0.15);
  const run = events.find((e) => e.cpu === 0 && e.fields.next_pid === 4711);
  await page.keyboard.press("0");
  await page.evaluate(([a, b]) => window.ringside.show(a, b), [run.ts - first - 5e6, run.ts - first + 25e6]);
  await settled(page);
  assert.ok((await colours("CPU 0", run.ts - first + 2e6, run.ts - first + 18e6)).painted > 0.6);
  text = await tip(page, await place(page, "CPU 0", run.ts - first + 1e7), "cc1plus-4711");
  assert.ok(text.includes("20 ms"), text);
  done("slices, runs and the gap are where they were");

  // Wheel, drag, keys.
  await page.keyboard.press("0");
  await settled(page);
  const whole = await view(page);
  const box = await page.locator("#lanes canvas").boundingBox();
  const at = { x: box.x + box.width * 0.25, y: box.y + 40 };
  const under = (v) => v.begin + 0.25 * (v.end - v.begin);
  await page.mouse.move(at.x, at.y);
  for (let n = 0; n < 6; ++n) await page.mouse.wheel(0, -200);
  await page.waitForFunction((w) => window.ringside.view.end - window.ringside.view.begin < w / 8, whole.end - whole.begin);
  let now = await view(page);
  assert.ok(Math.abs(under(now) - under(whole)) < (now.end - now.begin) / 50, "the time under the pointer stays");
  await page.mouse.down();
  await page.mouse.move(at.x + 100, at.y, { steps: 4 });
  await page.mouse.up();
  let then = await view(page);
  assert.ok(Math.abs(now.begin - then.begin - (100 / box.width) * (now.end - now.begin)) < (now.end - now.begin) / 50, "dragging pans");
  await page.keyboard.down("Shift");
  await page.mouse.move(box.x + 100, at.y);
  await page.mouse.down();
  await page.mouse.move(box.x + 300, at.y, { steps: 4 });
  await page.mouse.up();
  await page.keyboard.up("Shift");
  now = await view(page);
  assert.ok(Math.abs((now.end - now.begin) / (then.end - then.begin) - 200 / box.width) < 0.02, "Shift and dragging zooms to a range");
  await page.keyboard.press("0");
  assert.deepEqual(await view(page), whole);
  await page.keyboard.press("?");
  assert.ok((await page.innerText("#help")).includes("search events"));
  await page.keyboard.press("Escape");
  done("wheel, drag and keys move");

  // Search, and what is chosen; events hidden.
  await page.keyboard.press("/");
  await page.keyboard.type("libc:read");
  await page.waitForFunction((n) => document.getElementById("matches").textContent.includes(n), `${number(byType["libc:read"])} found`);
  await page.keyboard.press("Enter");
  const firstRead = events.filter((e) => e.event === "libc:read").sort((a, b) => a.ts - a.fields.duration_ns - (b.ts - b.fields.duration_ns))[0];
  await page.waitForFunction((n) => document.getElementById("details").innerText.includes(n), String(firstRead.fields.duration_ns));
  await page.fill("#search", "onerror");
  await page.waitForFunction(() => document.getElementById("matches").textContent.includes("2 lanes"));  // of the thread, and of its heap
  await page.fill("#search", "size=18 ");
  const withSize = events.filter((e) => e.fields.size === 18).length;
  await page.waitForFunction((n) => document.getElementById("matches").textContent === n, `${number(withSize)} found`);
  await page.keyboard.press("Escape");
  await page.locator("#legend button", { hasText: "libc:malloc" }).click();
  assert.equal(await page.locator("#legend button.off").count(), 1);
  await page.locator("#legend button", { hasText: "libc:malloc" }).click();
  assert.equal(await page.locator("#legend button.off").count(), 0);
  done("search finds what the report has");

  // Rates and the heat map, read off their tips.
  const rates = await page.locator("#rates .chart").boundingBox();
  await tip(page, { x: rates.x + rates.width / 3, y: rates.y + 30 }, "libc:malloc");
  const durations = records.filter((r) => r.event === "libc:read").map((r) => r.fields.duration_ns);
  const heat = await page.evaluate(() => window.ringside.model.heat.map((h) => [h.name, h.count, h.rows.reduce((s, r) => s + r.counts.reduce((a, b) => a + b, 0), 0)]));
  assert.deepEqual(heat, [["libc:read duration_ns", durations.length, durations.length]]);
  const ratesPainted = await page.evaluate(() => [...document.querySelectorAll(".uplot canvas")].map((c) => c.getContext("2d").getImageData(0, 0, c.width, c.height).data.some((v, i) => i % 4 === 3 && v > 200)));
  assert.deepEqual(ratesPainted, [true, true]);
  done("rates and heat map are drawn");

  // Names of threads are text, whatever they say.
  assert.equal(await page.evaluate(() => window.hacked), undefined);
  assert.equal(await page.locator("img, #labels script").count(), 0);

  const ground = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  await page.mouse.move(box.x + box.width * 0.4, at.y);
  await settled(page);
  await page.screenshot({ path: screenshot });
  assert.ok(statSync(screenshot).size > 20000);
  const dark = await ground();
  await page.emulateMedia({ colorScheme: "light" });
  await settled(page);
  assert.notEqual(await ground(), dark);
  await page.setViewportSize({ width: 700, height: 500 });
  await settled(page);
  await page.close();
  done("dark, light, small");

  // States of threads, wake-ups, counters, tables of a range: what the report's events add up to.
  const told = command("report", "states", "--json").trim().split("\n").map((l) => JSON.parse(l)), origin = told[0].ts;
  const st = await open("states");
  const runsOf = (tid) => {
    const out = [];
    for (const e of told) {
      if (e.fields.next_pid === tid) out.push([e.ts - origin, Infinity]);
      if (e.fields.prev_pid === tid && out.length) out[out.length - 1][1] = e.ts - origin;
    }
    return out;
  };
  const inside = (list, a, b) => list.reduce((s, [x, y]) => s + Math.max(0, Math.min(y, b) - Math.max(x, a)), 0);
  const wakings = told.filter((e) => e.event === "sched:sched_waking");
  const wakes = await st.evaluate(() => [...window.ringside.model.wakes.at].map((t, n) => [t, window.ringside.model.wakes.from[n] < 0]));
  assert.deepEqual(wakes, wakings.map((e) => [e.ts - origin, e.tid === 0]));
  const [from, to] = [103_300_000, 205_100_000];
  await st.evaluate(([a, b]) => window.ringside.pane.choose(a, b), [from, to]);
  const table = async (n) => {
    await st.locator("#tabs button").nth(n).click();
    const [head, ...lines] = (await st.evaluate(() => window.ringside.pane.csv())).trim().split("\n").map((l) => l.split(","));
    return lines.map((l) => Object.fromEntries(head.map((h, i) => [h, l[i]])));
  };
  const requests = [];
  for (const e of told) if (e.event === "ringside:span" && e.tid === 5001) e.fields.track_event_type === 66 ? requests.push([e.ts - origin, 0]) : (requests[requests.length - 1][1] = e.ts - origin);
  const touched = requests.filter(([a, b]) => b > from && a < to);
  const slices = await table(0), first_ = slices[0], jobs = slices.find((r) => r.name === "job:done");
  assert.deepEqual(first_, { name: "request", count: String(touched.length), "sum (ns)": String(inside(requests, from, to)), "mean (ns)": String(inside(requests, from, to) / touched.length),
    "max (ns)": String(Math.max(...touched.map((r) => inside([r], from, to)))) });
  const done_ = told.filter((e) => e.event === "job:done" && e.ts - origin >= from && e.ts - origin <= to).length;
  assert.deepEqual([jobs.count, jobs["sum (ns)"]], [String(done_), ""]);
  assert.ok((await st.evaluate(() => window.ringside.pane.csv())).includes(`\n"'=1+1,""x""",1,,,\n`));
  const threads = await table(1);
  for (const [name, tid] of [["alpha-5001", 5001], ["beta-5002", 5002]]) {
    const row = threads.find((r) => r.thread === name);
    assert.equal(row["running (ns)"], String(inside(runsOf(tid), from, to)));
    const times = ["running", "runnable", "preempted", "blocked", "sleeping"].reduce((sum, n) => sum + +row[`${n} (ns)`], 0);
    assert.equal(times, to - from, "a thread is in one state at any time");
  }
  const depths = told.filter((e) => e.event === "ringside:counter" && e.tid === 5001 && e.ts - origin <= to).map((e) => e.fields.counter_value);
  const changes = told.filter((e) => e.event === "ringside:counter" && e.tid === 5001 && e.ts - origin >= from && e.ts - origin <= to).length;
  const depth = (await table(4)).find((r) => r.thread === "alpha-5001");
  assert.deepEqual([depth.last, depth.max, depth.changes], [String(depths[depths.length - 1]), String(Math.max(...depths)), String(changes)]);
  assert.deepEqual(await st.locator("#labels .group").evaluateAll((all) => all.map((e) => e.dataset.group)), ["Processors", "alpha (5001)", "Other threads"]);
  done("tables of a range are what the report adds up to");

  await st.evaluate(() => window.ringside.show(100e6, 112e6));
  await settled(st);
  // An event's system goes without saying in its slice; a span's name is shown as it was written.
  const written = await st.evaluate(() => {
    const { lanes, model } = window.ringside;
    return [...new Set(model.lanes.filter((l) => l.kind === "thread").flatMap((l) => [...l.items.what].map((_, n) => lanes.label(l, n))))];
  });
  assert.ok(written.includes("DB::Write") && written.includes("done"), written.join());

  const strip = (label, t) => st.evaluate(([l, at]) => window.ringside.place(l, at, "states"), [label, t]);
  let state = await tip(st, await strip("alpha-5001", 101_800_000), "runnable");
  assert.ok(state.includes("woken by") && state.includes("beta-5002 on CPU 1"), state);
  state = await tip(st, await strip("alpha-5001", 103_500_000), "running");
  assert.ok(state.includes("CPU 0") && state.includes("1 ms"), state);
  await tip(st, await strip("beta-5002", 109_000_000), "an interrupt on CPU 1");
  await tip(st, await strip("alpha-5001", 107_000_000), "sleeping");
  const spot = await strip("alpha-5001", 101_800_000);
  await st.mouse.click(spot.x, spot.y);
  await st.keyboard.press("u");
  await st.waitForFunction(() => document.getElementById("details").innerText.startsWith("running") && document.getElementById("details").innerText.includes("beta-5002"));
  const drawn = await st.evaluate(() => window.ringside.lanes.showsAllArrows);
  assert.equal(drawn, true);
  // One colour for one name.
  const named = await st.evaluate(() => {
    const { lanes, model } = window.ringside, out = {};
    model.raw.types.forEach((t, n) => (out[t.name] = lanes.ofType[n]));
    for (const l of model.lanes) {
      if (l.kind === "thread") for (let i = 0; i < l.items.size; ++i) out[lanes.name(l, i)] = lanes.colour(l, i);
      if (l.kind === "counter") out[l.name] = lanes.counterColour(l);
    }
    return out;
  });
  assert.ok(named.request && named["job:done"] && named.depth);
  assert.equal(new Set(Object.values(named)).size, Object.keys(named).length, JSON.stringify(named));
  // Dragging over the times chooses; Escape gives it up. A click folds a process.
  const ruler = await st.locator("#ruler canvas").boundingBox();
  await st.mouse.move(ruler.x + 200, ruler.y + 10);
  await st.mouse.down();
  await st.mouse.move(ruler.x + 500, ruler.y + 10, { steps: 4 });
  await st.mouse.up();
  const chosen = await st.evaluate(() => window.ringside.pane.chosen), now_ = await view(st);
  assert.ok(Math.abs((chosen.end - chosen.begin) / (now_.end - now_.begin) - 300 / ruler.width) < 0.01);
  await st.keyboard.press("Escape");
  assert.equal(await st.evaluate(() => window.ringside.pane.chosen), null);
  await st.locator('#labels .group[data-group="alpha (5001)"]').click();
  await settled(st);
  assert.deepEqual(await st.locator("#labels .label[data-lane]").evaluateAll((all) => all.map((e) => e.dataset.lane)), ["CPU 0", "CPU 1", "idle-0"]);
  await st.keyboard.press("g");
  await st.keyboard.press("r");
  // The panes fill the height, whatever it is.
  for (const [width, height] of [[1280, 800], [2560, 1440], [900, 700], [1280, 800]]) {
    for (const scheme of ["light", "dark"]) {
      await st.setViewportSize({ width, height });
      await st.emulateMedia({ colorScheme: scheme });
      await settled(st);
      const sizes = await st.evaluate(() => [...document.querySelectorAll("#panes > .pane, #middle")].filter((e) => getComputedStyle(e).display !== "none").map((e) => e.getBoundingClientRect()).map((r) => [r.top, r.bottom]));
      const end = await st.evaluate(() => document.getElementById("panes").getBoundingClientRect().bottom);
      sizes.sort((a, b) => a[0] - b[0]).forEach(([, bottom], n) => assert.ok(Math.abs((sizes[n + 1]?.[0] ?? end) - bottom) <= 1, `a hole under ${n} at ${width} x ${height}`));
      await st.waitForFunction(() => window.ringside.charts.heatLabels().length >= 2);
      const labels = await st.evaluate(() => window.ringside.charts.heatLabels());
      labels.forEach((y, n) => assert.ok(n === 0 || Math.abs(y - labels[n - 1]) >= 11, `labels of the heat map at ${labels}`));
    }
  }
  await st.close();
  done("states, arrows, colours, folding and the panes' heights");

  // More than may be drawn one by one: merged, counted, said.
  const few = await open("work", "--items", "100");
  assert.ok((await few.innerText("#notes")).includes("drawn as one"));
  const sums = await few.evaluate(() => window.ringside.model.lanes.filter((l) => l.kind === "thread").map((l) =>
    [l.label, [...Array(l.items.size).keys()].reduce((s, i) => s + (l.items.merged.get(i)?.[0] ?? 1), 0)]));
  const expected = {};
  for (const e of events) if (e.event.startsWith("libc:")) expected[`${e.task}-${e.tid}`] = (expected[`${e.task}-${e.tid}`] ?? 0) + 1;
  assert.deepEqual(Object.fromEntries(sums), expected);
  const bin = await few.evaluate(() => {
    const lane = window.ringside.model.lanes.find((l) => l.label === "as-4712"), b = lane.items.bins[0];
    const row = window.ringside.lanes.row(lane), p = window.ringside.place("as-4712", (b.begin + b.end) / 2);
    return { x: p.x, y: p.y - window.ringside.lanes.middle(lane, "slices") + row.height - 7, count: b.count };
  });
  assert.ok((await tip(few, bin, "merged")).startsWith(`${number(bin.count)} merged`));
  done("merged slices are counted and said");

  // Beside the hair: where events of another machine's clock may belong; here as if there were one.
  const band = () => few.evaluate(() => {
    const style = getComputedStyle(document.getElementById("hair"), "::before");
    return [-parseFloat(style.left), -parseFloat(style.right)];
  });
  assert.equal(await few.locator("#apart").count(), 0);
  const middle = await few.evaluate(() => {
    const { view, place } = window.ringside, t = (view.begin + view.end) / 2, apart = (view.end - view.begin) / 20;
    window.ringside.model.raw.apart = Math.round(apart);
    return { ...place("as-4712", t), wide: place("as-4712", t + apart).x - place("as-4712", t).x };
  });
  await few.mouse.move(middle.x, middle.y);
  for (const side of await band()) assert.ok(Math.abs(side - middle.wide) < 2, `${side}, not ${middle.wide}`);
  await few.evaluate(() => { window.ringside.model.raw.apart = null; });
  await few.mouse.move(middle.x - 100, middle.y);
  const everywhere = await band();
  assert.ok(everywhere[1] - everywhere[0] > 190 && everywhere[0] > 200, `${everywhere}`);  // all of the view
  await few.close();
  done("a band as wide as the clocks are apart");

  const huge = await open("huge");
  assert.equal((await huge.locator("#chips .chip").first().innerText()), "3 events");
  await huge.keyboard.press("w");
  await settled(huge);
  await huge.close();
  done("times at both ends");

  assert.deepEqual(complaints, []);
  done("no error, no message, no request");
} finally {
  if (complaints.length) console.error(complaints.join("\n"));
  await browser.close();
}
