"""The report in a real browser: it shows what was measured, and mouse, touch and keyboard find it."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from reports.synthetic import synthetic_document

import nimble

GUTTER = 86  # pixels left of the plots, where the names of streams are


@pytest.fixture(scope="module")
def small() -> dict:
    return synthetic_document(tasks=60, streams=4)


@pytest.fixture(scope="module")
def large() -> dict:
    return synthetic_document(tasks=5000, streams=24)


def shown_range(page) -> str:
    return page.locator("#range").inner_text()


def eventually(page, is_so: Callable[[], bool]) -> None:
    """The browser answers to a wheel or to fingers when it gets to it."""
    for _ in range(100):
        if is_so():
            return
        page.wait_for_timeout(50)
    raise AssertionError("it never was so")


def pixels(page, selector: str) -> str:
    """Everything on a canvas, once what was asked for has been drawn."""
    return page.evaluate(
        """async (selector) => {
            for (let i = 0; i < 2; ++i) await new Promise(requestAnimationFrame);
            return document.querySelector(selector).toDataURL();
        }""",
        selector,
    )


def hover_until_told(page, selector: str, start: int = 30):
    """Moves down over a canvas, a few pixels right of where time begins, until something is told. Where nothing ran so
    early, the same further right."""
    page.locator(selector).scroll_into_view_if_needed()
    box = page.locator(selector).bounding_box()
    for x in range(GUTTER + 30, int(box["width"]), 60):
        for y in range(start, int(box["height"]), 6):
            page.mouse.move(box["x"] + x, box["y"] + y)
            if page.locator("#tooltip").is_visible():
                return page.locator("#tooltip").inner_text()
    raise AssertionError(f"nothing is told anywhere on {selector}")


def test_a_page_of_a_compiled_model_says_in_ten_seconds_what_happened(open_page, tmp_path):
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU(), torch.nn.Flatten()).eval()
    x = torch.randn(1, 3, 16, 16)
    fast = nimble.compile(model, tune=0.01)
    with torch.inference_mode():
        for _ in range(3):
            fast(x)
    fast.report(tmp_path / "fast.html")
    page = open_page(tmp_path / "fast.html")
    assert page.title() == "Sequential · Nimble report"
    assert "eager" in page.locator("h1").inner_text()
    assert "f32[1, 3, 16, 16]" in page.locator("#lead").inner_text()
    assert {"Streams", "Tasks", "Memory", "Critical path"} <= set(page.locator("#tiles dt").all_inner_texts())
    assert "convolution#0" in page.locator("#tasks").inner_text()
    page.locator("#fit-nimble").click()
    told = hover_until_told(page, "#timeline", start=100)
    for fact in ("operator", "takes", "gives", "module", "source", "stream", "measured", "planned"):
        assert fact in told


def test_hovering_a_task_of_the_timeline_tells_all_about_it(open_page, small):
    page = open_page(small)
    page.locator("#fit-nimble").click()
    told = hover_until_told(page, "#timeline", start=130)
    task = next(task for task in small["parts"][0]["tasks"] if task["name"] in told)
    for fact in (task["operator"], task["module"], task["where"], *task["inputs"], *task["outputs"]):
        assert fact in told


def test_hovering_eager_tells_the_operator_and_its_shapes(open_page, small):
    page = open_page(small)
    told = hover_until_told(page, "#timeline", start=60)
    assert "aten::" in told and "[1, 64, 56, 56]" in told and "eager" in told


def test_hovering_the_memory_plan_tells_who_uses_the_bytes_and_who_shares_them(open_page, small):
    page = open_page(small)
    told = hover_until_told(page, "#memory", start=60)
    assert "size" in told and "first use" in told and "shares bytes" in told


def test_hovering_the_graph_tells_about_the_task(open_page, small):
    page = open_page(small)
    assert "operator" in hover_until_told(page, "#graph", start=0)


def test_the_wheel_scrolls_the_page_until_the_timeline_was_clicked_and_zooms_from_then_on(open_page, small):
    page = open_page(small)
    box = page.locator("#timeline").bounding_box()
    page.mouse.move(box["x"] + 500, box["y"] + 90)
    before = shown_range(page)
    page.mouse.wheel(0, 100)
    eventually(page, lambda: page.evaluate("scrollY") > 0)
    assert shown_range(page) == before
    page.locator("#timeline").click(position={"x": 600, "y": 8})
    drawn = pixels(page, "#timeline")
    page.mouse.wheel(0, -400)
    eventually(page, lambda: shown_range(page) != before)
    assert pixels(page, "#timeline") != drawn


def test_control_and_wheel_zoom_without_a_click(open_page, small):
    page = open_page(small)
    before = shown_range(page)
    box = page.locator("#timeline").bounding_box()
    page.mouse.move(box["x"] + 500, box["y"] + 90)
    page.keyboard.down("Control")
    page.mouse.wheel(0, -300)
    page.keyboard.up("Control")
    eventually(page, lambda: shown_range(page) != before)


def test_dragging_moves_the_timeline_and_the_memory_plan_with_it(open_page, small):
    page = open_page(small)
    for _ in range(3):
        page.locator("#zoom-in").click()
    before, memory = shown_range(page), pixels(page, "#memory")
    box = page.locator("#timeline").bounding_box()
    page.mouse.move(box["x"] + 700, box["y"] + 12)
    page.mouse.down()
    page.mouse.move(box["x"] + 400, box["y"] + 12, steps=4)
    page.mouse.up()
    assert shown_range(page) != before
    assert pixels(page, "#memory") != memory


def test_two_fingers_zoom(open_page, small):
    page = open_page(small, has_touch=True)
    before = shown_range(page)
    box = page.locator("#timeline").bounding_box()
    touch = page.context.new_cdp_session(page)

    def fingers(kind: str, *places: int) -> None:
        points = [{"x": box["x"] + x, "y": box["y"] + 60, "id": i} for i, x in enumerate(places)]
        touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    fingers("touchStart", 500)
    fingers("touchStart", 500, 600)
    fingers("touchMove", 420, 700)
    fingers("touchMove", 300, 850)
    fingers("touchEnd")
    eventually(page, lambda: shown_range(page) != before)


def test_buttons_zoom_in_and_out_and_show_everything_again(open_page, small):
    page = open_page(small)
    whole = shown_range(page)
    page.locator("#zoom-in").click()
    closer = shown_range(page)
    page.locator("#zoom-out").click()
    page.locator("#fit-nimble").click()
    assert len({whole, closer, shown_range(page)}) == 3
    page.locator("#fit-all").click()
    assert shown_range(page) == whole


def test_the_filter_counts_its_matches_and_the_table_shows_them_alone(open_page, small):
    page = open_page(small)
    drawn = pixels(page, "#timeline")
    page.locator("#filter").fill("softmax")
    names = [task["name"] for task in small["parts"][0]["tasks"]]
    matching = sum("softmax" in name for name in names)
    assert page.locator("#matches").inner_text() == f"{matching} of 60 tasks"
    for name in page.locator("#tasks tbody button").all_inner_texts():
        assert name.startswith("softmax")
    assert pixels(page, "#timeline") != drawn
    page.locator("#filter").fill("")
    assert page.locator("#matches").inner_text() == ""


def test_a_task_in_the_table_leads_to_its_place_in_the_timeline(open_page, small):
    page = open_page(small)
    before = shown_range(page)
    button = page.locator("#tasks tbody button").nth(3)
    name = button.inner_text()
    button.click()
    assert name in page.locator("#details").inner_text()
    assert shown_range(page) != before
    assert page.evaluate("document.activeElement.id") == "timeline"


def test_the_keyboard_moves_zooms_and_goes_from_task_to_task(open_page, small):
    page = open_page(small)
    page.locator("#timeline").focus()
    seen = [shown_range(page)]
    for key in ("+", "+", "ArrowRight", "ArrowLeft", "-", "0"):
        page.keyboard.press(key)
        assert shown_range(page) != seen[-1], key
        seen.append(shown_range(page))
    page.keyboard.press("Enter")
    first = page.locator("#details h3").inner_text()
    page.keyboard.press("Tab")
    second = page.locator("#details h3").inner_text()
    assert first != second
    page.keyboard.press("Shift+Tab")
    assert page.locator("#details h3").inner_text() == first
    page.keyboard.press("Escape")
    assert page.locator("#details").inner_text() == ""


def test_tab_passes_through_the_page_and_is_caught_nowhere(open_page, small):
    page = open_page(small)
    visited = []
    for _ in range(40):
        page.keyboard.press("Tab")
        visited.append(page.evaluate("document.activeElement.id || document.activeElement.tagName"))
    assert {"filter", "zoom-in", "timeline", "memory", "graph"} <= set(visited)
    assert visited.index("timeline") < visited.index("memory") < visited.index("graph")


def test_what_has_the_focus_is_seen_and_everything_that_takes_it_has_a_name(open_page, small):
    page = open_page(small)
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    nameless = page.evaluate(
        """[...document.querySelectorAll("button, input, canvas")].filter((control) =>
            !(control.ariaLabel || control.textContent.trim() || control.labels?.length))
            .map((control) => control.id)"""
    )
    assert nameless == []


def test_planned_and_measured_times_are_a_switch_apart(open_page, small):
    page = open_page(small)
    measured = pixels(page, "#timeline")
    page.get_by_role("radio", name="Planned").click()
    assert pixels(page, "#timeline") != measured
    assert page.get_by_role("radio", name="Planned").get_attribute("aria-checked") == "true"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_follow_the_reader(open_page, small, scheme):
    page = open_page(small, color_scheme=scheme)
    brightness = page.evaluate(
        """async () => {
            for (let i = 0; i < 2; ++i) await new Promise(requestAnimationFrame);
            const drawn = document.querySelector("#timeline").getContext("2d").getImageData(2, 2, 1, 1).data;
            const paper = getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number);
            return [drawn[0], paper[0]];
        }"""
    )
    for value in brightness:
        assert value > 200 if scheme == "light" else value < 60


def test_on_a_phone_nothing_sticks_out(open_page, small):
    page = open_page(small, device_scale_factor=2)
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    for section in page.locator("section").all():
        box = section.bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= 390


def test_five_thousand_tasks_are_drawn_and_not_put_into_the_page(open_page, large):
    page = open_page(large)
    assert page.evaluate("document.querySelectorAll('*').length") < 1500
    page.locator("#fit-nimble").click()
    whole = pixels(page, "#timeline")
    page.locator("#timeline").focus()
    for _ in range(12):
        page.keyboard.press("+")
    assert pixels(page, "#timeline") != whole
    page.locator("#filter").fill("layers.7.")
    matching = sum("layers.7." in task["module"] for task in large["parts"][0]["tasks"])
    assert page.locator("#matches").inner_text() == f"{matching} of 5,000 tasks"
    page.locator("#tasks tbody button").first.click()
    assert "layers.7." in page.locator("#details").inner_text()
    page.locator("#filter").fill("")
    page.locator("#fit-nimble").click()
    assert "operator" in hover_until_told(page, "#timeline", start=130)


def test_a_frame_draws_only_what_is_visible(open_page, large):
    page = open_page(large)
    page.evaluate(
        """() => {
            window.boxes = 0;
            for (const name of ["fillRect", "fill"]) {
                const original = CanvasRenderingContext2D.prototype[name];
                CanvasRenderingContext2D.prototype[name] = function (...given) {
                    if (this.canvas.id === "timeline") ++window.boxes;
                    return original.apply(this, given);
                };
            }
        }"""
    )
    page.locator("#fit-nimble").click()
    page.locator("#timeline").focus()
    for _ in range(10):
        page.keyboard.press("+")
    pixels(page, "#timeline")
    page.evaluate("window.boxes = 0")
    page.keyboard.press("ArrowRight")
    pixels(page, "#timeline")
    assert 0 < page.evaluate("window.boxes") < 1500


def test_forward_and_backward_passes_are_shown_one_at_a_time(open_page, tmp_path):
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    x = torch.randn(3, 4)
    fast = nimble.compile(model, tune=0.01)
    for _ in range(3):
        fast(x).sum().backward()
    fast.report(tmp_path / "both.html")
    page = open_page(tmp_path / "both.html")
    assert "forward and backward" in page.locator("#lead").inner_text()
    assert "addmm#0" in page.locator("#tasks").inner_text()
    page.get_by_role("radio", name="backward").click()
    assert "threshold_backward" in page.locator("#tasks").inner_text()


def test_a_function_that_runs_eagerly_gets_a_page_that_says_why(open_page, tmp_path):
    fast = nimble.compile(lambda x: x[x > 0])
    with pytest.warns(nimble.FallbackWarning):
        fast(torch.randn(5))
    fast.report(tmp_path / "eager.html")
    page = open_page(tmp_path / "eager.html")
    assert page.locator("h1").inner_text() == "Runs eagerly"
    assert "boolean mask" in page.locator("#lead").inner_text()
    assert page.locator("#timeline-section").is_hidden()
    assert "runs eagerly" in page.locator("#notes").inner_text()


def test_what_was_folded_refused_or_left_to_the_host_is_in_a_table(open_page, small):
    document = copy.deepcopy(small)
    document["parts"][0]["then_on_host"] = "Adam.step() runs eagerly here"
    told = open_page(document).locator("#notes").inner_text()
    for fact in ("folded", "arange", "runs eagerly", "aten::nonzero", "left to the host", "Adam.step()"):
        assert fact in told


def test_kernels_that_were_tried_inside_the_schedule_are_in_a_table(open_page, small):
    rows = open_page(small).locator("#choice tr").all_inner_texts()
    kept, slower = [row for row in rows if "6 tasks like matrix_convolution(1x64x35x35, 96x64x3x3)" in row]
    assert "by kernel 1 instead of 0" in kept and "444 µs, before 452 µs" in kept and "kept" in kept
    assert "by kernel 2 instead of 1" in slower and "461 µs" in slower and "kept" not in slower


def test_names_from_the_users_code_are_text_and_never_markup(open_page, small):
    document = copy.deepcopy(small)
    hostile = '</script><img src=x onerror="document.title=1"><!--'
    document["title"] = hostile
    for task in document["parts"][0]["tasks"]:
        task["module"] = task["where"] = hostile
    page = open_page(document)
    page.locator("#timeline").focus()
    page.keyboard.press("Enter")
    assert hostile in page.locator("#details").inner_text()
    assert hostile in page.title()
    assert page.locator("img").count() == 0
