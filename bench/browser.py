"""Pages of runs and plans in a browser (Debian's chromium, driven by Selenium). A row a page:

  three      a run on three devices          sixtyfour  a plan of 64 devices
  long       a run of 10,000 steps           crashed    a run one of whose workers was killed
  live       a run that three pages follow   staged     a plan in stages, with micro-batches

bytes; first_picture_s (first contentful paint, the median of three loads); requests beside the page itself;
console_messages; failed, the checks that do not hold: each number of a table is that of `motley report --json`; no
sideways scroll at 390 pixels; a print shows the wide pictures; dark and light text stands out from its ground. Of live:
delay_s, from a step's line in the log to the page, the worst of those seen; cost, processor time that the pages take of
`motley run`, beside a step. Prints a table and writes build/bench/browser.json; --pictures FOLDER keeps screenshots at
three widths.
"""

import argparse
import base64
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = pathlib.Path(os.environ.get("MOTLEY_BUILD", ROOT / "build"))
PACKAGES = BUILD / "browser"
sys.path[:0] = [str(PACKAGES), str(ROOT / "bench")]
ENVIRONMENT = dict(os.environ, OMP_NUM_THREADS="1", PYTHONPATH=str(ROOT / "python"), MOTLEY_PYTHON=sys.executable)
MOTLEY = str(BUILD / "motley")
DIGITS = ROOT / "examples/data/digits.npz"
MOST_BYTES = dict(three=300e3, crashed=300e3, live=300e3, staged=300e3, sixtyfour=1e6, long=1e6)
FIRST_PICTURE_S, DELAY_S, COST = 0.5, 1.0, 0.01
WIDTHS = (1100, 700, 390)
TINY = """import torch
from torch import nn

class Tiny(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(64, 10)

    def forward(self, x, y):
        return nn.functional.cross_entropy(self.fc(x.flatten(1)), y)

def model():
    return Tiny(), (torch.rand(8, 1, 8, 8), torch.randint(0, 10, (8,)))
"""


def install():
    if not (PACKAGES / "complete").exists():
        command = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps", "--target",
                   str(PACKAGES), "-r", str(ROOT / "bench/browser_requirements.txt")]
        subprocess.run(command, check=True)
        (PACKAGES / "complete").touch()


def call(*words):
    done = subprocess.run([MOTLEY, *map(str, words)], capture_output=True, text=True, env=ENVIRONMENT)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, words))}\n{done.stdout}{done.stderr}")
    return done.stdout


def export(function, path):
    command = [sys.executable, "-m", "motley.export", str(function), "-o", str(path)]
    subprocess.run(command, check=True, capture_output=True, env=ENVIRONMENT)


class Places:
    """Models, clusters and runs to make pages of."""

    def __init__(self, folder):
        self.folder = folder
        (folder / "tiny.py").write_text(TINY)
        for name, function in (("cnn", ROOT / "examples/digits_cnn.py:model"), ("tiny", folder / "tiny.py:model"),
                               ("gpt", ROOT / "examples/char_gpt.py:model")):
            export(function, folder / f"{name}.motley")
        self.write_cluster("three", "".join(
            f'[[node]]\nname = "{name}"\n[[node.device]]\nkind = "cpu"\nspeed = {speed}\n'
            for name, speed in zip("abc", (0.5, 0.3, 0.2))))
        self.write_cluster("one", '[[node]]\nname = "a"\n[[node.device]]\nkind = "cpu"\n')
        self.write_cluster("many", "".join(
            f'[[node]]\nname = "n{i}"\n[[node.device]]\nkind = "{"rtx4090" if i % 2 else "a100-40g"}"\ncount = 8\n' for i in range(8))
            + '[[link]]\nall = true\nbandwidth = "25Gbps"\nlatency = "20us"\n')

    def write_cluster(self, name, text):
        (self.folder / f"{name}.toml").write_text(f'schema = "motley.cluster/1"\nname = "{name}"\n{text}')

    def words(self, model, cluster, batch):
        return ["-m", self.folder / f"{model}.motley", "-C", self.folder / f"{cluster}.toml", "--global-batch", batch,
                "--profiles", self.folder / "profiles.db", "--profile-rounds", 1]

    def run_words(self, name, model="cnn", cluster="three", batch=140, steps=60):
        split = ["--batch-split", "70,42,28"] if cluster == "three" else []
        return ["run", *self.words(model, cluster, batch), *split, "--data", DIGITS, "--steps", steps, "--resume", "never",
                "--adapt", "none", "--run-dir", self.folder / name]

    def start(self, name, *more, **which):
        words = [MOTLEY, *map(str, self.run_words(name, **which)), *more]
        return subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)

    def report(self, *subject):
        page = self.folder / "page.html"
        return page, json.loads(call("report", *subject, "-o", page, "--json"))


