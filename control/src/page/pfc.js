// PFC: pauses on a time line, as their begins and ends were recorded, and what was counted.

const LANES = 48;
const SIDES = { asked: "asks its peer to pause", obeyed: "is paused by its peer" };

/// Pauses in [from, to], by (port, priority, side).
function lanes(pauses, from, to) {
  const all = new Map();
  for (const pause of pauses) {
    const end = pause.to_ns ?? to;
    if (end < from || pause.from_ns > to) {
      continue;
    }
    const key = JSON.stringify([pause.port, pause.pri, pause.side]);
    const lane = all.get(key) ?? { port: pause.port, pri: pause.pri, side: pause.side, spans: [] };
    lane.spans.push([Math.max(from, pause.from_ns), Math.min(to, end)]);
    all.set(key, lane);
  }
  const order = (a, b) => a.port.localeCompare(b.port, "en", { numeric: true }) || a.pri - b.pri || (a.side < b.side ? -1 : 1);
  return [...all.values()].sort(order);
}

/// `room` is the width that there is: what is written has the same size on a narrow screen.
function timeline(lanes, from, to, room) {
  const [left, high] = [170, 18];
  const width = Math.max(120, Math.min(540, room - left - 10));
  const height = high * lanes.length + 22;
  const x = (ns) => left + width * (to > from ? (ns - from) / (to - from) : 0);
  const picture = svg("svg", { viewBox: `0 0 ${left + width + 10} ${height}`, role: "img", "aria-label": "Pauses over time" });
  lanes.forEach((lane, n) => {
    const y = high * n + 2;
    picture.append(
      svg("text", { class: "end", x: left - 6, y: y + 12 }, `${lane.port} priority ${lane.pri}, ${lane.side}`),
      svg("rect", { class: "lane", x: left, y, width, height: high - 4 }),
    );
    // What is closer than a pixel is one mark.
    const marks = [];
    for (const [begin, end] of lane.spans.sort((a, b) => a[0] - b[0])) {
      const last = marks[marks.length - 1];
      if (last && x(begin) - x(last.end) < 0.5) {
        [last.end, last.pauses, last.ns] = [Math.max(last.end, end), last.pauses + 1, last.ns + end - begin];
      } else {
        marks.push({ begin, end, pauses: 1, ns: end - begin });
      }
    }
    for (const { begin, end, pauses, ns } of marks) {
      const words = `${lane.port}, priority ${lane.pri}, ${SIDES[lane.side]}: ${count(pauses)} from ${time(begin)} `
        + `to ${time(end)}, paused for ${time(ns)}`;
      const mark = svg(
        "rect",
        { class: lane.side, x: x(begin).toFixed(2), y, width: Math.max(1, x(end) - x(begin)).toFixed(2), height: high - 4 },
        svg("title", {}, words),
      );
      Object.assign(mark.dataset, { port: lane.port, pri: lane.pri, side: lane.side });
      picture.append(mark);
    }
  });
  picture.append(
    svg("text", { x: left, y: height - 4 }, time(Math.max(0, from))),
    svg("text", { class: "end", x: left + width, y: height - 4 }, time(to)),
  );
  return picture;
}

function pfc(state, pauses, lost, from, to) {
  const all = lanes(pauses, from, to);
  const shown = all.slice(0, LANES);
  const figure = byId("pauses");
  figure.hidden = !shown.length;
  place("pauses").replaceChildren(...(shown.length ? [timeline(shown, from, to, document.body.clientWidth - 32)] : []));
  const inTime = new Map();
  for (const lane of all) {
    const ns = lane.spans.reduce((sum, [begin, end]) => sum + end - begin, 0);
    inTime.set(JSON.stringify([lane.port, lane.pri, lane.side]), [lane.spans.length, ns]);
  }
  const rows = state.switch.pfc.filter((row) =>
    row.xoff || row.pause_rx || row.pause_tx || row.xoff_now || row.paused_now || row.paused_ns || row.storms);
  const inThisTime = (row, side) => {
    const [pauses, ns] = inTime.get(JSON.stringify([row.port, row.pri, side])) ?? [0, 0];
    return `${count(pauses)}, ${time(ns)}`;
  };
  const flag = (now, text) => (now === undefined ? undefined : { text: now ? text : "", name: now ? "bad" : "" });
  const columns = [
    ["Port", (row) => row.port],
    ["Priority", (row) => count(row.pri)],
    ["Classes", (row) => row.classes?.join(", ")],
    ["Asks now", (row) => flag(row.xoff_now, "asks")],
    // Where nothing tells when it asks, nothing tells for how long either.
    ["Asked in this time", (row) => (row.xoff_now === undefined ? undefined : inThisTime(row, "asked"))],
    ["XOFF / XON", (row) => `${count(row.xoff)} / ${count(row.xon)}`],
    ["PAUSE sent", (row) => count(row.pause_tx)],
    ["Held now", (row) => flag(row.storm_now || row.paused_now, row.storm_now ? "storm" : "paused")],
    ["Held in this time", (row) => inThisTime(row, "obeyed")],
    ["PAUSE received", (row) => count(row.pause_rx)],
    ["Held in all", (row) => time(row.paused_ns)],
  ];
  const notes = [];
  if (all.length > LANES) {
    notes.push(el("p", { class: "note" }, `${LANES} of ${count(all.length)} (port, priority) with pauses are drawn.`));
  }
  if (lost) {
    const words = `${count(lost)} begins and ends of pauses came too fast to be drawn; the counts have all.`;
    notes.push(el("p", { class: "note" }, words));
  }
  const nothing = el("p", {}, "No PAUSE was sent or received.");
  show("pfc", ...notes, rows.length ? known(columns, rows) : nothing);
}
