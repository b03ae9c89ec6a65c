// The stretch of time that is shown. The timeline and the memory map share one.

class Viewport {
  constructor(whole) {
    this.whole = whole;
    this.from = 0;
    this.to = whole;
    this.listeners = [];
  }

  get length() { return this.to - this.from; }

  show(from, to) {
    const shortest = Math.min(200, this.whole);
    const length = Math.min(this.whole * 1.02, Math.max(shortest, to - from));
    const middle = (from + to) / 2;
    this.from = Math.max(-this.whole * 0.01, Math.min(middle - length / 2, this.whole * 1.01 - length));
    this.to = this.from + length;
    for (const listener of this.listeners) listener();
  }

  // Keeps the time at this share of the width in its place.
  zoom(factor, share = 0.5) {
    const at = this.from + share * this.length;
    const length = this.length / factor;
    this.show(at - share * length, at + (1 - share) * length);
  }

  pan(share) { this.show(this.from + share * this.length, this.to + share * this.length); }
  fit(end = this.whole) { this.show(-end * 0.01, end * 1.01); }

  // Brings a span into view, as close as asked for, or closer if it would be too small to see.
  reveal([start, end], closer) {
    const length = Math.min(this.length, Math.max((end - start) * 12, 2000));
    if (closer || start < this.from || end > this.to || length < this.length / 40) {
      this.show((start + end - length) / 2, (start + end + length) / 2);
    }
  }
}
