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
    const { run, profiled } = report.eager;
    add({ height: HEADER, title: "Eager",
      text: `${duration(run)} a run; ${duration(profiled)} under the profiler, as drawn` });
    for (const { name, kind, spans } of eagerLanes) {
      add({ height: 22, label: name, kind, index: new SpanIndex(spans, (span) => [span[1], span[2]]) });
    }
  }
  const how = clock === "planned" ? "as planned" : "with a clock around each task, as drawn";
  const then = part.then_on_host ? `; then ${part.then_on_host}` : "";
  add({ height: HEADER, title: "Nimble",
    text: `${duration(part.replay)} a replay; ${duration(part.length[clock])} ${how}${then}` });
  const streams = Array.from({ length: part.streams }, () => []);
  for (const task of part.tasks) streams[task.stream].push(task);
  streams.forEach((tasks, stream) => {
    add({ height: rowHeight(part.streams), label: `stream ${stream}`, kind: "stream", stream,
      index: new SpanIndex(tasks, (task) => task[clock]) });
  });
  return { rows, height: y + 6 };
}
