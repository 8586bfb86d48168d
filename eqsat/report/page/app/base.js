"use strict";
// What the scripts of the page share. Each script adds its part to `page`.

const page = {};

page.data = JSON.parse(document.getElementById("page-data").textContent);

// ---- elements: text is always text, so no name of a program can become markup ------------------

/** An element; `props` are attributes, `on…` listeners, and `text`. */
page.element = (tag, props = {}, ...children) => {
  const made = document.createElement(tag);
  for (const [key, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (key === "text") made.textContent = value;
    else if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (key === "style") Object.assign(made.style, value);
    else made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.filter((c) => c !== null && c !== undefined));
  return made;
};

page.byId = (id) => document.getElementById(id);

// ---- figures -----------------------------------------------------------------------------------

const threeDigits = (x) => {
  const digits = Math.abs(x) >= 100 ? 0 : Math.abs(x) >= 10 ? 1 : 2;
  const text = x.toFixed(digits);
  return text.includes(".") ? text.replace(/0+$/, "").replace(/\.$/, "") : text;
};

const scaled = (value, units) => {
  const [unit, size] = units.find(([, s]) => Math.abs(value) >= s) ?? units.at(-1);
  return `${threeDigits(value / size)} ${unit}`;
};

/** Picoseconds as people read them: `41.2 us`. */
page.timeText = (ps) => {
  if (ps === null || ps === undefined) return "";
  const units = [
    ["s", 1e12],
    ["ms", 1e9],
    ["us", 1e6],
    ["ns", 1e3],
    ["ps", 1],
  ];
  return ps === 0 ? "0 ps" : scaled(ps, units);
};

/** Bytes as people read them: `192 KiB`. */
page.bytesText = (n) =>
  scaled(n, [
    ["GiB", 2 ** 30],
    ["MiB", 2 ** 20],
    ["KiB", 2 ** 10],
    ["B", 1],
  ]);

/** `17 dispatches`, or `1 op` of a program that has no schedule. */
page.countText = (graph, count = graph.dispatches.length) => {
  const [one, many] = graph.time_ps === null ? ["op", "ops"] : ["dispatch", "dispatches"];
  return `${count.toLocaleString("en")} ${count === 1 ? one : many}`;
};

page.shareText = (part, whole) => {
  const percent = (100 * part) / whole;
  return `${percent >= 10 ? percent.toFixed(0) : percent.toFixed(1)} %`;
};

page.valueOfGoal = (goal, value) => {
  if (goal === "time") return page.timeText(value);
  const isSize = ["memory", "relayout", "resident", "load_peak"].includes(goal);
  return isSize ? page.bytesText(value) : value.toLocaleString("en");
};

/** The value a dispatch is there for: the last one it computes, of a loop the first of its results. */
page.mainValue = (graph, d) => graph.values[d.bodies.length ? d.writes[0] : d.writes.at(-1)];

/** A type with the layout behind it: `f32[8, 24, 16, 16] @16x16`. */
page.typeText = (value) => value.type + (value.layout === "row-major" ? "" : ` @${value.layout}`);

// ---- colours, from the style sheet, so that light and dark are decided in one place -------------

const HUES = 8; // that the style sheet names

page.theme = () => {
  const style = getComputedStyle(document.documentElement);
  const named = (name) => style.getPropertyValue(`--${name}`).trim();
  const colours = {};
  for (const name of ["ink", "soft", "paper", "line", "tint", "mark", "flat"]) {
    colours[name] = named(name);
  }
  colours.hues = Array.from({ length: HUES }, (_, i) => named(`hue${i}`));
  return colours;
};

/** The colour of a layout: grey for row-major, a hue for each blocked one. */
page.layoutColour = (layout, theme) => {
  if (layout === "row-major") return theme.flat;
  const blocked = page.data.layouts.filter((l) => l !== "row-major");
  const at = blocked.indexOf(layout);
  return at < HUES ? theme.hues[at] : d3.hsl((at * 137.5) % 360, 0.5, 0.55).formatHex();
};

/** A light tint of a colour on the page's own background. */
page.tintOf = (colour, theme, share) => d3.interpolateRgb(theme.paper, colour)(share);

// ---- text that has to fit ----------------------------------------------------------------------

const ruler = document.createElement("canvas").getContext("2d");

page.textWidth = (text, font) => {
  ruler.font = font;
  return ruler.measureText(text).width;
};

/** The text, or as much of its two ends as fits into `width` pixels of this font. */
page.fitted = (text, width, font) => {
  if (page.textWidth(text, font) <= width) return text;
  let low = 0;
  let high = text.length;
  const cut = (n) => `${text.slice(0, Math.floor(n / 2))}…${text.slice(text.length - Math.ceil(n / 2))}`;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (page.textWidth(cut(middle), font) <= width) low = middle;
    else high = middle - 1;
  }
  return low ? cut(low) : "…";
};

/** The dispatch's name inside of its layer: without the layer's own. */
page.nameInLayer = (name, layer) => {
  const prefix = layer ? layer.prefix : "";
  return prefix && name.startsWith(prefix) ? name.slice(prefix.length) : name;
};

// ---- charts ------------------------------------------------------------------------------------

page.plainStyle = (theme) => ({
  background: "none",
  color: theme.ink,
  fontSize: "12px",
  overflow: "visible",
});

/** A heading, what it says, and a chart under it. */
page.figure = (title, text, chart) =>
  page.element(
    "figure",
    {},
    page.element(
      "figcaption",
      {},
      page.element("b", { text: title }),
      page.element("span", { class: "soft", text: ` ${text}` }),
    ),
    chart,
  );
