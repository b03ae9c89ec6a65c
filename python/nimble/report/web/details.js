// What is known of one task, of a span of eager's, or of a buffer: beside the pointer, and below the timeline.

function facts(title, colour, rows, tag = "") {
  const heading = element("h3");
  if (colour) heading.append(element("span", { className: "swatch", style: `background:${colour}` }));
  heading.append(title);
  if (tag) heading.append(element("span", { className: "tag" }, tag));
  const list = element("dl");
  for (const [name, value] of rows) {
    if (value) list.append(element("dt", {}, name), element("dd", {}, value));
  }
  return element("div", { className: "facts" }, heading, list);
}

const spanText = ([start, end]) =>
  `${duration(end - start)}, from ${moment(start, end - start)} to ${moment(end, end - start)}`;

function factsOfTask(task, part) {
  const critical = part.onCriticalPath.has(task.index) ? "critical path" : "";
  return facts(task.name, streamColour(task.stream), [
    ["operator", task.operator],
    ["takes", task.inputs.join(", ")],
    ["gives", task.outputs.join(", ")],
    ["module", task.module],
    ["backward of", task.node],
    ["source", task.where],
    ["stream", String(task.stream)],
    ["measured", spanText(task.measured)],
    ["planned", spanText(task.planned)],
    ["alone", duration(task.cost)],
  ], critical);
}

const factsOfEager = ([name, start, end, shapes]) =>
  facts(name, theme.eager, [["takes", shapes], ["eager", spanText([start, end])]]);

function factsOfBuffer(buffer, part) {
  const overlaps = (other) => other !== buffer && other.offset < buffer.offset + buffer.bytes &&
    buffer.offset < other.offset + other.bytes;
  const sharing = part.memory.buffers.filter(overlaps).length;
  const name = (use) => part.tasks[use].name;
  return facts(buffer.scratch ? `scratch of ${name(buffer.uses[0])}` : `result of ${name(buffer.uses[0])}`,
    streamColour(part.tasks[buffer.uses[0]].stream), [
      ["size", byteSize(buffer.bytes)],
      ["place", `${grouped(buffer.offset)} to ${grouped(buffer.offset + buffer.bytes)}`],
      ["first use", name(buffer.uses[0])],
      ["last use", name(buffer.uses.at(-1))],
      ["in use", spanText(buffer[selection.clock])],
      ["shares bytes", sharing ? `with ${counted(sharing, "other buffer")}, at other times` : "with nobody"],
    ]);
}

const tooltip = {
  box: byId("tooltip"),
  show(content, x, y) {
    this.box.replaceChildren(content);
    this.box.hidden = false;
    const { width, height } = this.box.getBoundingClientRect();
    const left = x + 16 + width > innerWidth ? Math.max(8, x - width - 16) : x + 16;
    const top = y + 16 + height > innerHeight ? Math.max(8, y - height - 16) : y + 16;
    Object.assign(this.box.style, { left: `${left}px`, top: `${top}px` });
  },
  hide() { this.box.hidden = true; },
};

selection.listeners.push((change) => {
  if (change === "hover" || change === "filter") return;
  const { task, part } = selection;
  byId("details").replaceChildren(...(task ? [factsOfTask(task, part)] : []));
});
