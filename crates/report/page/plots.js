// SPDX-License-Identifier: GPL-2.0-only
// Distributions: cumulative shares as curves, shares of each length as steps; times on a logarithmic
// axis, because waits differ by powers of ten.

/** The number of the histogram's bin for a time: two per power of two, which the data's steps fit. */
function bin(ns) {
  const magnitude = Math.floor(Math.log2(ns));
  return 2 * magnitude + (ns >= 1.5 * 2 ** magnitude ? 1 : 0);
}

/** Where a bin begins, ns. */
function begin(bin) {
  return (bin % 2 ? 1.5 : 1) * 2 ** Math.floor(bin / 2);
}

/** Cumulative shares, with a common axis: [times, curve, curve …]. */
function cumulative(curves) {
  const ends = [...new Set(curves.flatMap((curve) => curve.steps.map(([end]) => end)))];
  ends.sort((a, b) => a - b);
  const shares = curves.map(({ steps }) => {
    const whole = steps.reduce((sum, [, count]) => sum + count, 0);
    let at = 0;
    let sum = 0;
    return ends.map((end) => {
      while (at < steps.length && steps[at][0] <= end) sum += steps[at++][1];
      return whole ? sum / whole : null;
    });
  });
  // Nothing is shorter than the shortest step: curves begin at 0.
  return [[ends[0] / 1.1, ...ends], ...shares.map((share) => [share[0] === null ? null : 0, ...share])];
}

/** Shares of each bin; each is drawn from its beginning, so one more ends the last. */
function histogram(curves) {
  const sums = curves.map(({ steps }) => {
    const bins = new Map();
    for (const [end, count] of steps) bins.set(bin(end), (bins.get(bin(end)) || 0) + count);
    return bins;
  });
  const used = sums.flatMap((bins) => [...bins.keys()]);
  const first = Math.min(...used) - 1;
  const bins = Array.from({ length: Math.max(...used) + 2 - first }, (_, at) => first + at);
  const shares = sums.map((sum) => {
    const whole = [...sum.values()].reduce((all, count) => all + count, 0);
    return bins.map((bin) => (whole ? (sum.get(bin) || 0) / whole : null));
  });
  return [bins.map(begin), ...shares];
}

/** Powers of ten; every other one where there are many. */
function decades(from, until) {
  const [first, last] = [Math.ceil(Math.log10(from)), Math.floor(Math.log10(until))];
  const every = last - first > 4 ? 2 : 1;
  return Array.from({ length: Math.floor((last - first) / every) + 1 }, (_, at) => 10 ** (first + at * every));
}

/** A plot in its box. */
function drawPlot(box, plot) {
  const cdf = plot.kind === "cdf";
  const data = cdf ? cumulative(plot.curves) : histogram(plot.curves);
  const paths = uPlot.paths.stepped({ align: 1 });
  const series = plot.curves.map((curve, at) => {
    const [name, dash] = STROKES[at % STROKES.length];
    return {
      label: curve.name,
      stroke: () => colour(name),
      width: 2,
      dash,
      cap: "round",
      paths,
      points: { show: false },
    };
  });
  const percent = (share) => (share === null ? "–" : Number((share * 100).toPrecision(3)) + " %");
  const made = chart(box, {
    height: 190,
    legend: { show: false },
    cursor: { y: false, drag: { x: true, y: false }, points: { show: false } },
    scales: {
      x: { time: false, distr: 3, log: 10 },
      y: { range: cdf ? [0, 1] : (_, __, most) => [0, most * 1.1 || 1] },
    },
    axes: [
      axis({
        splits: (_, __, from, until) => decades(from, until),
        filter: (_, at) => at,
        values: (_, at) => at.map(time),
        size: 32,
      }),
      axis({ values: (_, at) => at.map((share) => Math.round(share * 100) + " %"), size: 46 }),
    ],
    series: [{}, ...series],
    hooks: { setCursor: [() => point()] },
  }, data);
  const point = tooltip(made, () => {
    const at = made.cursor.idx;
    if (at === null || at === undefined) return [];
    const length = cdf
      ? "≤ " + time(data[0][at])
      : time(data[0][at]) + " – " + time(begin(bin(data[0][at]) + 1));
    return [length, ...plot.curves.map((curve, of) => curve.name + ": " + percent(data[of + 1][at]))];
  });
}
