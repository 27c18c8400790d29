"""The pages of reports in a real browser: what is on them, that all of it can be read on a phone, at a desk and in the dark, and that they ask for nothing."""
import io, json, math, shutil, subprocess

import pytest
from PIL import Image
from playwright.sync_api import sync_playwright

from stand import CONFIG, ROOT

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"]
SIZES = {"phone": {"width": 375, "height": 740}, "desk": {"width": 1280, "height": 900}}
TRACE = ROOT / "tests/data/traces/mooncake.jsonl"
HOSTILE, ARM = "<img src=x onerror=alert(1)>", "<script>alert(1)</script>"
PAGES = ["rollouts", "simulation", "trace", "bench"]
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium to look at pages with")


@pytest.fixture(scope="module")
def made(request, tmp_path_factory):
    """Reports and their pages, by name."""
    here = tmp_path_factory.mktemp("pages")
    (here / "mine.yaml").write_text(CONFIG)
    (here / f"{HOSTILE}.jsonl").write_bytes(TRACE.read_bytes())

    def run(name, *argv):
        argv = [request.config.getoption("--epp"), *map(str, argv), "--html", here / f"{name}.html"]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=50, cwd=here)
        assert done.returncode == 0 and "\r" not in done.stderr, done.stderr
    run("rollouts", "simulate", "--rl", "groups=6,samples=3,turns=2,output=64,steps=2", "--json", "rollouts.json")
    run("again", "simulate", "--report", "rollouts.json")
    run("simulation", "simulate", "--trace", f"{HOSTILE}.jsonl", "--endpoints", 3, "--arm", f"{ARM}=mine.yaml", "--arm", "random", "--json", "simulation.json")
    run("trace", "trace", f"{HOSTILE}.jsonl")
    run("bench", "bench", "--baseline", "--trace", TRACE, "--concurrency", 4, "--rounds", 3, "--json", "bench.json")
    return here


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield started
        started.close()


@pytest.fixture
def look(browser, made):
    """look("rollouts") opens the page; whatever it complains of or asks for is in page.heard."""
    contexts = []

    def go(name, size="desk", scheme="light"):
        context = browser.new_context(viewport=SIZES[size], color_scheme=scheme)
        contexts.append(context)
        page = context.new_page()
        page.heard = []
        page.on("console", lambda message: page.heard.append(message.text))
        page.on("pageerror", lambda error: page.heard.append(str(error)))
        page.on("dialog", lambda dialog: (page.heard.append(dialog.message), dialog.dismiss()))
        page.on("request", lambda asked: page.heard.append(asked.url) if asked.url != (made / f"{name}.html").as_uri() and not asked.url.startswith("data:") else None)
        page.goto((made / f"{name}.html").as_uri())
        return page
    yield go
    for context in contexts:
        context.close()


def report(made, name):
    return json.loads((made / f"{name}.json").read_text())


def said(seconds):
    """A time as pages write it: with three digits that count."""
    value, unit = (seconds * 1e6, "µs") if seconds < 1e-3 else (seconds * 1e3, "ms") if seconds < 0.9995 else (seconds, "s")
    digits = 3 if value < 0.9995 else 2 if value < 9.995 else 1 if value < 99.95 else 0
    return "0 s" if seconds == 0 else f"{value:,.{digits}f} {unit}"


def times(arm):
    return [arm[f"{of}_seconds"][at] for of in ("ttft", "tpot", "e2e") for at in ("p50", "p90", "p99")]


@pytest.mark.parametrize("name", ["rollouts", "simulation"])
def test_every_arm_has_its_row_and_its_numbers(look, made, name):
    arms = report(made, name)["arms"]
    rows = look(name).evaluate("""[...document.querySelector("main table").tBodies[0].rows].map(row => ({
        name: row.querySelector(".name").textContent,
        cells: [...row.querySelectorAll("data")].map(cell => [Number(cell.value), cell.textContent])}))""")
    assert [row["name"] for row in rows] == [arm["name"] for arm in arms]
    for row, arm in zip(rows, arms):
        wanted = [arm["reused_tokens"] / arm["prompt_tokens"], arm["reuse_share"], *times(arm), arm["inflight_max_over_mean"],
                  arm["inflight_momentary_max_over_mean"], arm["makespan_seconds"], arm["requests"] - arm["completed"]]
        if "rollouts" in arm:
            wanted += [arm["rollouts"][of] for of in ("colocated_groups", "straggler_ratio", "tail_share", "idle_share")]
        assert [value for value, _ in row["cells"]] == pytest.approx(wanted, rel=1e-12)
        assert [text for _, text in row["cells"][2:11]] == [said(seconds) for seconds in times(arm)]


