// The memory plan: time from left to right as in the timeline, the arena from bottom to top, a box for each buffer, and
// above it how many bytes are in use.

const STRIP = 54;

class MemoryMap {
  constructor(viewport, timeline) {
    this.viewport = viewport;
    this.timeline = timeline;
    this.hovered = null;
    this.surface = new Surface(byId("memory"), (context, width, height) => this.draw(context, width, height));
    viewport.listeners.push(() => this.surface.invalidate());
    selection.listeners.push((change) => {
      if (change === "part") this.count();
      this.surface.invalidate();
    });
    this.count();
    const canvas = this.surface.canvas;
    listenToGestures(canvas, {
      pan: (dx) => this.viewport.pan(-dx / this.plotWidth),
      zoom: (factor, x) => this.viewport.zoom(factor, (x - gutter()) / this.plotWidth),
      hover: (x, y, event) => this.hover(x, y, event),
      leave: () => this.leave(),
      click: (x, y) => {
        const buffer = this.at(x, y);
        if (buffer) selection.pick(selection.part.tasks[buffer.uses[0]]);
      },
    });
    canvas.addEventListener("keydown", (event) => {
      if (!["Tab", "Enter", "Escape"].includes(event.key)) timeline.key(event);
    });
  }

  count() {
    const { part, clock } = selection;
    const { memory } = part;
    this.live = liveBytes(memory.buffers, clock);
    const shared = memory.arena ? memory.allocated / memory.arena : 0;
    byId("memory-text").textContent = memory.buffers.length === 0
      ? "No buffers were planned: all results are the caller's."
      : `${counted(memory.buffers.length, "buffer")} of together ${byteSize(memory.allocated)} share an arena of ` +
        `${byteSize(memory.arena)}: each byte is used ${significant(shared)} times. ` +
        `At most ${byteSize(this.live.peak)} are in use at once.`;
  }

  get plotWidth() { return Math.max(1, this.surface.width - gutter()); }
  x(time) { return gutter() + ((time - this.viewport.from) / this.viewport.length) * this.plotWidth; }
  y(offset) {
    const room = this.surface.height - STRIP - 14;
    return STRIP + 8 + room * (1 - offset / Math.max(1, selection.part.memory.arena));
  }

  draw(context, width, height) {
    this.drawFrame(context, width, height);
    context.save();
    context.beginPath();
    context.rect(gutter(), 0, this.plotWidth, height);
    context.clip();
    this.drawLive(context);
    this.drawBuffers(context);
    context.restore();
  }

  drawFrame(context, width, height) {
    const { memory } = selection.part;
    context.fillStyle = theme.soft;
    context.font = `12px ${theme.sans}`;
    context.textAlign = "right";
    const left = gutter() - 10;
    context.fillText("in use", left, STRIP / 2 + 4);
    context.fillText("0", left, this.y(0) - 5);
    context.fillText("arena", left, this.y(memory.arena) + 7);
    context.textAlign = "left";
    context.strokeStyle = theme.grid;
    context.beginPath();
    for (const tick of ticks(this.viewport.from, this.viewport.to, this.plotWidth)) {
      const x = Math.round(this.x(tick)) + 0.5;
      if (x < gutter()) continue;
      context.moveTo(x, 0);
      context.lineTo(x, height);
    }
    context.stroke();
    context.strokeStyle = theme.line;
    context.strokeRect(gutter() - 0.5, this.y(memory.arena) - 0.5, width, this.y(0) - this.y(memory.arena) + 1);
  }

  drawLive(context) {
    const { steps, peak } = this.live;
    const { arena } = selection.part.memory;
    const y = (bytes) => STRIP - 2 - (STRIP - 18) * (bytes / Math.max(1, arena, peak));
    context.fillStyle = theme.accent;
    context.globalAlpha = 0.28;
    context.beginPath();
    context.moveTo(this.x(0), y(0));
    steps.forEach(([time, bytes], i) => {
      context.lineTo(this.x(time), y(bytes));
      context.lineTo(this.x(steps[i + 1]?.[0] ?? time), y(bytes));
    });
    context.lineTo(this.x(steps.at(-1)[0]), y(0));
    context.fill();
    context.globalAlpha = 1;
    const at = steps.find(([, bytes]) => bytes === peak);
    if (!at || !peak) return;
    const text = `peak ${byteSize(peak)}`;
    context.fillStyle = theme.ink;
    const room = context.measureText(text).width;
    const x = Math.min(this.x(at[0]), gutter() + this.plotWidth - room - 12);
    context.beginPath();
    context.arc(this.x(at[0]), y(peak), 2.5, 0, 7);
    context.fill();
    context.fillText(text, x + 7, Math.max(8, y(peak) - 1));
  }

  drawBuffers(context) {
    const { part, clock, task } = selection;
    for (const buffer of part.memory.buffers) {
      const [start, end] = buffer[clock];
      if (end < this.viewport.from || start > this.viewport.to) continue;
      const x = this.x(start), width = Math.max(0.7, this.x(end) - x);
      const y = this.y(buffer.offset + buffer.bytes), height = Math.max(0.7, this.y(buffer.offset) - y);
      const used = task && buffer.uses.includes(task.index);
      const maker = part.tasks[buffer.uses[0]];
      context.globalAlpha = selection.isDimmed(maker) ? 0.1 : buffer.scratch ? 0.4 : 0.75;
      context.fillStyle = streamColour(maker.stream);
      context.fillRect(x, y, width - (width > 3 ? 0.6 : 0), height - (height > 3 ? 0.6 : 0));
      context.globalAlpha = 1;
      if (used || buffer === this.hovered) {
        context.strokeStyle = used ? theme.focus : theme.ink;
        context.lineWidth = 2;
        context.strokeRect(x, y, width, height);
      }
      if (height > 15 && width > 60) {
        context.fillStyle = theme["task-text"];
        context.font = `11.5px ${theme.mono}`;
        const from = Math.max(x, gutter());
        this.surface.fittingText(byteSize(buffer.bytes), from + 5, y + height / 2, x + width - from - 8);
      }
    }
  }

  at(x, y) {
    const { part, clock } = selection;
    const time = this.viewport.from + ((x - gutter()) / this.plotWidth) * this.viewport.length;
    const slack = (2 / this.plotWidth) * this.viewport.length;
    return part.memory.buffers.find((buffer) => {
      const [start, end] = buffer[clock];
      return start - slack <= time && time <= end + slack && y >= this.y(buffer.offset + buffer.bytes) - 1 &&
        y <= this.y(buffer.offset) + 1;
    }) ?? null;
  }

  hover(x, y, event) {
    const buffer = this.at(x, y);
    if (buffer !== this.hovered) this.surface.invalidate();
    this.hovered = buffer;
    if (buffer) tooltip.show(factsOfBuffer(buffer, selection.part), event.clientX, event.clientY);
    else tooltip.hide();
  }

  leave() {
    this.hovered = null;
    tooltip.hide();
    this.surface.invalidate();
  }
}
