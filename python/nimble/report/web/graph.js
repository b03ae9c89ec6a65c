// The reduced task graph from left to right: a task stands one level after the last of those it depends on, as near as
// it can to the middle of them, so chains are straight lines. Streams are colours.

const LEVEL = 132, SLOT = 34, BOX = [104, 22];

function layOutGraph(part) {
  const count = part.tasks.length;
  const level = new Int32Array(count);
  const slot = new Float64Array(count);
  part.tasks.forEach((_, task) => {  // recorded order is topological
    for (const before of part.before[task]) level[task] = Math.max(level[task], level[before] + 1);
  });
  const levels = [];
  part.tasks.forEach((_, task) => (levels[level[task]] ??= []).push(task));
  for (const tasks of levels) {
    const wished = new Map(tasks.map((task) => {
      const before = part.before[task];
      return [task, before.length ? before.reduce((sum, other) => sum + slot[other], 0) / before.length : 0];
    }));
    const taken = new Set();
    for (const task of tasks.toSorted((a, b) => wished.get(a) - wished.get(b))) {
      const wish = Math.round(wished.get(task));
      let distance = 0;
      while (taken.has(wish + distance) && taken.has(wish - distance)) ++distance;
      slot[task] = taken.has(wish + distance) ? wish - distance : wish + distance;
      taken.add(slot[task]);
    }
  }
  return { level, slot, levels };
}

class GraphView {
  constructor(timeline) {
    this.timeline = timeline;
    this.surface = new Surface(byId("graph"), (context, width, height) => this.draw(context, width, height));
    this.layOut();
    selection.listeners.push((change) => {
      if (change === "part") this.layOut();
      if (change === "task" && selection.task) this.centre(selection.task);
      this.surface.invalidate();
    });
    const canvas = this.surface.canvas;
    listenToGestures(canvas, {
      pan: (dx, dy) => this.move(dx, dy),
      zoom: (factor, x, y) => this.zoom(factor, x, y),
      hover: (x, y, event) => {
        const task = this.at(x, y);
        selection.hover(task);
        if (task) tooltip.show(factsOfTask(task, selection.part), event.clientX, event.clientY);
        else tooltip.hide();
      },
      leave: () => {
        selection.hover(null);
        tooltip.hide();
      },
      click: (x, y) => {
        const task = this.at(x, y);
        if (task) this.timeline.reveal(task);
      },
    });
    canvas.addEventListener("keydown", (event) => this.key(event));
    byId("graph-in").onclick = () => this.zoom(1.5);
    byId("graph-out").onclick = () => this.zoom(1 / 1.5);
    byId("graph-fit").onclick = () => this.fit();
  }

  layOut() {
    const { part } = selection;
    Object.assign(this, layOutGraph(part));
    this.scale = null;
    const implied = part.dependencies - part.edges.length;
    byId("graph-text").textContent = counted(part.edges.length, "dependency", "dependencies") +
      (implied ? `, without the ${grouped(implied)} that others imply` : "") +
      ". Dashed where one stream waits for another.";
    this.surface.invalidate();
  }

  extent(tasks) {
    let low = Infinity, high = -Infinity;
    for (const task of tasks) {
      low = Math.min(low, this.slot[task]);
      high = Math.max(high, this.slot[task]);
    }
    return { low, high };
  }

  // To begin with all of it, if its tasks can be told apart; else its beginning, with as much of its breadth as fits.
  begin() {
    this.fit();
    if (this.scale[0] * BOX[0] >= 7) return;
    const shown = Math.ceil(this.surface.width / LEVEL);
    const { low, high } = this.extent(this.levels.slice(0, shown).flat());
    const scale = Math.max(0.6, Math.min(1, (this.surface.height - 30) / ((high - low + 1) * SLOT)));
    this.scale = [scale, scale];
    this.left = -24;
    this.top = ((low + high) / 2) * SLOT * scale - this.surface.height / 2;
  }

  fit() {
    const { low, high } = this.extent(this.levels.flat());
    const across = Math.min(1, (this.surface.width - 40) / (this.levels.length * LEVEL));
    const down = Math.min(1, (this.surface.height - 30) / ((high - low + 1) * SLOT));
    this.scale = [across, down];
    this.left = -20;
    this.top = ((low + high) / 2) * SLOT * down - this.surface.height / 2;
    this.surface.invalidate();
  }

  move(dx, dy) {
    this.left -= dx;
    this.top -= dy;
    this.surface.invalidate();
  }

  zoom(factor, x = this.surface.width / 2, y = this.surface.height / 2) {
    // Where one direction is at its limit already, the other catches up with it.
    const [across, down] = this.scale.map((scale) => Math.max(0.004, Math.min(2, scale * factor)));
    this.left = ((this.left + x) / this.scale[0]) * across - x;
    this.top = ((this.top + y) / this.scale[1]) * down - y;
    this.scale = [across, down];
    this.surface.invalidate();
  }

