// Normalized returns of all variants: seeds, and their mean with its interval.

const KINDS = [
  { label: "in the end", column: "normalized_final", place: 0 },
  { label: "over the run", column: "normalized_mean", place: 1 },
];
const FINAL = KINDS[0].column, SILENT = "no episode ended";
const scores = { environment: 0, hidden: new Set() };
const scoreEnvironments = [...new Set(data.scores.map((entry) => entry.env))];
const scoresCanvas = canvasOf(byId("scores-plot"), () => drawScores());

function drawScores() {
  const own = data.scores.filter((entry) => entry.env === scoreEnvironments[scores.environment]);
  const kinds = KINDS.filter((kind) => !scores.hidden.has(kind.label));
  const width = scoresCanvas.width(), narrow = width < 560, top = 4, bottom = 48;
  const line = narrow ? 52 : 38, height = top + bottom + line * own.length;
  const told = "Normalized returns of all variants; the tables below have the numbers.";
  const picture = pictureOf(width, height, { "aria-label": told });
  if (!kinds.length) {
    empty(picture, width, height, "All scores are switched off.");
    return scoresCanvas.show(picture);
  }
  const names = Math.min(width * 0.42, Math.max(...own.map((entry) => textWidth(entry.variant))) + 4);
  const left = narrow ? 12 : names + 16;
  const box = { left, top, width: width - left - 20, height: line * own.length };
  const found = own.flatMap((entry) => kinds.map((kind) => entry[kind.column]));
  const inner = found.flatMap((each) => (each.value === null ? [] : [each.value, ...each.seeds]));
  const [low, high] = [Math.min(...inner, 0), Math.max(...inner, 0)];
  const room = 0.6 * (high - low || 1); // an interval may be longer: with two seeds it tells nothing
  const ends = found.flatMap((each) => [each.low ?? each.value, each.high ?? each.value]);
  const from = Math.max(Math.min(...ends, low), low - room), to = Math.min(Math.max(...ends, high), high + room);
  const domain = padded(from, to, 0.03);
  const x = scale(domain, [left, left + box.width]);
  const xLabel = `normalized return, ${scoreEnvironments[scores.environment]}`;
  const rows = own.map((_, i) => svg("rect", { class: "row hit", x: 0, y: top + i * line, width, height: line }));
  picture.append(...rows);
  axes(picture, box, { x, y: linear, xTicks: ticks(domain, box.width / 80), yTicks: [], xLabel, yLabel: "" });
  picture.append(svg("line", { class: "axis", x1: x(0), x2: x(0), y1: top, y2: top + box.height }));
  const strip = (_, i) => svg("rect", { class: "row strip", x: 0, y: top + i * line, width, height: 20 });
  const strips = narrow ? own.map(strip) : []; // no line of the grid goes through a name
  picture.append(...strips);
  own.forEach((entry, i) => {
    const begin = top + i * line;
    if (i) picture.append(svg("line", { class: "grid", x1: 0, x2: width, y1: begin, y2: begin }));
    const text = narrow ? { x: 12, y: begin + 15 } : { x: names, y: begin + line / 2 + 4, "text-anchor": "end" };
    const label = svg("text", { class: "name", ...text }, cut(entry.variant, narrow ? width - 24 : names));
    label.append(svg("title", {}, entry.variant));
    picture.append(label);
  });
  const plot = clip(picture, "scores-clip", { ...box, left: left - 6, width: box.width + 12 });
  own.forEach((entry, i) => {
    if (own[i][FINAL].value === null) {
      plot.append(svg("text", { class: "empty", x: left + 4, y: top + (i + 0.5) * line + (narrow ? 13 : 4) }, SILENT));
    }
    kinds.forEach((kind, k) => {
      const each = entry[kind.column], hue = color(kind.place), mark = { "data-kind": kind.column };
      if (each.value === null) return;
      const y = top + i * line + (narrow ? 20 : 4) + ((k + 0.5) * 30) / kinds.length;
      if (each.low !== null) {
        const interval = `M${x(each.low)},${y}H${x(each.high)}`;
        plot.append(svg("path", { class: "whisker", d: interval, style: `stroke: ${hue}` }));
      }
      for (const value of each.seeds) {
        plot.append(svg("circle", { class: "dot", cx: x(value), cy: y, r: 4, style: `stroke: ${hue}`, ...mark }));
      }
      const d = `M${x(each.value)},${y - 6}l6,6l-6,6l-6,-6Z`;
      plot.append(svg("path", { class: "point", d, style: `fill: ${hue}`, "data-value": each.value, ...mark }));
    });
  });
  scoresCanvas.show(picture);
  picture.addEventListener("pointermove", (event) => {
    const place = picture.getBoundingClientRect();
    const i = Math.floor((event.clientY - place.top - top) / line);
    for (const each of [rows, strips]) each.forEach((row, j) => row.classList.toggle("active", i === j));
    const entry = own[i];
    if (!entry) return void (scoresCanvas.tip.hidden = true);
    const cells = kinds.map((kind) => {
      const { value, low, high } = entry[kind.column];
      return [swatch(kind.place), kind.label, value, low === null ? "" : `[${show(low, 3)}, ${show(high, 3)}]`];
    });
    if (entry[FINAL].value === null) return void (scoresCanvas.tip.hidden = true);
    const lost = entry.diverged ? [html("span", { class: "extra" }, `${entry.diverged} diverged`)] : [];
    const words = [html("b", {}, entry.variant), tipTable(cells), ...lost];
    scoresCanvas.point(event.clientX - place.left, top + (i + 1) * line + 4, ...words);
  });
  picture.addEventListener("pointerleave", () => {
    scoresCanvas.tip.hidden = true;
    [...rows, ...strips].forEach((row) => row.classList.remove("active"));
  });
}

function beginScores() {
  options(byId("scores-environment"), scoreEnvironments, (value) => {
    scores.environment = value;
    drawScores();
  });
  legend(byId("scores-legend"), KINDS, scores.hidden, { change: drawScores, mark: () => {} });
  drawScores();
}