def wait_for_steps(run, steps, seconds=120):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if (run / "log.jsonl").exists() and (run / "log.jsonl").read_text().count("\n") >= steps:
            return
        time.sleep(0.05)
    sys.exit(f"{run}: not {steps} steps in {seconds} s")


def make_three(places):
    call(*places.run_words("three"))
    return places.report(places.folder / "three")


def make_long(places):
    call(*places.run_words("long", model="tiny", cluster="one", batch=8, steps=10000))
    return places.report(places.folder / "long")


def make_crashed(places):
    process = places.start("crashed", steps=100000)
    wait_for_steps(places.folder / "crashed", 20)
    workers = subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, text=True).stdout.split()
    os.kill(int(workers[-1]), 9)
    process.communicate()
    assert process.returncode == 1, process.returncode
    return places.report(places.folder / "crashed")


def make_sixtyfour(places):
    plan = places.folder / "many.json"
    call("plan", *places.words("gpt", "many", 512), "--planner", "split", "--profile", "model", "-o", plan)
    return places.report(plan, *places.words("gpt", "many", 512)[:4], "--profiles", places.folder / "profiles.db",
                         "--profile", "model")


def make_staged(places):
    plan = places.folder / "staged.json"
    words = places.words("gpt", "one", 16)
    words[3] = ROOT / "examples/small_devices.toml"
    call("plan", *words, "--planner", "stages", "--optimizer", "adam", "-o", plan)
    return places.report(plan, *words[:4], "--profiles", places.folder / "profiles.db")


class Browser:
    def __init__(self):
        from selenium import webdriver

        options = webdriver.ChromeOptions()
        options.binary_location = "/usr/bin/chromium"
        for word in ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"):
            options.add_argument(word)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self.driver = webdriver.Chrome(options, webdriver.ChromeService("/usr/bin/chromedriver"))

    def size(self, width, height=1600):
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                                    dict(width=width, height=height, deviceScaleFactor=1, mobile=width < 500))

    def media(self, kind="", scheme="light"):
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia",
                                    dict(media=kind, features=[dict(name="prefers-color-scheme", value=scheme)]))

    def js(self, text):
        return self.driver.execute_script(f"return {text}")

    def first_picture(self, address):
        times = []
        for _ in range(3):
            self.driver.get(address)
            end = time.monotonic() + 10
            while not (paint := self.js("(performance.getEntriesByName('first-contentful-paint')[0]||{}).startTime")):
                if time.monotonic() > end:
                    return float("inf")
                time.sleep(0.01)
            times.append(paint / 1000)
        return statistics.median(times)


def luminance(color):
    parts = [int(x) / 255 for x in re.findall(r"\d+", color)[:3]]
    linear = [x / 12.92 if x <= 0.03928 else ((x + 0.055) / 1.055) ** 2.4 for x in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a, b):
    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)


def at_place(figures, place):
    for part in place.split("/")[1:]:
        figures = figures[int(part) if isinstance(figures, list) else part]
    return figures


def checks(browser, figures):
    """The names of what does not hold."""
    failed = []
    cells = browser.js("[...document.querySelectorAll('[data-key]')].map(c=>[c.dataset.key,c.dataset.value,c.textContent])")
    if not cells or any(float(value) != at_place(figures, key) or not text for key, value, text in cells):
        failed.append("numbers")
    tables = browser.js("[...document.querySelectorAll('section')].filter(s=>s.querySelector('figure')&&!s.querySelector('tbody tr')).length")
    if tables:
        failed.append("a table beside each picture")
    for width in WIDTHS:
        browser.size(width)
        if browser.js("document.documentElement.scrollWidth") > width:
            failed.append(f"{width} px")
    browser.size(WIDTHS[0])
    browser.media("print")
    shown = browser.js("[...document.querySelectorAll('figure.wide')].every(f=>getComputedStyle(f).display==='block')")
    pdf = base64.b64decode(browser.driver.execute_cdp_cmd("Page.printToPDF", dict(printBackground=True))["data"])
    if not shown or not pdf.startswith(b"%PDF") or len(pdf) < 10000:
        failed.append("print")
    grounds = {}
    for scheme in ("light", "dark"):
        browser.media("", scheme)
        ground, ink, soft = browser.js("[getComputedStyle(document.body).backgroundColor,getComputedStyle(document.body).color,"
                                       "getComputedStyle(document.querySelector('th')).color]")
        grounds[scheme] = luminance(ground)
        if min(contrast(ground, ink), contrast(ground, soft)) < 4.5:
            failed.append(scheme)
    if not (grounds["dark"] < 0.1 and grounds["light"] > 0.9):
        failed.append("dark")
    browser.media()
    return failed


def keep_pictures(browser, name, folder):
    for scheme in ("light", "dark"):
        browser.media("", scheme)
        for width in WIDTHS:
            browser.size(width)
            height = min(12000, browser.js("document.documentElement.scrollHeight"))
            browser.size(width, height)
            browser.driver.save_screenshot(str(folder / f"{name}-{scheme}-{width}.png"))
    browser.media()
    browser.size(WIDTHS[0])


