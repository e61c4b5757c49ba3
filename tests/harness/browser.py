"""Debian's Chromium without a window, and what a page in it asks for and looks like."""

from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, sync_playwright

PROGRAM = "/usr/bin/chromium"
# Chromium is not to ask anybody for anything by itself.
FLAGS = [
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
# Contrast of each visible text and each line with what is behind it, as WCAG 2.2 defines it.
CONTRASTS = """() => {
  const channels = (color) => color.match(/[\\d.]+/g).map(Number);
  const light = (color) => {
    const linear = (c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    const [r, g, b] = channels(color).map((c) => linear(c / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const color = getComputedStyle(at).backgroundColor;
      if ((channels(color)[3] ?? 1) === 1) return color;
    }
    return 'rgb(255, 255, 255)';
  };
  const between = (a, b) => {
    const [low, high] = [light(a), light(b)].sort((x, y) => x - y);
    return (high + 0.05) / (low + 0.05);
  };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const text = walker.currentNode.textContent.trim();
    const element = walker.currentNode.parentElement;
    if (!text || element.closest('svg') || !element.checkVisibility()) continue;
    const color = getComputedStyle(element).color;
    found.push({ kind: 'text', what: text, ratio: between(color, behind(element)) });
  }
  for (const cell of document.querySelectorAll('td')) {
    const label = getComputedStyle(cell, '::before');
    if (label.content === 'none') continue;
    found.push({ kind: 'text', what: label.content, ratio: between(label.color, behind(cell)) });
  }
  for (const path of document.querySelectorAll('svg path')) {
    const stroke = getComputedStyle(path).stroke;
    found.push({ kind: 'line', what: path.getAttribute('class'), ratio: between(stroke, behind(path)) });
  }
  return found;
}"""


@contextmanager
def chromium() -> Iterator[Browser]:
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=PROGRAM, args=FLAGS)
        try:
            yield browser
        finally:
            browser.close()
