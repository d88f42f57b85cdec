// Buffer, drops, workers and fabric.

const GROUPS = 24;

function buffer(state) {
  const b = state.switch.buffer;
  if (!b.total_cells) {
    show("buffer");
    return;
  }
  const row = (what, used, room, most, unit) => {
    const label = `${what}: ${count(used)} of ${count(room)} ${unit}${most ? `, at most ${count(most)}` : ""}`;
    return [what, bar(used, room, most, label), count(used), count(room), most ? count(most) : ""];
  };
  const rows = [
    row("Shared part", b.shared_used_cells, b.shared_cells, b.shared_watermark_cells, "cells"),
    row("Headroom, all groups", b.headroom_used_cells, b.headroom_cells, b.headroom_watermark_cells, "cells"),
    row("Chunks of the pool", b.chunks_used, b.chunks, 0, "chunks"),
  ];
  const lossless = state.switch.pfc.filter((group) => group.lossless && (group.group_cells || group.group_watermark_cells));
  lossless.sort((a, b) => b.group_cells + b.headroom_cells - a.group_cells - a.headroom_cells);
  const groups = lossless.slice(0, GROUPS).flatMap((group) => {
    const name = `${group.port}, priority ${group.pri}`;
    const most = group.group_watermark_cells;
    return [
      row(`${name}: up to XOFF`, group.group_cells, group.xoff_cells, most, "cells"),
      row(`${name}: headroom`, group.headroom_cells, group.headroom_size_cells, group.headroom_watermark_cells, "cells"),
    ];
  });
  const head = ["", "", "Now", "Of", "Most"];
  const rest = lossless.length > GROUPS
    ? [el("p", { class: "note" }, `${GROUPS} of ${lossless.length} priority groups with frames are shown.`)]
    : [];
  show(
    "buffer",
    el(
      "p",
      {},
      `Cells of ${count(b.cell_bytes)} bytes. XOFF falls as the shared part fills; `,
      "a mark is the most since weft show began again.",
    ),
    table(head, rows),
    ...(groups.length ? [el("h3", {}, "Lossless priority groups, by input"), ...rest, table(head, groups)] : []),
  );
}

function drops(state, before) {
  const { drops: now, queues } = state.switch;
  const was = before?.switch.drops.ports ?? {};
  const isOverTime = about_.kind !== "sim"; // else only the sum of the run is known
  const rows = Object.entries(now.ports).flatMap(([port, reasons]) =>
    Object.entries(reasons).map(([reason, all]) => {
      const more = Math.max(0, all - (was[port]?.[reason] ?? 0));
      return [port, reason, count(all), isOverTime ? count(more) : undefined];
    }));
  const lost = Object.entries(now.kernel_rx).map(([port, all]) => {
    return [port, "lost before the switch, by kernel or device", count(all), ""];
  });
  const outputs = queues.flatMap((queue) =>
    Object.entries(queue.output_drops).map(([reason, all]) => [queue.port, count(queue.pri), reason, count(all)]));
  show(
    "drops",
    rows.length || lost.length
      ? known(
        ["Port (as input)", "Reason", "Frames", "Since the state before"].map((head, n) => [head, (row) => row[n]]),
        [...rows, ...lost],
      )
      : el("p", {}, "No frame was dropped."),
    ...(outputs.length
      ? [el("h3", {}, "The same, where they were to leave"), table(["Output", "Priority", "Reason", "Frames"], outputs)]
      : []),
  );
}

function workers(state, before) {
  const was = before?.switch.workers ?? [];
  const rows = state.switch.workers.map((worker) => {
    const then = was.find((other) => other.worker === worker.worker);
    const ns = then ? worker.uptime_ns - then.uptime_ns : 0;
    const share = ns > 0 ? Math.min(1, Math.max(0, worker.busy_ns - then.busy_ns) / ns) : 0;
    const percent = `${(100 * share).toFixed(1)} %`;
    const frames = ns > 0 ? (worker.frames - then.frames) * 1e9 / ns : 0;
    return [
      count(worker.worker),
      bar(share, 1, 0, `worker ${worker.worker}: busy for ${percent}`),
      percent,
      scaled(frames, "frames/s"),
      time(worker.heartbeat_age_ns),
      { text: worker.stuck ? "stuck" : "", name: worker.stuck ? "bad" : "" },
    ];
  });
  show("workers", ...(rows.length ? [table(["Worker", "Busy", "", "Received", "Last pass", ""], rows)] : []));
}

function fabric(state) {
  const f = state.switch.fabric;
  if (!f) {
    show("fabric");
    return;
  }
  const facts = ["uuid", "serial", "pid", "primary", "groups", "cci_at", "cci_guard"];
  const part = (title, rows) => (rows?.length ? [el("h3", {}, title), el("div", { class: "scroll" }, plain(rows))] : []);
  const bridges = (f.vcses ?? []).flatMap((vcs) => vcs.vppbs.map((bridge) => ({ vcs: vcs.vcs, ...bridge })));
  const refused = Object.entries(f.refused ?? {}).flatMap(([port, reasons]) =>
    Object.entries(reasons).map(([reason, tlps]) => ({ port, reason, tlps })));
  show(
    "fabric",
    table(["", ""], facts.filter((name) => f[name] !== null && f[name] !== undefined).map((name) => [name, String(f[name])])),
    ...part("Ports", f.ports),
    ...part("Virtual switches", (f.vcses ?? []).map(({ vppbs, ...rest }) => ({ ...rest, vppbs: vppbs.length }))),
    ...part("Bridges", bridges),
    ...part("PIDs", f.drt),
    ...part("Routing groups", f.rgt),
    ...part("TLPs that were refused", refused),
    ...part("Own functions", [f.agent]),
    ...part("Managers", [f.cci]),
  );
}
