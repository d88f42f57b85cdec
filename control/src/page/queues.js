// Queues: who waits for which output, as heat maps; what is known of one that is picked.

let picked = null;

/// Cells that an input has in a queue, for the shade alone: of lossless frames, at the mean size of those in this queue.
function weights(row) {
  const lossy = row.waiting.reduce((sum, of) => sum + of.lossy_cells, 0);
  const frames = row.waiting.reduce((sum, of) => sum + of.lossless_frames, 0);
  const mean = frames > 0 ? Math.max(1, (row.depth_cells - lossy) / frames) : 0;
  return new Map(row.waiting.map((of) => [of.input, of.lossy_cells + of.lossless_frames * mean]));
}

/// A map of `rows` and `columns`; `at` gives each cell its shade (0 to 1), words and what it is of.
function heat(label, rows, columns, at, pick) {
  const [left, top, size, high] = [70, 22, Math.max(18, Math.min(60, 560 / columns.length)), 24];
  const width = left + size * columns.length + 2;
  const height = top + high * rows.length + 2;
  const cells = svg("g", { class: "cells" });
  rows.forEach((row, y) => {
    columns.forEach((column, x) => {
      const { shade, text, words, data } = at(row, column);
      const [cx, cy] = [left + size * x, top + high * y];
      const is = picked && data.output === picked.output && data.pri === picked.pri ? " picked" : "";
      const cell = svg(
        "rect",
        { class: "heat" + is, x: cx, y: cy, width: size, height: high, "fill-opacity": shade.toFixed(3), tabindex: 0 },
        svg("title", {}, words),
      );
      Object.assign(cell.dataset, data);
      const choose = () => pick({ output: data.output, pri: data.pri });
      cell.addEventListener("click", choose);
      cell.addEventListener("keydown", (event) => event.key === "Enter" && choose());
      cells.append(cell);
      if (text && size >= 30) {
        cells.append(svg("text", { class: "middle", x: cx + size / 2, y: cy + 16 }, text));
      }
    });
  });
  const short = (text) => (String(text).length > 9 ? `${String(text).slice(0, 8)}…` : text);
  const map = svg(
    "svg",
    { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label },
    ...columns.map((name, x) =>
      svg("text", { class: "middle", x: left + size * (x + 0.5), y: 15 }, short(name), svg("title", {}, name))),
    ...rows.map((name, y) =>
      svg("text", { class: "end", x: left - 6, y: top + high * y + 16 }, short(name), svg("title", {}, name))),
    cells,
  );
  map.style.maxWidth = `${width}px`; // a small one is not drawn large
  return map;
}

function queues(state, pri, again) {
  const names = state.switch.ports.map((port) => port.name);
  const rows = state.switch.queues;
  if (!rows.length) {
    byId("queues").hidden = true;
    return;
  }
  byId("queues").hidden = false;
  const pris = [...new Set(rows.map((row) => row.pri))].sort((a, b) => a - b);
  const chosen = rows.filter((row) => pri === "all" || String(row.pri) === pri);
  const pick = (queue) => {
    picked = queue;
    again();
  };
  const deepest = chosen.reduce((deep, row) => (row.depth_cells > (deep?.depth_cells ?? 0) ? row : deep), null);
  const hot = byId("hot");
  hot.textContent = deepest
    ? `Deepest queue: output ${deepest.port}, priority ${deepest.pri}: ${count(deepest.depth_cells)} cells`
    : "Nothing is queued.";
  Object.assign(hot.dataset, { port: deepest?.port ?? "", pri: deepest?.pri ?? "", cells: deepest?.depth_cells ?? 0 });

  const byPair = new Map();
  for (const row of chosen) {
    const weight = weights(row);
    for (const of of row.waiting) {
      const key = JSON.stringify([of.input, row.port]);
      const sum = byPair.get(key) ?? { weight: 0, cells: 0, frames: 0, deep: 0, pri: row.pri };
      const own = weight.get(of.input);
      if (own > sum.deep) {
        [sum.deep, sum.pri] = [own, row.pri];
      }
      sum.weight += own;
      sum.cells += of.lossy_cells;
      sum.frames += of.lossless_frames;
      byPair.set(key, sum);
    }
  }
  const most = [...byPair.values()].reduce((most, { weight }) => Math.max(most, weight), 0);
  place("voq").replaceChildren(heat("Waiting, by input (rows) and output (columns)", names, names, (input, output) => {
    const { weight, cells, frames, pri: deepestPri } =
      byPair.get(JSON.stringify([input, output])) ?? { weight: 0, cells: 0, frames: 0, pri: pris[0] };
    const parts = [cells ? `${count(cells)} c` : "", frames ? `${count(frames)} f` : ""].filter((text) => text);
    return {
      shade: most > 0 ? weight / most : 0,
      text: parts.join(" "),
      words: `from ${input} to ${output}: ${count(cells)} cells of lossy frames, ${count(frames)} lossless frames`,
      data: { input, output, pri: String(deepestPri), cells: String(cells), frames: String(frames) },
    };
  }, pick));

  const byQueue = new Map(rows.map((row) => [JSON.stringify([row.port, row.pri]), row]));
  const depth = rows.reduce((most, row) => Math.max(most, row.depth_cells), 0);
  place("depth").replaceChildren(heat("Queued cells, by output (rows) and priority (columns)", names, pris, (output, pri) => {
    const row = byQueue.get(JSON.stringify([output, pri]));
    const cells = row?.depth_cells ?? 0;
    return {
      shade: depth > 0 ? cells / depth : 0,
      text: cells ? count(cells) : "",
      words: `output ${output}, priority ${pri}: ${count(cells)} cells, at most ${count(row?.depth_watermark_cells ?? 0)}`,
      data: { output, pri: String(pri), cells: String(cells) },
    };
  }, pick));
  const row = picked && byQueue.get(JSON.stringify([picked.output, Number(picked.pri)]));
  byId("queue").replaceChildren(...(row ? [about(row)] : []));
}

/// All that is known of one queue.
function about(row) {
  const waiting = row.waiting.map((of) => [of.input, count(of.lossy_cells), count(of.lossless_frames)]);
  const figures = [
    ["Queued now, cells", row.depth_cells],
    ["Most, cells", row.depth_watermark_cells],
    ["Limit of each VOQ, cells", row.voq_limit_cells],
    ["Frames that left", row.dequeued],
    ["Dropped on the way here", row.output_dropped],
    ["ECN marks", row.ecn_marked],
  ];
  return el(
    "div",
    { id: "picked" },
    el("h3", {}, `Output ${row.port}, priority ${row.pri}`),
    table(["", "Now"], figures.filter(([, value]) => value !== undefined).map(([what, value]) => [what, count(value)])),
    ...(waiting.length ? [table(["From", "Cells of lossy frames", "Lossless frames"], waiting)] : []),
  );
}
