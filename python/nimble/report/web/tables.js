// Everything that reads better in rows than in pictures.

const ROWS = 12;

// `columns`: [title, class name]; `rows`: arrays of cells, each text or an element; `marked`: rows that stand out.
function table(columns, rows, marked = () => false) {
  const head = element("tr", {},
    ...columns.map(([title, className = ""]) => element("th", { scope: "col", className }, title)));
  const body = rows.map((cells, i) => element("tr", { className: marked(i) ? "chosen" : "" },
    ...cells.map((cell, column) => element("td", { className: columns[column][1] ?? "" }, cell))));
  return element("table", {}, element("thead", {}, head), element("tbody", {}, ...body));
}

class TaskTable {
  constructor(timeline) {
    this.timeline = timeline;
    this.most = ROWS;
    selection.listeners.push((change) => {
      if (change === "part") this.most = ROWS;
      if (change === "part" || change === "filter") this.fill();
    });
    this.fill();
  }

  fill() {
    const { part, matches } = selection;
    const tasks = (matches ? [...matches] : part.tasks).toSorted((a, b) => b.cost - a.cost);
    const cost = tasks.reduce((sum, task) => sum + task.cost, 0);
    byId("tasks-text").textContent = `${matches ? "those that match" : "all"} take ${duration(cost)} one after the ` +
      `other, ${percent(part.work ? cost / part.work : 0)} of the work`;
    const columns = [["task", "whole"], ["alone", "number"], ["share", "number wide"], ["module and line"],
      ["shapes", "wide"]];
    const rows = tasks.slice(0, this.most).map((task) => this.row(task, tasks[0].cost));
    const left = tasks.length - this.most;
    const more = element("button", { className: "more", onclick: () => this.showMore() },
      `Show ${Math.min(100, left)} more of ${grouped(tasks.length)}`);
    byId("tasks").replaceChildren(table(columns, rows), ...(left > 0 ? [more] : []));
  }

  row(task, longest) {
    const { part } = selection;
    const name = element("span", {},
      element("span", { className: "swatch", style: `background:${streamColour(task.stream)}` }),
      element("button", { className: "link", onclick: () => this.go(task) }, task.name));
    if (part.onCriticalPath.has(task.index)) name.append(element("span", { className: "tag" }, "critical"));
    const width = `width:${(task.cost / longest) * 100}%`;
    const cost = element("span", {}, duration(task.cost), element("span", { className: "share", style: width }));
    const line = element("small", { title: task.where }, shortLine(task.where));
    const shapes = `${task.inputs.slice(0, 3).join(", ")} → ${task.outputs.slice(0, 2).join(", ")}`;
    return [name, cost, percent(part.work ? task.cost / part.work : 0),
      element("span", {}, task.module || "–", line), element("code", {}, shapes)];
  }

  showMore() {
    this.most += 100;
    this.fill();
  }

  go(task) {
    this.timeline.reveal(task, true);
    this.timeline.canvas.focus({ preventScroll: true });
    byId("timeline-section").scrollIntoView({ block: "start" });
  }
}

// What became of a signature, in a word and a sentence.
function fateOf(signature) {
  const { state, reason, replays, tasks, shown } = signature;
  switch (state) {
    case "eager": return ["runs eagerly", reason];
    case "mismatched": return ["differed from eager", `${reason}; the next call is recorded again`];
    case "set up": return ["set up", `${reason}; the next call is recorded again`];
    case "recorded": return ["recorded", "the next call is run both ways and compared"];
    default:
      return ["replayed", `${counted(replays, "time")}; ${counted(tasks, "task")} recorded in ` +
        `${duration(signature.record_milliseconds * 1e6)}${shown ? "; shown on this page" : ""}`];
  }
}

// What passes did to tasks, the same of the same line once.
function rowsOfNotes(notes) {
  const operator = (note) => note.subject.replace(/#.*/, "");
  const groups = Map.groupBy(notes, (note) => [note.what, operator(note), note.how, note.where].join("\n"));
  return [...groups.values()].map((same) => {
    const [note] = same;
    const origin = [note.module, shortLine(note.where)].filter(Boolean).join(" · ");
    return [note.what, element("code", {}, operator(note) + (same.length > 1 ? ` × ${same.length}` : "")),
      element("span", {}, note.how, element("small", {}, origin))];
  });
}

function fillNotes() {
  const rows = [];
  for (const signature of report.signatures) {
    const [what, how] = fateOf(signature);
    rows.push([what, element("code", {}, signature.signature), how], ...rowsOfNotes(signature.notes));
  }
  for (const { then_on_host: step, memory } of report.parts) {
    if (step) rows.push(["left to the host", element("code", {}, step), "between two parts of the replay"]);
    const unplanned = memory.unplanned_allocations;
    if (unplanned) rows.push(["not planned", counted(unplanned, "allocation"), "went to PyTorch's allocator after all"]);
  }
  byId("notes").replaceChildren(table([["what", "whole"], ["of what"], ["how and where"]], rows));
}

function fillChoice() {
  const rows = [], chosen = [];
  for (const part of report.parts) {
    for (const { streams, threads_per_stream: threads, milliseconds, rejected } of part.tried) {
      const schedule = counted(streams, "stream") + (threads ? `, ${counted(threads, "thread")} each` : "");
      const time = milliseconds ? duration(milliseconds * 1e6) : "not timed: the only candidate";
      chosen.push(streams === part.streams && !rejected);
      rows.push([part.name, schedule, rejected ? `no candidate: ${rejected}` : time, chosen.at(-1) ? "chosen" : ""]);
    }
    for (const { like, tasks, from, to, milliseconds_before: before, milliseconds_after: after, kept } of part.kernels) {
      const exchange = `${counted(tasks, "task")} like ${like} by kernel ${to} instead of ${from}`;
      chosen.push(kept);
      rows.push([part.name, exchange, `${duration(after * 1e6)}, before ${duration(before * 1e6)}`, kept ? "kept" : ""]);
    }
  }
  const columns = [["part"], ["schedule, or kernels in it"], ["median of a replay"], [""]];
  byId("choice").replaceChildren(table(columns, rows, (i) => chosen[i]));
}
