// Normalized return, averaged over environments: a panel for each treatment, as the paper draws it.

const averages = { hidden: new Set(), marked: null };
const averagesCanvas = data.averages && canvasOf(byId("averages-plot"), () => drawAverages());

function drawAverages() {
  const { x: axis, panels } = data.averages;
  const width = averagesCanvas.width(), gap = 14;
  const columns = Math.max(1, Math.min(panels.length, Math.floor(width / 250)));
  const lines = panels.flatMap((panel) => panel.lines).filter((line) => !averages.hidden.has(line.label));
  const each = (width - gap * (columns - 1)) / columns, tall = Math.max(200, Math.min(300, 0.75 * each));
  const height = Math.ceil(panels.length / columns) * (tall + 24);
  const told = `Normalized return, mean over ${data.averages.envs.length} environments, ${panels.length} panels.`;
  const picture = pictureOf(width, height, { "aria-label": told });
  const values = lines.flatMap((line) => [...line.low, ...line.high]).filter((value) => value !== null);
  if (!values.length) {
    empty(picture, width, height, "All lines are switched off.");
    return averagesCanvas.show(picture);
  }
  const range = padded(Math.min(...values), Math.max(...values)), domain = [0, axis.last];
  const yTicks = ticks(range, 4);
  const left = Math.max(...yTicks.map((value) => textWidth(show(value)) + 14));
  panels.forEach((panel, i) => {
    const begin = (i % columns) * (each + gap), top = Math.floor(i / columns) * (tall + 24) + 26;
    const box = { left: begin + left, top, width: each - left - 6, height: tall - 60 };
    const x = scale(domain, [box.left, box.left + box.width]), y = scale(range, [top + box.height, top]);
    axes(picture, box, { x, y, xTicks: ticks(domain, box.width / 70), yTicks, xLabel: axis.label, yLabel: "" });
    const title = cut(panel.title || "normalized return", each - left);
    picture.append(svg("text", { x: box.left, y: top - 10, class: "title" }, title));
    const plot = clip(picture, `averages-clip-${i}`, box);
    const points = panel.lines[0].mean.length;
    const at = (j) => x((axis.last * (j + 1)) / points).toFixed(1);
    const add = (kind, line, d, attributes) => {
      const faded = averages.marked && line.label !== averages.marked ? " faded" : "";
      plot.append(svg("path", { class: kind + faded, d, "data-series": line.label, "data-panel": i, ...attributes }));
    };
    const own = panel.lines.filter((line) => !averages.hidden.has(line.label));
    const known = (line) => line.mean.map((_, j) => j).filter((j) => line.mean[j] !== null);
    for (const line of own) {
      const there = known(line);
      const above = there.map((j) => `${at(j)},${y(line.high[j]).toFixed(1)}`);
      const below = there.map((j) => `${at(j)},${y(line.low[j]).toFixed(1)}`).reverse();
      const style = `fill: ${color(line.place)}`;
      if (there.length > 1) add("band", line, `M${[...above, ...below].join("L")}Z`, { style });
    }
    for (const line of own) {
      const d = known(line).map((j) => `${at(j)},${y(line.mean[j]).toFixed(1)}`);
      const look = { style: `stroke: ${color(line.place)}`, "stroke-dasharray": dash(line.place) };
      if (d.length) add("mean", line, `M${d.join("L")}`, look);
    }
    const hit = svg("rect", { class: "hit", x: box.left, y: top, width: box.width, height: box.height });
    hit.addEventListener("pointermove", (event) => {
      const pixel = event.clientX - picture.getBoundingClientRect().left;
      const j = Math.max(0, Math.min(points - 1, Math.round((points * (pixel - box.left)) / box.width) - 1));
      const there = own.filter((line) => line.mean[j] !== null).sort((a, b) => b.mean[j] - a.mean[j]);
      const rows = there.map((line) => [
        swatch(line.place), line.label, line.mean[j], `± ${show(line.high[j] - line.mean[j], 3)}`,
      ]);
      const unit = axis.label === "environment steps" ? "steps" : "of the run";
      const where = `${show((axis.last * (j + 1)) / points, 3)} ${unit}`;
      const words = [panel.title, where].filter(Boolean).join(", ");
      averagesCanvas.point(pixel, top + 6, html("b", {}, words), tipTable(rows));
    });
    hit.addEventListener("pointerleave", () => (averagesCanvas.tip.hidden = true));
    picture.append(hit);
  });
  averagesCanvas.show(picture);
}

function beginAverages() {
  byId("averages").hidden = !data.averages;
  if (!data.averages) return;
  const { labels, envs, left_out: missing } = data.averages;
  const mark = (label) => {
    averages.marked = label;
    drawAverages();
  };
  legend(byId("averages-legend"), labels, averages.hidden, { change: drawAverages, mark });
  byId("averages-note").textContent =
    `Normalized return, averaged over ${envs.length === 1 ? envs[0] : `${envs.length} environments`}: mean and ` +
    "standard deviation of the seeds. From where a run diverged it counts as 0." +
    (missing.length ? ` Left out, since not every environment has them: ${missing.join("; ")}.` : "");
  drawAverages();
}
