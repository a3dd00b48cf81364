// SPDX-License-Identifier: GPL-2.0-only
// Timelines: a row per pCPU, and one per vCPU. Zooming looks only at the spans that are visible, and
// what is narrower than a pixel is drawn once per pixel: a hundred thousand spans do not stutter.

/** Colours of VMs; the seventh looks like the first, its name tells. */
const VMS = ["v0", "v1", "v2", "v3", "v4", "v5"];

/** VMs in the legend. */
const LISTED = 16;

/** Spans to begin with: what a reader can tell apart. */
const LEGIBLE = 1500;

/** Rows, each with its spans in order: when, how long, and whose or where. */
function rows(timeline) {
  const row = (name) => ({ name, from: [], until: [], what: [], ready: [] });
  const add = (to, from, until, what, ready) => {
    to.from.push(from);
    to.until.push(until);
    to.what.push(what);
    to.ready.push(ready);
  };
  const pcpus = Array.from({ length: timeline.pcpus }, (_, at) => row(String(at)));
  const vcpus = [];
  const spans = pcpus.map(() => []);
  timeline.lanes.forEach((lane, number) => {
    const own = lane.vm === null ? null : row(lane.name);
    if (own) vcpus.push(own);
    let at = 0;
    for (let n = 0; n < lane.spans.length; n += 3) {
      const from = at + lane.spans[n + 1];
      at = from + lane.spans[n + 2];
      const pcpu = lane.spans[n] - 1;
      if (own) add(own, from, at, pcpu, pcpu < 0);
      if (own) own.vm = lane.vm;
      if (pcpu >= 0) spans[pcpu].push([from, at, number]);
    }
  });
  spans.forEach((list, pcpu) => {
    list.sort((a, b) => a[0] - b[0]);
    list.forEach(([from, until, number]) => add(pcpus[pcpu], from, until, number, false));
  });
  return { pcpus, vcpus };
}

/** How many spans a timeline has. */
function many(timeline) {
  return timeline.lanes.reduce((sum, lane) => sum + lane.spans.length / 3, 0);
}

/** The first span of a row that ends after `time`. */
function firstAfter(row, time) {
  let [low, high] = [0, row.until.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (row.until[middle] > time) high = middle;
    else low = middle + 1;
  }
  return low;
}

/** Characters of a row's name beside it. */
const BESIDE = 14;

/** A row's name as there is room for it: its end tells which of several alike it is, and which vCPU. */
function short(name) {
  return name.length <= BESIDE ? name : "…" + name.slice(1 - BESIDE);
}

/** The pictures of a case, and what moves them. */
class Timelines {
  constructor(section, all) {
    this.all = all;
    this.section = section;
    this.rows = all.map(rows);
    this.range = [0, Math.max(...all.map((one) => one.until - one.from))];
    this.whole = this.range;
    this.policy = 0;
    this.legend();
    this.charts = [
      this.picture(section.querySelector(".pcpus"), "pcpus"),
      this.picture(section.querySelector(".vcpus"), "vcpus"),
    ];
    const choice = section.querySelector(".policy");
    choice.onchange = () => {
      this.policy = Number(choice.value);
      this.legend();
      this.show(this.range);
    };
    section.querySelectorAll("[data-do]").forEach((button) => {
      button.onclick = () => this.act(button.dataset.do);
    });
    const most = Math.max(...all.map(many));
    this.show([0, this.whole[1] * Math.min(1, LEGIBLE / most)]);
  }

  get timeline() {
    return this.all[this.policy];
  }

  colour(vm) {
    return vm === null || vm === undefined ? colour("soft") : colour(VMS[vm % VMS.length]);
  }

  legend() {
    const item = (name, vm) => {
      const key = document.createElement("span");
      const patch = document.createElement("i");
      patch.style.background = vm === null ? "var(--soft)" : `var(--${VMS[vm % VMS.length]})`;
      key.append(patch, name);
      return key;
    };
    const { vms } = this.timeline;
    const items = vms.slice(0, LISTED).map(item);
    if (vms.length > LISTED) items.push(`… and ${vms.length - LISTED} more`);
    if (this.timeline.lanes.some((lane) => lane.vm === null)) items.push(item("host tasks", null));
    this.section.querySelector(".legend").replaceChildren(...items);
  }

