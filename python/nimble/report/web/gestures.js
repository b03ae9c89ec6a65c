// Mouse, touch and wheel on a canvas, as moves and zooms around a point. The wheel scrolls the page until the canvas
// was clicked, so that nobody is caught on the way down.

function listenToGestures(canvas, { pan, zoom, hover, leave, click }) {
  const pointers = new Map();
  let moved = 0, spread = 0;
  const place = (event) => {
    const box = canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  const middle = () => {
    const all = [...pointers.values()];
    return [0, 1].map((axis) => all.reduce((sum, at) => sum + at[axis], 0) / all.length);
  };
  const distance = () => {
    const [a, b] = [...pointers.values()];
    return b ? Math.hypot(a[0] - b[0], a[1] - b[1]) : 0;
  };

  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    canvas.setPointerCapture(event.pointerId);
    if (pointers.size === 0) moved = 0;
    pointers.set(event.pointerId, place(event));
    spread = distance();
  });
  canvas.addEventListener("pointermove", (event) => {
    const [x, y] = place(event);
    if (!pointers.has(event.pointerId)) return hover(x, y, event);
    const before = middle();
    pointers.set(event.pointerId, [x, y]);
    const after = middle();
    moved += Math.hypot(after[0] - before[0], after[1] - before[1]);
    if (moved > 3 || pointers.size > 1) {
      leave();
      pan(after[0] - before[0], after[1] - before[1]);
    }
    if (pointers.size > 1 && spread > 0 && distance() > 0) {
      moved += 4;
      zoom(distance() / spread, ...after);
      spread = distance();
    }
  });
  const release = (event) => {
    if (!pointers.delete(event.pointerId)) return;
    spread = distance();
    if (event.type === "pointerup" && pointers.size === 0 && moved <= 3) click(...place(event), event);
  };
  canvas.addEventListener("pointerup", release);
  canvas.addEventListener("pointercancel", release);
  canvas.addEventListener("pointerleave", leave);
  canvas.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey && document.activeElement !== canvas) return;
    event.preventDefault();
    leave();
    if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      pan(-(event.deltaX || event.deltaY), 0);
    } else {
      const lines = event.deltaMode === 1 ? 30 : 1;
      zoom(Math.exp(-event.deltaY * lines * 0.002), ...place(event));
    }
  }, { passive: false });
}
