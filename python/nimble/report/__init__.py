"""What a compiled function shows of itself: a page, a trace, lines on a terminal (docs/report.md)."""