  /** Moves all charts to a part of the time, ns since the timeline's beginning. */
  show([from, until]) {
    const [least, most] = this.whole;
    const width = Math.min(Math.max(until - from, 1000), most - least);
    const begin = Math.min(Math.max(from, least), most - width);
    this.range = [begin, begin + width];
    const started = performance.now();
    this.charts.forEach((made) => {
      made.batch(() => made.setScale("x", { min: begin, max: begin + width }));
    });
    const spans = many(this.timeline);
    const readout = this.section.querySelector(".readout");
    const after = this.timeline.from === 0 ? "" : `after ${time(this.timeline.from)} `;
    readout.textContent =
      `Shown: ${time(begin)} to ${time(begin + width)} ${after}of the run; ` +
      `the timeline has ${amount(spans)} spans.`;
    this.section.dataset.from = begin;
    this.section.dataset.until = begin + width;
    this.section.dataset.spans = spans;
    this.section.dataset.took = performance.now() - started;
  }

  act(what) {
    const [from, until] = this.range;
    const [middle, width] = [(from + until) / 2, until - from];
    const to = {
      in: [middle - width / 4, middle + width / 4],
      out: [middle - width, middle + width],
      left: [from - width / 4, until - width / 4],
      right: [from + width / 4, until + width / 4],
      all: this.whole,
    };
    this.show(to[what]);
  }

  picture(box, which) {
    const most = Math.max(...this.rows.map((rows) => rows[which].length));
    const lane = Math.min(20, Math.max(5, Math.floor(900 / most)));
    const longest = Math.max(...this.rows.flatMap((rows) => rows[which].map((row) => short(row.name).length)));
    const made = chart(box, {
      height: lane * most + 32,
      legend: { show: false },
      cursor: {
        y: false,
        drag: { x: true, y: false, setScale: false },
        points: { show: false },
        bind: { dblclick: () => () => this.show(this.whole) },
      },
      scales: { x: { time: false, auto: false, range: (_, from, until) => [from, until] }, y: { dir: -1, range: [0, most] } },
      axes: [
        axis({ values: (_, at) => at.map(time), space: 90, size: 28 }),
        axis({
          size: 14 + 7.5 * longest,
          splits: () => this.labelled(which, lane).map((at) => at + 0.5),
          values: (_, at) => at.map((row) => short(this.rows[this.policy][which][Math.floor(row)].name)),
          grid: { show: false },
          ticks: { show: false },
          gap: 4,
        }),
      ],
      series: [{}, { show: false }],
      hooks: {
        draw: [(made) => this.draw(made, which)],
        setCursor: [() => point()],
        setSelect: [
          (made) => {
            const { left, width } = made.select;
            if (width < 3) return;
            this.show([made.posToVal(left, "x"), made.posToVal(left + width, "x")]);
            made.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
          },
        ],
      },
    }, [[0, this.whole[1]], [null, null]]);
    const point = tooltip(made, (left, top) => this.words(made, which, left, top));
    box.addEventListener("keydown", (event) => {
      const keys = { "+": "in", "-": "out", ArrowLeft: "left", ArrowRight: "right", 0: "all" };
      if (!keys[event.key]) return;
      event.preventDefault();
      this.act(keys[event.key]);
    });
    // A pinch, and ctrl with the wheel: towards the pointer.
    made.over.addEventListener("wheel", (event) => {
      if (!event.ctrlKey) return;
      event.preventDefault();
      const [from, until] = this.range;
      const at = made.posToVal(event.offsetX, "x");
      const factor = event.deltaY > 0 ? 1.25 : 0.8;
      this.show([at - (at - from) * factor, at + (until - at) * factor]);
    }, { passive: false });
    return made;
  }

  /** Rows with a name beside them: as many as there is room for. */
  labelled(which, lane) {
    const every = Math.max(1, Math.ceil(12 / lane));
    const many = this.rows[this.policy][which].length;
    return Array.from({ length: Math.ceil(many / every) }, (_, at) => at * every);
  }

