// Charts of the last minute, drawn by uPlot (loaded as a plain script). Colours come from the style sheet; a change between
// light and dark reads them again. A chart asks the browser for no size while it draws: the answer would cost a layout of
// the whole page, which has just changed.
import { element } from "./tables.js";

/** Seconds that charts show. */
export const SPAN = 60;
const STYLES = [["one", []], ["two", [8, 4]], ["three", [2, 3]]];

/** Colours by name, of the present scheme. */
const colours = new Map();

const colour = (name) => () => {
  if (!colours.has(name)) colours.set(name, getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim());
  return colours.get(name);
};

function axis(more) {
  return { stroke: colour("faint"), grid: { stroke: colour("line"), width: 1 }, ticks: { stroke: colour("line"), width: 1 }, ...more };
}

const all = [];
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  colours.clear();
  all.forEach((chart) => chart.plot.redraw());
});

class Chart {
  /** In pixels; 0 while the chart is hidden. */
  #width;
  /** Not drawn yet. */
  #data = null;
  #isDrawn = false;
  #isInSight = true;

  constructor(place, names, options) {
    this.place = place;
    const { clientWidth: width, clientHeight: height } = place;
    this.#width = width;
    this.plot = new uPlot({ width: Math.max(width, 100), height, legend: { show: false }, cursor: { show: false }, ...options }, [[], ...names.map(() => [])], place);
    const lines = names.map((name, index) => element("li", { className: STYLES[index][0] }, name));
    place.after(element("ul", { className: "legend" }, ...lines));
    new ResizeObserver((sizes) => this.#fit(sizes.at(-1).contentRect)).observe(place);
    new IntersectionObserver((sights) => this.#see(sights.at(-1).isIntersecting)).observe(place);
    all.push(this);
  }

  #fit(size) {
    const [width, height] = [Math.round(size.width), Math.round(size.height)];
    this.#width = width;
    if (width > 0 && width !== this.plot.width) this.plot.setSize({ width, height });
    this.#draw();
  }

  #see(isInSight) {
    this.#isInSight = isInSight;
    this.#draw();
  }

  /** Shows `data` (one list for x, one for each line), described by `text` for those who do not see it. */
  show(data, text) {
    this.#data = data;
    if (this.place.getAttribute("aria-label") !== text) this.place.setAttribute("aria-label", text);
    this.#draw();
  }

  /** Draws the newest data. Out of sight only the first data are drawn, and the newest ones as soon as somebody sees them. */
  #draw() {
    if (this.#data === null || this.#width === 0 || (this.#isDrawn && !this.#isInSight)) return;
    this.plot.setData(this.#data);
    this.#data = null;
    this.#isDrawn = true;
  }
}

const below = (ticks) => ticks.map((seconds) => (seconds === 0 ? "now" : `${seconds} s`));

/** Lines over the last minute; `y` writes a value. */
export function timeChart(place, names, y, steps = false) {
  const paths = steps ? uPlot.paths.stepped({ align: -1 }) : undefined;
  const lines = names.map((_, index) => ({ stroke: colour(STYLES[index][0]), dash: STYLES[index][1], width: 2, points: { show: false }, spanGaps: false, paths }));
  return new Chart(place, names, {
    scales: { x: { time: false, range: [-SPAN, 0] }, y: { range: (_, low, high) => [0, Math.max(high * 1.1, 0.001)] } },
    series: [{}, ...lines],
    axes: [axis({ values: (_, ticks) => below(ticks) }), axis({ size: 70, values: (_, ticks) => ticks.map(y) })],
  });
}

/** Bars of a count for each class of the error, in parts of the period. */
export function histogram(place, name) {
  const bars = { stroke: colour("one"), fill: colour("one"), width: 0, points: { show: false }, paths: uPlot.paths.bars({ size: [0.9, 40] }) };
  return new Chart(place, [name], {
    scales: { x: { time: false, range: [-1.05, 1.05] }, y: { range: (_, low, high) => [0, Math.max(high * 1.1, 1)] } },
    series: [{}, bars],
    axes: [axis({ values: (_, ticks) => ticks.map((error) => `${+error.toFixed(2)} T`) }), axis({ size: 50 })],
  });
}

const CLASSES = 41;

/** Counts errors in classes of a twentieth of the period; the first and the last class have all beyond. */
export function classes(errors) {
  const middles = Array.from({ length: CLASSES }, (_, index) => (index - 20) / 20);
  const counts = middles.map(() => 0);
  for (const error of errors) counts[Math.min(CLASSES - 1, Math.max(0, Math.round(error * 20) + 20))] += 1;
  return [middles, counts];
}

/** Lines over the seconds of a simulation, on a scale from 0 to `most`. */
export function courseChart(place, names, most, y) {
  const lines = names.map((_, index) => ({ stroke: colour(STYLES[index][0]), dash: STYLES[index][1], width: 2, points: { show: false }, spanGaps: true }));
  return new Chart(place, names, {
    scales: { x: { time: false }, y: { range: [0, most] } },
    series: [{}, ...lines],
    axes: [axis({ values: (_, ticks) => ticks.map((second) => `${second} s`) }), axis({ size: 70, values: (_, ticks) => ticks.map(y) })],
  });
}
