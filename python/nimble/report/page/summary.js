// What a person wants to know first.

function headline() {
  const replay = totalOfParts((part) => part.replay);
  const eager = report.eager?.run;
  const shown = report.signatures.find((signature) => signature.shown);
  if (!report.parts.length) {
    const [first] = report.signatures;
    const title = { eager: "Runs eagerly", replayed: "Nothing to schedule" }[first?.state] ?? "Not replayed yet";
    const why = first?.state === "replayed" ? "The function computes nothing: it returns what it was given, or what never changes."
      : "There is a schedule to show once a call was recorded and the next one compared with eager.";
    return { title: [title], lead: [first?.reason || why] };
  }
  const calls = report.parts.some((part) => part.name === "backward") ? "forward and backward pass" : "call";
  const lead = [`One ${calls} with ${shown.signature} takes `, element("strong", {}, duration(replay))];
  if (!eager) return { title: [element("em", {}, duration(replay)), ` a ${calls}`], lead: [...lead, "."] };
  lead.push(" instead of ", element("strong", {}, duration(eager)), ", with the same results.");
  const ratio = eager / replay;
  if (ratio > 1.03) return { title: [element("em", {}, `${significant(ratio)} times`), " as fast as eager"], lead };
  if (ratio > 0.97) return { title: ["As fast as eager"], lead };
  return { title: [element("em", {}, `${significant(1 / ratio)} times`), " as slow as eager"], lead };
}

function tiles() {
  if (!report.parts.length) return [];
  const sum = (read) => totalOfParts(read);
  const streams = Math.max(...report.parts.map((part) => part.streams));
  const degree = Math.max(...report.parts.map((part) => part.degree_of_concurrency));
  const path = sum((part) => part.critical_path_length), work = sum((part) => part.work);
  const arena = sum((part) => part.memory.arena), allocated = sum((part) => part.memory.allocated);
  const found = [
    ["Streams", grouped(streams), `at most ${counted(degree, "task")} could ever run side by side`],
    ["Tasks", grouped(sum((part) => part.tasks.length)), `${counted(sum((part) => part.waits.length), "wait")} between streams`],
    ["Memory", byteSize(arena), `instead of ${byteSize(allocated)} without sharing`],
    ["Critical path", duration(path), `no schedule is shorter; all work is ${duration(work)}`],
  ];
  const kernels = eagerLanes.filter((lane) => lane.kind === "device").flatMap((lane) => lane.spans.map((span) => [span[1], span[2]]));
  if (kernels.length) {
    const idle = 1 - busyShare(kernels, report.eager.profiled);
    found.push(["GPU idle in eager", percent(idle), "of the time nothing runs on it, as the profiler sees it"]);
  }
  return found;
}

function method() {
  const onGpu = report.device.startsWith("cuda");
  const [part] = report.parts;
  const text = [];
  if (part) {
    text.push(`A replay: from the call until all is done, the median of ${counted(part.replays, "run")}, without any clock inside.`);
    text.push(onGpu
      ? "Nimble's timeline: the same schedule, captured once more with a CUDA event before and after each task, which the GPU itself records. The events take time too, so this run is a little longer than a plain replay. Of seven runs, the one of median length is drawn."
      : "Nimble's timeline: real replays with the steady clock read before and after each task, on the thread that runs it. Of seven runs, the one of median length is drawn.");
    text.push("Planned times: each task is measured alone, and the planner's simulator runs the schedule with these costs and a microsecond for each wait. The critical path is the longest way through the task graph with the same costs.");
  }
  if (report.eager?.lanes) {
    text.push(`Eager: the median of ${counted(report.eager.runs, "run")} without a profiler. Its timeline is one run under PyTorch's profiler, which slows it down; operators that others call are left out${
      onGpu ? ", and kernels are drawn as the GPU ran them" : ""}. The profiler ran last: on a GPU everything after it is slower for the rest of that process.`);
  } else if (report.eager?.left_out) {
    text.push(`Eager is not shown: ${report.eager.left_out}.`);
  }
  return text.map((paragraph) => element("p", {}, paragraph));
}

function fillSummary() {
  byId("eyebrow").textContent = `${report.title} on ${report.device_name}`;
  const { title, lead } = headline();
  byId("headline").replaceChildren(...title);
  byId("lead").replaceChildren(...lead);
  byId("tiles").replaceChildren(...tiles().map(([name, value, text]) =>
    element("div", {}, element("dt", {}, name), element("dd", {}, value), element("dd", {}, text))));
  byId("tiles").hidden = !report.parts.length;
  byId("method").replaceChildren(...method());
  byId("versions").textContent = Object.entries(report.versions).map(([name, value]) => `${name} ${value}`).join(" · ");
}
