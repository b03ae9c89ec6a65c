// Puts the page together.

function fillSwitch(id, choices, isChosen, choose) {
  const box = byId(id);
  const update = () => {
    for (const [i, button] of [...box.children].entries()) {
      button.setAttribute("aria-checked", isChosen(choices[i].value));
      button.tabIndex = isChosen(choices[i].value) ? 0 : -1;
    }
  };
  box.replaceChildren(...choices.map(({ value, text }) => {
    const button = element("button", { onclick: () => { choose(value); update(); } }, text);
    button.setAttribute("role", "radio");
    return button;
  }));
  box.onkeydown = (event) => {
    const step = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const now = choices.findIndex(({ value }) => isChosen(value));
    const next = (now + step + choices.length) % choices.length;
    choose(choices[next].value);
    update();
    box.children[next].focus();
  };
  update();
}

function fillLegend() {
  const sample = (style, text) => element("span", {}, element("i", { style }), text);
  const shown = Math.max(2, Math.min(4, selection.part.streams));  // a gradient has at least two colours
  const streams = Array.from({ length: shown }, (_, i) => `var(--s${i % selection.part.streams})`).join(", ");
  byId("legend").replaceChildren(
    ...(eagerLanes.length ? [sample("background:var(--eager)", "eager")] : []),
    sample(`background:linear-gradient(90deg, ${streams})`, "a task, coloured by its stream"),
    sample("background:linear-gradient(var(--line) 60%, var(--critical) 60%)", "on the critical path"),
    element("span", {}, "→ one stream waits for another"));
}

function draw() {
  const longest = (part) => Math.max(part.length.measured, part.length.planned);
  const whole = Math.max(report.eager?.profiled ?? 0, ...report.parts.map(longest), 1000);
  const viewport = new Viewport(whole);
  viewport.fit();
  const timeline = new Timeline(viewport);
  new MemoryMap(viewport, timeline);
  new GraphView(timeline);
  new TaskTable(timeline);
  fillLegend();
  fillChoice();

  const sayRange = () => {
    byId("range").textContent = `${duration(Math.max(0, viewport.from))} to ${duration(viewport.to)}`;
  };
  viewport.listeners.push(sayRange);
  sayRange();

  byId("parts").hidden = report.parts.length < 2;
  fillSwitch("parts", report.parts.map((part) => ({ value: part, text: part.name })),
    (part) => part === selection.part, (part) => selection.show(part, selection.clock));
  fillSwitch("clocks", CLOCKS.map((clock) => ({ value: clock, text: clock[0].toUpperCase() + clock.slice(1) })),
    (clock) => clock === selection.clock, (clock) => selection.show(selection.part, clock));
  byId("zoom-in").onclick = () => viewport.zoom(1.6);
  byId("zoom-out").onclick = () => viewport.zoom(1 / 1.6);
  byId("fit-all").onclick = () => viewport.fit();
  byId("fit-nimble").onclick = () => viewport.fit(selection.part.length[selection.clock]);
  byId("filter").oninput = (event) => selection.filter(event.target.value);
  selection.listeners.push((change) => {
    if (change === "part") fillLegend();
    if (change !== "filter") return;
    byId("matches").textContent = selection.matches
      ? `${grouped(selection.matches.size)} of ${counted(selection.part.tasks.length, "task")}` : "";
  });
}

fillSummary();
fillNotes();
if (selection.part?.tasks.length) draw();
else for (const id of ["timeline", "memory", "graph", "tasks", "choice"]) byId(`${id}-section`).hidden = true;
