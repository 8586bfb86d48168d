"use strict";
// The dispatches as a table: what a screen reader reads, and what fits on a phone.

const TABLE_FONT = "15px system-ui, sans-serif"; // as style.css has it
const ROOM_AROUND = 150; // number, swatch and time beside a name

page.Table = class {
  /** onSelect(dispatch): a row was chosen; onLayer(fold, layer): a layer was. */
  constructor(container, { onSelect, onLayer }) {
    this.container = container;
    this.onLayer = onLayer;
    this.onSelect = onSelect;
  }

  /** The rows of another graph. */
  show(graph) {
    const layers = page.layersOf(graph);
    this.room = Math.max(80, this.container.clientWidth - ROOM_AROUND);
    const longest = Math.max(1, ...graph.dispatches.map((d) => d.time_ps ?? 0));
    const theme = page.theme();
    const body = page.element("tbody");
    let before = null;
    this.rows = graph.dispatches.map((d, i) => {
      const place = layers.get(i);
      const layer = place ? graph.folds[place[0]].layers[place[1]] : null;
      if (layer !== before && (layer || before)) body.append(this.heading(layer, place));
      before = layer;
      const row = this.row(d, i, layer, longest, theme);
      body.append(row);
      return row;
    });
    const head = page.element(
      "tr",
      {},
      page.element("th", { scope: "col", class: "n", text: "#" }),
      page.element("th", { scope: "col", text: graph.time_ps === null ? "op" : "dispatch" }),
      page.element("th", { scope: "col", class: "n", text: graph.time_ps === null ? "" : "time" }),
    );
    const caption = page.element("caption", { text: `${page.countText(graph)}, in their order` });
    this.container.replaceChildren(
      page.element("table", {}, caption, page.element("thead", {}, head), body),
    );
  }

  /** The name of a layer, which opens or folds it in the graph. */
  heading(layer, place) {
    const act = () => this.onLayer(...place);
    const name = layer
      ? page.element("button", {
          class: "name",
          text: layer.name,
          title: "open or fold it in the graph",
          onclick: act,
        })
      : "around the layers";
    const cell = page.element("th", { class: "layer", colspan: 3, scope: "rowgroup" }, name);
    return page.element("tr", { class: "heading" }, cell);
  }

  /** The name; where it has no room that of the weight, which tells it from its neighbours. */
  shortName(d, layer) {
    const [name, weight] = [d.name, d.weight].map((n) => page.nameInLayer(n, layer));
    const isLong = weight && page.textWidth(name, TABLE_FONT) > this.room;
    return page.fitted(isLong ? weight : name, this.room, TABLE_FONT);
  }

  row(d, i, layer, longest, theme) {
    const swatch = page.element("span", {
      class: d.relayouts ? "swatch dashed" : "swatch",
      title: d.layout,
      style: { background: page.layoutColour(d.layout, theme) },
    });
    const name = page.element("button", {
      class: "name",
      text: this.shortName(d, layer),
      title: d.name,
      onclick: () => this.onSelect(i),
    });
    const share = d.time_ps === null ? 0 : d.time_ps / longest;
    const bar = page.element("span", {
      class: "share",
      style: { width: `${(100 * share).toFixed(1)}%` },
    });
    return page.element(
      "tr",
      { title: d.ops.join(" → "), onclick: (e) => e.target.closest("button") || this.onSelect(i) },
      page.element("td", { class: "n soft", text: String(i) }),
      page.element("td", {}, swatch, name, bar),
      page.element("td", { class: "n", text: page.timeText(d.time_ps) }),
    );
  }

  /** Mark a row and bring it into view inside of the table. */
  select(i) {
    for (const row of this.rows) row.removeAttribute("aria-current");
    const row = this.rows[i];
    row.setAttribute("aria-current", "true");
    const view = this.container.getBoundingClientRect();
    const own = row.getBoundingClientRect();
    if (own.top < view.top + 30 || own.bottom > view.bottom) {
      this.container.scrollTop += own.top - view.top - view.height / 3;
    }
  }

  /** Only the rows of these dispatches; null: all. */
  filter(dispatches) {
    const shown = dispatches && new Set(dispatches);
    this.rows.forEach((row, i) => {
      row.hidden = shown !== null && !shown.has(i);
    });
    for (const row of this.container.querySelectorAll("tr.heading")) row.hidden = shown !== null;
  }
};
