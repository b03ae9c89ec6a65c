// Streams × time. Only what is visible is drawn: rows by their place, spans by binary search, and spans that fall on
// the same pixel once.

const AXIS = 26;
const MOST_ARROWS = 600;
const gutter = () => (innerWidth < 640 ? 58 : 86);

class Timeline {
  constructor(viewport) {
    this.viewport = viewport;
    this.canvas = byId("timeline");
    this.scroller = byId("lanes");
    this.surface = new Surface(this.canvas, (context, width, height) => this.draw(context, width, height));
    this.scroller.addEventListener("scroll", () => this.surface.invalidate());
    addEventListener("resize", () => this.fitHeight());
    viewport.listeners.push(() => this.surface.invalidate());
    selection.listeners.push((change) => {
      if (change === "part") this.layOut();
      this.surface.invalidate();
    });
    this.layOut();
    listenToGestures(this.canvas, {
      pan: (dx, dy) => {
        this.viewport.pan(-dx / this.plotWidth);
        this.scroller.scrollTop -= dy;
      },
      zoom: (factor, x) => this.viewport.zoom(factor, (x - gutter()) / this.plotWidth),
      hover: (x, y, event) => this.hover(x, y, event),
      leave: () => this.leave(),
      click: (x, y) => {
        const found = this.at(x, y);
        selection.pick(found?.row.kind === "stream" ? found.item : null);
      },
    });
    this.canvas.addEventListener("keydown", (event) => this.key(event));
  }

  layOut() {
    Object.assign(this, makeRows(selection.part, selection.clock));
    this.order = selection.part.tasks.toSorted((a, b) => a[selection.clock][0] - b[selection.clock][0]);
    this.canvas.setAttribute("aria-label", `Timeline of ${counted(selection.part.tasks.length, "task")} on ${
      counted(selection.part.streams, "stream")}${eagerLanes.length ? ", with eager's above" : ""}`);
    this.fitHeight();
  }

  fitHeight() {
    const whole = this.height + AXIS;
    byId("lanes-height").style.height = `${whole}px`;
    const most = Math.min(innerHeight * 0.68, 620);
    this.canvas.style.height = `${Math.min(whole, most)}px`;
    this.surface.invalidate();
  }

  get plotWidth() { return Math.max(1, this.surface.width - gutter()); }
  x(time) { return gutter() + ((time - this.viewport.from) / this.viewport.length) * this.plotWidth; }
  time(x) { return this.viewport.from + ((x - gutter()) / this.plotWidth) * this.viewport.length; }
  y(row) { return row.y + AXIS - this.scroller.scrollTop; }

  draw(context, width, height) {
    context.save();
    context.beginPath();
    context.rect(0, AXIS, width, height - AXIS);
    context.clip();
    this.drawGrid(context, height);
    for (const row of this.rows) {
      const y = this.y(row);
      if (y + row.height < AXIS || y > height) continue;
      if (row.title) this.drawTitle(context, row, y, width);
      else this.drawRow(context, row, y);
    }
    this.drawArrows(context, height);
    context.restore();
    this.drawAxis(context, width);
  }

  drawGrid(context, height) {
    context.strokeStyle = theme.grid;
    context.lineWidth = 1;
    context.beginPath();
    for (const tick of ticks(this.viewport.from, this.viewport.to, this.plotWidth)) {
      const x = Math.round(this.x(tick)) + 0.5;
      if (x < gutter()) continue;
      context.moveTo(x, AXIS);
      context.lineTo(x, height);
    }
    context.stroke();
  }

  drawAxis(context, width) {
    context.fillStyle = theme.soft;
    context.font = `12px ${theme.sans}`;
    context.textAlign = "center";
    for (const tick of ticks(this.viewport.from, this.viewport.to, this.plotWidth)) {
      const x = this.x(tick);
      if (x >= gutter() - 2 && x < width - 18) context.fillText(tick === 0 ? "0" : duration(tick), x, AXIS / 2 + 1);
    }
    context.textAlign = "left";
    context.strokeStyle = theme.line;
    context.strokeRect(-1, -1, width + 2, AXIS + 0.5);
  }

