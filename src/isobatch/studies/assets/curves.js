// Learning curves: which lines, their statistics over seeds, and the drawing.

const curves = {
  environment: 0, view: 0, metric: 0, // places in the lists of the data
  zoom: null, // from and to, in steps
  cursor: null, // place of the crosshair's point
  marked: null, // label of the line that stands out
  hidden: new Set(), // labels
  memory: new Map(), // statistics of this environment
};

// The end of the x-axis: of the longest run, or the round number just behind it.
function whole() {
  const { last } = data.environments[curves.environment];
  const step = ticks([0, last], 8)[1];
  const round = Math.ceil(last / step) * step;
  return round <= 1.02 * last ? round : last;
}

const stepsAt = (index) => (data.environments[curves.environment].last * (index + 1)) / data.points;

// What the metric can be at the least and at the most on this environment: bands go no further.
function limits(metric) {
  const [normalized, source] = data.normalized;
  const { bounds, range } = data.environments[curves.environment];
  const ends = [bounds[0] === null ? -Infinity : bounds[0], bounds[1] === null ? Infinity : bounds[1]];
  if (metric === source) return ends;
  if (metric !== normalized || !range) return [-Infinity, Infinity];
  return ends.map((end) => (end - range[0]) / (range[1] - range[0]));
}

// Mean and standard deviation over the seeds that are there, at each point, and the ends of the band.
function statistics(cell, metric) {
  const key = `${cell}/${metric}`;
  if (curves.memory.has(key)) return curves.memory.get(key);
  const [normalized, source] = data.normalized;
  let seeds = data.cells[cell].lines[metric === normalized ? source : metric];
  if (metric === normalized) {
    const [low, high] = data.environments[curves.environment].range || [NaN, NaN];
    const normalize = (value) => (value === null || Number.isNaN(low) ? null : (value - low) / (high - low));
    seeds = seeds.map((line) => line.map(normalize));
  }
  const found = { seeds, mean: [], deviation: [], low: [], high: [], count: [] };
  const [least, most] = limits(metric);
  for (let i = 0; i < data.points; i++) {
    const values = seeds.map((line) => line[i]).filter((value) => value !== null);
    const mean = values.length ? values.reduce((sum, v) => sum + v, 0) / values.length : null;
    const square = values.reduce((sum, v) => sum + (v - mean) ** 2, 0);
    found.mean.push(mean);
    const deviation = values.length ? Math.sqrt(square / values.length) : null;
    found.deviation.push(deviation);
    found.low.push(Math.max(mean - deviation, Math.min(mean, least)));
    found.high.push(Math.min(mean + deviation, Math.max(mean, most)));
    found.count.push(values.length);
  }
  curves.memory.set(key, found);
  return found;
}

// The lines of this view that this environment has.
function lines() {
  const environment = data.environments[curves.environment].name;
  const metric = data.metrics[curves.metric][0];
  return data.views[curves.view].lines.flatMap(({ label, cells, place: given }, index) => {
    const place = given === undefined ? index : given; // null for a reference
    const name = cells[environment];
    return name ? [{ label, place, cell: data.cells[name], ...statistics(name, metric) }] : [];
  });
}

const visible = () => lines().filter((line) => !curves.hidden.has(line.label));
const logarithmic = () => byId("curves-log").checked && !byId("curves-log").disabled;

// M and L for each stretch of points that are there.
function path(values, x, y) {
  let text = "", down = false;
  values.forEach((value, i) => {
    if (value !== null) {
      const at = `${x(stepsAt(i)).toFixed(1)},${y(value).toFixed(1)}`;
      text += down ? `L${at}` : `M${at}L${at}`;
    }
    down = value !== null;
  });
  return text;
}

function bandPath(line, x, y) {
  let text = "", above = [], below = [];
  const close = () => {
    if (above.length > 1) text += `M${above.join("L")}L${below.reverse().join("L")}Z`;
    above = [];
    below = [];
  };
  line.mean.forEach((mean, i) => {
    if (mean === null || line.count[i] < 2) return close();
    const at = x(stepsAt(i)).toFixed(1);
    above.push(`${at},${y(line.high[i]).toFixed(1)}`);
    below.push(`${at},${y(line.low[i]).toFixed(1)}`);
  });
  close();
  return text;
}

// From the lowest to the highest value that is drawn between these steps.
function extent(shown, [from, to], log) {
  let low = Infinity, high = -Infinity;
  const look = (value) => {
    if (value === null || (log && value <= 0)) return;
    low = Math.min(low, value);
    high = Math.max(high, value);
  };
  for (const line of shown) {
    line.mean.forEach((mean, i) => {
      if (mean === null || stepsAt(i) < from || stepsAt(i) > to) return;
      look(mean);
      if (byId("curves-bands").checked && !log) [line.low[i], line.high[i]].forEach(look);
      if (byId("curves-seeds").checked) line.seeds.forEach((seed) => look(seed[i]));
    });
  }
  if (low > high) return null;
  if (!log) return padded(low, high);
  return high > low ? [low / 1.1, high * 1.1] : [low / 2, high * 2];
}

const curvesCanvas = canvasOf(byId("curves-plot"), () => drawCurves());
let curvesFrame = null; // of the newest drawing: box, scales, lines

