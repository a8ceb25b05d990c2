"""Chromium without a window, and what the tests ask it."""

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service

PHONE = (360, 740)
DESKTOP = (1280, 900)

# For each piece of text that can be seen: its contrast to what is behind it. Backgrounds that let
# something through are laid over the one behind.
CONTRASTS = """
const parse = colour => {
  const [r, g, b, a = 1] = colour.match(/[\\d.]+/g).map(Number);
  return [r, g, b, a];
};
const over = (top, below) => [0, 1, 2].map(n => top[n] * top[3] + below[n] * (1 - top[3])).concat(1);
const behind = element => {
  const layers = [];
  for (let at = element; at; at = at.parentElement) layers.push(parse(getComputedStyle(at).backgroundColor));
  return layers.reverse().reduce((below, top) => over(top, below), [255, 255, 255, 1]);
};
const luminance = colour => {
  const [r, g, b] = colour.slice(0, 3).map(n => n / 255).map(n => n <= 0.03928 ? n / 12.92 : ((n + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const found = [];
const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
for (let node; node = walk.nextNode();) {
  const element = node.parentElement;
  if (!node.data.trim() || element.closest('svg') || element.closest('style')) continue;
  const below = behind(element);
  const [a, b] = [luminance(over(parse(getComputedStyle(element).color), below)), luminance(below)];
  found.push([(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), node.data.trim().slice(0, 40)]);
}
for (const cell of document.querySelectorAll('td')) {
  const label = getComputedStyle(cell, '::before');
  if (label.content === 'none') continue;
  const below = behind(cell);
  const [a, b] = [luminance(over(parse(label.color), below)), luminance(below)];
  found.push([(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), label.content]);
}
return found;
"""


class Browser:
    """One page at a time."""

    def __init__(self, driver: Chrome) -> None:
        self.driver = driver

    def show(self, page: Path | str, size: tuple[int, int] = DESKTOP, scheme: str = "light") -> None:
        width, height = size
        self.command("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)
        self.command("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.driver.get(page.as_uri() if isinstance(page, Path) else page)

    def command(self, name: str, **arguments: object) -> dict[str, object]:
        return dict(self.driver.execute_cdp_cmd(name, arguments))

    def run(self, script: str, *arguments: object) -> object:
        return self.driver.execute_script(script, *arguments)

    def texts(self, selector: str) -> list[str]:
        return list(self.run("return [...document.querySelectorAll(arguments[0])].map(x => x.textContent.trim())", selector))

    def table(self, section: str) -> list[dict[str, str]]:
        """The first visible table of a section, a dictionary a row."""
        return list(self.run(
            """const table = document.querySelector(`#${arguments[0]} > table, #${arguments[0]} > div > div > table`);
               if (!table) return [];
               const columns = [...table.querySelectorAll('thead th')].map(x => x.textContent);
               return [...table.querySelectorAll('tbody tr')].map(
                 row => Object.fromEntries([...row.children].map((cell, n) => [columns[n], cell.textContent.trim()])))""",
            section,
        ))  # fmt: skip

    def accessible(self) -> list[dict[str, object]]:
        """What assistive technology gets to know: role, name and properties of each thing."""
        nodes = self.command("Accessibility.getFullAXTree")["nodes"]
        return [
            {"role": node.get("role", {}).get("value"), "name": node.get("name", {}).get("value", ""),
             **{one["name"]: one["value"].get("value") for one in node.get("properties", [])}}
            for node in nodes if not node.get("ignored")
        ]  # fmt: skip

    def screenshot(self, file: Path) -> None:
        """The whole page, however long."""
        height = int(self.run("return document.documentElement.scrollHeight"))
        width = int(self.run("return innerWidth"))
        self.command("Emulation.setDeviceMetricsOverride", width=width, height=min(height, 8000), deviceScaleFactor=1, mobile=width < 600)
        file.write_bytes(self.driver.get_screenshot_as_png())


@contextlib.contextmanager
def browser() -> Iterator[Browser]:
    """A Chromium with a profile of its own, that talks to nobody."""
    profile = tempfile.mkdtemp(prefix="taskq-browser-")
    options = ChromeOptions()
    options.binary_location = shutil.which("chromium")
    for argument in ("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars",
                     "--disable-background-networking", "--disable-component-update", "--disable-sync",
                     "--disable-dev-shm-usage", f"--user-data-dir={profile}"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
    driver = Chrome(options=options, service=Service(shutil.which("chromedriver")))
    try:
        yield Browser(driver)
    finally:
        driver.quit()
        shutil.rmtree(profile, ignore_errors=True)
