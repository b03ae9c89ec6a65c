// What a person wants to know first.

function headline() {
  const replay = totalOfParts((part) => part.replay);
  const eager = report.eager?.run;
  const shown = report.signatures.find((signature) => signature.shown);
  if (!report.parts.length) {
    const [first] = report.signatures;
    const title = { eager: "Runs eagerly", replayed: "Nothing to schedule" }[first?.state] ?? "Not replayed yet";
    const why = first?.state === "replayed"
      ? "The function computes nothing: it returns what it was given, or what never changes."
      : "There is a schedule to show once a call was recorded and the next one compared with eager.";
    return { title: [title], lead: [first?.reason || why] };
  }
  const calls = report.parts.some((part) => part.name === "backward") ? "forward and backward pass" : "call";
  const host = report.parts.some((part) => part.then_on_host) ? "Besides what is left to the host, one" : "One";
  const lead = [`${host} ${calls} with ${shown.signature} takes `, element("strong", {}, duration(replay))];
  if (!eager) return { title: [element("em", {}, duration(replay)), ` a ${calls}`], lead: [...lead, "."] };
  lead.push(" instead of ", element("strong", {}, duration(eager)), ".");
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
    ["Tasks", grouped(sum((part) => part.tasks.length)),
      `${counted(sum((part) => part.waits.length), "wait")} between streams`],
    ["Memory", byteSize(arena), `instead of ${byteSize(allocated)} without sharing`],
    ["Critical path", duration(path), `no schedule is shorter; all work is ${duration(work)}`],
  ];
  const kernels = eagerLanes.filter((lane) => lane.kind === "device").flatMap((lane) => lane.spans)
    .map(([, start, end]) => [start, end]);
  if (kernels.length) {
    const idle = 1 - busyShare(kernels, report.eager.profiled);
    found.push(["GPU idle in eager", percent(idle), "of the time nothing runs on it, as the profiler sees it"]);
  }
  return found;
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
  const versions = Object.entries(report.versions).map(([name, value]) => `${name} ${value}`);
  byId("versions").textContent = versions.join(" · ");
}