  drawTitle(context, row, y, width) {
    context.textAlign = "left";
    context.fillStyle = theme.card;
    context.fillRect(0, y, width, row.height);
    context.font = `600 13px ${theme.sans}`;
    context.fillStyle = theme.ink;
    context.fillText(row.title, 12, y + row.height / 2 + 3);
    const after = 12 + context.measureText(row.title).width + 10;
    context.font = `13px ${theme.sans}`;
    context.fillStyle = theme.soft;
    this.surface.fittingText(row.text, after, y + row.height / 2 + 3, width - after - 8);
  }

  style(row, item) {
    if (row.kind === "host") return [theme.eager, theme["eager-text"]];
    if (row.kind === "device") return [theme.kernel, theme["kernel-text"]];
    return [streamColour(item.stream), theme["task-text"]];
  }

  drawRow(context, row, y) {
    const { index } = row;
    const gap = row.height > 14 ? 2 : 1;
    const [top, height] = [y + gap, row.height - 2 * gap];
    const left = gutter();
    const right = left + this.plotWidth;
    const small = row.height < 14;
    let covered = -1;  // the last pixel that this row was drawn to
    context.font = `11.5px ${theme.mono}`;
    for (let i = index.firstAfter(this.viewport.from); i < index.items.length; ++i) {
      if (index.starts[i] > this.viewport.to) break;
      const item = index.items[i];
      const from = Math.max(left, this.x(index.starts[i])), to = Math.min(right, this.x(index.ends[i]));
      const isPicked = item === selection.task || item === selection.hovered;
      if (to < covered + 0.4 && !isPicked) continue;
      const width = Math.max(to - from - (to - from > 3 ? 0.6 : 0), 0.8);
      covered = from + width;
      const [fill, text] = this.style(row, item);
      context.globalAlpha = row.stream !== undefined && selection.isDimmed(item) ? 0.13 : 1;
      context.fillStyle = fill;
      if (width > 5) {
        context.beginPath();
        context.roundRect(from, top, width, height, 3);
        context.fill();
      } else {
        context.fillRect(from, top, width, height);
      }
      if (row.stream !== undefined && selection.part.onCriticalPath.has(item.index)) {
        context.fillStyle = theme.critical;
        context.fillRect(from, top + height - (small ? 2 : 3), width, small ? 2 : 3);
      }
      if (!small && width > 22) {
        context.fillStyle = text;
        const name = row.stream === undefined ? item[0].replace(/^aten::/, "") : item.name;
        this.surface.fittingText(name, from + 5, top + height / 2, width - 8);
      }
      context.globalAlpha = 1;
      if (isPicked) {
        context.strokeStyle = item === selection.task ? theme.focus : theme.ink;
        context.lineWidth = 2;
        context.strokeRect(from - 1, top - 1, Math.max(width + 2, 3), height + 2);
      }
    }
    if (!small || row.stream % 5 === 0) {
      context.fillStyle = theme.soft;
      context.font = `12px ${theme.sans}`;
      context.textAlign = "right";
      const label = innerWidth < 640 ? row.label.replace("stream ", "s ") : row.label;
      context.fillText(label, left - 10, y + row.height / 2);
      context.textAlign = "left";
    }
  }

