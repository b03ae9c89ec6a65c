// The document that the page was made from, and what follows from it.

const report = JSON.parse(byId("data").textContent);

const CLOCKS = ["measured", "planned"];

for (const part of report.parts) {
  part.onCriticalPath = new Set(part.critical_path);
  part.before = part.tasks.map(() => []);
  part.after = part.tasks.map(() => []);
  for (const [from, to] of part.edges) {
    part.after[from].push(to);
    part.before[to].push(from);
  }
  part.length = {};
  for (const clock of CLOCKS) part.length[clock] = part.tasks.reduce((end, task) => Math.max(end, task[clock][1]), 0);
  part.tasks.forEach((task, index) => {
    task.index = index;
    task.text = [task.name, task.operator, task.module, task.node, task.where, ...task.inputs, ...task.outputs]
      .join("\n").toLowerCase();
  });
  // When each buffer is in use: from the start of the first task that uses it to the end of the last.
  for (const buffer of part.memory.buffers) {
    for (const clock of CLOCKS) {
      buffer[clock] = [Infinity, 0];
      for (const use of buffer.uses) {
        buffer[clock][0] = Math.min(buffer[clock][0], part.tasks[use][clock][0]);
        buffer[clock][1] = Math.max(buffer[clock][1], part.tasks[use][clock][1]);
      }
    }
  }
}

const totalOfParts = (read) => report.parts.reduce((sum, part) => sum + read(part), 0);
const eagerLanes = report.eager?.lanes ?? [];

// Bytes in use over time, as [time, bytes] at each change, and the most at any time.
function liveBytes(buffers, clock) {
  const changes = buffers.flatMap((buffer) => [[buffer[clock][0], buffer.bytes], [buffer[clock][1], -buffer.bytes]]);
  changes.sort((a, b) => a[0] - b[0] || a[1] - b[1]);
  const steps = [[0, 0]];
  let live = 0, peak = 0;
  for (const [time, change] of changes) {
    live += change;
    peak = Math.max(peak, live);
    if (steps.at(-1)[0] === time) steps.at(-1)[1] = live;
    else steps.push([time, live]);
  }
  return { steps, peak };
}

// For how much of the time up to `length` at least one of these spans runs.
function busyShare(spans, length) {
  let busy = 0, until = 0;
  for (const [start, end] of spans.toSorted((a, b) => a[0] - b[0])) {
    busy += Math.max(0, end - Math.max(start, until));
    until = Math.max(until, end);
  }
  return length ? busy / length : 0;
}