def test_the_best_of_a_column_is_marked(look, made):
    arms = report(made, "rollouts")["arms"]
    best = look("rollouts").evaluate("""[...document.querySelector("main table").tBodies[0].rows]
        .map(row => row.querySelectorAll("td")[2].className)""")
    least = min(arm["ttft_seconds"]["p50"] for arm in arms)
    assert [of == "best" for of in best] == [arm["ttft_seconds"]["p50"] == least for arm in arms] and "best" in best


@pytest.mark.parametrize("name", ["rollouts", "simulation"])
def test_every_arm_has_its_line_in_each_chart_and_its_map(look, made, name):
    arms = sorted(arm["name"] for arm in report(made, name)["arms"])
    page = look(name)
    charts = page.evaluate("""Object.fromEntries([...document.querySelectorAll("figure")].map(figure => [figure.querySelector("h3").textContent,
        {lines: [...figure.querySelectorAll("path.line > title")].map(title => title.textContent).sort(),
         keys: [...figure.querySelectorAll(".key .name")].map(name => name.textContent).sort(),
         multiples: [...figure.querySelectorAll(".multiple .name")].map(name => name.textContent).sort(),
         bars: [...figure.querySelectorAll(".bar .name")].map(name => name.textContent).sort()}]))""")
    for title in ("Time to first token", "Time per output token", "End to end", "KV cache in use", "Imbalance of requests in flight"):
        assert charts[title]["lines"] == charts[title]["keys"] == arms, title
    for title in ("Requests in flight", "Picks") + (("Until when endpoints were busy",) if name == "rollouts" else ()):
        assert charts[title]["multiples"] == arms, title
    assert charts["Reused prompt tokens"]["bars"] == arms
    assert page.locator("figure details table").count() == page.locator("figure").count()


def test_bars_of_steps_end_when_endpoints_were_done(look, made):
    """The ends of the bars, as parts of the width, are to each other as the times in the report."""
    arm = report(made, "rollouts")["arms"][0]
    ends = look("rollouts").evaluate("""[...document.querySelector(".multiple .plot").querySelectorAll("rect.fill")]
        .map(bar => bar.x.baseVal.value + bar.width.baseVal.value)""")
    wanted = [step["began_seconds"] + done for step in arm["rollouts"]["steps"] for done in step["endpoint_done_seconds"]]
    scale = max(ends) / max(wanted)
    assert ends == pytest.approx([done * scale for done in wanted], abs=0.2)


def test_a_report_that_was_written_is_drawn_again_with_the_same_bytes(made):
    assert (made / "again.html").read_bytes() == (made / "rollouts.html").read_bytes()


def test_columns_of_a_trace_hold_every_request(look):
    n = len(TRACE.read_text().splitlines())
    sums = look("trace").evaluate("""[...document.querySelectorAll("figure")].map(figure =>
        [figure.querySelector("h3").textContent, [...figure.querySelectorAll("td data")].reduce((sum, cell) => sum + Number(cell.value), 0)])""")
    assert [title for title, total in sums if total == n][:3] == ["Requests over time", "Prompt tokens", "Output tokens"]


def test_rounds_of_a_measurement_are_dots_and_rows(look, made):
    written = report(made, "bench")
    page = look("bench")
    dots = page.evaluate("""document.querySelector("path.dots").getAttribute("d")""")
    assert dots.count("h0") == len(written["pickers"][0]["rounds"]) == 3
    assert page.locator("text=The run is valid").count() == written["valid"]
    table = page.locator("table").last.inner_text()
    assert table.count("baseline, round") == 3 and "cpu us per request" in table


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", PAGES)
def test_nothing_is_wider_than_the_screen(look, name, size):
    page = look(name, size)
    page.evaluate("document.querySelectorAll('details').forEach(details => details.open = true)")
    wide = page.evaluate("""[...document.body.querySelectorAll("*")].filter(element => {
        const box = element.getBoundingClientRect();
        const scrolls = element.closest(".wide, .choices");
        return (!scrolls || scrolls === element) && !element.closest(".heard") && box.width > 0 && (box.right > innerWidth + 0.5 || box.left < -0.5);
    }).map(element => element.outerHTML.slice(0, 120))""")
    assert wide == [] and page.evaluate("document.documentElement.scrollWidth") <= SIZES[size]["width"]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", PAGES)