  centre(task) {
    if (!this.scale) this.begin();
    const [x, y] = this.place(task.index);
    if (x < 0 || x > this.surface.width - 60) this.left += x - this.surface.width / 2;
    if (y < 0 || y > this.surface.height - 10) this.top += y - this.surface.height / 2;
  }

  // The middle of the left side of a task's box.
  place(task) {
    const [across, down] = this.scale;
    return [this.level[task] * LEVEL * across - this.left, this.slot[task] * SLOT * down - this.top];
  }

  draw(context, width, height) {
    if (!this.scale) this.begin();
    const { part, task: picked, hovered } = selection;
    const [across, down] = this.scale;
    const box = [BOX[0] * across, BOX[1] * down];
    const first = Math.max(0, Math.floor(this.left / (LEVEL * across)) - 1);
    const last = Math.min(this.levels.length - 1, Math.ceil((this.left + width) / (LEVEL * across)));
    const edge = (from, to, strong) => {
      const [x1, y1] = this.place(from), [x2, y2] = this.place(to);
      if (Math.max(y1, y2) < 0 || Math.min(y1, y2) > height) return;
      const critical = part.onCriticalPath.has(from) && part.onCriticalPath.has(to);
      const crosses = part.tasks[from].stream !== part.tasks[to].stream;
      context.strokeStyle = strong ? theme.focus : critical ? theme.critical : theme.faint;
      context.globalAlpha = strong || critical ? 1 : 0.5;
      context.lineWidth = (strong ? 2.2 : critical ? 2 : 1) * Math.max(0.5, Math.min(1, across * 1.5));
      context.setLineDash(crosses && across > 0.25 ? [4, 3] : []);
      const bend = Math.max(6, (x2 - x1 - box[0]) / 2);
      context.beginPath();
      context.moveTo(x1 + box[0], y1);
      context.bezierCurveTo(x1 + box[0] + bend, y1, x2 - bend, y2, x2, y2);
      context.stroke();
    };
    for (let level = first; level <= last; ++level) {
      for (const task of this.levels[level]) {
        for (const after of part.after[task]) edge(task, after, false);
        // An edge that began further left.
        for (const before of part.before[task]) if (this.level[before] < first) edge(before, task, false);
      }
    }
    for (const task of [picked, hovered]) {
      if (!task) continue;
      for (const before of part.before[task.index]) edge(before, task.index, true);
      for (const after of part.after[task.index]) edge(task.index, after, true);
    }
    context.setLineDash([]);
    context.font = `${Math.min(12, 11.5 * down)}px ${theme.mono}`;
    for (let level = first; level <= last; ++level) {
      for (const index of this.levels[level]) {
        const task = part.tasks[index];
        const [x, y] = this.place(index);
        if (y < -20 || y > height + 20) continue;
        context.globalAlpha = selection.isDimmed(task) ? 0.15 : 1;
        context.fillStyle = streamColour(task.stream);
        const [w, h] = [Math.max(2, box[0]), Math.max(2, box[1])];
        context.beginPath();
        context.roundRect(x, y - h / 2, w, h, Math.min(5, h / 4));
        context.fill();
        if (task === picked || task === hovered) {
          context.strokeStyle = task === picked ? theme.focus : theme.ink;
          context.lineWidth = 2.5;
          context.stroke();
        }
        if (down > 0.55) {
          context.fillStyle = theme["task-text"];
          this.surface.fittingText(task.name, x + 4, y + 0.5, w - 6);
        }
        context.globalAlpha = 1;
      }
    }
  }

  at(x, y) {
    const [across, down] = this.scale;
    const level = Math.floor((x + this.left) / (LEVEL * across));
    return (this.levels[level] ?? []).map((index) => selection.part.tasks[index]).find((task) => {
      const [left, middle] = this.place(task.index);
      return x >= left - 2 && x <= left + Math.max(4, BOX[0] * across) + 2 &&
        Math.abs(y - middle) <= Math.max(3, (BOX[1] / 2) * down + 2);
    }) ?? null;
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const step = 80;
    const actions = {
      ArrowLeft: () => this.move(step, 0),
      ArrowRight: () => this.move(-step, 0),
      ArrowUp: () => this.move(0, step),
      ArrowDown: () => this.move(0, -step),
      "+": () => this.zoom(1.4),
      "=": () => this.zoom(1.4),
      "-": () => this.zoom(1 / 1.4),
      "0": () => this.fit(),
    };
    if (actions[event.key]) {
      event.preventDefault();
      actions[event.key]();
    } else if (["Enter", "Escape", "Tab"].includes(event.key)) {
      this.timeline.key(event);
    }
  }
}
