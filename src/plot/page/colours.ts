// Colours of names: one for each name, everywhere on the page. The first are hand-picked, the next ones always those that differ most
// from all before them (distances in OKLab), so they can be told apart as long as that is possible at all.

// Okabe and Ito's colours (told apart with any colour vision), without their vermilion and grey: these say "lost" and "various".
const strong = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#b8a800", "#7a5ca8"];
// Tol's light scheme: dark letters stand well on each.
const light = ["#77aadd", "#eedd88", "#44bb99", "#ffaabb", "#99ddff", "#bbcc33", "#c8b6e2", "#aaaa00"];
const taken = ["#c44a00", "#ff8a3c", "#8c8c8c"];
export const various = "#8c8c8c";

type Lab = [number, number, number];
function lab(hex: string): Lab {
  const [r, g, b] = [1, 3, 5].map((i) => {
    const v = parseInt(hex.slice(i, i + 2), 16) / 255;
    return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  });
  const l = Math.cbrt(0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b);
  const m = Math.cbrt(0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b);
  const s = Math.cbrt(0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b);
  return [0.2104542553 * l + 0.793617785 * m - 0.0040720468 * s, 1.9779984951 * l - 2.428592205 * m + 0.4505937099 * s, 0.0259040371 * l + 0.7827717662 * m - 0.808675766 * s];
}
// Null: no screen shows it.
function hex(lightness: number, chroma: number, hue: number): string | null {
  const a = chroma * Math.cos(hue), b = chroma * Math.sin(hue);
  const l = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3, m = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3, s = (lightness - 0.0894841775 * a - 1.291485548 * b) ** 3;
  const rgb = [4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s, -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s, -0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s];
  if (rgb.some((v) => v < 0 || v > 1)) return null;
  return "#" + rgb.map((v) => Math.round(255 * (v <= 0.0031308 ? 12.92 * v : 1.055 * v ** (1 / 2.4) - 0.055)).toString(16).padStart(2, "0")).join("");
}
const apart = (a: Lab, b: Lab) => Math.hypot(1.4 * (a[0] - b[0]), a[1] - b[1], a[2] - b[2]);

function palette(first: string[], lightness: number[], chroma: number[], size: number): string[] {
  const out = [...first];
  // First among the middle ones, which go well together, then among all.
  for (const [many, chromas] of [[24, chroma.slice(0, 2)], [size, chroma]] as [number, number[]][]) {
    const candidates: [string, Lab, number][] = [];
    for (const l of lightness) for (const c of chromas) for (let h = 0; h < 36; ++h) {
      const one = hex(l, c, (h * Math.PI) / 18);
      if (one) candidates.push([one, lab(one), Infinity]);
    }
    for (const c of candidates) for (const k of [...taken, ...out].map(lab)) c[2] = Math.min(c[2], apart(c[1], k));
    while (out.length < many) {
      const best = candidates.reduce((a, b) => (b[2] > a[2] ? b : a));
      out.push(best[0]);
      for (const c of candidates) c[2] = Math.min(c[2], apart(c[1], best[1]));
    }
  }
  return out;
}

// The colours of names, the most important first. Beyond a hundred they repeat.
function colours(names: Iterable<string>, all: string[]): Map<string, string> {
  const out = new Map<string, string>();
  for (const name of names) if (!out.has(name)) out.set(name, all[out.size % all.length]);
  return out;
}
export const ofEvents = (names: Iterable<string>) => colours(names, palette(strong, [0.54, 0.64, 0.74], [0.08, 0.12, 0.04, 0.16], 100));
export const ofThreads = (names: Iterable<string>) => colours(names, palette(light, [0.76, 0.83, 0.89], [0.06, 0.1, 0.03, 0.14], 100));
