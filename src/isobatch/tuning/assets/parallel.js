// Parallel coordinates: an axis for each setting, one for the return, a line for each trial.

const parallelCanvas = canvasOf(byId("parallel-plot"), () => drawParallel());

function drawParallel() {
  const width = parallelCanvas.width(), height = 380, top = 44, bottom = 26, side = 46;
  const scores = data.trials.map((trial) => trial.score).filter((score) => score !== null);
  const domain = padded(Math.min(...scores), Math.max(...scores), 0.02);
  const names = [...data.axes.map((axis) => axis.name), "return"];
  const picture = pictureOf(width, height, { "aria-label": "Settings and returns of all trials; the table has the numbers." });
  const x = (place) => side + ((width - 2 * side) * place) / (names.length - 1);
  const y = (place) => height - bottom - (height - top - bottom) * place;
  const height01 = scale(domain, [0, 1]);
  const lines = svg("g", {}), near = svg("g", {});
  picture.append(lines);
  const ranking = [...scores].sort((a, b) => a - b);
  const worst = [...data.trials].reverse(); // the best lie above the others
  for (const trial of worst) {
    const places = [...trial.places, trial.score === null ? 0 : height01(trial.score)];
    const d = "M" + places.map((place, i) => `${x(i).toFixed(1)},${y(place).toFixed(1)}`).join("L");
    const share = trial.score === null ? 0 : (100 * ranking.lastIndexOf(trial.score)) / Math.max(1, ranking.length - 1);
    const style = `stroke: color-mix(in srgb, var(--series-0) ${share.toFixed(0)}%, var(--line))`;
    const line = svg("path", { class: trial.finished ? "trial" : "trial stopped", d, style, "data-trial": trial.number });
    const hit = svg("path", { class: "near", d });
    hit.addEventListener("pointerenter", (event) => {
      line.classList.add("marked");
      const place = picture.getBoundingClientRect();
      const rows = trial.values.map(([name, value]) => html("tr", {}, html("td", { class: "label" }, name), html("td", {}, value)));
      const title = html("b", {}, `trial ${trial.number}: ${trial.text}`);
      parallelCanvas.point(event.clientX - place.left, event.clientY - place.top, title, html("table", {}, ...rows));
    });
    hit.addEventListener("pointerleave", () => {
      line.classList.remove("marked");
      parallelCanvas.tip.hidden = true;
    });
    lines.append(line);
    near.append(hit);
  }
  const room = (width - 2 * side) / Math.max(1, names.length - 1);
  names.forEach((name, i) => {
    const labels = i < data.axes.length ? data.axes[i].labels : ticks(domain, 4).map((v) => [height01(v), show(v)]);
    picture.append(svg("line", { class: "axis", x1: x(i), x2: x(i), y1: y(0), y2: y(1) }));
    const high = i % 2 && room < 90 ? 32 : 16; // names in two rows where there is little room
    const text = svg("text", { class: "title", x: x(i), y: high, "text-anchor": "middle" }, cut(name.replaceAll("_", " "), Math.max(2 * room - 8, 40)));
    picture.append(text);
    for (const [place, label] of labels) {
      picture.append(svg("text", { class: "name", x: x(i) + 5, y: y(place) + 4 }, label));
    }
  });
  picture.append(near);
  parallelCanvas.show(picture);
}
