// Pointer and keyboard on the learning curves: the crosshair with its values, and zoom.

// The crosshair at a point of the curves, with the values of all lines there; null takes it away.
function setCursor(index) {
  curves.cursor = index;
  if (!curvesFrame) return;
  const { box, x, y, domain, shown, cursor } = curvesFrame;
  cursor.replaceChildren();
  const inside = index !== null && stepsAt(index) >= domain[0] && stepsAt(index) <= domain[1];
  curvesCanvas.tip.hidden = !inside;
  if (!inside) return;
  const at = x(stepsAt(index));
  cursor.append(svg("line", { class: "cross", x1: at, x2: at, y1: box.top, y2: box.top + box.height }));
  const there = shown.filter((line) => line.mean[index] !== null).sort((a, b) => b.mean[index] - a.mean[index]);
  for (const line of there) {
    const cy = y(line.mean[index]);
    if (cy >= box.top - 1 && cy <= box.top + box.height + 1) {
      cursor.append(svg("circle", { class: "point", cx: at, cy, r: 4, style: `fill: ${color(line.place)}` }));
    }
  }
  const rows = there.map((line) => {
    const few = line.count[index] < line.cell.runs ? `, ${line.count[index]} of ${line.cell.runs} seeds` : "";
    const spread = line.count[index] > 1 ? `± ${show(line.deviation[index], 3)}` : "";
    return [swatch(line.place), line.label, line.mean[index], spread + few];
  });
  const table = rows.length ? tipTable(rows) : html("span", {}, "no values here");
  curvesCanvas.point(at, box.top + 6, html("b", { "data-index": index }, `${show(stepsAt(index))} steps`), table);
}

function zoomTo(domain) {
  curves.zoom = domain;
  drawCurves();
}

// Zooms by a factor around the crosshair, or the middle.
function zoomBy(factor) {
  const end = whole();
  const [from, to] = curves.zoom || [0, end];
  const center = curves.cursor === null ? (from + to) / 2 : stepsAt(curves.cursor);
  const low = Math.max(0, center - (center - from) * factor);
  const high = Math.min(end, center + (to - center) * factor);
  if (high - low >= (4 * end) / data.points) zoomTo(low <= 0 && high >= end ? null : [low, high]);
}

function listen(picture, hit) {
  const { box, domain, selection } = curvesFrame;
  const steps = (pixel) => domain[0] + ((domain[1] - domain[0]) * (pixel - box.left)) / box.width;
  const nearest = (pixel) => {
    const last = data.environments[curves.environment].last;
    return Math.max(0, Math.min(data.points - 1, Math.round((steps(pixel) / last) * data.points) - 1));
  };
  const pixelOf = (event) => {
    const pixel = event.clientX - picture.getBoundingClientRect().left;
    return Math.max(box.left, Math.min(box.left + box.width, pixel));
  };
  let start = null;
  hit.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    start = pixelOf(event);
    hit.setPointerCapture(event.pointerId);
  });
  hit.addEventListener("pointermove", (event) => {
    const pixel = pixelOf(event);
    setCursor(nearest(pixel));
    if (start === null) return;
    selection.setAttribute("x", Math.min(start, pixel));
    selection.setAttribute("width", Math.abs(pixel - start));
  });
  hit.addEventListener("pointerup", (event) => {
    if (start === null) return;
    const ends = [start, pixelOf(event)].sort((a, b) => a - b);
    start = null;
    selection.setAttribute("width", 0);
    if (ends[1] - ends[0] > 6) zoomTo(ends.map(steps));
  });
  hit.addEventListener("pointercancel", () => {
    start = null;
    selection.setAttribute("width", 0);
  });
  hit.addEventListener("pointerleave", () => start === null && setCursor(null));
  hit.addEventListener("dblclick", () => zoomTo(null));
  picture.addEventListener("keydown", (event) => {
    const now = curves.cursor === null ? nearest(box.left + box.width / 2) : curves.cursor;
    const moves = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10 };
    if (event.key in moves) {
      setCursor(Math.max(0, Math.min(data.points - 1, now + (curves.cursor === null ? 0 : moves[event.key]))));
    } else if (event.key === "Escape") setCursor(null);
    else if (event.key === "+" || event.key === "=") refocus(() => zoomBy(0.5));
    else if (event.key === "-") refocus(() => zoomBy(2));
    else if (event.key === "0") refocus(() => zoomTo(null));
    else return;
    event.preventDefault();
  });
}

// A new drawing keeps the keyboard.
function refocus(act) {
  act();
  byId("curves-plot").querySelector("svg").focus({ preventScroll: true });
}
