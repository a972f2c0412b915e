// Draws the radix tree: bars as wide as nodes hold tokens, bright as they were used lately; gone ones fade.

import { hideTip, showTip } from "./tip.js";

const ROW = 18; // px between leaves
const BAR = 12;
const GAP = 14; // px between a node and its children
const FADE = 1500; // ms until an evicted node is gone from the picture
const COOL = 20; // uses of other nodes after which one is cold

const widthOf = (len) => 6 + 12 * Math.log2(1 + len);

// Where each node goes: children right of their parent, leaves one below the other.
function layout(tree) {
  const placed = [];
  let row = 0;
  const place = (node, parent, x) => {
    const own = { node, parent, x, y: row, width: widthOf(node.len) };
    if (node.len) placed.push(own);
    const from = node.len ? x + own.width + GAP : x;
    const children = node.children ?? [];
    children.forEach((child) => place(child, own, from));
    if (!children.length) row += 1;
    return own;
  };
  place(tree, null, 8);
  return { placed, rows: row };
}

export class TreeView {
  constructor(canvas, summary) {
    this.canvas = canvas;
    this.summary = summary;
    this.shown = new Map(); // id -> placed, plus `gone` since when
    this.rows = 1;
    this.chosen = null;
    canvas.addEventListener("mousemove", (event) => this.point(event));
    canvas.addEventListener("mouseleave", () => this.choose(null));
    canvas.addEventListener("blur", () => this.choose(null));
    canvas.addEventListener("keydown", (event) => this.step(event));
    const frame = () => { this.draw(); requestAnimationFrame(frame); };
    requestAnimationFrame(frame);
  }

  update(tree) {
    const { placed, rows } = layout(tree);
    const now = performance.now();
    const next = new Map(placed.map((own) => [own.node.id, own]));
    for (const [id, old] of this.shown) {
      if (next.has(id)) continue;
      const gone = old.gone ?? now;
      if (now - gone < FADE) next.set(id, { ...old, gone });
    }
    this.shown = next;
    this.rows = Math.max(rows, 1);
    const tokens = placed.reduce((sum, own) => sum + own.node.len, 0);
    this.summary.textContent = `${placed.length} nodes, ${tokens.toLocaleString()} tokens`;
    this.canvas.dataset.nodes = placed.length;
  }

  draw() {
    const { canvas } = this;
    if (!canvas.offsetParent) return;
    const scale = devicePixelRatio;
    let reach = 0;
    for (const own of this.shown.values()) reach = Math.max(reach, own.x + own.width);
    const width = Math.max(canvas.parentElement.clientWidth, reach + 8);
    const height = Math.max(this.rows * ROW + 8, 128);
    if (canvas.width !== width * scale || canvas.height !== height * scale) {
      [canvas.width, canvas.height] = [width * scale, height * scale];
      [canvas.style.width, canvas.style.height] = [`${width}px`, `${height}px`];
    }
    const pen = canvas.getContext("2d");
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.clearRect(0, 0, width, height);
    const style = getComputedStyle(document.documentElement);
    const colors = { accent: style.getPropertyValue("--accent"), line: style.getPropertyValue("--line"), good: style.getPropertyValue("--good") };
    for (const own of this.shown.values()) this.link(pen, own, colors);
    for (const own of this.shown.values()) this.bar(pen, own, colors);
  }

  link(pen, own, colors) {
    const { parent } = own;
    if (!parent?.node.len || own.gone) return;
    const [fromX, fromY] = [parent.x + parent.width, parent.y * ROW + 4 + BAR / 2];
    const toY = own.y * ROW + 4 + BAR / 2;
    pen.beginPath();
    pen.moveTo(fromX, fromY);
    pen.bezierCurveTo(fromX + GAP / 2, fromY, own.x - GAP / 2, toY, own.x, toY);
    pen.strokeStyle = own.node.locks ? colors.good : colors.line;
    pen.lineWidth = own.node.locks ? 2 : 1;
    pen.stroke();
  }

  bar(pen, own, colors) {
    const y = own.y * ROW + 4;
    const heat = Math.exp(-own.node.idle / COOL);
    const life = own.gone ? Math.max(1 - (performance.now() - own.gone) / FADE, 0) : 1;
    pen.globalAlpha = life * (0.25 + 0.75 * heat);
    pen.fillStyle = colors.accent;
    pen.beginPath();
    pen.roundRect(own.x, y, own.width, BAR, 3);
    pen.fill();
    pen.globalAlpha = life;
    if (own.node.locks || own === this.chosen) {
      pen.strokeStyle = colors.good;
      pen.lineWidth = own === this.chosen ? 3 : 2;
      pen.stroke();
    }
    pen.globalAlpha = 1;
  }

  point(event) {
    const [x, y] = [event.offsetX, event.offsetY];
    const hit = [...this.shown.values()].find(
      (own) => !own.gone && x >= own.x && x <= own.x + own.width && y >= own.y * ROW + 2 && y <= own.y * ROW + 6 + BAR,
    );
    this.choose(hit ?? null);
  }

  // Arrow keys: up and down by row, left to the parent, right to the first child.
  step(event) {
    const nodes = [...this.shown.values()].filter((own) => !own.gone);
    const at = nodes.findIndex((own) => own.node.id === this.chosen?.node.id);
    const moves = {
      ArrowDown: () => nodes[at + 1],
      ArrowUp: () => nodes[Math.max(at - 1, 0)],
      ArrowLeft: () => nodes.find((own) => own.node.id === this.chosen?.parent?.node.id),
      ArrowRight: () => nodes.find((own) => own.parent?.node.id === this.chosen?.node.id),
    };
    if (!moves[event.key]) return;
    event.preventDefault();
    this.choose(moves[event.key]() ?? this.chosen ?? nodes[0] ?? null);
  }

  choose(own) {
    this.chosen = own;
    if (!own) {
      hideTip();
      return;
    }
    const { node } = own;
    const text = node.text.replaceAll("\n", "⏎");
    const lines = [
      `${node.len} tokens, ${node.hits} hits, ${node.locks} running`,
      ...(node.hidden ? [`${node.hidden} more below`] : []),
      text.length > 120 ? `${text.slice(0, 80)} … ${text.slice(-36)}` : text,
    ];
    const box = this.canvas.getBoundingClientRect();
    const [left, top] = [box.left + own.x, box.top + own.y * ROW];
    showTip(lines.join("\n"), { left, top, bottom: top + ROW });
  }
}
