// What the reader is looking at: a part, a clock, a task and a filter. All views follow.

const selection = {
  part: report.parts[0] ?? null,
  clock: "measured",
  task: null,      // picked: stays until another is
  hovered: null,   // under the pointer
  needle: "",
  matches: null,   // null: no filter, all of them
  listeners: [],

  tell(change) { for (const listener of this.listeners) listener(change); },
  pick(task) {
    this.task = task;
    this.tell("task");
  },
  hover(task) {
    if (this.hovered === task) return;
    this.hovered = task;
    this.tell("hover");
  },
  show(part, clock) {
    if (part !== this.part) this.task = this.hovered = null;
    this.part = part;
    this.clock = clock;
    this.filter(this.needle);
    this.tell("part");
  },
  filter(needle) {
    this.needle = needle;
    const words = needle.toLowerCase().split(/\s+/).filter(Boolean);
    const found = (task) => words.every((word) => task.text.includes(word));
    this.matches = words.length && this.part ? new Set(this.part.tasks.filter(found)) : null;
    this.tell("filter");
  },
  isDimmed(task) { return this.matches !== null && !this.matches.has(task); },
};
