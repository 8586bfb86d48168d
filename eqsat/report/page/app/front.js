"use strict";
// The page of a front: one goal over another, a point per program, the input beside them.

/** The unit of an axis: `{name, size}`. */
const axisUnit = (goal, largest) => {
  const text = page.valueOfGoal(goal, largest);
  const name = text.split(" ")[1] ?? "";
  const sizes = { s: 1e12, ms: 1e9, us: 1e6, ns: 1e3, KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30 };
  return { name, size: sizes[name] ?? 1 };
};

page.frontChart = ({ goals, points, input }, width) => {
  const theme = page.theme();
  const all = input ? [...points, input] : points;
  const [x, y] = goals.map((goal, i) => {
    const unit = axisUnit(goal, Math.max(...all.map((p) => (i ? p.y : p.x))));
    return { unit, label: unit.name ? `${goal} (${unit.name})` : goal };
  });
  const at = { x: (p) => p.x / x.unit.size, y: (p) => p.y / y.unit.size };
  const line = [...points].sort((a, b) => a.x - b.x);
  return Plot.plot({
    width,
    height: Math.max(280, Math.min(420, width * 0.55)),
    marginTop: 32,
    marginLeft: 60,
    marginRight: 60,
    marginBottom: 46,
    style: page.plainStyle(theme),
    x: { label: `${x.label} →`, grid: true, nice: true, ticks: width / 90 },
    y: { label: `↑ ${y.label}`, grid: true, nice: true, ticks: 6 },
    ariaLabel: `${goals[1]} over ${goals[0]}`,
    marks: [
      Plot.line(line, { ...at, curve: "step-after", stroke: theme.line, strokeWidth: 1.5 }),
      Plot.dot(points, {
        ...at,
        r: 6,
        stroke: theme.mark,
        strokeWidth: 2,
        fill: (p) => (p.isProven ? theme.mark : theme.paper),
        href: "href",
        ariaLabel: "text",
      }),
      Plot.text(points, { ...at, text: "name", dx: 10, dy: -10, fill: theme.ink, href: "href" }),
      Plot.dot(input ? [input] : [], { ...at, symbol: "times", stroke: theme.hues[0], r: 6, strokeWidth: 2.5 }),
      Plot.text(input ? [input] : [], { ...at, text: () => "input", dx: 10, dy: 13, textAnchor: "start", fill: theme.ink }),
      Plot.tip(all, Plot.pointer({ ...at, title: "text", fill: theme.paper, stroke: theme.line })),
    ],
  });
};

page.drawFront = () => {
  const place = page.byId("charts");
  if (!place) return;
  place.style.gridTemplateColumns = "minmax(0, 1fr)";
  const isOpen = page.data.points.some((p) => !p.isProven);
  const told = `a step leads to the next point${isOpen ? "; hollow: not proven" : ""}`;
  const chart = page.frontChart(page.data, Math.min(place.clientWidth, 820));
  place.replaceChildren(page.figure("Front", told, chart));
};

page.drawFront();
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", page.drawFront);
window.addEventListener("resize", page.drawFront);
document.documentElement.dataset.ready = "1";
