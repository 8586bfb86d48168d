"use strict";
// Which boxes and edges are visible: layers that do the same work are one box until one is opened.

const NODE_WIDTH = 250;
const BOX_WIDTH = 300;
const NAME_FONT = "14px system-ui, sans-serif"; // as graph.js draws it
const BOX_FONT = "600 14px system-ui, sans-serif";
const LEAST_BYTES = 65536; // below, an edge is a thin line without a figure
const DETAIL_SHARE = 0.004; // of the time, from which on a dispatch has a second line

/** The key of a layer of a fold in a set of opened layers. */
page.layerKey = (fold, layer) => `${fold}:${layer}`;

/** Dispatch → [fold, layer], for those in a fold. */
page.layersOf = (graph) => {
  const found = new Map();
  graph.folds.forEach((fold, f) => {
    fold.layers.forEach((layer, n) => layer.dispatches.forEach((d) => found.set(d, [f, n])));
  });
  return found;
};

/** The layers that are open at first: the first of the fold that takes longest. */
page.openedFirst = (graph) => {
  const small = graph.dispatches.length <= 40;
  const open = new Set();
  let best = null;
  graph.folds.forEach((fold, f) => {
    if (small && fold.layers.length === 1) open.add(page.layerKey(f, 0));
    const weight = page.timeOf(
      graph,
      fold.layers.flatMap((l) => l.dispatches),
    );
    if (best === null || weight > best.weight) best = { f, weight };
  });
  if (best !== null) open.add(page.layerKey(best.f, 0));
  return open;
};

/** Picoseconds of these dispatches; their number where nothing has a time. */
page.timeOf = (graph, dispatches) =>
  graph.time_ps === null
    ? dispatches.length
    : dispatches.reduce((sum, d) => sum + graph.dispatches[d].time_ps, 0);

/** What is drawn of a graph: `{nodes, edges, shownAs}`; shownAs: dispatch → id of a node. */
page.visible = (graph, open) => {
  const shownAs = new Map();
  const nodes = [];
  graph.folds.forEach((fold, f) => {
    for (const run of closedAndOpen(fold, f, open)) {
      if (run.isOpen) addOpenLayer(graph, fold, f, run.layers[0], nodes, shownAs);
      else addBox(graph, fold, f, run.layers, nodes, shownAs);
    }
  });
  graph.dispatches.forEach((d, i) => {
    if (shownAs.has(i)) return;
    nodes.push(dispatchNode(graph, i, null));
    shownAs.set(i, `d${i}`);
  });
  const edges = new EdgeSum(graph);
  graph.edges.forEach((e) => {
    if (graph.values[e.value].is_tag) return;
    edges.add(shownAs.get(e.writer), shownAs.get(e.reader), e.value);
  });
  addBorder(graph, nodes, edges, shownAs);
  addTags(graph, nodes, shownAs);
  return { nodes, edges: edges.list(), shownAs };
};

/** The layers of a fold in order: open ones alone, closed neighbours together. */
const closedAndOpen = (fold, f, open) => {
  const runs = [];
  fold.layers.forEach((_, n) => {
    const isOpen = open.has(page.layerKey(f, n));
    const last = runs.at(-1);
    if (!isOpen && last && !last.isOpen) last.layers.push(n);
    else runs.push({ isOpen, layers: [n] });
  });
  return runs;
};

const addBox = (graph, fold, f, layers, nodes, shownAs) => {
  const id = `f${f}l${layers[0]}`;
  const held = layers.flatMap((n) => fold.layers[n].dispatches);
  held.forEach((d) => shownAs.set(d, id));
  const time = page.timeOf(graph, held);
  const share =
    time /
    (page.timeOf(
      graph,
      graph.dispatches.map((_, i) => i),
    ) || 1);
  nodes.push({
    id,
    kind: "box",
    fold: f,
    layers,
    title: page.fitted(page.boxTitle(fold, layers), BOX_WIDTH - 24, BOX_FONT),
    detail: boxDetail(graph, fold, layers, held, time),
    width: BOX_WIDTH,
    height: (layers.length > 1 ? 74 : 56) + 60 * Math.sqrt(share),
    layout: mostBytes(graph, held),
  });
};

/** `encoder.layer 1–4 ×4`, and how many ways of doing it there are. */
page.boxTitle = (fold, layers) => {
  const first = fold.layers[layers[0]].name;
  if (layers.length === 1) return first;
  const last = fold.layers[layers.at(-1)].name.match(/\d+$/)[0];
  return `${first}–${last}  ×${layers.length}`;
};

const boxDetail = (graph, fold, layers, held, time) => {
  const parts = [page.countText(graph, held.length)];
  if (graph.time_ps) {
    parts.push(`${page.timeText(time)} (${page.shareText(time, graph.time_ps)})`);
  }
  const line = page.fitted(parts.join(" · "), BOX_WIDTH - 24, BOX_FONT);
  if (layers.length === 1) return line;
  const ways = new Set(layers.map((n) => fold.ways[n])).size;
  return `${line}\n${ways === 1 ? "identical" : `equal work in ${ways} variants`}`;
};

