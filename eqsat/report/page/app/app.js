"use strict";
// The page of a run: one graph at a time, the table, the panel and the charts, which follow it.

const graphs = page.data.graphs;

const app = {
  key: "after",
  view: null,
  selected: null,
  arena: null, // its figure, once it is drawn, and the steps it shows
  steps: [0, 0],

  start() {
    this.table = new page.Table(page.byId("table"), {
      onSelect: (i) => this.select(i, "table"),
      onLayer: (fold, layer) => this.view.toggleLayer(fold, layer),
    });
    this.panel = new page.Panel(page.byId("panel"), {
      onSelect: (i) => this.select(i, "panel"),
      onGraph: (key) => this.showGraph(key),
    });
    this.buttons();
    this.showGraph("after");
    // the charts come after the first picture
    requestAnimationFrame(() =>
      setTimeout(() => {
        this.charts();
        document.documentElement.dataset.ready = String(Math.round(performance.now()));
      }),
    );
    this.follow();
  },

  get graph() {
    return graphs[this.key];
  },

  // ---- which graph -----------------------------------------------------------------------------

  showGraph(key) {
    this.key = key;
    this.view?.destroy();
    this.selected = null;
    this.arena = null;
    page.byId("search").value = "";
    this.view = new page.GraphView(page.byId("graph"), this.graph, {
      onSelect: (i) => this.select(i, "graph"),
      onEdge: (values) => this.panel.showValues(this.graph, values),
      onBox: (fold, layer) =>
        this.select(this.graph.folds[fold].layers[layer].dispatches[0], "graph"),
    });
    this.path();
    this.table.show(this.graph);
    this.legend();
    const first = this.longest();
    if (first !== null) this.select(first, "start");
    if (document.documentElement.dataset.ready) this.charts();
  },

  /** The dispatch that takes longest among those that can be seen. */
  longest() {
    const { dispatches } = this.graph;
    const seen = dispatches
      .map((_, i) => i)
      .filter((i) => this.view.shown.shownAs.get(i) === `d${i}`);
    const among = seen.length ? seen : dispatches.map((_, i) => i);
    const weight = (i) => dispatches[i].time_ps ?? dispatches[i].flops;
    return among.reduce((best, i) => (best === null || weight(i) > weight(best) ? i : best), null);
  },

  /** Where one is: before or after, and the way down to a body. */
  path() {
    const steps = [];
    for (let key = this.key; key; key = graphs[key].parent) steps.unshift(key);
    for (const side of ["before", "after"]) {
      page.byId(side).setAttribute("aria-pressed", String(steps[0] === side));
    }
    const links = steps.slice(0, -1).map((key) =>
      page.element("button", {
        class: "link",
        text: graphs[key].title,
        onclick: () => this.leave(key),
      }),
    );
    const here = steps.length > 1 || this.graph.title !== steps[0] ? this.graph.title : "";
    page.byId("path").replaceChildren(...links.flatMap((l) => [l, " › "]), here);
  },

  /** Back to a graph that holds this one, at the dispatch that does. */
  leave(key) {
    let inner = this.key;
    while (graphs[inner].parent !== key) inner = graphs[inner].parent;
    this.showGraph(key);
    this.select(graphs[inner].parent_dispatch, "panel");
  },

  // ---- what is chosen --------------------------------------------------------------------------

  /** A click anywhere is a click everywhere. from: where it was, which stays as it is. */
  select(i, from) {
    this.selected = i;
    if (from === "start") {
      this.view.selected = i;
      this.view.mark();
    } else {
      this.view.select(i);
    }
    this.table.select(i);
    this.panel.show(this.graph, i);
    this.followArena();
    const isNarrow = window.matchMedia("(max-width: 800px)").matches;
    if (isNarrow && from === "table") page.byId("panel").scrollIntoView({ block: "start" });
  },

  search(text) {
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    const found = words.length ? this.matches(words) : null;
    this.view.search(found);
    this.table.filter(found);
    page.byId("found").textContent = found === null ? "" : `${found.length} found`;
    return found;
  },

  matches(words) {
    const { dispatches, values } = this.graph;
    return dispatches.flatMap((d, i) => {
      const sides = [...d.reads, ...d.writes].map(
        (v) => `${values[v].name} ${page.typeText(values[v])}`,
      );
      const source = d.source.map((line) => `${line.text} ${line.at}`);
      const text = [i, d.name, d.weight, d.ops.join(" "), d.plan, d.bound, ...sides, ...source]
        .join(" ")
        .toLowerCase();
      return words.every((w) => text.includes(w)) ? [i] : [];
    });
  },

  // ---- around it -------------------------------------------------------------------------------

  buttons() {
    const on = (id, act) => page.byId(id).addEventListener("click", act);
    on("before", () => this.showGraph("before"));
    on("after", () => this.showGraph("after"));
    on("open-all", () => this.view.openAll());
    on("fold-all", () => this.view.foldAll());
    on("closer", () => this.view.zoomBy(1.3));
    on("further", () => this.view.zoomBy(1 / 1.3));
    on("fit", () => this.view.fit());
    const search = page.byId("search");
    search.addEventListener("input", () => this.search(search.value));
    search.addEventListener("keydown", (event) => {
      const found = event.key === "Enter" ? this.search(search.value) : null;
      if (found?.length)
        this.select(found[(found.indexOf(this.selected) + 1) % found.length], "search");
    });
    page.byId("graph").addEventListener("keydown", (event) => this.onKey(event));
  },

  /** Arrows walk from dispatch to dispatch, Enter opens what one is folded into or holds. */
  onKey(event) {
    const steps = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 };
    if (event.key in steps) {
      event.preventDefault();
      const last = this.graph.dispatches.length - 1;
      this.select(Math.min(last, Math.max(0, (this.selected ?? 0) + steps[event.key])), "graph");
    } else if (event.key === "Enter" && this.selected !== null) {
      this.enter();
    } else if (event.key === "+") {
      this.view.zoomBy(1.3);
    } else if (event.key === "-") {
      this.view.zoomBy(1 / 1.3);
    }
  },

  enter() {
    const place = page.layersOf(this.graph).get(this.selected);
    const isFolded = this.view.shown.shownAs.get(this.selected) !== `d${this.selected}`;
    const body = this.graph.dispatches[this.selected].bodies[0];
    if (place && isFolded) this.view.openLayer(...place);
    else if (body) this.showGraph(body.graph);
  },

  legend() {
    const theme = page.theme();
    const used = new Set(this.graph.values.map((v) => v.layout));
    const keys = page.data.layouts
      .filter((l) => used.has(l))
      .map((layout) =>
        page.element(
          "span",
          { class: "key" },
          page.element("span", {
            class: "swatch",
            style: { background: page.layoutColour(layout, theme) },
          }),
          layout === "row-major" ? layout : `@${layout}`,
        ),
      );
    keys.push(
      page.element(
        "span",
        { class: "key" },
        page.element("span", { class: "swatch dashed" }),
        "moves data inside",
      ),
    );
    const tagged = this.graph.values.some((v) => v.is_tag && v.role !== "weight");
    const arrows = tagged ? "; → %v reads and %v → writes a value that is read all over" : "";
    keys.push(page.element("span", { class: "soft", text: `height: time, line: bytes${arrows}` }));
    page.byId("legend").replaceChildren(...keys);
  },

  charts() {
    const place = page.byId("charts");
    const width = this.chartWidth();
    const { graph } = this;
    this.arena = this.arenaFigure();
    place.replaceChildren(...[this.arena].filter(Boolean));
    const found = [
      ["Where the time goes", "by name, all layers together", page.timesChart(graph, width)],
      ["Search", `the best ${page.data.goal} and its proven lower bound`, page.searchChart(width)],
      ["Predicted and measured", "of the programs that were timed", page.measuredChart(width)],
    ];
    for (const [title, text, chart] of found) {
      if (chart) place.append(page.figure(title, text, chart));
    }
  },

  chartWidth() {
    const columns = window.matchMedia("(min-width: 900px)").matches ? 2 : 1;
    return Math.floor((page.byId("charts").clientWidth - 24 * (columns - 1)) / columns);
  },

  arenaFigure() {
    const { graph } = this;
    this.steps = page.arenaSteps(graph, graph.dispatches[this.selected]?.step ?? 0);
    const chart = page.arenaChart(graph, this.steps, this.chartWidth(), (i) =>
      this.select(i, "panel"),
    );
    if (!chart) return null;
    const size = graph.arena_bytes === null ? "" : ` of ${page.bytesText(graph.arena_bytes)}`;
    const count = graph.live_bytes.length;
    const part =
      this.steps[1] - this.steps[0] < count ? `, steps ${this.steps.join(" to ")} of ${count}` : "";
    return page.figure(
      "Arena",
      `of temporaries${size}, address by step${part}; the line is what is live`,
      chart,
    );
  },

  /** In a long program the arena follows what is chosen. */
  followArena() {
    const { step } = this.graph.dispatches[this.selected];
    if (!this.arena || (step >= this.steps[0] && step < this.steps[1])) return;
    const next = this.arenaFigure();
    this.arena.replaceWith(next);
    this.arena = next;
  },

  /** Colours follow the theme, charts the width of the window. */
  follow() {
    const redraw = () => {
      this.view.recolour();
      this.table.show(this.graph);
      this.legend();
      if (this.selected !== null) this.select(this.selected, "start");
      this.charts();
    };
    window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
    let width = window.innerWidth;
    let waiting = 0;
    window.addEventListener("resize", () => {
      clearTimeout(waiting);
      waiting = setTimeout(() => {
        if (window.innerWidth !== width) this.charts();
        width = window.innerWidth;
      }, 150);
    });
  },
};

page.app = app;
app.start();
