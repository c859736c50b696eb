// Differences by environment and variant, as bars: between the base's and the smallest batch, on a square-root axis,
// and of the pairs that a study names.

function drawBars({ chart, hidden, canvas }) {
  const { envs, bars, sides } = chart;
  const variants = chart.variants.filter((variant) => !hidden.has(variant));
  const own = bars.filter((bar) => variants.includes(bar.variant));
  const width = canvas.width(), height = width < 520 ? 300 : 360;
  const picture = pictureOf(width, height, { "aria-label": `${chart.axis}, by environment and variant.` });
  if (!own.length) {
    empty(picture, width, height, "All variants are switched off.");
    return canvas.show(picture);
  }
  const ends = own.flatMap((bar) => [bar.low, bar.high]);
  const range = [Math.min(...ends, -0.01), Math.max(...ends, 0.01)].map((value) => value * 1.08);
  const names = envs.map((env) => env.replace(/^[a-z]+[/]/, ""));
  const longest = Math.max(...names.map(textWidth));
  const slanted = longest > (width - 60) / envs.length - 6;
  const top = sides.length ? 46 : 30, bottom = slanted ? Math.min(110, longest * 0.6 + 26) : 34;
  const y = scale(range, [height - bottom, top], chart.square_root ? root : linear);
  const yTicks = chart.square_root ? rootTicks(range, y) : ticks(range, 6);
  const left = Math.max(slanted ? 40 : 0, ...yTicks.map((value) => textWidth(show(value)) + 14));
  const box = { left, top, width: width - left - 10, height: height - top - bottom };
  axes(picture, box, { x: linear, y, xTicks: [], yTicks, xLabel: "", yLabel: chart.axis });
  const band = box.width / envs.length, each = Math.min(46, (0.82 * band) / variants.length);
  envs.forEach((env, i) => {
    const [cx, cy] = [left + (i + 0.5) * band, height - bottom + 18];
    const turn = slanted ? { transform: `rotate(-32 ${cx} ${cy})`, "text-anchor": "end" } : { "text-anchor": "middle" };
    picture.append(svg("text", { class: "name", x: cx, y: cy, ...turn }, names[i]));
  });
  let begun = 0;
  sides.forEach(({ name, count }, i) => {
    const x = left + begun * band;
    if (i) picture.append(svg("line", { class: "cross", x1: x, x2: x, y1: top - 12, y2: top + box.height }));
    const middle = { x: x + (count * band) / 2, y: top - 4, "text-anchor": "middle", class: "side" };
    picture.append(svg("text", middle, name));
    begun += count;
  });
  picture.append(svg("line", { class: "axis", x1: left, x2: left + box.width, y1: y(0), y2: y(0) }));
  const hits = own.map((bar) => {
    const place = chart.variants.indexOf(bar.variant), i = envs.indexOf(bar.env);
    const there = variants.filter((variant) => own.some((other) => other.env === bar.env && other.variant === variant));
    const at = left + (i + 0.5) * band + (there.indexOf(bar.variant) - there.length / 2) * each;
    const [a, b, middle] = [y(bar.low), y(bar.high), at + each / 2];
    const ends = [y(0), y(bar.value)].sort((above, below) => above - below);
    const sizes = { x: at + each * 0.06, width: each * 0.88, y: ends[0], height: Math.max(1, ends[1] - ends[0]) };
    const names = { "data-variant": bar.variant, "data-env": bar.env, "data-value": bar.value };
    picture.append(
      svg("rect", { class: "bar", ...sizes, ...names, style: `fill: ${color(place)}` }),
      svg("path", { class: "error", d: `M${middle},${a}V${b}m-3,0h6M${middle - 3},${a}h6` }),
    );
    const hit = svg("rect", { class: "hit", x: at, width: each, y: top, height: box.height });
    const cells = [[swatch(place), bar.variant, bar.value, `[${show(bar.low, 2)}, ${show(bar.high, 2)}]`]];
    const tell = () => canvas.point(middle, top + 4, html("b", {}, bar.env), tipTable(cells));
    hit.addEventListener("pointermove", tell);
    hit.addEventListener("pointerleave", () => (canvas.tip.hidden = true));
    return hit;
  });
  picture.append(...hits);
  canvas.show(picture);
}

function beginBars(name) {
  const chart = data[name];
  byId(name).hidden = !chart;
  if (!chart) return;
  const state = { chart, hidden: new Set() };
  const draw = () => drawBars(state);
  state.canvas = canvasOf(byId(`${name}-plot`), draw);
  const entries = chart.variants.map((label, place) => ({ label, place }));
  legend(byId(`${name}-legend`), entries, state.hidden, { change: draw, mark: () => {} });
  byId(`${name}-note`).textContent = chart.note;
  draw();
}
