// SPDX-License-Identifier: GPL-2.0-only
// Draws what comes into view, all of it for paper; follows the colour scheme.

(() => {
  const drawn = JSON.parse(document.getElementById("drawn").textContent);
  document.querySelectorAll(".scripted").forEach((part) => (part.hidden = false));

  const pending = new Map();
  document.querySelectorAll("[data-plot]").forEach((box) => {
    pending.set(box, () => drawPlot(box, drawn.plots[box.dataset.plot]));
  });
  document.querySelectorAll("[data-timelines]").forEach((section) => {
    pending.set(section, () => new Timelines(section, drawn.timelines[section.dataset.timelines]));
  });
  const results = () => JSON.parse(document.getElementById("results").textContent);
  document.querySelectorAll("[data-growth]").forEach((box) => {
    pending.set(box, () => drawGrowth(box, results().overcommit));
  });
  const draw = (box) => {
    const make = pending.get(box);
    pending.delete(box);
    if (make) make();
  };
  const seen = new IntersectionObserver((entries) => {
    entries.filter((entry) => entry.isIntersecting).forEach(({ target }) => {
      seen.unobserve(target);
      draw(target);
    });
  }, { rootMargin: "400px" });
  pending.forEach((_, box) => seen.observe(box));

  const all = () => [...pending.keys()].forEach(draw);
  addEventListener("beforeprint", () => {
    all();
    redraw();
  });
  addEventListener("afterprint", redraw);
  for (const query of ["print", "(prefers-color-scheme: dark)"]) {
    matchMedia(query).addEventListener("change", () => {
      if (query === "print") all();
      redraw();
    });
  }

  document.getElementById("save").onclick = () => {
    const all = results();
    const file = new Blob([JSON.stringify(all, null, 2) + "\n"], { type: "application/json" });
    const link = document.createElement("a");
    link.href = URL.createObjectURL(file);
    link.download = (all.scenario ?? all.recording) + ".json";
    link.click();
    URL.revokeObjectURL(link.href);
  };
})();
