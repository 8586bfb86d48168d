"use strict";
// A graph of dispatches on a canvas. Several may stand on one page.

const LAYER_FONT = "600 15px system-ui, sans-serif";
const SMALLEST_READABLE = 0.72; // zoom at which the print of nodes is 11 pixels high

page.GraphView = class {
  /** onSelect(dispatch), onBox(fold, layer), onEdge(values): told of a click. */
  constructor(container, graph, { onSelect, onBox, onEdge }) {
    this.container = container;
    this.graph = graph;
    this.onSelect = onSelect;
    this.onBox = onBox;
    this.onEdge = onEdge;
    this.open = page.openedFirst(graph);
    this.selected = null;
    this.found = null; // dispatches that a search found; null: there is no search
    // the wheel scrolls the page, as everywhere else; with Ctrl it zooms
    const scrolls = (event) => {
      if (!event.ctrlKey && !event.metaKey) event.stopPropagation();
    };
    container.addEventListener("wheel", scrolls, { capture: true, passive: true });
    this.draw(true);
  }

  /** Lay out and draw what is visible now; afresh: show it from its top. */
  draw(afresh) {
    const before = this.cy && !afresh ? { zoom: this.cy.zoom(), at: this.anchor() } : null;
    this.shown = page.visible(this.graph, this.open);
    page.arrange(this.shown);
    this.destroy();
    this.cy = cytoscape({
      container: this.container,
      elements: this.elements(),
      layout: { name: "preset" },
      style: this.style(),
      minZoom: 0.04,
      maxZoom: 2.5,
      boxSelectionEnabled: false,
      autoungrabify: true,
    });
    this.cy.on("tap", "edge", (event) => this.onEdge(event.target.data("values")));
    this.cy.on("tap", "node", (event) => this.tapped(event.target.data("node")));
    this.keepLabelsApart();
    if (before) this.restore(before);
    else this.fitOrTop();
    this.mark();
    this.map = new page.Minimap(this.container, this.cy);
  }

  /** A figure on an edge that would lie on a box, a heading or another one is left out. */
  keepLabelsApart() {
    const taken = this.cy
      .nodes()
      .filter((n) => !n.hasClass("layer"))
      .map((n) => n.boundingBox({ includeLabels: false }));
    for (const edge of this.cy.edges()) {
      const label = edge.data("label");
      if (!label) continue;
      const { x, y } = edge.midpoint();
      const half = page.textWidth(label, "12px system-ui, sans-serif") / 2 + 4;
      const box = { x1: x - half, x2: x + half, y1: y - 9, y2: y + 9 };
      const meets = (b) => b.x1 < box.x2 && b.x2 > box.x1 && b.y1 < box.y2 && b.y2 > box.y1;
      if (taken.some(meets)) edge.data("label", "");
      else taken.push(box);
    }
  }

  elements() {
    const theme = page.theme();
    const byId = new Map(this.shown.nodes.map((n) => [n.id, n]));
    const nodes = this.shown.nodes.map((n) => ({
      group: "nodes",
      classes: [n.kind, n.isRelayout ? "relayout" : ""].join(" "),
      position: { x: n.x, y: n.y },
      data: {
        id: n.id,
        parent: n.parent,
        node: n,
        label: n.kind === "layer" ? "" : [n.title, n.detail].filter(Boolean).join("\n"),
        width: n.width,
        height: n.height,
        colour: page.layoutColour(n.layout ?? "row-major", theme),
        tint: page.tintOf(page.layoutColour(n.layout ?? "row-major", theme), theme, 0.3),
      },
    }));
    // the heading of an open layer is a node of its own, so that edges pass behind it
    const headings = this.shown.nodes
      .filter((n) => n.kind === "layer")
      .map((n) => {
        const width = page.textWidth(n.title, LAYER_FONT) + 12;
        return {
          group: "nodes",
          classes: "heading",
          position: { x: n.left + width / 2, y: n.top - HEADING / 2 + 2 },
          data: {
            id: `${n.id}heading`,
            node: n,
            label: n.title,
            width,
            height: HEADING - 6,
            colour: theme.soft,
            tint: theme.paper,
          },
        };
      });
    const edges = this.shown.edges.map((e) => ({
      group: "edges",
      data: {
        id: e.id,
        source: e.source,
        target: e.target,
        width: e.width,
        label: e.label,
        values: [...e.values],
        colour: page.layoutColour(e.layout, theme),
        ...page.segments(e, byId),
      },
    }));
    return [...nodes, ...edges, ...headings];
  }

  style() {
    const theme = page.theme();
    const font = "system-ui, sans-serif";
    return [
      {
        selector: "node",
        style: {
          shape: "round-rectangle",
          "corner-radius": 6,
          width: "data(width)",
          height: "data(height)",
          label: "data(label)",
          "text-valign": "center",
          "text-wrap": "wrap",
          "text-max-width": 2000,
          "line-height": 1.25,
          "font-family": font,
          "font-size": 14,
          color: theme.ink,
          "background-color": "data(tint)",
          "border-width": 1.5,
          "border-color": "data(colour)",
          "min-zoomed-font-size": 5,
        },
      },
      { selector: "node.relayout", style: { "border-style": "dashed", "border-width": 2.5 } },
      {
        selector: "node.box",
        style: { "border-style": "double", "border-width": 4, "font-weight": 600 },
      },
      {
        selector: "node.layer",
        style: {
          "background-color": theme.ink,
          "background-opacity": 0.05,
          "border-width": 1,
          "border-color": theme.soft,
          padding: `${PADDING}px`,
        },
      },
      {
        selector: "node.heading",
        style: {
          "background-color": theme.paper,
          "background-opacity": 0.92,
          "border-width": 0,
          "font-weight": 600,
          "font-size": 15,
          "z-index": 20,
        },
      },
      {
        selector: "node.border",
        style: {
          shape: "ellipse",
          "font-size": 13,
          "background-color": theme.paper,
          "border-color": theme.soft,
        },
      },
      {
        selector: "edge",
        style: {
          width: "data(width)",
          "line-color": "data(colour)",
          "target-arrow-color": "data(colour)",
          "target-arrow-shape": "triangle",
          "arrow-scale": 0.9,
          "curve-style": "round-segments",
          "segment-radii": 24,
          "segment-distances": "data(distances)",
          "segment-weights": "data(weights)",
          "edge-distances": "node-position",
          label: "data(label)",
          "font-family": font,
          "font-size": 12,
          color: theme.ink,
          "text-background-color": theme.paper,
          "text-background-opacity": 0.85,
          "text-background-padding": "2px",
          "min-zoomed-font-size": 7,
        },
      },
      {
        selector: "node.marked",
        style: { "border-color": theme.mark, "border-width": 5, "border-style": "solid" },
      },
      {
        selector: "edge.marked",
        style: { "line-color": theme.mark, "target-arrow-color": theme.mark, "z-index": 9 },
      },
      { selector: ".dim", style: { opacity: 0.2 } },
    ];
  }

  // ---- what one looks at -----------------------------------------------------------------------

  /** All of it if that can be read, else its top at a size that can. */
  fitOrTop() {
    this.cy.fit(undefined, 14);
    if (this.cy.zoom() > 1) {
      this.cy.zoom(1);
      this.cy.center();
    }
    if (this.cy.zoom() >= SMALLEST_READABLE) return;
    this.cy.zoom(SMALLEST_READABLE + 0.08);
    const box = this.cy.elements().boundingBox();
    const isWide = box.w * this.cy.zoom() > this.cy.width();
    const middle = isWide ? this.busiest(box.y1) : (box.x1 + box.x2) / 2;
    const zoom = this.cy.zoom();
    this.cy.pan({ x: this.cy.width() / 2 - middle * zoom, y: 12 - box.y1 * zoom });
  }

  /** Where most can be seen from this height on, what is on top before all, if not all fits. */
  busiest(top) {
    const [width, height] = [this.cy.width(), this.cy.height()].map((n) => n / this.cy.zoom());
    const isNear = (n) => (n.kind === "dispatch" || n.kind === "box") && n.y < top + height;
    const near = this.shown.nodes.filter(isNear);
    const weight = (n) => (1 - (n.y - top) / height) ** 3;
    const isWhole = (n, x) => Math.abs(n.x - x) + n.width / 2 <= width / 2;
    const seen = (x) => near.reduce((sum, n) => sum + (isWhole(n, x) ? weight(n) : 0), 0);
    const middles = near.map((n) => n.x);
    return middles.reduce((a, b) => (seen(b) > seen(a) ? b : a), middles[0] ?? 0);
  }

  /** A node that is likely to be there after drawing again, and where it is on the canvas. */
  anchor() {
    const id = this.selected === null ? null : this.shown.shownAs.get(this.selected);
    const node = this.cy.getElementById(id ?? "");
    return node.nonempty() ? { ...node.renderedPosition() } : null;
  }

  restore({ zoom, at }) {
    this.cy.zoom(zoom);
    const node = this.cy.getElementById(this.shown.shownAs.get(this.selected) ?? "");
    if (node.empty()) {
      this.fitOrTop();
      return;
    }
    const here = node.renderedPosition();
    const target = at ?? { x: this.cy.width() / 2, y: this.cy.height() / 3 };
    this.cy.panBy({ x: target.x - here.x, y: target.y - here.y });
  }

  /** Bring a node into view, if it is not. */
  reveal(id) {
    const node = this.cy.getElementById(id);
    if (node.empty()) return;
    const { x1, y1, x2, y2 } = node.renderedBoundingBox();
    const isSeen = x1 >= 0 && y1 >= 0 && x2 <= this.cy.width() && y2 <= this.cy.height();
    if (!isSeen) this.cy.center(node);
  }

  zoomBy(factor) {
    const at = { x: this.cy.width() / 2, y: this.cy.height() / 2 };
    this.cy.zoom({ level: this.cy.zoom() * factor, renderedPosition: at });
  }

  fit() {
    this.cy.fit(undefined, 14);
  }

  // ---- what is opened and chosen ---------------------------------------------------------------

  tapped(node) {
    if (node.kind === "dispatch") this.onSelect(node.dispatch);
    else if (node.kind === "box") this.openLayer(node.fold, node.layers[0]);
    else if (node.kind === "layer") this.closeLayer(node.fold, node.layers[0]);
  }

  openLayer(fold, layer) {
    this.open.add(page.layerKey(fold, layer));
    this.selected = this.graph.folds[fold].layers[layer].dispatches[0];
    this.draw(false);
    this.reveal(this.shown.shownAs.get(this.selected));
    this.onBox(fold, layer);
  }

  toggleLayer(fold, layer) {
    if (this.open.has(page.layerKey(fold, layer))) this.closeLayer(fold, layer);
    else this.openLayer(fold, layer);
  }

  closeLayer(fold, layer) {
    this.open.delete(page.layerKey(fold, layer));
    this.draw(false);
  }

  openAll() {
    this.graph.folds.forEach((fold, f) =>
      fold.layers.forEach((_, n) => this.open.add(page.layerKey(f, n))),
    );
    this.draw(true);
    this.fit();
  }

  foldAll() {
    this.open.clear();
    this.draw(true);
  }

  /** Mark a dispatch, in the open layer or in the box it is folded into. */
  select(dispatch) {
    this.selected = dispatch;
    this.mark();
    this.reveal(this.shown.shownAs.get(dispatch));
  }

  /** Show what a search found: everything else fades; null ends it. */
  search(dispatches) {
    this.found = dispatches;
    this.mark();
  }

  mark() {
    const { cy } = this;
    const found = this.found && new Set(this.found.map((d) => this.shown.shownAs.get(d)));
    cy.batch(() => {
      cy.elements().removeClass("marked dim");
      if (this.selected !== null) {
        const node = cy.getElementById(this.shown.shownAs.get(this.selected));
        node.union(node.connectedEdges()).addClass("marked");
      }
      if (!found) return;
      const faded = cy
        .nodes()
        .filter((n) => !n.hasClass("layer") && !n.hasClass("heading") && !found.has(n.id()));
      faded.union(cy.edges()).addClass("dim");
    });
  }

  /** With the colours of the theme that holds now. */
  recolour() {
    this.draw(false);
  }

  destroy() {
    this.map?.remove();
    this.cy?.destroy();
  }
};
