// The rows of the timeline, from top to bottom: eager's lanes, then Nimble's streams.

const HEADER = 30;

function rowHeight(streams) {
  if (streams <= 12) return 26;
  return streams <= 40 ? 18 : 10;
}

function makeRows(part, clock) {
  const rows = [];
  let y = 0;
  const add = (row) => {
    rows.push({ ...row, y });
    y += row.height;
  };
  if (eagerLanes.length) {
    add({ height: HEADER, title: "Eager", text: `${duration(report.eager.run)} a run; ${duration(report.eager.profiled)} under the profiler, as drawn` });
    for (const lane of eagerLanes) {
      add({ height: 22, label: lane.name, kind: lane.kind, index: new SpanIndex(lane.spans, (span) => [span[1], span[2]]) });
    }
  }
  const runs = part.then_on_host ? `; then ${part.then_on_host} on the host` : "";
  add({ height: HEADER, title: "Nimble",
    text: `${duration(part.replay)} a replay; ${duration(part.length[clock])} ${clock === "planned" ? "as planned" : "with a clock around each task, as drawn"}${runs}` });
  const streams = Array.from({ length: part.streams }, () => []);
  for (const task of part.tasks) streams[task.stream].push(task);
  streams.forEach((tasks, stream) => {
    add({ height: rowHeight(part.streams), label: `stream ${stream}`, kind: "stream", stream,
      index: new SpanIndex(tasks, (task) => task[clock]) });
  });
  return { rows, height: y + 6 };
}
