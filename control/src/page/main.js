// States come from the server, or from inside of the page; one of them is shown.

const about_ = JSON.parse(byId("data").textContent);
const KEPT_PAUSES = 20000;

/// What is known of the switch that is shown.
let view = { history: [], pauses: new Map(), lost: 0, state: null, before: null, end: 0 };
let held = false;

/// Adds a state after those that are known.
function add(view, state) {
  if (view.state && state.switch.uptime_ns < view.state.switch.uptime_ns) {
    view.history = []; // the switch was started again
    view.pauses.clear();
    view.state = null;
  }
  if (view.state) {
    view.history.push(rates(view.state, state));
    view.history.splice(0, view.history.length - HISTORY);
  }
  for (const pause of state.pauses) {
    view.pauses.set(pause.number, pause);
  }
  for (const number of view.pauses.keys()) {
    if (view.pauses.size <= KEPT_PAUSES) {
      break;
    }
    view.pauses.delete(number);
  }
  view.lost += state.pauses_lost;
  [view.before, view.state] = [view.state, state];
}

function draw() {
  const { state, before, history } = view;
  if (!state) {
    return;
  }
  const now = state.switch.uptime_ns;
  const span = about_.kind === "live" ? Number(byId("window").value) * 1e9 : view.end;
  const [from, to] = about_.kind === "live" ? [Math.max(0, now - span), now] : [0, span];
  pris(state);
  traffic(state, history);
  queues(state, byId("pri").value, draw);
  pfc(state, [...view.pauses.values()], view.lost, from, to);
  buffer(state);
  drops(state, before);
  workers(state, before);
  fabric(state);
}

/// Priorities to choose from.
function pris(state) {
  const select = byId("pri");
  const all = [...new Set(state.switch.queues.map((queue) => queue.pri))].sort((a, b) => a - b);
  for (const pri of all.slice(select.options.length - 1)) {
    select.append(el("option", { value: pri }, pri));
  }
}

function status(text, lost) {
  byId("status").textContent = text;
  byId("status").className = lost ? "lost" : "";
}

function live() {
  byId("hold").hidden = byId("pick-window").hidden = false;
  byId("hold").addEventListener("click", () => {
    held = !held;
    byId("hold").textContent = held ? "Go on" : "Hold";
  });
  let source = null;
  const connect = () => {
    source = new EventSource("/api/events");
    source.addEventListener("message", ({ data }) => {
      if (held) {
        return;
      }
      const state = JSON.parse(data);
      add(view, state);
      const { switch: name, version, uptime_ns, epoch } = state.switch;
      document.title = byId("title").textContent = `weft: ${name}`;
      const looks = state.viewers ? `; ${state.viewers.open} of ${state.viewers.most} clients look` : "";
      status(`weft ${version}, up for ${time(uptime_ns)}, configuration ${epoch}${looks}`, false);
      document.body.dataset.number = state.number;
      draw();
    });
    source.addEventListener("error", () => {
      status("No states come: the switch has ended, or all places are taken. Trying again.", true);
      if (source.readyState === EventSource.CLOSED) {
        setTimeout(connect, 5000);
      }
    });
  };
  connect();
}

/// States, each with what only the last one has: counters that nothing tells over time.
function whole(states) {
  if (about_.kind !== "sim") {
    return states; // each has all
  }
  const last = states[states.length - 1]?.switch;
  const rows = (state, part) => state[part].map((row, n) => ({ ...last[part][n], ...row }));
  return states.map((state) => {
    const now = { ...last, ...state.switch };
    for (const part of ["ports", "queues", "pfc"]) {
      now[part] = rows(state.switch, part);
    }
    return { ...state, switch: now };
  });
}

function run() {
  byId("voq").hidden = about_.kind === "sim"; // no series tells whose frames wait
  byId("title").textContent = about_.title;
  const [select, slider] = [byId("switch"), byId("time")];
  about_.switches.forEach(({ name }, n) => select.append(el("option", { value: n }, name)));
  byId("pick-switch").hidden = about_.switches.length < 2;
  byId("pick-time").hidden = false;
  const look = () => {
    const states = whole(about_.switches[Number(select.value)]?.states ?? []);
    slider.max = Math.max(0, states.length - 1);
    const at = Math.min(Number(slider.value), states.length - 1);
    const next = { history: [], pauses: new Map(), lost: 0, state: null, before: null, end: 0 };
    states.forEach((state, n) => {
      if (n <= at) {
        add(next, state);
      } else {
        state.pauses.forEach((pause) => next.pauses.set(pause.number, pause));
      }
    });
    next.end = states.length ? states[states.length - 1].switch.uptime_ns : 0;
    view = next;
    if (states.length) {
      byId("at").textContent = time(states[at].switch.uptime_ns);
      const counts = about_.kind === "sim" ? "; frames, marks, drops and PAUSE are counted over the whole run" : "";
      const which = `${count(at + 1)} of ${count(states.length)} states`;
      status(`${about_.kind}, weft ${states[at].switch.version}: ${which}${counts}`, false);
    } else {
      status("There is no state of this switch.", true);
    }
    draw();
  };
  slider.addEventListener("input", look);
  select.addEventListener("change", () => {
    slider.value = slider.max;
    look();
  });
  const first = about_.switches[0]?.states ?? [];
  // What most would look for: the state with the deepest queue.
  const deep = (state) => state.switch.queues.reduce((most, queue) => Math.max(most, queue.depth_cells), 0);
  slider.max = Math.max(0, first.length - 1);
  slider.value = first.reduce((best, state, n) => (deep(state) > deep(first[best]) ? n : best), Math.max(0, first.length - 1));
  look();
}

byId("pri").addEventListener("change", draw);
byId("window").addEventListener("change", draw);
if (about_.kind === "live") {
  live();
} else {
  run();
}