def still_row(name, make, places, browser, pictures):
    page, figures = make(places)
    browser.size(WIDTHS[0])
    browser.driver.get_log("browser")
    row = dict(page=name, bytes=page.stat().st_size, first_picture_s=browser.first_picture(page.as_uri()))
    row["failed"] = checks(browser, figures)
    row["requests"] = browser.js("performance.getEntriesByType('resource').length")
    row["console_messages"] = len(browser.driver.get_log("browser"))
    if pictures:
        keep_pictures(browser, name, pictures)
    return row


def processor_s(process):
    fields = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def shown_steps(browser):
    found = re.search(r"(\d+) of \d+ steps", browser.js("document.querySelector('.verdict').textContent"))
    return int(found[1]) if found else 0


def watch(process, run, seconds, look):
    """Steps, processor time and wall time of the coordinator meanwhile."""
    steps, used, since = log_lines(run), processor_s(process), time.monotonic()
    while time.monotonic() - since < seconds:
        look()
    return log_lines(run) - steps, processor_s(process) - used, time.monotonic() - since


def log_lines(run):
    return (run / "log.jsonl").read_text().count("\n")


def live_row(places, browser, pictures):
    run = places.folder / "live"
    process = places.start("live", "--serve", steps=100000)
    try:
        address = next(re.search(r"http://\S+", line)[0] for line in process.stderr if "http://" in line)
        wait_for_steps(run, 5)
        quiet_steps, quiet_s, _ = watch(process, run, 10, lambda: time.sleep(0.1))
        row = dict(page="live", first_picture_s=browser.first_picture(address))
        row["bytes"] = len(browser.driver.page_source.encode())
        first = browser.driver.current_window_handle
        for _ in range(2):
            browser.driver.switch_to.new_window("tab")
            browser.driver.get(address)
        browser.driver.switch_to.window(first)
        seen, delays, last = {}, [], [log_lines(run)]

        def look():
            now, written, shown = time.monotonic(), log_lines(run), shown_steps(browser)
            for step in range(last[0] + 1, written + 1):
                seen[step] = now
            last[0] = written
            late = [now - at for step, at in seen.items() if step > shown]
            delays.append(max(late, default=0))
            for step in [step for step in seen if step <= shown]:
                del seen[step]
            time.sleep(0.02)

        steps, used, wall = watch(process, run, 10, look)
        row["delay_s"] = max(delays)
        # Of each second: what the pages add to the processor time of who leads the run.
        row["cost"] = (used / steps - quiet_s / quiet_steps) / (wall / steps)
        row["requests"] = browser.js("performance.getEntriesByType('resource').filter(r=>!r.name.endsWith('/events')).length")
        row["failed"] = [] if steps > 10 and shown_steps(browser) > 10 else ["follows"]
        if pictures:
            keep_pictures(browser, "live", pictures)
        process.terminate()
        process.wait(60)
        end = time.monotonic() + 5
        while (state := browser.js("document.querySelector('.state').textContent")) != "stopped" and time.monotonic() < end:
            time.sleep(0.1)
        if state != "stopped":
            row["failed"].append(f"says how it ended, found {state}")
        row["console_messages"] = len(browser.driver.get_log("browser"))
        return row
    finally:
        process.kill()
        process.wait()


MAKERS = dict(three=make_three, staged=make_staged, sixtyfour=make_sixtyfour, long=make_long, crashed=make_crashed)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("pages", nargs="*", default=[*MAKERS, "live"])
    parser.add_argument("--pictures", type=pathlib.Path)
    options = parser.parse_args()
    install()
    if options.pictures:
        options.pictures.mkdir(parents=True, exist_ok=True)
    rows, browser = [], Browser()
    with tempfile.TemporaryDirectory() as folder:
        places = Places(pathlib.Path(folder))
        for name in options.pages:
            make = MAKERS.get(name)
            row = still_row(name, make, places, browser, options.pictures) if make else live_row(places, browser, options.pictures)
            row["pass"] = (row["bytes"] <= MOST_BYTES[name] and row["first_picture_s"] <= FIRST_PICTURE_S
                           and not (row["requests"] or row["console_messages"] or row["failed"])
                           and row.get("delay_s", 0) <= DELAY_S and row.get("cost", 0) <= COST)
            rows.append(row)
            print(*(f"{key} {value if not isinstance(value, float) else f'{value:.4g}'}" for key, value in row.items()), sep="  ", flush=True)
    browser.driver.quit()
    (BUILD / "bench").mkdir(parents=True, exist_ok=True)
    (BUILD / "bench/browser.json").write_text(json.dumps({"rows": rows}, indent=1))
    return 0 if all(row["pass"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
