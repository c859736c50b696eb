// How much of the order of the trials each setting explains: bars.

const importanceCanvas = canvasOf(byId("importance-plot"), () => drawImportance());

function drawImportance() {
  const width = importanceCanvas.width(), line = 30, height = line * data.importance.length + 8;
  const names = Math.max(...data.importance.map(([name]) => textWidth(name.replaceAll("_", " ")))) + 14;
  const most = Math.max(0.05, ...data.importance.map(([, share]) => share));
  const picture = pictureOf(width, height, { "aria-label": "Share of the variance of ranks that each setting explains." });
  data.importance.forEach(([name, share], i) => {
    const y = i * line + 4, long = ((width - names - 70) * share) / most;
    picture.append(
      svg("text", { class: "name", x: names - 8, y: y + 18, "text-anchor": "end" }, name.replaceAll("_", " ")),
      svg("rect", { class: "bar", x: names, y: y + 4, width: long.toFixed(1), height: line - 10, "data-value": share }),
      svg("text", { x: names + long + 8, y: y + 18 }, `${Math.round(100 * share)} %`),
    );
  });
  importanceCanvas.show(picture);
}
