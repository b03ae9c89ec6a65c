// A canvas in the pixels of the screen, drawn at most once a frame, and only when something changed.

class Surface {
  constructor(canvas, draw) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d");
    this.draw = draw;
    this.waiting = false;
    this.letters = new Map();  // by font: how wide one is
    this.width = 0;
    this.height = 0;
    new ResizeObserver(() => this.invalidate()).observe(canvas);
    theme.changed.push(() => this.invalidate());
  }

  invalidate() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      this.paint();
    });
  }

  paint() {
    const ratio = devicePixelRatio || 1;
    this.width = this.canvas.clientWidth;
    this.height = this.canvas.clientHeight;
    const [width, height] = [Math.round(this.width * ratio), Math.round(this.height * ratio)];
    if (this.canvas.width !== width || this.canvas.height !== height) Object.assign(this.canvas, { width, height });
    if (!width || !height) return;
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.context.fillStyle = theme.card;
    this.context.fillRect(0, 0, this.width, this.height);
    this.context.textBaseline = "middle";
    this.draw(this.context, this.width, this.height);
  }

  // Text that fits into a width, or nothing.
  fittingText(text, x, y, width) {
    if (width < 22) return;
    const { font } = this.context;
    if (!this.letters.has(font)) this.letters.set(font, this.context.measureText("0").width);
    const room = Math.floor(width / this.letters.get(font));
    if (room < 3) return;
    this.context.fillText(text.length <= room ? text : `${text.slice(0, room - 1)}…`, x, y);
  }
}

// Where a graph of so many units, this many pixels wide, has its ticks: round numbers, not too close.
function ticks(from, to, width) {
  const rough = (to - from) / Math.max(2, width / 110);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= rough);
  const found = [];
  for (let tick = Math.max(0, Math.ceil(from / step) * step); tick <= to; tick += step) found.push(tick);
  return found;
}
