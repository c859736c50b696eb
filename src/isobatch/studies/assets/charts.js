// What all charts of a report share: elements, numbers, axes, legends, tips. SVG by hand; nothing is loaded, and the
// data are in the page as JSON. The files of this folder are one script, in the order of `page.SCRIPTS`.
"use strict";

const data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
const HUES = 8; // series colors of the style sheet
const DASHES = ["", "2 3", "9 3 2 3", "9 3 2 3 2 3"]; // for lines whose color is taken

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== false) element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}
const html = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);
const svg = (tag, attributes = {}, ...children) =>
  fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);

// The place of what others are compared with is null: it is dashed and gray.
const color = (place) => (place === null ? "var(--soft)" : `var(--series-${place % HUES})`);
const dash = (place) => (place === null ? "6 4" : DASHES[Math.floor(place / HUES) % DASHES.length] || null);

function swatch(place) {
  const style = `stroke: ${color(place)}`;
  const line = svg("line", { x1: 0, x2: 20, y1: 6, y2: 6, "stroke-dasharray": dash(place), style });
  return svg("svg", { class: "swatch", viewBox: "0 0 20 12", "aria-hidden": "true" }, line);
}

function options(select, labels, change) {
  select.replaceChildren(...labels.map((label, i) => html("option", { value: i }, label)));
  select.addEventListener("change", () => change(Number(select.value)));
  if (labels.length < 2) select.closest("label").hidden = true; // nothing to choose
}

const canvas = document.createElement("canvas").getContext("2d");
function textWidth(text) {
  canvas.font = `12px ${getComputedStyle(document.body).fontFamily}`;
  return canvas.measureText(text).width;
}
function cut(text, width) {
  let kept = text;
  while (kept.length > 1 && textWidth(kept + "…") > width) kept = kept.slice(0, -1);
  return textWidth(text) <= width ? text : kept.trimEnd() + "…";
}

// 0.0123, 498.4, 12.5k, 3.2M
function show(value, digits = 4) {
  if (value === null) return "–";
  const rounded = Number(value.toPrecision(digits)), size = Math.abs(rounded);
  const [unit, letter] = size >= 1e9 ? [1e9, "G"] : size >= 1e6 ? [1e6, "M"] : size >= 1e4 ? [1e3, "k"] : [1, ""];
  const text = size && size < 1e-4 ? Number(value.toPrecision(2)).toExponential() : String(clean(rounded / unit));
  return text.replaceAll("-", "−") + letter;
}

const clean = (value) => Number(value.toPrecision(12)); // 0.3, not 0.30000000000000004
const linear = (value) => value;
const root = (value) => Math.sign(value) * Math.sqrt(Math.abs(value));

// From values to pixels.
function scale([low, high], [start, end], shape = linear) {
  const [a, b] = [shape(low), shape(high)];
  return (value) => start + ((end - start) * (shape(value) - a)) / (b - a);
}

// Round numbers, 1, 2 or 5 times a power of ten apart, about as many as asked for.
function ticks([low, high], count) {
  const rough = (high - low) / Math.max(1, count);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((times) => times * power >= rough * 0.999);
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) found.push(clean(i * step));
  return found;
}

function logTicks([low, high]) {
  const decades = Math.log10(high / low);
  const found = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++) {
    for (const times of decades < 1 ? [1, 2, 3, 5, 7] : decades < 3 ? [1, 2, 5] : [1]) {
      const value = clean(times * 10 ** power);
      if (value >= low && value <= high) found.push(value);
    }
  }
  return found;
}

// From 0 outwards on a square-root axis, as near as labels can stand.
function rootTicks([low, high], at) {
  const found = [0];
  for (const sign of [1, -1]) {
    let last = 0;
    for (let power = -3; power < 4; power++) {
      for (const times of [1, 2, 5]) {
        const value = clean(sign * times * 10 ** power);
        if (value < low || value > high || Math.abs(at(value) - at(last)) < 26) continue;
        found.push(value);
        last = value;
      }
    }
  }
  return found;
}

function padded(low, high, share = 0.05) {
  if (!(high > low)) return [low - (Math.abs(low) * 0.1 || 0.5), low + (Math.abs(low) * 0.1 || 0.5)];
  return [low - share * (high - low), high + share * (high - low)];
}