def test_labels_do_not_lie_on_each_other(look, name, size):
    overlaps = look(name, size).evaluate("""[...document.querySelectorAll(".x, .y, .multiple h4, .key li, .bar")].flatMap(axis => {
        const labels = [...axis.querySelectorAll("span")].map(label => [label.textContent, label.getBoundingClientRect()]);
        return labels.flatMap(([text, a], i) => labels.slice(i + 1)
            .filter(([_, b]) => a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom)
            .map(([other]) => `${text} and ${other}`));
    })""")
    assert overlaps == []


@pytest.mark.parametrize("name", PAGES)
def test_the_page_asks_for_nothing_and_runs_nothing(look, name):
    page = look(name)
    page.wait_for_load_state("networkidle")
    assert page.heard == []
    assert page.locator("script, img, iframe, object, link[rel=stylesheet]").count() == 0


def test_names_of_users_are_shown_and_not_followed(look, made):
    assert ARM in look("simulation").locator("main table").first.inner_text()
    assert look("trace").locator("h1").inner_text() == f"What is in {HOSTILE}.jsonl"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", PAGES)
def test_every_text_stands_out_from_what_is_behind_it(look, name, scheme):
    page = look(name, "desk", scheme)
    page.evaluate("document.querySelectorAll('details').forEach(details => details.open = true)")
    texts = page.evaluate("""() => {
        const numbers = colour => colour.match(/[\\d.]+/g).map(Number);
        const seen = new Map();
        const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
        while (walk.nextNode()) {
            const element = walk.currentNode.parentElement;
            if (!walk.currentNode.textContent.trim() || element.closest("title, .heard, legend, svg") || !element.getClientRects().length) continue;
            let behind = element, background = [0, 0, 0, 0];
            while (behind && (background[3] ?? 1) === 0) { background = numbers(getComputedStyle(behind).backgroundColor); behind = behind.parentElement; }
            const colour = numbers(getComputedStyle(element).color);
            seen.set(JSON.stringify([colour, background]), walk.currentNode.textContent.trim().slice(0, 40));
        }
        return [...seen].map(([key, text]) => [...JSON.parse(key), text]);
    }""")
    assert len(texts) >= 2
    for colour, background, text in texts:
        assert contrast(colour, background) >= 4.5, (text, colour, background)


def contrast(one, other):
    def light(colour):
        parts = [part / 255 for part in colour[:3]]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    low, high = sorted((light(one), light(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", PAGES)
def test_the_picture_is_neither_blank_nor_the_same_in_the_dark(look, name, size):
    pictures = {scheme: Image.open(io.BytesIO(look(name, size, scheme).screenshot(full_page=True))).convert("RGB") for scheme in ("light", "dark")}
    for picture in pictures.values():
        colours = picture.getcolors(maxcolors=1 << 24)
        # No colour covers nearly all of it, and there are many, as text and lines have.
        assert len(colours) > 100 and max(n for n, _ in colours) < 0.97 * math.prod(picture.size)
    corner = {scheme: sum(picture.getpixel((2, 2))) for scheme, picture in pictures.items()}
    assert corner["light"] > 600 and corner["dark"] < 120, corner


def test_ticked_arms_are_brought_out(look, made):
    page = look("rollouts")
    arms = [arm["name"] for arm in report(made, "rollouts")["arms"]]
    page.check("#choice-2")
    page.wait_for_timeout(400)
    shown = page.evaluate("""Object.fromEntries([...document.querySelector("figure").querySelectorAll("path.line")]
        .filter(line => line.querySelector("title")).map(line => [line.querySelector("title").textContent, Number(getComputedStyle(line).opacity)]))""")
    assert shown == {name: pytest.approx(1 if name == arms[2] else 0.2) for name in arms}


@pytest.mark.parametrize("name", PAGES)
def test_on_paper_nothing_is_cut_off(look, name):
    """Paper is A4 on its side, and white whatever the screen is."""
    page = look(name, "desk", "dark")
    page.set_viewport_size({"width": 1047, "height": 718})
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate("document.documentElement.scrollWidth") <= 1047
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert contrast([int(part) for part in page.evaluate("getComputedStyle(document.querySelector('h2')).color").strip("rgb()").split(",")], [255] * 3) > 7
    assert page.locator(".choice:visible").count() == 0
    assert page.pdf(format="A4").startswith(b"%PDF")
