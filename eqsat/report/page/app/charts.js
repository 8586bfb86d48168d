"use strict";
// Charts by Observable Plot, one for the whole run each: arena, where time goes, search, the clock.

const MOST_STEPS = 400; // that the arena is drawn for as a whole
const STEPS_AROUND = 100; // the chosen dispatch, in a longer program
// ---- arena ---------------------------------------------------------------------------------------

/** The steps the arena is drawn for: all, or of a long program those around one. */
page.arenaSteps = (graph, around) => {
  const count = graph.live_bytes.length;
  if (count <= MOST_STEPS) return [0, count];
  const first = Math.min(Math.max(0, around - STEPS_AROUND), count - 2 * STEPS_AROUND);
  return [first, first + 2 * STEPS_AROUND];
};

/** Temporaries as rectangles, address by step; the line is what is live. */
page.arenaChart = (graph, [first, end], width, onSelect) => {
  const isPlaced = (v) => v.role === "temporary" && v.offset !== null;
  const placed = graph.values.filter((v) => isPlaced(v) && v.last >= first && v.first < end);
  if (!Math.max(0, ...graph.live_bytes)) return null;
  const theme = page.theme();
  const unit = unitOf(Math.max(graph.arena_bytes ?? 0, ...graph.live_bytes));
  const rects = placed.map((v) => ({
    ...v,
    x1: Math.max(first, v.first),
    x2: Math.min(end, v.last + 1),
    y1: v.offset / unit.size,
    y2: (v.offset + v.nbytes) / unit.size,
    text: `${v.name}: ${page.typeText(v)}\n${page.bytesText(v.nbytes)}, steps ${v.first} to ${v.last}`,
  }));
  const live = graph.live_bytes
    .slice(first, end)
    .map((bytes, i) => ({ step: first + i, size: bytes / unit.size }));
  live.push({ step: end, size: live.at(-1).size });
  const middle = { x: (v) => (v.x1 + v.x2) / 2, y: (v) => (v.y1 + v.y2) / 2 };
  const chart = Plot.plot({
    width,
    height: 260,
    marginLeft: 56,
    marginBottom: 42,
    style: page.plainStyle(theme),
    x: {
      label: "step →",
      domain: [first, end],
      ticks: wholeTicks(first, end, width / 60),
      tickFormat: "d",
    },
    y: { label: `↑ ${unit.name}`, grid: true, nice: true },
    ariaLabel: "the arena of temporaries, address by step",
    marks: [
      Plot.rect(rects, {
        x1: "x1",
        x2: "x2",
        y1: "y1",
        y2: "y2",
        fillOpacity: 0.7,
        stroke: theme.paper,
        fill: (v) => page.layoutColour(v.layout, theme),
      }),
      Plot.lineY(live, {
        x: "step",
        y: "size",
        curve: "step-after",
        stroke: theme.ink,
        strokeWidth: 1.5,
      }),
      Plot.tip(
        rects,
        Plot.pointer({ ...middle, title: "text", fill: theme.paper, stroke: theme.line }),
      ),
    ],
  });
  chart.addEventListener("click", () => {
    if (chart.value?.writer >= 0) onSelect(chart.value.writer);
  });
  return chart;
};

const wholeTicks = (first, end, count) => d3.ticks(first, end, count).filter(Number.isInteger);

const unitOf = (bytes) => {
  const units = [
    ["GiB", 2 ** 30],
    ["MiB", 2 ** 20],
    ["KiB", 2 ** 10],
  ];
  const [name, size] = units.find(([, s]) => bytes >= 2 * s) ?? ["B", 1];
  return { name, size };
};

// ---- where time goes -----------------------------------------------------------------------------

/** Dispatches of one name, all layers together. */
page.timesChart = (graph, width) => {
  if (!graph.time_ps) return null;
  const layers = page.layersOf(graph);
  const sums = new Map();
  graph.dispatches.forEach((d, i) => {
    const place = layers.get(i);
    const layer = place && graph.folds[place[0]].layers[place[1]];
    // of `layer.mul_3` in one layer and `layer.mul_9` in the next, the number tells nothing
    const name = page.nameInLayer(d.weight || d.name.replace(/_\d+(?=@|$)/, ""), layer);
    const sum = sums.get(name) ?? { name, time: 0, count: 0 };
    sums.set(name, { name, time: sum.time + d.time_ps, count: sum.count + 1 });
  });
  const rows = [...sums.values()].sort((a, b) => b.time - a.time).slice(0, 10);
  const theme = page.theme();
  const left = Math.min(210, width * 0.42);
  const unit = rows[0].time >= 1e9 ? { name: "ms", size: 1e9 } : { name: "us", size: 1e6 };
  return Plot.plot({
    width,
    height: 56 + 24 * rows.length,
    marginBottom: 42,
    marginLeft: left,
    marginRight: 96,
    style: page.plainStyle(theme),
    x: { label: `${unit.name} →`, grid: true, ticks: width < 500 ? 3 : 6 },
    y: {
      label: null,
      domain: rows.map((r) => r.name),
      tickFormat: (name) => page.fitted(name, left - 14, "12px system-ui, sans-serif"),
    },
    ariaLabel: "time by dispatch",
    marks: [
      Plot.barX(rows, {
        x: (r) => r.time / unit.size,
        y: "name",
        fill: theme.mark,
        fillOpacity: 0.75,
      }),
      Plot.text(rows, {
        x: (r) => r.time / unit.size,
        y: "name",
        dx: 5,
        textAnchor: "start",
        fill: theme.ink,
        text: (r) => page.timeText(r.time) + (r.count > 1 ? ` ×${r.count}` : ""),
      }),
    ],
  });
};

