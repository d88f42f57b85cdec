// Elements and figures. What comes from a switch is always text: it is never read as markup.

const byId = (id) => document.getElementById(id);

function build(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    node.setAttribute(name, value);
  }
  for (const child of children) {
    node.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return node;
}

const el = (name, attributes, ...children) => build(document.createElement(name), attributes, children);

const svg = (name, attributes, ...children) =>
  build(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);

/// A place of the page: `body` inside of a section or figure.
const place = (id) => byId(id).querySelector(":scope > .body");

/// A whole number; nothing where it is not known.
const count = (number) => (number === undefined ? "" : Number(number).toLocaleString("en-US"));

function scaled(number, unit) {
  const steps = [[1e9, "G"], [1e6, "M"], [1e3, "k"]];
  const [size, letter] = steps.find(([size]) => Math.abs(number) >= size) || [1, ""];
  return (number / size).toLocaleString("en-US", { maximumFractionDigits: 3 }) + " " + letter + unit;
}

function time(ns) {
  const steps = [[1e9, "s"], [1e6, "ms"], [1e3, "us"]];
  const [size, unit] = steps.find(([size]) => ns >= size) || [1, "ns"];
  return (ns / size).toLocaleString("en-US", { maximumFractionDigits: 3 }) + " " + unit;
}

/// A table; each cell is text, a node, or {text, name} with a name of a class. Cells that begin with a letter are words. On a
/// narrow screen each row stands by itself, and each of its cells beside its head.
function table(head, rows) {
  const cell = (content, column) => {
    const { text, name } = content !== null && typeof content === "object" && !(content instanceof Node)
      ? content
      : { text: content, name: "" };
    const words = !(text instanceof Node) && /^[^\d-]/.test(String(text));
    const attributes = { class: (name + (words ? " words" : "")).trim(), "data-head": head[column] };
    return el("td", attributes, text === null ? "" : text);
  };
  return el(
    "table",
    {},
    el("thead", {}, el("tr", {}, ...head.map((text) => el("th", {}, text)))),
    el("tbody", {}, ...rows.map((row) => el("tr", {}, ...row.map(cell)))),
  );
}

/// A table of what is known: `columns` are pairs of head and cell of a row; one whose cells are all undefined is left out.
function known(columns, rows) {
  const all = columns.map(([head, cell]) => [head, rows.map(cell)]);
  const shown = all.filter(([, cells]) => cells.some((cell) => cell !== undefined));
  return table(shown.map(([head]) => head), rows.map((_, n) => shown.map(([, cells]) => cells[n] ?? "")));
}

/// Shows `nodes` in a section, or hides it where there is none.
function show(id, ...nodes) {
  byId(id).hidden = nodes.length === 0;
  place(id).replaceChildren(...nodes);
}

/// Rows as they come: a column for each key.
function plain(rows) {
  const keys = [...new Set(rows.flatMap((row) => Object.keys(row)))];
  const text = (value) => (value !== null && typeof value === "object" ? JSON.stringify(value) : value ?? "");
  return table(keys, rows.map((row) => keys.map((key) => String(text(row[key])))));
}

/// A bar that is `used` of `room`, with a mark at the most that there was.
function bar(used, room, most, label) {
  const width = 260;
  const x = (value) => (width * Math.min(1, room > 0 ? value / room : 0)).toFixed(1);
  return svg(
    "svg",
    { viewBox: `0 0 ${width} 14`, class: "bar", role: "img", "aria-label": label },
    svg("rect", { class: "room", width, height: 14 }, svg("title", {}, label)),
    svg("rect", { class: used > room ? "over" : "used", width: x(used), height: 14 }, svg("title", {}, label)),
    ...(most > 0 ? [svg("line", { class: "mark", x1: x(most), x2: x(most), y1: 0, y2: 14 })] : []),
  );
}