  draw(made, which) {
    const { ctx } = made;
    const { left, top, width, height } = made.bbox;
    const list = this.rows[this.policy][which];
    const room = height / made.scales.y.max;
    ctx.save();
    ctx.beginPath();
    ctx.rect(left, top, width, height);
    ctx.clip();
    ctx.font = `${Math.round(11 * devicePixelRatio)}px system-ui, DejaVu Sans, sans-serif`;
    ctx.textAlign = "left";
    ctx.textBaseline = "middle";
    list.forEach((row, at) => {
      const y = top + at * room;
      const inner = Math.max(1, room - 2 * devicePixelRatio);
      ctx.fillStyle = colour("back");
      ctx.fillRect(left, y, width, inner);
      this.drawRow(ctx, row, which, { left, width, y, inner });
    });
    ctx.restore();
  }

  drawRow(ctx, row, which, { left, width, y, inner }) {
    const [from, until] = this.range;
    const scale = width / (until - from);
    const lanes = this.timeline.lanes;
    // By colour, because changing it takes longer than drawing.
    const boxes = new Map();
    const labels = [];
    const one = (at, x, wide) => {
      const vm = which === "vcpus" ? row.vm : lanes[row.what[at]].vm;
      const key = row.ready[at] ? "ready" : vm;
      if (!boxes.has(key)) boxes.set(key, []);
      boxes.get(key).push(x, wide);
    };
    // Of the spans within one pixel the longest is drawn.
    let pixel = { x: -1, longest: 0, at: -1 };
    const flush = () => {
      if (pixel.at >= 0) one(pixel.at, pixel.x, 1);
      pixel = { x: -1, longest: 0, at: -1 };
    };
    for (let at = firstAfter(row, from); at < row.from.length && row.from[at] < until; at++) {
      const x = left + (Math.max(row.from[at], from) - from) * scale;
      const end = left + (Math.min(row.until[at], until) - from) * scale;
      if (end - x >= 1.5) {
        flush();
        one(at, x, Math.max(1, end - x - 0.5));
        if (!row.ready[at]) labels.push([at, x, end - x]);
        continue;
      }
      if (pixel.x !== Math.floor(x)) flush();
      const length = row.until[at] - row.from[at];
      if (length > pixel.longest) pixel = { x: Math.floor(x), longest: length, at };
    }
    flush();
    for (const [key, list] of boxes) {
      const ready = key === "ready";
      const [top, high] = ready ? [y + inner * 0.6, inner * 0.4] : [y, inner];
      ctx.fillStyle = ready ? colour("ready") : this.colour(key);
      for (let n = 0; n < list.length; n += 2) ctx.fillRect(list[n], top, list[n + 1], high);
    }
    ctx.fillStyle = colour("ground");
    labels.forEach(([at, x, wide]) => this.label(ctx, row.what[at], which, { x, wide, y, inner }));
  }

  /** Says in a wide span whose, or where it is. */
  label(ctx, what, which, { x, wide, y, inner }) {
    if (inner < 11 * devicePixelRatio || wide < 34 * devicePixelRatio) return;
    const words = which === "vcpus" ? "pCPU " + what : this.timeline.lanes[what].name;
    if (ctx.measureText(words).width + 8 * devicePixelRatio > wide) return;
    ctx.fillText(words, x + 4 * devicePixelRatio, y + inner / 2);
  }

  /** What is under the pointer. */
  words(made, which, left, top) {
    const list = this.rows[this.policy][which];
    const row = list[Math.floor((top / made.over.clientHeight) * made.scales.y.max)];
    if (!row) return [];
    const now = made.posToVal(left, "x");
    const at = firstAfter(row, now);
    const name = which === "vcpus" ? row.name : "pCPU " + row.name;
    if (at >= row.from.length || row.from[at] > now) {
      return [name + ": " + (which === "vcpus" ? "waiting" : "idle"), time(now)];
    }
    const doing = row.ready[at]
      ? "ready"
      : which === "vcpus"
        ? "on pCPU " + row.what[at]
        : this.timeline.lanes[row.what[at]].name;
    const length = row.until[at] - row.from[at];
    return [`${name}: ${doing}`, `${time(length)}, from ${time(row.from[at])} on`];
  }
}