/** The layout of most bytes that these dispatches write. */
const mostBytes = (graph, dispatches) => {
  const bytes = new Map();
  for (const d of dispatches) {
    for (const w of graph.dispatches[d].writes) {
      const { layout, nbytes } = graph.values[w];
      bytes.set(layout, (bytes.get(layout) ?? 0) + nbytes);
    }
  }
  return [...bytes].sort((a, b) => b[1] - a[1])[0]?.[0] ?? "row-major";
};

const addOpenLayer = (graph, fold, f, n, nodes, shownAs) => {
  const id = `f${f}open${n}`;
  const layer = fold.layers[n];
  const time =
    graph.time_ps === null ? "" : `  ${page.timeText(page.timeOf(graph, layer.dispatches))}`;
  nodes.push({
    id,
    kind: "layer",
    fold: f,
    layers: [n],
    title: `${layer.name}${time}`,
    detail: "",
  });
  for (const d of layer.dispatches) {
    nodes.push({ ...dispatchNode(graph, d, layer), parent: id });
    shownAs.set(d, `d${d}`);
  }
};

const dispatchNode = (graph, i, layer) => {
  const d = graph.dispatches[i];
  const share = graph.time_ps ? d.time_ps / graph.time_ps : 0;
  const name = page.nameInLayer(d.name, layer) + (d.bodies.length ? "  ⟳" : "");
  const told = page.nameInLayer(d.weight, layer);
  const type = told && told !== name ? told : page.mainValue(graph, d).type;
  const detail = d.time_ps === null ? type : `${page.timeText(d.time_ps)} · ${type}`;
  const isDetailed = share >= DETAIL_SHARE || graph.time_ps === null || d.bodies.length > 0;
  return {
    id: `d${i}`,
    kind: "dispatch",
    dispatch: i,
    title: page.fitted(name, NODE_WIDTH - 20, NAME_FONT),
    detail: isDetailed ? page.fitted(detail, NODE_WIDTH - 20, NAME_FONT) : "",
    width: NODE_WIDTH,
    height: Math.max(isDetailed ? 48 : 30, 34 + 170 * Math.sqrt(share)),
    layout: d.layout,
    isRelayout: d.relayouts > 0,
  };
};

/** Edges between what is visible: values summed up once, the layout of most bytes. */
class EdgeSum {
  constructor(graph) {
    this.graph = graph;
    this.found = new Map();
  }

  add(source, target, value) {
    if (source === target) return;
    const key = `${source}>${target}`;
    if (!this.found.has(key)) this.found.set(key, { id: key, source, target, values: new Set() });
    this.found.get(key).values.add(value);
  }

  /** What several readers take from one writer has its figure once. */
  list() {
    const told = new Set();
    return [...this.found.values()].map((e) => {
      const values = [...e.values].map((v) => this.graph.values[v]);
      const bytes = values.reduce((sum, v) => sum + v.nbytes, 0);
      const largest = values.reduce((a, b) => (b.nbytes > a.nbytes ? b : a));
      return {
        ...e,
        bytes,
        layout: largest.layout,
        width: 1.5 + (bytes > LEAST_BYTES ? 0.9 * Math.log2(bytes / LEAST_BYTES) : 0),
        label: bytes >= LEAST_BYTES && isFirst(told, e) ? page.bytesText(bytes) : "",
      };
    });
  }
}

const isFirst = (told, edge) => {
  const key = `${edge.source}:${[...edge.values].join()}`;
  return !told.has(key) && told.add(key);
};

/** Arguments and results, as small round nodes. Weights are part of what reads them. */
const addBorder = (graph, nodes, edges, shownAs) => {
  graph.values.forEach((v, n) => {
    if (v.role === "argument" && v.writer < 0 && !v.is_tag) {
      const readers = graph.dispatches.flatMap((d, i) => (d.reads.includes(n) ? [i] : []));
      if (readers.length) nodes.push(borderNode(`in${n}`, v.name));
      readers.forEach((r) => edges.add(`in${n}`, shownAs.get(r), n));
    }
    if (v.is_result && v.writer >= 0) {
      nodes.push(borderNode(`out${n}`, "result"));
      edges.add(shownAs.get(v.writer), `out${n}`, n);
    }
  });
};

const borderNode = (id, name) => {
  const title = page.fitted(name, 170, NAME_FONT);
  return {
    id,
    kind: "border",
    title,
    detail: "",
    width: Math.max(64, 9 * title.length + 16),
    height: 28,
  };
};

/** A value that is read all over the program is named at its writer and its readers. */
const addTags = (graph, nodes, shownAs) => {
  const byId = new Map(nodes.map((n) => [n.id, n]));
  const tags = new Map();
  const tag = (id, text) => {
    if (!tags.has(id)) tags.set(id, new Set());
    tags.get(id).add(text);
  };
  graph.values.forEach((v, n) => {
    if (!v.is_tag || v.role === "weight") return;
    if (v.writer >= 0) tag(shownAs.get(v.writer), `${v.name} →`);
    graph.dispatches.forEach((d, i) => {
      if (d.reads.includes(n)) tag(shownAs.get(i), `→ ${v.name}`);
    });
  });
  for (const [id, texts] of tags) {
    const node = byId.get(id);
    const line = page.fitted([...texts].join("  "), node.width - 20, NAME_FONT);
    node.detail = node.detail ? `${node.detail}\n${line}` : line;
    node.height = Math.max(node.height + 10, 30 + 18 * node.detail.split("\n").length);
  }
};
