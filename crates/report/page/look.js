// SPDX-License-Identifier: GPL-2.0-only
// What all pictures share: colours and strokes from the page's style, times for people, charts that
// follow the page's width.
"use strict";

/** Colours asked for so far: asking the page makes it compute its layout. */
const colours = new Map();

/** A colour of the page's style, as it is now: light, dark or on paper. */
function colour(name) {
  if (!colours.has(name)) {
    const style = getComputedStyle(document.documentElement);
    colours.set(name, style.getPropertyValue("--" + name).trim());
  }
  return colours.get(name);
}

/** Strokes of policies, the reference first: told apart by their dashes, too. */
const STROKES = [
  ["reference", [2, 5]],
  ["other", []],
  ["s2", [9, 5]],
  ["s3", [1, 5]],
  ["s4", [9, 4, 2, 4]],
  ["s5", []],
  ["s6", [14, 4]],
];

/** ns in the unit that fits, with three digits. */
function time(ns) {
  if (ns === 0) return "0";
  const units = [["s", 1e9], ["ms", 1e6], ["µs", 1e3], ["ns", 1]];
  const [unit, size] = units.find(([, size]) => Math.abs(ns) >= size) || units[3];
  return Number((ns / size).toPrecision(3)) + " " + unit;
}

/** A number with commas. */
function amount(number) {
  return number.toLocaleString("en");
}

/** Axes look alike in all charts. */
function axis(more) {
  return {
    stroke: () => colour("soft"),
    grid: { stroke: () => colour("rule"), width: 1 },
    ticks: { stroke: () => colour("rule"), width: 1, size: 4 },
    font: "12px system-ui, DejaVu Sans, sans-serif",
    ...more,
  };
}

/** Every chart that there is. */
const charts = [];

/** A chart that is as wide as `box`, whatever happens to the page. */
function chart(box, options, data) {
  const width = () => Math.max(120, Math.floor(box.clientWidth));
  const made = new uPlot({ width: width(), ...options }, data, box);
  charts.push(made);
  new ResizeObserver(() => {
    if (made.width !== width()) made.setSize({ width: width(), height: options.height });
  }).observe(box);
  return made;
}

/** Colours are other ones: draw everything anew. */
function redraw() {
  colours.clear();
  charts.forEach((made) => made.redraw(false));
}

/** A box with words that follows the pointer over a chart. */
function tooltip(made, words) {
  const box = document.createElement("div");
  box.className = "tooltip";
  box.hidden = true;
  made.over.appendChild(box);
  return () => {
    const { left, top } = made.cursor;
    const lines = left >= 0 ? words(left, top) : [];
    box.hidden = lines.length === 0;
    if (box.hidden) return;
    box.replaceChildren(
      ...lines.map((line) => {
        const row = document.createElement("div");
        row.textContent = line;
        return row;
      }),
    );
    const right = left > made.over.clientWidth / 2;
    box.style.left = right ? "" : left + 12 + "px";
    box.style.right = right ? made.over.clientWidth - left + 12 + "px" : "";
    box.style.top = Math.min(top, Math.max(0, made.over.clientHeight - box.offsetHeight)) + "px";
  };
}
