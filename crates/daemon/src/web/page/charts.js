// Charts of the last minute, drawn by uPlot (loaded as a plain script). Colours come from the style sheet at each
// drawing, so that a change between light and dark is followed.
import { element } from "./tables.js";

/** Seconds that charts show. */
export const SPAN = 60;
const STYLES = [["one", []], ["two", [8, 4]], ["three", [2, 3]]];

const colour = (name) => () => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

function axis(more) {
  return { stroke: colour("faint"), grid: { stroke: colour("line"), width: 1 }, ticks: { stroke: colour("line"), width: 1 }, ...more };
}

const all = [];
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => all.forEach((chart) => chart.plot.redraw()));

class Chart {
  constructor(place, names, options) {
    this.place = place;
    const { clientWidth: width, clientHeight: height } = place;
    this.plot = new uPlot({ width: Math.max(width, 100), height, legend: { show: false }, cursor: { show: false }, ...options }, [[], ...names.map(() => [])], place);
    const lines = names.map((name, index) => element("li", { className: STYLES[index][0] }, name));
    place.after(element("ul", { className: "legend" }, ...lines));
    new ResizeObserver(() => this.#fit()).observe(place);
    all.push(this);
  }

  #fit() {
    const { clientWidth: width, clientHeight: height } = this.place;
    if (width > 0 && width !== this.plot.width) this.plot.setSize({ width, height });
  }

  /** Shows `data` (one list for x, one for each line), described by `text` for those who do not see it. */
  show(data, text) {
    if (this.place.clientWidth === 0) return;
    this.plot.setData(data);
    if (this.place.getAttribute("aria-label") !== text) this.place.setAttribute("aria-label", text);
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
