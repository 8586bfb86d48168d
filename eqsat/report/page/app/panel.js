"use strict";
// Beside the graph: what one dispatch does, what its time is made of, and why it is as it is.

page.Panel = class {
  /** onSelect(dispatch): go to another one; onGraph(key): go to a body's graph. */
  constructor(container, { onSelect, onGraph }) {
    this.container = container;
    this.onSelect = onSelect;
    this.onGraph = onGraph;
  }

  /** Tell of one dispatch of a graph. */
  show(graph, i) {
    const d = graph.dispatches[i];
    const layer = this.layerOf(graph, i);
    this.container.replaceChildren(
      page.element("h2", { text: `${i} · ${page.nameInLayer(d.name, layer)}` }),
      page.element("p", { class: "soft", text: this.summary(graph, d, layer) }),
      ...this.bodies(d),
      d.called && page.element("p", { class: "code soft", text: `eqsat explain DIR ${d.called}` }),
      ...this.source(d),
      ...this.part("ops", [page.element("p", { class: "code", text: d.ops.join(" → ") })]),
      ...this.price(graph, d),
      ...this.part("reads", [this.values(graph, d.reads, i)]),
      ...this.part("writes", [this.values(graph, d.writes, i)]),
      ...this.why(d),
    );
    this.container.scrollTop = 0;
  }

  /** Tell of the values of an edge. */
  showValues(graph, numbers) {
    const bytes = numbers.reduce((sum, n) => sum + graph.values[n].nbytes, 0);
    const count = numbers.length === 1 ? "1 value" : `${numbers.length} values`;
    this.container.replaceChildren(
      page.element("h2", { text: `${count}, ${page.bytesText(bytes)}` }),
      this.values(graph, numbers, -1),
    );
  }

  layerOf(graph, i) {
    const place = page.layersOf(graph).get(i);
    return place ? graph.folds[place[0]].layers[place[1]] : null;
  }

  summary(graph, d, layer) {
    const time = d.time_ps === null ? "" : page.timeText(d.time_ps);
    const share = graph.time_ps ? `${page.shareText(d.time_ps, graph.time_ps)} of all` : "";
    const device = d.device ? `on ${d.device}` : "";
    return [layer?.name, time, share, `step ${d.step}`, device].filter(Boolean).join(" · ");
  }

  /** The lines of the user's program that this dispatch computes. */
  source(d) {
    const lines = d.source.map(({ at, text }) =>
      page.element(
        "li",
        {},
        page.element("span", { class: "code", text }),
        at && page.element("span", { class: "soft", text: `  ${at}` }),
      ),
    );
    return this.part("in your program", lines.length ? [page.element("ul", {}, ...lines)] : []);
  }

  part(title, children) {
    return children.length ? [page.element("h3", { text: title }), ...children] : [];
  }

  // ---- price -----------------------------------------------------------------------------------

  price(graph, d) {
    if (d.time_ps === null) return [];
    const parts = [];
    if (d.parts.length) parts.push(page.partsChart(d.parts, this.width()));
    if (d.bound) parts.push(page.element("p", { text: d.bound }));
    if (d.plan) parts.push(page.element("p", { class: "code soft", text: d.plan }));
    const roofline = page.rooflineChart(graph, d, this.width());
    if (roofline) {
      parts.push(
        page.element("p", {
          class: "soft",
          text: "every dispatch under the roofs of the target; the ring is this one",
        }),
      );
      parts.push(roofline);
    }
    return this.part("price", parts);
  }

  width() {
    return Math.max(240, this.container.clientWidth - 28);
  }

  // ---- values ----------------------------------------------------------------------------------

  values(graph, numbers, own) {
    const items = numbers.map((n) => this.value(graph, n, own));
    return page.element("ul", { class: "values" }, ...items);
  }

  value(graph, n, own) {
    const v = graph.values[n];
    const swatch = page.element("span", {
      class: "swatch",
      style: { background: page.layoutColour(v.layout, page.theme()) },
    });
    const item = page.element(
      "li",
      {},
      swatch,
      page.element("span", {
        class: "code",
        text: `${v.name}: ${v.name.includes("@") ? v.type : page.typeText(v)}`,
      }),
      page.element("span", {
        class: "soft",
        text: ` ${page.bytesText(v.nbytes)}, ${this.place(v)} `,
      }),
    );
    if (v.writer >= 0 && v.writer !== own) item.append(this.link(`from ${v.writer}`, v.writer));
    if (v.writer === own) {
      const readers = graph.edges.filter((e) => e.value === n && e.reader !== own).slice(0, 8);
      for (const e of readers) item.append(this.link(`to ${e.reader}`, e.reader), " ");
    }
    return item;
  }

  place(v) {
    if (v.role !== "temporary") return v.role;
    return v.offset === null ? "temporary" : `arena at ${page.bytesText(v.offset)}`;
  }

  link(text, dispatch) {
    return page.element("button", { class: "link", text, onclick: () => this.onSelect(dispatch) });
  }

  // ---- bodies ----------------------------------------------------------------------------------

  bodies(d) {
    return d.bodies.map((b) => {
      const runs = b.runs === null ? "" : ` runs ${b.runs.toLocaleString("en")} times`;
      const open = page.element("button", {
        text: `open ${b.label}`,
        onclick: () => this.onGraph(b.graph),
      });
      return page.element("p", {}, open, page.element("span", { class: "soft", text: runs }));
    });
  }

  // ---- why -------------------------------------------------------------------------------------

  why(d) {
    const isFew = d.why.length < 4;
    return this.part(
      "why",
      d.why.map((choice) => this.choice(choice, isFew)),
    );
  }

  choice(choice, isOpen) {
    return page.element(
      "details",
      { open: isOpen },
      page.element("summary", { class: "code", text: `${choice.text} : ${choice.type}` }),
      this.chain(choice.rules),
      ...this.alternatives(choice),
    );
  }

  /** The rules from the input to this op, in the order in which they were applied. */
  chain(rules) {
    const line = page.element("p", { class: "chain" }, page.element("span", { text: "input" }));
    for (const number of rules) {
      const { name, at, doc } = page.data.rules[number];
      line.append(
        " → ",
        page.element("span", { class: "rule", title: `${doc} (${at})`, text: name }),
      );
    }
    if (!rules.length) line.append(" as it is");
    return line;
  }

  alternatives({ alternatives, more }) {
    if (!alternatives.length) return [];
    const items = alternatives.map((a) => {
      const by = a.rules.map((n) => page.data.rules[n].name).join(", ");
      const told = [by && `by ${by}`, a.price].filter(Boolean).join(": ");
      return page.element(
        "li",
        {},
        page.element("span", { class: "code", text: a.text }),
        told && page.element("span", { class: "soft", text: `  ${told}` }),
      );
    });
    if (more) items.push(page.element("li", { class: "soft", text: `and ${more} more` }));
    return [page.element("p", { class: "soft", text: "or" }), page.element("ul", {}, ...items)];
  }
};