// A picture as wide as its place, so that letters keep their size. `begin` is called again when the place changes.
function canvasOf(place, begin) {
  const tip = html("div", { class: "tip", role: "status", hidden: "" });
  let width = 0;
  new ResizeObserver(() => {
    if (place.clientWidth && place.clientWidth !== width) {
      width = place.clientWidth;
      begin();
    }
  }).observe(place);
  return {
    tip,
    show(picture) {
      place.replaceChildren(picture, tip);
      tip.hidden = true;
    },
    width: () => place.clientWidth || 600,
    // Beside the pointer, on the side with room.
    point(x, y, ...children) {
      tip.replaceChildren(...children);
      tip.hidden = false;
      const right = x + 16 + tip.offsetWidth <= place.clientWidth;
      const left = right ? x + 16 : Math.max(0, x - 16 - tip.offsetWidth);
      tip.style.left = `${left}px`;
      tip.style.top = `${Math.max(0, y)}px`;
    },
  };
}

function pictureOf(width, height, attributes) {
  return svg("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img", ...attributes });
}

// Instead of a chart: why there is none.
function empty(picture, width, height, words) {
  picture.append(svg("text", { class: "empty", x: width / 2, y: height / 2, "text-anchor": "middle" }, words));
}

// Grid lines with numbers at the left and below, and what the axes are.
function axes(picture, box, { x, y, xTicks, yTicks, xLabel, yLabel }) {
  const bottom = box.top + box.height;
  for (const value of yTicks) {
    const line = { class: "grid", x1: box.left, x2: box.left + box.width, y1: y(value), y2: y(value) };
    const label = { x: box.left - 8, y: y(value) + 4, "text-anchor": "end", class: "y-tick" };
    picture.append(svg("line", line), svg("text", label, show(value)));
  }
  for (const value of xTicks) {
    picture.append(
      svg("line", { class: "grid", x1: x(value), x2: x(value), y1: box.top, y2: bottom }),
      svg("text", { x: x(value), y: bottom + 18, "text-anchor": "middle", class: "x-tick" }, show(value)),
    );
  }
  picture.append(svg("line", { class: "axis", x1: box.left, x2: box.left + box.width, y1: bottom, y2: bottom }));
  picture.append(svg("text", { x: box.left + box.width / 2, y: bottom + 38, "text-anchor": "middle" }, xLabel));
  picture.append(svg("text", { x: 4, y: 14, class: "title" }, yLabel));
}

function clip(picture, id, box) {
  const area = svg("rect", { x: box.left, y: box.top, width: box.width, height: box.height });
  picture.append(svg("defs", {}, svg("clipPath", { id }, area)));
  const group = svg("g", { "clip-path": `url(#${id})` });
  picture.append(group);
  return group;
}

// Buttons that switch series on and off. `entries` are {label, place, note}; `hidden` holds labels.
function legend(place, entries, hidden, { change, mark }) {
  const buttons = entries.map((entry) => {
    const note = entry.note ? [html("span", { class: "lost" }, entry.note)] : [];
    const text = html("span", {}, entry.label, ...note);
    const button = html("button", { type: "button", class: "entry" }, swatch(entry.place), text);
    button.addEventListener("click", () => {
      if (!hidden.delete(entry.label)) hidden.add(entry.label);
      refresh();
    });
    for (const event of ["pointerenter", "focus"]) button.addEventListener(event, () => mark(entry.label));
    for (const event of ["pointerleave", "blur"]) button.addEventListener(event, () => mark(null));
    return button;
  });
  const press = () =>
    buttons.forEach((button, i) => button.setAttribute("aria-pressed", String(!hidden.has(entries[i].label))));
  const refresh = () => {
    press();
    change();
  };
  const every = (label, act) => {
    const button = html("button", { type: "button", class: "all" }, label);
    button.addEventListener("click", () => {
      entries.forEach((entry) => act(entry.label));
      refresh();
    });
    return button;
  };
  const all = every("All", (label) => hidden.delete(label));
  const none = every("None", (label) => hidden.add(label));
  place.replaceChildren(...(entries.length > 2 ? [html("div", { class: "both" }, all, none)] : []), ...buttons);
  press();
}

// A line for each: icon, label, value, and what else there is to say.
function tipTable(rows) {
  const lines = rows.map(([icon, label, value, extra]) => {
    const cells = [html("td", {}, icon), html("td", { class: "label" }, label)];
    const number = html("td", { class: "value", "data-value": value }, show(value));
    return html("tr", {}, ...cells, number, html("td", { class: "extra" }, extra));
  });
  return html("table", {}, ...lines);
}
