"use strict";
// Where boxes and edges lie. Each open layer is laid out by itself, then what is around it: dagre's
// own nested mode overflows the stack at 2,000 nodes. Layers of one shape are laid out once.

const PADDING = 16; // around an open layer
const HEADING = 26; // above it
const arranged = new Map(); // shape of a layer → its layout

/** Give every node `x`, `y` and every edge `bends`, the points it passes between its ends. */
page.arrange = ({ nodes, edges }) => {
  const layerOf = new Map(nodes.filter((n) => n.parent).map((n) => [n.id, n.parent]));
  const topOf = (id) => layerOf.get(id) ?? id;
  const inner = new Map();
  for (const n of nodes.filter((each) => each.kind === "layer")) {
    inner.set(n.id, arrangeLayer(n.id, nodes, edges, layerOf));
  }
  const top = nodes.filter((n) => !n.parent);
  for (const n of top.filter((each) => inner.has(each.id))) {
    n.width = inner.get(n.id).width + 2 * PADDING;
    n.height = inner.get(n.id).height + 2 * PADDING + HEADING;
  }
  const between = new Map();
  for (const e of edges) {
    const [source, target] = [topOf(e.source), topOf(e.target)];
    if (source !== target) between.set(`${source}>${target}`, { source, target, bytes: e.bytes });
  }
  const outer = byDagre(top, [...between.values()]);
  const routes = new Map([...between.keys()].map((key, i) => [key, outer.routes[i]]));
  top.forEach((n, i) => Object.assign(n, outer.places[i]));
  for (const n of top.filter((each) => inner.has(each.id))) placeInside(n, inner.get(n.id));
  for (const e of edges) {
    if (e.bends) continue;
    const isPlain = topOf(e.source) === e.source && topOf(e.target) === e.target;
    e.bends = isPlain ? routes.get(`${e.source}>${e.target}`).slice(1, -1) : [];
  }
};

/** The layout of one open layer; what enters from outside comes through small ports on top. */
const arrangeLayer = (id, nodes, edges, layerOf) => {
  const held = nodes.filter((n) => n.parent === id);
  const at = new Map(held.map((n, i) => [n.id, `n${i}`]));
  const own = edges.filter((e) => layerOf.get(e.target) === id);
  const ports = new Map();
  for (const e of own) {
    if (!at.has(e.source) && !ports.has(e.source)) ports.set(e.source, `p${ports.size}`);
  }
  const sizes = held.map((n, i) => ({ id: `n${i}`, width: n.width, height: n.height }));
  const small = [...ports.values()].map((port) => ({ id: port, width: 8, height: 1 }));
  const links = own.map((e) => ({
    source: at.get(e.source) ?? ports.get(e.source),
    target: at.get(e.target),
    bytes: e.bytes,
  }));
  const shape = JSON.stringify([sizes, small.length, links]);
  if (!arranged.has(shape)) arranged.set(shape, byDagre([...sizes, ...small], links));
  return { ...arranged.get(shape), held, own, isInside: (e) => at.has(e.source) };
};

const placeInside = (layer, found) => {
  const left = layer.x - found.width / 2;
  const top = layer.y - found.height / 2 + HEADING / 2;
  found.held.forEach((n, i) => {
    Object.assign(n, { x: left + found.places[i].x, y: top + found.places[i].y });
  });
  layer.left = Math.min(...found.held.map((n) => n.x - n.width / 2)) - PADDING;
  layer.top = Math.min(...found.held.map((n) => n.y - n.height / 2)) - PADDING;
  found.own.forEach((e, i) => {
    // the first point of an edge from outside is its port: it stays
    const points = found.routes[i].slice(found.isInside(e) ? 1 : 0, -1);
    e.bends = points.map((p) => ({ x: left + p.x, y: top + p.y }));
  });
};

const byDagre = (nodes, edges) => {
  const graph = new dagre.graphlib.Graph({ multigraph: true });
  graph.setGraph({ nodesep: 26, ranksep: 42, edgesep: 14, rankdir: "TB" });
  nodes.forEach((n) => graph.setNode(n.id, { width: n.width, height: n.height }));
  edges.forEach((e, i) => {
    const weight = 1 + Math.log2(1 + e.bytes / 4096);
    graph.setEdge(e.source, e.target, { weight }, `e${i}`);
  });
  dagre.layout(graph);
  return {
    width: graph.graph().width,
    height: graph.graph().height,
    places: nodes.map((n) => {
      const { x, y } = graph.node(n.id);
      return { x, y };
    }),
    routes: edges.map((e, i) => graph.edge(e.source, e.target, `e${i}`).points),
  };
};

/** Bends as cytoscape wants them: shares along the line between the ends, distances from it. */
page.segments = (edge, nodeById) => {
  const a = nodeById.get(edge.source);
  const b = nodeById.get(edge.target);
  const length = Math.hypot(b.x - a.x, b.y - a.y) || 1;
  const [ux, uy] = [(b.x - a.x) / length, (b.y - a.y) / length];
  const along = edge.bends.map((p) => ((p.x - a.x) * ux + (p.y - a.y) * uy) / length);
  const aside = edge.bends.map((p) => (p.x - a.x) * -uy + (p.y - a.y) * ux);
  return {
    weights: along.map((v) => v.toFixed(4)).join(" ") || "0.5",
    distances: aside.map((v) => v.toFixed(1)).join(" ") || "0",
  };
};
