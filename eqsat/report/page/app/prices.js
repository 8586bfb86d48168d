"use strict";
// Charts by Observable Plot of one dispatch: the parts of its time, and its place under the roofs.

const PS_PER_S = 1e12;

/** What the time of one dispatch is made of, a bar per part; compute and traffic overlap. */
page.partsChart = (parts, width) => {
  const theme = page.theme();
  const rows = parts.map(([name, ps]) => ({ name, ps }));
  const longest = Math.max(...rows.map((r) => r.ps));
  return Plot.plot({
    width,
    height: 6 + 20 * rows.length,
    marginLeft: 62,
    marginRight: 66,
    marginTop: 2,
    marginBottom: 2,
    style: page.plainStyle(theme),
    x: { axis: null, domain: [0, longest] },
    y: { label: null, domain: rows.map((r) => r.name), tickSize: 0 },
    ariaLabel: "parts of the time",
    marks: [
      Plot.barX(rows, {
        x: "ps",
        y: "name",
        fill: theme.mark,
        fillOpacity: 0.75,
        insetTop: 1,
        insetBottom: 1,
      }),
      Plot.text(rows, {
        x: "ps",
        y: "name",
        dx: 4,
        textAnchor: "start",
        fill: theme.ink,
        text: (r) => page.timeText(r.ps),
      }),
    ],
  });
};

const intensity = (d) => d.flops / d.nbytes;
const speed = (d) => (d.flops / d.time_ps) * PS_PER_S;

/** Operations per second by operations per byte, under the roofs of the target; null without any. */
page.rooflineChart = (graph, chosen, width) => {
  const { machine } = page.data;
  const isDrawn = (d) => d.flops > 0 && d.nbytes > 0 && d.time_ps > 0;
  if (machine === null || !isDrawn(chosen)) return null;
  const theme = page.theme();
  const all = graph.dispatches.filter(isDrawn);
  const ridges = machine.bandwidths.map(([, bandwidth]) => machine.rate / bandwidth);
  const low = Math.min(...all.map(intensity), ...ridges) / 4; // room for the name of a roof
  const high = Math.max(...all.map(intensity), ...ridges) * 2;
  const roofs = machine.bandwidths.map(([name, bandwidth]) => ({
    name,
    bandwidth,
    ridge: machine.rate / bandwidth,
  }));
  const line = (r) => [
    { x: low, y: low * r.bandwidth },
    { x: r.ridge, y: machine.rate },
    { x: high, y: machine.rate },
  ];
  return Plot.plot({
    width,
    height: 200,
    marginBottom: 42,
    marginLeft: 48,
    marginRight: 14,
    style: page.plainStyle(theme),
    x: {
      type: "log",
      label: "operations per byte →",
      domain: [low, high],
      ticks: 4,
      tickFormat: "~g",
    },
    y: { type: "log", label: "↑ operations per s", ticks: 4, tickFormat: "~s", grid: true },
    ariaLabel: "roofline",
    marks: [
      ...roofs.map((r) =>
        Plot.line(line(r), { x: "x", y: "y", stroke: theme.soft, strokeWidth: 1 }),
      ),
      ...[roofs[0], roofs.at(-1)].map((r, i) =>
        Plot.text([r], {
          x: (o) => Math.sqrt(low * o.ridge),
          y: (o) => Math.sqrt(low * o.ridge) * o.bandwidth,
          text: "name",
          fill: theme.soft,
          ...(i ? { textAnchor: "start", dx: 8 } : { textAnchor: "end", dx: -8 }),
        }),
      ),
      Plot.dot(all, {
        x: intensity,
        y: speed,
        r: 2.5,
        fill: (d) => page.layoutColour(d.layout, theme),
        fillOpacity: 0.6,
        title: (d) => `${d.name}: ${page.timeText(d.time_ps)}`,
      }),
      Plot.dot([chosen], {
        x: intensity,
        y: speed,
        r: 6,
        stroke: theme.mark,
        strokeWidth: 3,
        fill: theme.paper,
      }),
    ],
  });
};