function drawCurves() {
  const environment = data.environments[curves.environment];
  const label = data.metrics[curves.metric][1];
  const every = lines(), shown = visible();
  const means = every.flatMap((line) => line.mean.filter((value) => value !== null));
  byId("curves-log").disabled = !means.length || means.some((value) => value <= 0);
  byId("curves-reset").disabled = !curves.zoom;
  const log = logarithmic(), width = curvesCanvas.width(), height = width < 520 ? 320 : 420;
  const domain = curves.zoom || [0, whole()];
  const range = extent(shown, domain, log);
  const told = `${label} against environment steps on ${environment.name}, ${shown.length} lines.`;
  const picture = pictureOf(width, height, {
    tabindex: 0, "aria-label": `${told} Arrow keys move a cursor.`, "data-from": domain[0], "data-to": domain[1],
  });
  curvesFrame = null;
  if (!range) {
    const why = every.length ? "All lines are switched off." : "This view has no runs on this environment.";
    empty(picture, width, height, shown.length ? "There are no values to draw." : why);
    picture.addEventListener("dblclick", () => zoomTo(null));
    return curvesCanvas.show(picture);
  }
  const top = 30, bottom = 48;
  const exact = scale(range, [height - bottom, top], log ? Math.log10 : linear);
  const y = (value) => exact(log ? Math.max(value, range[0] / 2) : value); // what has no logarithm lies below the axis
  let yTicks = log ? logTicks(range) : ticks(range, (height - top - bottom) / 55);
  if (yTicks.length < 2) yTicks = ticks(range, 4).filter((v) => !log || v > 0);
  const left = Math.max(36, ...yTicks.map((value) => textWidth(show(value)) + 14));
  const box = { left, top, width: width - left - 18, height: height - top - bottom };
  const x = scale(domain, [left, left + box.width]);
  const xLabel = `environment steps, ${environment.name}`;
  axes(picture, box, { x, y, xTicks: ticks(domain, box.width / 80), yTicks, xLabel, yLabel: label });
  const plot = clip(picture, "curves-clip", box);
  const marked = shown.some((line) => line.label === curves.marked) ? curves.marked : null;
  const order = [...shown].sort((a, b) => (a.label === marked) - (b.label === marked)); // it lies above the others
  const add = (kind, line, d, attributes) => {
    const faded = marked && line.label !== marked ? " faded" : "";
    plot.append(svg("path", { class: kind + faded, d, "data-series": line.label, ...attributes }));
  };
  if (byId("curves-bands").checked) {
    for (const line of order) add("band", line, bandPath(line, x, y), { style: `fill: ${color(line.place)}` });
  }
  for (const line of order) {
    const style = `stroke: ${color(line.place)}`;
    if (byId("curves-seeds").checked) line.seeds.forEach((seed) => add("seed", line, path(seed, x, y), { style }));
    add("mean", line, path(line.mean, x, y), { style, "stroke-dasharray": dash(line.place) });
    line.seeds.forEach((seed, i) => {
      const at = seed.findLastIndex((value) => value !== null);
      if (at < 0 || !(line.cell.seeds[i] in line.cell.diverged)) return;
      add("lost", line, `M${x(stepsAt(at)) - 4},${y(seed[at]) - 4}l8,8m0,-8l-8,8`, { style });
    });
  }
  const cursor = svg("g", {});
  const selection = svg("rect", { class: "select", y: box.top, height: box.height, width: 0 });
  const hit = svg("rect", { class: "hit cursor", x: box.left, y: box.top, width: box.width, height: box.height });
  picture.append(selection, cursor, hit);
  curvesFrame = { picture, box, x, y, domain, shown, cursor, selection };
  curvesCanvas.show(picture);
  listen(picture, hit);
  if (curves.cursor !== null) setCursor(curves.cursor);
}

// The legend of what is chosen, and the drawing.
function chooseCurves() {
  curves.cursor = null;
  const entries = lines().map((line) => {
    const lost = Object.keys(line.cell.diverged).length;
    const notes = lost ? [`${lost} of ${line.cell.runs} diverged`] : [];
    if (line.mean.every((value) => value === null)) notes.push("no values");
    return { label: line.label, place: line.place, note: notes.join(", ") };
  });
  const mark = (label) => {
    if (curves.marked !== label) {
      curves.marked = label;
      drawCurves();
    }
  };
  legend(byId("curves-legend"), entries, curves.hidden, { change: drawCurves, mark });
  drawCurves();
}

function beginCurves() {
  const set = (name) => (value) => {
    curves[name] = value;
    if (name === "environment") {
      curves.zoom = null;
      curves.memory.clear();
    }
    chooseCurves();
  };
  options(byId("curves-environment"), data.environments.map((each) => each.name), set("environment"));
  options(byId("curves-view"), data.views.map((each) => each.title), set("view"));
  options(byId("curves-metric"), data.metrics.map(([, label]) => label), set("metric"));
  for (const name of ["bands", "seeds", "log"]) byId(`curves-${name}`).addEventListener("change", drawCurves);
  byId("curves-reset").addEventListener("click", () => zoomTo(null));
  const lost = Object.values(data.cells).some((cell) => Object.keys(cell.diverged).length);
  byId("curves-note").textContent =
    "Lines are means over seeds, bands one standard deviation; " +
    `each point is a mean over ${clean(100 * data.window)} % of the run. ` +
    (lost ? "A cross marks where a run diverged; from there on the others count. " : "") +
    "Drag sideways to zoom, double-click to see all again. With the keyboard: arrows, + − 0.";
  chooseCurves();
}
