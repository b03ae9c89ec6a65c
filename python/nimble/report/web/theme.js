// The colours of the style sheet, for canvases, in whichever scheme the reader's system is set to.

const theme = { changed: [] };

function readTheme() {
  const style = getComputedStyle(document.documentElement);
  const names = ["card", "ink", "soft", "faint", "line", "grid", "accent", "critical", "focus", "eager", "eager-text",
    "kernel", "kernel-text", "task-text"];
  for (const name of names) theme[name] = style.getPropertyValue(`--${name}`).trim();
  theme.streams = Array.from({ length: 8 }, (_, i) => style.getPropertyValue(`--s${i}`).trim());
  theme.sans = style.getPropertyValue("--sans");
  theme.mono = style.getPropertyValue("--mono");
}
readTheme();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  readTheme();
  for (const redraw of theme.changed) redraw();
});

const streamColour = (stream) => theme.streams[stream % theme.streams.length];