// ---- the search, and the clock -------------------------------------------------------------------

/** The best value and its bound over the seconds of the search. */
page.searchChart = (width) => {
  const { curve, goal } = page.data;
  const end = Math.max(0, ...curve.map(([seconds]) => seconds));
  const known = curve.filter(([, , value]) => value !== null);
  if (!known.length || end === 0) return null;
  const theme = page.theme();
  const points = [];
  for (const [seconds, , value, bound] of curve) {
    if (value !== null) points.push({ seconds, y: value, what: "best" });
    if (bound !== null) points.push({ seconds, y: bound, what: "bound" });
  }
  for (const what of ["best", "bound"]) {
    const last = points.filter((p) => p.what === what).at(-1);
    if (last) points.push({ ...last, seconds: end });
  }
  const phases = curve.filter(([, , value, bound]) => value === null && bound === null);
  const format = (value) => page.valueOfGoal(goal, value);
  const apart = tickFormat(
    goal,
    points.map((p) => p.y),
  );
  return Plot.plot({
    width,
    height: 240,
    marginBottom: 42,
    marginLeft: 74,
    marginTop: 30,
    marginRight: 24,
    style: page.plainStyle(theme),
    x: { label: "seconds →", domain: [0, end] },
    y: { label: `↑ ${goal}`, tickFormat: apart, grid: true, ticks: 5, nice: true },
    color: { domain: ["best", "bound"], range: [theme.mark, theme.hues[0]], legend: true },
    ariaLabel: `${goal} and its bound over the search`,
    marks: [
      Plot.ruleX(phases, { x: (p) => p[0], stroke: theme.line }),
      Plot.text(spreadOut(phases, end, width), {
        x: (p) => p[0],
        text: (p) => p[1],
        frameAnchor: "top-left",
        dy: -16,
        dx: 2,
        fill: theme.soft,
      }),
      Plot.lineY(points, {
        x: "seconds",
        y: "y",
        stroke: "what",
        curve: "step-after",
        strokeWidth: 2,
      }),
      Plot.dot(points, { x: "seconds", y: "y", fill: "what", r: 2.5, title: (p) => format(p.y) }),
    ],
  });
};

/** Figures of an axis with as many digits as tell its ticks apart. */
const tickFormat = (goal, values) => {
  const [low, high] = d3.extent(values);
  const units =
    goal === "time"
      ? [
          ["s", 1e12],
          ["ms", 1e9],
          ["us", 1e6],
          ["ns", 1e3],
        ]
      : [];
  const found = units.find(([, size]) => high >= size);
  if (!found || low === high) return (value) => page.valueOfGoal(goal, value);
  const [unit, size] = found;
  const digits = d3.precisionFixed((high - low) / 5 / size);
  return (value) => `${(value / size).toFixed(digits)} ${unit}`;
};

/** The phases whose names have room beside each other. */
const spreadOut = (phases, end, width) => {
  let free = -Infinity;
  return phases.filter(([seconds, name]) => {
    const at = (seconds / end) * (width - 98);
    if (at < free) return false;
    free = at + 7 * name.length + 8;
    return true;
  });
};

/** Programs that were timed: what the model predicts beside what the clock says. */
page.measuredChart = (width) => {
  const { measured } = page.data;
  if (!measured.length) return null;
  const theme = page.theme();
  const rows = measured.flatMap(([name, predicted, wall]) => [
    ...(predicted === null ? [] : [{ name, what: "predicted", us: predicted }]),
    { name, what: "measured", us: wall },
  ]);
  return Plot.plot({
    width,
    height: 60 + 48 * measured.length,
    marginLeft: 100,
    marginRight: 70,
    style: page.plainStyle(theme),
    x: { label: "us →", grid: true },
    y: { axis: null, domain: ["predicted", "measured"] },
    fy: { label: null, domain: measured.map(([name]) => name) },
    color: { domain: ["predicted", "measured"], range: [theme.hues[0], theme.mark], legend: true },
    ariaLabel: "predicted and measured time",
    marks: [
      Plot.barX(rows, { x: "us", y: "what", fy: "name", fill: "what" }),
      Plot.text(rows, {
        x: "us",
        y: "what",
        fy: "name",
        dx: 4,
        textAnchor: "start",
        fill: theme.ink,
        text: (r) => page.timeText(r.us * 1e6),
      }),
    ],
  });
};
