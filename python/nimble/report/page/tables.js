// Everything that reads better in rows than in pictures.

const ROWS = 12;

// `columns`: [title, class name]; `rows`: arrays of cells, each text or an element; `marked`: rows that stand out.
function table(columns, rows, marked = () => false) {
  const head = element("tr", {}, ...columns.map(([title, className = ""]) => element("th", { scope: "col", className }, title)));
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
    byId("tasks-text").textContent = `${matches ? "those that match" : "all"} take ${duration(cost)} one after the other, ${
      percent(part.work ? cost / part.work : 0)} of the work`;
    const rows = tasks.slice(0, this.most).map((task) => {
      const pick = element("button", { className: "link", onclick: () => this.go(task) }, task.name);
      const name = element("span", {}, element("span", { className: "swatch", style: `background:${streamColour(task.stream)}` }), pick);
      if (part.onCriticalPath.has(task.index)) name.append(element("span", { className: "tag" }, "critical"));
      const share = element("span", {}, duration(task.cost), element("span", { className: "share", style: `width:${(task.cost / tasks[0].cost) * 100}%` }));
      const shapes = element("code", {}, `${task.inputs.slice(0, 3).join(", ")} → ${task.outputs.slice(0, 2).join(", ")}`);
      const origin = element("span", {}, task.module || "–", element("small", { title: task.where }, shortLine(task.where)));
      return [name, share, percent(part.work ? task.cost / part.work : 0), origin, shapes];
    });
    const more = tasks.length > this.most
      ? [element("button", { className: "more", onclick: () => this.showMore() }, `Show ${Math.min(100, tasks.length - this.most)} more of ${grouped(tasks.length)}`)]
      : [];
    byId("tasks").replaceChildren(table([["task"], ["alone", "number"], ["share", "number"], ["module and line"], ["shapes", "wide"]], rows), ...more);
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

function fillNotes() {
  const rows = [];
  for (const signature of report.signatures) {
    const what = {
      eager: ["runs eagerly", signature.reason],
      mismatched: ["differed from eager", `${signature.reason}; the next call is recorded again`],
      "set up": ["set up", `${signature.reason}; the next call is recorded again`],
      recorded: ["recorded", "the next call is run both ways and compared"],
      replayed: ["replayed", `${counted(signature.replays, "time")}; ${counted(signature.tasks, "task")} recorded in ${
        significant(signature.record_milliseconds)} ms${signature.shown ? "; shown on this page" : ""}`],
    }[signature.state];
    rows.push([what[0], element("code", {}, signature.signature), what[1]]);
    const groups = Map.groupBy(signature.notes, (note) => `${note.what}\n${note.subject.replace(/#.*/, "")}\n${note.where}`);
    for (const notes of groups.values()) {
      const [note] = notes;
      const times = notes.length > 1 ? ` × ${notes.length}` : "";
      const meaning = note.what === "folded" ? "done once, while recording: nothing but constants goes into it" : "";
      rows.push([note.what, element("code", {}, `${note.subject.replace(/#.*/, "")}${times}`),
        element("span", {}, meaning, element("small", {}, [note.module, shortLine(note.where)].filter(Boolean).join(" · ")))]);
    }
  }
  for (const part of report.parts) {
    if (part.then_on_host) rows.push(["left to the host", element("code", {}, part.then_on_host), "runs eagerly between two parts of the replay"]);
    if (part.memory.unplanned_allocations) {
      rows.push(["not planned", counted(part.memory.unplanned_allocations, "allocation"), "went to PyTorch's allocator after all"]);
    }
  }
  byId("notes").replaceChildren(table([["what"], ["of what"], ["how and where"]], rows));
}

function fillChoice() {
  const rows = [], marks = [];
  for (const part of report.parts) {
    for (const tried of part.tried) {
      const threads = tried.threads_per_stream ? `, ${counted(tried.threads_per_stream, "thread")} each` : "";
      const outcome = tried.rejected ? `no candidate: ${tried.rejected}`
        : tried.milliseconds ? duration(tried.milliseconds * 1e6) : "not timed: the only candidate";
      marks.push(tried.streams === part.streams && !tried.rejected);
      rows.push([part.name, `${counted(tried.streams, "stream")}${threads}`, outcome, marks.at(-1) ? "chosen" : ""]);
    }
  }
  byId("choice").replaceChildren(table([["part"], ["schedule"], ["median of a replay"], [""]], rows, (i) => marks[i]));
}