  drawArrows(context, height) {
    const { part, clock, task: picked, hovered } = selection;
    const rowOf = new Map(this.rows.filter((row) => row.stream !== undefined).map((row) => [row.stream, row]));
    const isShown = ([from, to]) => {
      const [before, after] = [part.tasks[from], part.tasks[to]];
      return after[clock][0] >= this.viewport.from && before[clock][1] <= this.viewport.to;
    };
    const touches = (wait) => [picked, hovered].some((task) => task && wait.includes(task.index));
    const shown = part.waits.filter(isShown);
    const crowded = shown.length > MOST_ARROWS;
    context.save();
    context.beginPath();
    context.rect(gutter(), AXIS, this.plotWidth, height);
    context.clip();
    for (const wait of shown) {
      const strong = touches(wait);
      if (crowded && !strong) continue;
      const [before, after] = wait.map((index) => part.tasks[index]);
      const [rowBefore, rowAfter] = [rowOf.get(before.stream), rowOf.get(after.stream)];
      const x1 = this.x(before[clock][1]), y1 = this.y(rowBefore) + rowBefore.height / 2;
      const x2 = this.x(after[clock][0]), y2 = this.y(rowAfter) + rowAfter.height / 2;
      if (Math.max(y1, y2) < AXIS || Math.min(y1, y2) > height) continue;
      const dimmed = selection.isDimmed(before) && selection.isDimmed(after);
      context.strokeStyle = context.fillStyle = strong ? theme.focus : theme.ink;
      context.globalAlpha = strong ? 1 : dimmed ? 0.05 : Math.max(0.14, Math.min(0.55, 40 / shown.length));
      context.lineWidth = strong ? 2 : 1.1;
      const bend = Math.max(8, Math.min(60, Math.abs(x2 - x1) / 2 + 6));
      context.beginPath();
      context.moveTo(x1, y1);
      context.bezierCurveTo(x1 + bend, y1, x2 - bend, y2, x2, y2);
      context.stroke();
      context.beginPath();
      context.moveTo(x2 + 1, y2);
      context.lineTo(x2 - 6, y2 - 3.5);
      context.lineTo(x2 - 6, y2 + 3.5);
      context.fill();
    }
    context.restore();
  }

  at(x, y) {
    const inside = y - AXIS + this.scroller.scrollTop;
    const row = this.rows.find((candidate) => inside >= candidate.y && inside < candidate.y + candidate.height);
    if (!row?.index || y < AXIS || x < gutter()) return null;
    const item = row.index.at(this.time(x), (4 / this.plotWidth) * this.viewport.length);
    return item && { row, item };
  }

  hover(x, y, event) {
    const found = this.at(x, y);
    if (!found) return this.leave();
    const isTask = found.row.kind === "stream";
    selection.hover(isTask ? found.item : null);
    const told = isTask ? factsOfTask(found.item, selection.part) : factsOfEager(found.item);
    tooltip.show(told, event.clientX, event.clientY);
  }

  leave() {
    selection.hover(null);
    tooltip.hide();
  }

  // Picks the task that is so many further on in time; false where there is none.
  step(count) {
    const tasks = selection.matches ? this.order.filter((task) => selection.matches.has(task)) : this.order;
    const now = tasks.indexOf(selection.task);
    const visible = tasks.findIndex((task) => task[selection.clock][1] > this.viewport.from);
    const next = tasks[selection.task && now >= 0 ? now + count : Math.max(0, visible)];
    if (!next) return false;
    this.reveal(next);
    return true;
  }

  reveal(task, closer = false) {
    selection.pick(task);
    this.viewport.reveal(task[selection.clock], closer);
    const row = this.rows.find((candidate) => candidate.stream === task.stream);
    const room = this.canvas.clientHeight - AXIS;
    if (row.y < this.scroller.scrollTop || row.y + row.height > this.scroller.scrollTop + room) {
      this.scroller.scrollTop = row.y - room / 2;
    }
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const actions = {
      ArrowLeft: () => this.viewport.pan(-0.15),
      ArrowRight: () => this.viewport.pan(0.15),
      ArrowUp: () => { this.scroller.scrollTop -= 60; },
      ArrowDown: () => { this.scroller.scrollTop += 60; },
      "+": () => this.viewport.zoom(1.5),
      "=": () => this.viewport.zoom(1.5),
      "-": () => this.viewport.zoom(1 / 1.5),
      "0": () => this.viewport.fit(),
      "1": () => this.viewport.fit(selection.part.length[selection.clock]),
      Home: () => this.viewport.show(0, this.viewport.length),
      End: () => this.viewport.show(this.viewport.whole - this.viewport.length, this.viewport.whole),
      Enter: () => this.step(event.shiftKey ? -1 : 1),
    };
    // Tab goes from task to task only while one is picked, so nobody is caught here.
    if (event.key === "Tab" && selection.task) {
      if (this.step(event.shiftKey ? -1 : 1)) event.preventDefault();
      else selection.pick(null);
    } else if (event.key === "Escape" && selection.task) {
      selection.pick(null);
    } else if (actions[event.key]) {
      event.preventDefault();
      actions[event.key]();
    }
  }
}
