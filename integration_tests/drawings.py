"""What must hold of a drawing of boxes and arrows, as a browser lays it out."""

from __future__ import annotations

from typing import Any

from selenium import webdriver

_MEASURE = """
const boxes = [...document.querySelectorAll('.tree .box, .tree .fact-line')];
const rect = element => { const r = element.getBoundingClientRect(); return [r.left, r.top, r.right, r.bottom]; };
const visible = elements => elements.map(rect).filter(([l, t, r, b]) => r > l || b > t);
const cut = [...document.querySelectorAll('body *')].filter(element => {
  const style = getComputedStyle(element), hides = style.overflowX !== 'visible' || style.overflowY !== 'visible';
  return hides && element.closest('.tree') && (element.scrollWidth > element.clientWidth + 1);
});
return {
  overflow: document.documentElement.scrollWidth - window.innerWidth,
  width: window.innerWidth,
  boxes: visible(boxes),
  lines: visible([...document.querySelectorAll('.tree .line')]),
  elbows: visible([...document.querySelectorAll('.tree .elbow')]),
  heads: visible([...document.querySelectorAll('.tree .head')]),
  outside: boxes.filter(box => box.scrollWidth > box.clientWidth + 1).map(box => box.textContent),
  cut: cut.map(element => element.textContent),
};
"""


_CONTRASTS = """
const read = color => color.match(/[0-9.]+/g).map(Number);
const luminance = color => {
  const [r, g, b] = color.map(part => (part /= 255) <= .04045 ? part / 12.92 : ((part + .055) / 1.055) ** 2.4);
  return .2126 * r + .7152 * g + .0722 * b;
};
const behind = element => {
  for (; element; element = element.parentElement) {
    const color = read(getComputedStyle(element).backgroundColor);
    if (color[3] !== 0) return color;
  }
  return [255, 255, 255];
};
const hasText = element => [...element.childNodes].some(node => node.nodeType === 3 && node.data.trim());
const texts = [...document.body.querySelectorAll('*')].filter(element => element.offsetParent && hasText(element));
return texts.map(element => {
  const colors = [read(getComputedStyle(element).color), behind(element)];
  const [one, other] = colors.map(color => luminance(color.slice(0, 3)));
  return [(Math.max(one, other) + .05) / (Math.min(one, other) + .05), element.textContent.slice(0, 40)];
});
"""


def check_colors(browser: webdriver.Chrome) -> None:
    """Check that every text stands out from what is behind it, in light and in dark colors, as WCAG asks (4.5 to 1)."""
    for colors in ("dark", "light"):
        features = [{"name": "prefers-color-scheme", "value": colors}]
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        contrasts = browser.execute_script(_CONTRASTS)
        assert len(contrasts) > 5 and [text for contrast, text in contrasts if contrast < 4.5] == [], colors


def check_drawing(browser: webdriver.Chrome) -> dict[str, Any]:
    """Check that nothing is cut, nothing stands outside the window, and no line crosses a box, a label or a line.

    Returns:
        The rectangles of `boxes` (names and labels), `lines` (downwards), `elbows` (to the right) and `heads`.

    """
    seen: dict[str, Any] = browser.execute_script(_MEASURE)
    assert seen["overflow"] <= 0 and seen["outside"] == [] and seen["cut"] == []
    boxes = seen["boxes"]
    assert all(0 <= left < right <= seen["width"] for left, _, right, _ in boxes)
    for at, box in enumerate(boxes):
        for other in boxes[at + 1 :]:
            assert not _overlaps(box, other), (box, other)
    for stroke in (*seen["lines"], *seen["elbows"]):
        crossed = [box for box in boxes if _overlaps(stroke, box)]
        assert crossed == [], (stroke, crossed)
    for at, line in enumerate(seen["lines"]):
        assert not any(_overlaps(line, other) for other in seen["lines"][at + 1 :])
    for elbow in seen["elbows"]:  # it touches the line that it starts from, and crosses none
        assert not any(line[0] > elbow[0] + 2 and _overlaps(line, elbow) for line in seen["lines"]), elbow
    return seen


def _overlaps(one: list[float], other: list[float]) -> bool:
    """Return True if two rectangles, as left, top, right, bottom, overlap by more than a pixel."""
    return min(one[2], other[2]) - max(one[0], other[0]) > 1 and min(one[3], other[3]) - max(one[1], other[1]) > 1
