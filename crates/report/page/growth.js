// SPDX-License-Identifier: GPL-2.0-only
// How far overcommit can go: the ready time of the VM that waits most, over the number of VMs added; a
// curve with spread per policy, and the target across.

/** Numbers of VMs to be written below: all, or every few. */
function wholes(from, until) {
  const every = Math.ceil((until - from) / 12) || 1;
  const first = Math.ceil(from);
  return Array.from({ length: Math.floor((until - first) / every) + 1 }, (_, at) => first + at * every);
}

/** The curves of `all`, as `--json` has them under "overcommit". */
function drawGrowth(box, all) {
  const most = Math.max(...all.map(({ steps }) => steps.length - 1));
  const added = Array.from({ length: most + 1 }, (_, at) => at);
  const shares = (key) => all.map(({ steps }) => added.map((at) => steps[at]?.worst_ready_share[key] ?? null));
  const [medians, least, largest] = ["median", "least", "most"].map(shares);
  const target = all[0].target;
  const top = Math.max(target, ...largest.flat()) * 1.1 || 1;
  const percent = (share) => Number((share * 100).toPrecision(3)) + " %";
  const series = all.map((one, at) => {
    const [name, dash] = STROKES[at];
    return {
      label: one.policy,
      stroke: () => colour(name),
      width: 2,
      dash,
      cap: "round",
      points: { show: true, size: 8, stroke: () => colour(name), fill: () => colour(name) },
    };
  });
  const line = (made, name, dash, width, [x, y], [toX, toY]) => {
    const { ctx } = made;
    ctx.save();
    ctx.strokeStyle = colour(name);
    ctx.lineWidth = width * devicePixelRatio;
    ctx.setLineDash(dash.map((length) => length * devicePixelRatio));
    ctx.beginPath();
    ctx.moveTo(x, y);
    ctx.lineTo(toX, toY);
    ctx.stroke();
    ctx.restore();
  };
  /** The target, and each point's spread; curves are beside each other where both have a point. */
  const extra = (made) => {
    const { left, width } = made.bbox;
    const y = (share) => made.valToPos(share, "y", true);
    line(made, "ready", [6, 4], 2, [left, y(target)], [left + width, y(target)]);
    all.forEach((_, of) => {
      added.filter((at) => medians[of][at] !== null).forEach((at) => {
        const x = made.valToPos(at, "x", true);
        line(made, STROKES[of][0], [], 1.5, [x, y(least[of][at])], [x, y(largest[of][at])]);
      });
    });
  };
  const made = chart(box, {
    height: 240,
    legend: { show: false },
    cursor: { y: false, drag: { x: false, y: false }, points: { show: false } },
    scales: { x: { time: false, range: [-0.4, most + 0.4] }, y: { range: [0, top] } },
    axes: [
      axis({
        splits: (_, __, from, until) => wholes(from, until),
        values: (_, at) => at.map((count) => (count === 0 ? "as it is" : "+" + count)),
        size: 32,
      }),
      axis({ values: (_, at) => at.map(percent), size: 52 }),
    ],
    series: [{}, ...series],
    hooks: { draw: [extra], setCursor: [() => point()] },
  }, [added, ...medians]);
  const point = tooltip(made, () => {
    const at = made.cursor.idx;
    if (at === null || at === undefined) return [];
    const here = all.filter(({ steps }) => steps[at]);
    const ratio = here[0].steps[at].vcpus_per_pcpu;
    const words = here.map(({ policy, steps }) => `${policy}: ${percent(steps[at].worst_ready_share.median)} (${steps[at].worst_vm})`);
    return [`${at === 0 ? "as it is" : at + " more"}: ${Number(ratio.toPrecision(3))} vCPUs per pCPU`, ...words];
  });
}
