// Throughput by port: the difference of two states, and what it was before.

const HISTORY = 300;

/// Bits a second of each port between two states of one switch.
function rates(before, now) {
  const ns = now.switch.uptime_ns - before.switch.uptime_ns;
  const was = new Map(before.switch.ports.map((port) => [port.name, port]));
  const of = (port, key) => {
    if (port[key] === undefined) {
      return null; // it is not known over time
    }
    const grown = port[key] - (was.get(port.name)?.[key] ?? port[key]);
    return ns > 0 ? Math.max(0, grown) * 8e9 / ns : 0;
  };
  return new Map(now.switch.ports.map((port) => [port.name, { rx: of(port, "rx_bytes"), tx: of(port, "tx_bytes") }]));
}

function spark(points, most, label) {
  const line = (key, name) => {
    if (!points.some((point) => point[key] !== null)) {
      return "";
    }
    const step = 160 / Math.max(1, points.length - 1);
    const at = points.map((point, n) =>
      `${(n * step).toFixed(1)},${(27 - 26 * (most > 0 ? point[key] / most : 0)).toFixed(1)}`);
    return svg("polyline", { class: name, points: at.join(" ") });
  };
  return svg(
    "svg",
    { viewBox: "0 0 160 28", class: "spark", role: "img", "aria-label": label },
    line("rx", "l0"),
    line("tx", "l1"),
  );
}

/// `history` has the rates by port of each state that is kept, the last one of now.
function traffic(state, history) {
  const now = history[history.length - 1] ?? new Map();
  const rows = state.switch.ports.map((port) => {
    const points = history.map((rates) => rates.get(port.name) ?? { rx: 0, tx: 0 });
    const most = points.reduce((most, { rx, tx }) => Math.max(most, rx, tx), 0);
    const { rx, tx } = now.get(port.name) ?? { rx: 0, tx: 0 };
    const notes = [
      port.tx_off ? "held (tx off)" : "",
      port.blocked ? `blocked: ${port.blocked}` : "",
      port.last_error ?? "",
    ].filter((text) => text);
    const label = `${port.name}: ${rx === null ? "?" : scaled(rx, "b/s")} received, ${scaled(tx, "b/s")} sent; `
      + `at most ${scaled(most, "b/s")}`;
    return [
      port.name,
      { text: port.link_up ? "up" : "down", name: port.link_up ? "" : "bad" },
      scaled(port.rate_bps, "b/s"),
      rx === null ? "" : scaled(rx, "b/s"),
      scaled(tx, "b/s"),
      spark(points, most, label),
      count(port.rx_frames),
      count(port.tx_frames),
      notes.join("; "),
    ];
  });
  const head = ["Port", "Link", "Rate", "Received", "Sent", "Before", "Frames in", "Frames out", ""];
  show("traffic", ...(rows.length ? [table(head, rows)] : []));
}
