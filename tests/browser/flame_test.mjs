// usage: node flame_test.mjs CACHE RINGSIDE DIR CHROMIUM: opens a page of `ringside flame` and compares what it shows with
// `ringside flame --folded` of the same recording.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { createRequire } from "node:module";
import { mkdtempSync } from "node:fs";
import { join } from "node:path";

const [cache, ringside, dir, executablePath] = process.argv.slice(2);
const { chromium } = createRequire(join(cache, "package.json"))("playwright-core");
const command = (...words) => execFileSync(ringside, words, { cwd: dir, stdio: ["ignore", "pipe", "ignore"] }).toString();
const folded = command("flame", "stacks", "--folded").trim().split("\n").map((l) => ({ stack: l.slice(0, l.lastIndexOf(" ")).split(";"), weight: +l.slice(l.lastIndexOf(" ") + 1) }));
const sum = folded.reduce((n, f) => n + f.weight, 0);
assert.equal(sum, 100);
command("flame", "stacks", "-o", "flame.html", "--against", "stacks");

const browser = await chromium.launchPersistentContext(mkdtempSync(join(dir, "profile-")), {
  executablePath, headless: true, viewport: { width: 1200, height: 700 },
  args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"],
});
browser.setDefaultTimeout(60000);
const complaints = [], page = await browser.newPage(), url = "file://" + join(dir, "flame.html");
page.on("console", (m) => complaints.push("console: " + m.text()));
page.on("pageerror", (e) => complaints.push("error: " + e.stack));
page.on("request", (r) => r.url() === url || r.url().startsWith("data:") || complaints.push("request: " + r.url()));
await page.goto(url);
await page.waitForSelector("body[data-ready]");
assert.match(await page.textContent("#title"), /100 events/);

// The widths of frames are their shares: what stands under the mouse at a share of the width, in a row.
const details = async (share, row) => {
  const box = await (await page.$("#graph")).boundingBox();
  await page.mouse.move(box.x + share * box.width, box.y + row * 18 + 9);
  return page.textContent("#details");
};
const frames = (depth) => {
  const all = new Map();
  for (const { stack, weight } of folded) if (stack.length > depth) all.set(stack[depth], (all.get(stack[depth]) ?? 0) + weight);
  return [...all].sort(([a], [b]) => (a < b ? -1 : 1));
};
for (let depth = 0; depth < 4; depth++) {
  let left = 0;
  for (const [name, weight] of frames(depth)) {
    const text = await details((left + weight / 2) / sum, depth + 1);
    assert.ok(text.startsWith(name) && text.includes(`: ${weight} events`), `${name} ${weight}: ${text}`);
    assert.ok(text.includes(`in stacks: ${weight} events`), text);
    left += weight;
  }
}
console.log("ok each frame has its share, its name and its weight");

await page.fill("#search", "app+0x200");
assert.equal(await page.textContent("#matched"), "90.00 % matched");
await page.fill("#search", "/0x[34]00/");
assert.equal(await page.textContent("#matched"), "70.00 % matched");
await page.fill("#search", "");
console.log("ok search");

await details(0.3, 3);
await page.mouse.down();
await page.mouse.up();
assert.match(await details(0.9, 3), /^app\+0x200 \[app\]: 90 events, 90.00 % of all, 100 % of what is shown; its own: 30 events/);
await page.keyboard.press("Escape");
console.log("ok zoom");

await page.click("#invert");
assert.match(await details(0.3, 1), /^app\+0x[234]00/);
let own = 0;
for (const [n, w] of [["app+0x200", 30], ["app+0x300", 60], ["app+0x400", 10]]) {
  assert.ok((await details((own + w / 2) / sum, 1)).startsWith(n));
  own += w;
}
await page.click("#invert");
await page.click("#table");
const rows = await page.$$eval("#list tr", (all) => all.map((r) => [...r.cells].map((c) => c.textContent)));
assert.ok(rows.some((r) => r[0] === "30 events" && r[2] === "90 events" && r[4].startsWith("app+0x200")), JSON.stringify(rows));
console.log("ok inverted, and as a table");
await page.click("#table");
await page.mouse.move(1, 1);
assert.match(await page.textContent("#details"), /Red: a larger share of all than in the other recording/);
await page.keyboard.press("a");
assert.match(await page.textContent("#details"), /Red: more than in the other recording; blue: less/);
console.log("ok colours say what they compare");
await browser.close();
assert.deepEqual(complaints, []);
