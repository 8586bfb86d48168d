"use strict";
// The page of an experiment: its rows can be sorted and filtered, its charts follow the mode.

// ---- the table -----------------------------------------------------------------------------------

const rowTable = {
  start() {
    this.body = document.querySelector("#rows tbody");
    if (!this.body) return;
    document.querySelectorAll("#rows th").forEach((head, i) => {
      const sort = page.element("button", { class: "sort", text: head.textContent, title: "sort" });
      sort.addEventListener("click", () => this.sort(head, i));
      head.replaceChildren(sort);
    });
    const search = page.byId("search");
    search.addEventListener("input", () => this.filter(search.value));
  },

  /** By one column, and the other way round at the next click. */
  sort(head, i) {
    const way = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
    for (const other of document.querySelectorAll("#rows th")) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", way > 0 ? "ascending" : "descending");
    const value = (row) => row.cells[i].dataset.v ?? row.cells[i].textContent;
    const isNumber = (text) => text !== "" && Number.isFinite(Number(text));
    const rows = [...this.body.rows].map((row) => [value(row), row]);
    rows.sort(([a], [b]) =>
      isNumber(a) && isNumber(b)
        ? way * (Number(a) - Number(b))
        : way * a.localeCompare(b, "en", { numeric: true }),
    );
    this.body.replaceChildren(...rows.map(([, row]) => row));
  },

  filter(text) {
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const row of this.body.rows) {
      row.hidden = !words.every((w) => row.textContent.toLowerCase().includes(w));
      shown += !row.hidden;
    }
    page.byId("found").textContent = words.length ? `${shown} rows` : "";
  },
};

// ---- charts --------------------------------------------------------------------------------------

/** Every row against the best of its line, a colour for each value of the factor that matters. */
page.linesChart = (lines, width) => {
  if (!lines.length) return null;
  const theme = page.theme();
  const names = [...new Set(lines.map((p) => p.line))];
  const isOne = names.length === 1;
  const rows = isOne ? [...new Set(lines.map((p) => p.row))] : names;
  const values = [...new Set(lines.map((p) => p.value))];
  const font = "12px system-ui, sans-serif";
  const left = Math.min(width * 0.4, 16 + Math.max(...rows.map((r) => page.textWidth(r, font))));
  const top = Math.max(...lines.map((p) => p.share));
  const shown = { x: "share", y: isOne ? "row" : "line" };
  const title = (p) => `${isOne ? "" : `${p.line}\n`}${p.row}\n${p.text}, ${p.share.toFixed(2)}x`;
  return Plot.plot({
    width,
    height: 70 + (isOne ? 22 : 30) * rows.length,
    marginLeft: left,
    marginRight: 70,
    marginBottom: 42,
    style: page.plainStyle(theme),
    x: { label: "times the best →", grid: true, domain: isOne ? [0, top] : [1, Math.max(top, 1.1)] },
    y: { label: null, domain: rows, tickFormat: (name) => page.fitted(name, left - 12, font) },
    color: { domain: values, range: theme.hues, legend: values.length > 1 && !isOne },
    ariaLabel: "rows against the best of their line",
    marks: isOne
      ? [
          Plot.barX(lines, {
            ...shown,
            fill: (p) => (p.share === 1 ? theme.mark : theme.flat),
            fillOpacity: 0.8,
          }),
          Plot.text(lines, { ...shown, text: "text", dx: 5, textAnchor: "start", fill: theme.ink }),
        ]
      : [
          // values that take as long lie beside each other
          ...values.map((value, i) =>
            Plot.dot(
              lines.filter((p) => p.value === value),
              { ...shown, fill: "value", r: 4, dy: 5 * (i - (values.length - 1) / 2) },
            ),
          ),
          Plot.tip(lines, Plot.pointer({ ...shown, title, fill: theme.paper, stroke: theme.line })),
        ],
  });
};

/** The figure that the experiment asks for: bars, line or scatter, a colour for each series. */
page.askedChart = (figure, width) => {
  const theme = page.theme();
  const points = figure.series.flatMap((s) =>
    s.x.map((x, i) => ({
      name: s.name,
      x: figure.kind === "line" && s.x.every((v) => v !== "" && !Number.isNaN(+v)) ? +x : x,
      y: s.y[i],
      low: s.low[i],
      high: s.high[i],
      isProven: s.proven[i],
    })),
  );
  const names = figure.series.map((s) => s.name);
  const places = [...new Set(points.map((p) => p.x))];
  const isBars = figure.kind === "bars";
  const type = (axis) => (figure.log === axis || figure.log === "both" ? "log" : undefined);
  const short = (x) => page.fitted(String(x).split(/[/:]/).at(-1), width / places.length, "12px");
  const isNumeric = places.every((x) => typeof x === "number");
  const title = (p) => `${p.name}\n${p.x}\n${p.y.toPrecision(4)}${p.isProven ? "" : " (not proven)"}`;
  const error = Plot.ruleX(
    points.filter((p) => p.high > p.low),
    { x: isBars ? "name" : "x", fx: isBars ? "x" : undefined, y1: "low", y2: "high", stroke: theme.ink },
  );
  const mark = {
    bars: () =>
      Plot.barY(points, {
        fx: "x",
        x: "name",
        y: "y",
        fill: "name",
        fillOpacity: (p) => (p.isProven ? 1 : 0.5),
        title,
      }),
    line: () => Plot.line(points, { x: "x", y: "y", stroke: "name", strokeWidth: 2 }),
    scatter: () => Plot.dot(points, { x: "x", y: "y", stroke: "name", title }),
  }[figure.kind];
  const ends = d3.extent(points.flatMap((p) => [p.x, p.y]));
  return Plot.plot({
    width,
    height: 340,
    marginLeft: 60,
    marginBottom: 50,
    style: page.plainStyle(theme),
    fx: isBars ? { label: figure.x, domain: places, tickFormat: short } : undefined,
    x: isBars
      ? { axis: null, domain: names }
      : { label: figure.x, type: type("x"), ...(isNumeric ? {} : { domain: places, tickFormat: short }) },
    y: { label: `↑ ${figure.y}`, grid: true, type: type("y"), nice: true },
    color: { domain: names, range: theme.hues, legend: names.length > 1 },
    ariaLabel: figure.title || figure.y,
    marks: [
      mark(),
      ...(figure.kind === "line"
        ? [Plot.dot(points, { x: "x", y: "y", fill: (p) => (p.isProven ? p.name : theme.paper), stroke: "name", title })]
        : []),
      error,
      ...(figure.diagonal
        ? [Plot.line([[ends[0], ends[0]], [ends[1], ends[1]]], { stroke: theme.soft })]
        : []),
    ],
  });
};

page.drawRows = () => {
  const { lines, figure } = page.data;
  const place = page.byId("charts");
  if (!place) return;
  const columns = window.matchMedia("(min-width: 900px)").matches ? 2 : 1;
  const width = Math.floor((place.clientWidth - 24 * (columns - 1)) / columns);
  const charts = [];
  if (figure) {
    charts.push(page.figure(figure.title || figure.y, "light: not proven to be the best", page.askedChart(figure, width)));
  }
  const chart = page.linesChart(lines, width);
  if (chart) {
    const { factor, figure: what } = lines[0];
    const told = factor ? `${what}, coloured by ${factor}` : what;
    charts.push(page.figure("Rows against the best of their line", told, chart));
  }
  place.replaceChildren(...charts);
};

rowTable.start();
page.drawRows();
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", page.drawRows);
window.addEventListener("resize", page.drawRows);
document.documentElement.dataset.ready = "1";
