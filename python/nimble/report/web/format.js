// How numbers and things are written.

const significant = (value) => String(Number(value.toPrecision(3)));

function duration(nanoseconds) {
  for (const [unit, size] of [["s", 1e9], ["ms", 1e6], ["µs", 1e3]]) {
    if (Math.abs(nanoseconds) >= size) return `${significant(nanoseconds / size)} ${unit}`;
  }
  return `${Math.round(nanoseconds)} ns`;
}

// A point in time, so exactly that a stretch of this length shows.
function moment(nanoseconds, length) {
  const [unit, size] = [["s", 1e9], ["ms", 1e6], ["µs", 1e3]].find(([, size]) => nanoseconds >= size) ?? ["µs", 1e3];
  const digits = Math.ceil(Math.log10(size / Math.max(1, length))) + 1;
  return `${(nanoseconds / size).toFixed(Math.max(0, Math.min(6, digits)))} ${unit}`;
}

function byteSize(count) {
  for (const [unit, size] of [["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]]) {
    if (count >= size) return `${significant(count / size)} ${unit}`;
  }
  return `${count} bytes`;
}

const grouped = (count) => count.toLocaleString("en");
const counted = (count, one, many = `${one}s`) => `${grouped(count)} ${count === 1 ? one : many}`;
const percent = (share) => `${significant(share * 100)} %`;

// A source line without the folders.
const shortLine = (where) => where.replace(/^.*[\\/]/, "");

// An element with properties, then children: text or elements. Text is only ever set as text.
function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}
const byId = (id) => document.getElementById(id);
