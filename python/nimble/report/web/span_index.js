// Spans of one lane, which do not overlap, in order of time: what is visible is found by binary search.

class SpanIndex {
  constructor(items, span) {
    this.items = items.toSorted((a, b) => span(a)[0] - span(b)[0]);
    this.starts = Float64Array.from(this.items, (item) => span(item)[0]);
    this.ends = Float64Array.from(this.items, (item) => span(item)[1]);
  }

  // The first that ends after this time.
  firstAfter(time) {
    let low = 0, high = this.items.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.ends[middle] > time) high = middle;
      else low = middle + 1;
    }
    return low;
  }

  // The item at this time, or the nearest within the tolerance.
  at(time, tolerance) {
    const next = this.firstAfter(time);
    const candidates = [next, next - 1].filter((i) => i >= 0 && i < this.items.length);
    const distance = (i) => Math.max(0, this.starts[i] - time, time - this.ends[i]);
    candidates.sort((a, b) => distance(a) - distance(b));
    return candidates.length && distance(candidates[0]) <= tolerance ? this.items[candidates[0]] : null;
  }
}
