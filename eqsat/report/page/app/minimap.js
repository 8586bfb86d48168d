"use strict";
// A small map of the whole graph in its corner, with what can be seen of it; a click goes there.

const MAP_SIZE = 150; // the longer side, in pixels

page.Minimap = class {
  constructor(container, cy) {
    this.cy = cy;
    this.box = cy.elements().boundingBox();
    const scale = MAP_SIZE / Math.max(this.box.w, this.box.h, 1);
    this.scale = scale;
    this.canvas = page.element("canvas", {
      class: "minimap",
      width: Math.max(24, Math.ceil(this.box.w * scale)),
      height: Math.max(24, Math.ceil(this.box.h * scale)),
      title: "the whole graph; click to go there",
    });
    this.canvas.addEventListener("click", (event) => this.go(event));
    container.append(this.canvas);
    cy.on("viewport resize", () => this.draw());
    this.draw();
  }

  draw() {
    const { cy, box, scale, canvas } = this;
    const seen = cy.extent();
    const isWhole = seen.x1 <= box.x1 && seen.y1 <= box.y1 && seen.x2 >= box.x2 && seen.y2 >= box.y2;
    canvas.hidden = isWhole;
    if (isWhole) return;
    const theme = page.theme();
    const on = canvas.getContext("2d");
    on.clearRect(0, 0, canvas.width, canvas.height);
    for (const node of cy.nodes()) {
      if (node.hasClass("layer") || node.hasClass("heading")) continue;
      const { x1, y1, w, h } = node.boundingBox({ includeLabels: false });
      on.fillStyle = node.data("colour");
      on.fillRect((x1 - box.x1) * scale, (y1 - box.y1) * scale, Math.max(1, w * scale), Math.max(1, h * scale));
    }
    on.strokeStyle = theme.mark;
    on.lineWidth = 2;
    on.strokeRect((seen.x1 - box.x1) * scale, (seen.y1 - box.y1) * scale, seen.w * scale, seen.h * scale);
  }

  go(event) {
    event.stopPropagation();
    const at = this.canvas.getBoundingClientRect();
    const [x, y] = [event.clientX - at.left, event.clientY - at.top].map((v) => v / this.scale);
    const zoom = this.cy.zoom();
    this.cy.pan({
      x: this.cy.width() / 2 - (this.box.x1 + x) * zoom,
      y: this.cy.height() / 2 - (this.box.y1 + y) * zoom,
    });
  }

  remove() {
    this.canvas.remove();
  }
};
