// How the times on the page were measured.

function method() {
  const onGpu = report.device.startsWith("cuda");
  const [part] = report.parts;
  const text = [];
  if (part) {
    text.push(`A replay: from the call until all is done, the median of ${counted(part.replays, "run")}, without any ` +
      "clock inside.");
    text.push(onGpu
      ? "Nimble's timeline: the same schedule, captured once more with a CUDA event before and after each task, " +
        "which the GPU itself records. The events take time too, so this run is a little longer than a plain " +
        "replay. Of seven runs, the one of median length is drawn."
      : "Nimble's timeline: real replays with the steady clock read before and after each task, on the thread that " +
        "runs it. Of seven runs, the one of median length is drawn.");
    text.push("Planned times: each task is measured alone, and the planner's simulator runs the schedule with these " +
      "costs and a microsecond for each wait. The critical path is the longest way through the task graph with the " +
      "same costs.");
  }
  if (report.eager?.lanes) {
    text.push(`Eager: the median of ${counted(report.eager.runs, "run")} without a profiler. Its timeline is one run ` +
      "under PyTorch's profiler, which slows it down; operators that others call are left out" +
      (onGpu ? ", and kernels are drawn as the GPU ran them" : "") +
      ". The profiler ran last: on a GPU everything after it is slower for the rest of that process.");
  } else if (report.eager?.left_out) {
    text.push(`Eager is not shown: ${report.eager.left_out}.`);
  }
  return text.map((paragraph) => element("p", {}, paragraph));
}
