// draw.js: the pictures of player.html for one part (a strategy's step) at one time: two devices with the link between
// them, and the rows of spans. All colours are attributes, so that a still image needs no style sheet.

// ---- colours and patterns -------------------------------------------------------------------------------------------

// Phases have the report's colours, and patterns for grey prints: a path in a tile of 8 by 8 pixels, drawn as lines or
// (areas) filled.
const UP = "M-2 2L2 -2M0 8L8 0M6 10L10 6", DOWN = "M-2 6L2 10M0 0L8 8M6 -2L10 2";
const PATTERNS = {data: "M2 2h2v2h-2z", scatter: "M1 1h2M5 5h2", replicate: UP, forward: "", gather: "M0 4h8M4 0v8",
  loss: "M4 0v8", backward: "M0 4h8", reduce: DOWN, exposed: UP + DOWN, optimizer: "M0 0h4v4h-4zM4 4h4v4h-4z", other: "",
  moving: "M1 1h3v3h-3z", all_gather: UP, reduce_scatter: DOWN, waiting: UP, idle: UP};
const AREAS = ["data", "optimizer", "moving"];
const DARK = ["loss", "backward", "optimizer"]; // text on these is white
const NAMES = {reduce: "reduce: gradients are summed", exposed: "exposed: waits for gradients, or weights",
  moving: "bytes move", all_gather: "a unit's weights are gathered", reduce_scatter: "a unit's gradients are reduced", idle: "waits",
  waiting: "waits for the other rank", other: "between phases"};
const THEMES = {
  light: {ink: "#222222", faint: "#6b6b6b", line: "#bbbbbb", paper: "#ffffff", moving: "#444444", onMoving: "#ffffff"},
  dark: {ink: "#dddddd", faint: "#a5a5a5", line: "#55585e", paper: "#16181c", moving: "#bbbbbb", onMoving: "#000000"},
};
let theme = THEMES.light;
const waits = phase => phase === "waiting" || phase === "idle";
const LIKE = {all_gather: "replicate", reduce_scatter: "reduce"}; // the same bytes move
const colourOf = phase => waits(phase) ? theme.paper : phase === "moving" ? theme.moving : data.colours[LIKE[phase] || phase];
const inkOn = phase => waits(phase) ? theme.ink : phase === "moving" ? theme.onMoving :
  DARK.includes(phase) ? "#ffffff" : "#000000";
const fillOf = phase => "url(#fill-" + phase + ")";

function put(parent, name, attributes, text) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const key in attributes) element.setAttribute(key, attributes[key]);
  if (text !== undefined) element.textContent = text;
  parent.appendChild(element);
  return element;
}

const write = (parent, x, y, text, more) =>
  put(parent, "text", {x, y, fill: theme.ink, "font-family": "sans-serif", "font-size": 13, ...more}, text);
const CENTRED = {"text-anchor": "middle"}, TO_THE_LEFT = {"text-anchor": "end"};
const small = () => ({"font-size": 11, fill: theme.faint});

function makePatterns(defs) {
  defs.replaceChildren();
  for (const phase in PATTERNS) {
    const pattern = put(defs, "pattern", {id: "fill-" + phase, width: 8, height: 8, patternUnits: "userSpaceOnUse"});
    const area = AREAS.includes(phase);
    put(pattern, "rect", {width: 8, height: 8, fill: colourOf(phase)});
    put(pattern, "path", {d: PATTERNS[phase], fill: area ? inkOn(phase) : "none", "fill-opacity": 0.25,
      stroke: area ? "none" : waits(phase) ? theme.faint : inkOn(phase), "stroke-opacity": waits(phase) ? 1 : 0.4});
  }
}

// ---- the rows of spans ----------------------------------------------------------------------------------------------

const LEFT = 94, TOP = 26, ROW = 30; // pixels: the rows' names, what the step saves, a row
const rowsHeight = part => TOP + ROW * part.tracks.length + 22;

// Draws the rows; `end`, the longer step, takes the whole width. Returns a function that shows a time in them.
function drawRows(parent, part, end, width) {
  const scale = (width - LEFT - 6) / end, bottom = TOP + ROW * part.tracks.length;
  const drawn = part.spans.map(span => ({span, rect: drawSpan(parent, part, span, scale)}));
  part.tracks.forEach((track, k) =>
    write(parent, LEFT - 6, TOP + ROW * k + 20, track.label, {...TO_THE_LEFT, "font-size": 12}));
  for (const [rank, number, at] of part.ready) { // an arrow head from the row of the rank to its link's
    const x = LEFT + at * scale, y = TOP + ROW * (trackOf(part, "device", rank) + 1);
    const head = put(parent, "path", {d: "M" + (x - 4) + " " + (y - 3) + "h8l-4 6z", fill: theme.ink});
    put(head, "title", {}, part.units ? "unit " + number + " is next on the link" : "bucket " + number + " is full");
  }
  drawAxis(parent, end, scale, bottom);
  const less = end - part.step;
  if (less > 0.01 * end) drawLess(parent, LEFT + part.step * scale + 1, LEFT + end * scale - 1, less);
  const line = put(parent, "line", {y1: TOP - 4, y2: bottom + 2, stroke: theme.ink, "stroke-width": 2});
  return time => {
    const x = LEFT + Math.min(time, end) * scale, at = spansAt(part, time);
    line.setAttribute("x1", x);
    line.setAttribute("x2", x);
    for (const {span, rect} of drawn) markNow(rect, at[span[TRACK]] === span);
  };
}

function drawSpan(parent, part, span, scale) {
  const [track, begin, end, phase, bucket] = span, y = TOP + ROW * track;
  const x = LEFT + begin * scale, width = Math.max((end - begin) * scale, 0.4);
  const rect = put(parent, "rect", {x, y: y + 3, width, height: ROW - 6, fill: fillOf(phase), stroke: theme.line,
    "stroke-width": 0.5});
  Object.assign(rect.dataset, {track, phase, begin, end, bucket});
  put(rect, "title", {}, part.tracks[track].label + ": " + (NAMES[phase] || phase) +
    (bucket >= 0 ? (part.units ? ", unit " : ", bucket ") + bucket : "") + ", " + ms(end - begin));
  let label = {moving: String(bucket), idle: "waits", waiting: "", other: ""}[phase] ?? (bucket >= 0 ? String(bucket) : phase);
  if (part.units && width <= 7.2 * label.length + 6) label = unitLabel(part, span);
  labelIn(parent, x, width, y + 20, label, phase);
  return rect;
}

// A label in a box of this phase that is wide enough for it, on a ground of its own, without the pattern.
function labelIn(parent, x, width, y, label, phase) {
  if (label && width > 7.2 * label.length + 6)
    write(parent, x + width / 2, y, label, {...CENTRED, fill: inkOn(phase), stroke: colourOf(phase), "stroke-width": 4,
      "paint-order": "stroke", "stroke-linejoin": "round", "pointer-events": "none"});
}

function markNow(rect, now) {
  if (now === ("now" in rect.dataset)) return;
  if (now) rect.dataset.now = "";
  else delete rect.dataset.now;
  rect.setAttribute("stroke", now ? theme.ink : theme.line);
  rect.setAttribute("stroke-width", now ? 2.5 : 0.5);
}

function drawAxis(parent, end, scale, y) {
  const right = LEFT + end * scale, ticks = right > 600 ? 12 : 6;
  const every = [0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000].find(one => end / 1000 / one <= ticks) || 5000;
  put(parent, "line", {x1: LEFT, x2: right, y1: y + 2, y2: y + 2, stroke: theme.line});
  for (let tick = 0; tick * 1000 <= end; tick += every)
    write(parent, LEFT + tick * 1000 * scale, y + 16, String(+tick.toFixed(1)), {...CENTRED, ...small()});
  write(parent, LEFT - 6, y + 16, "ms", {...TO_THE_LEFT, ...small()});
}

// A bracket over the time by which this step is shorter than the other part's.
function drawLess(parent, from, to, less) {
  const y = TOP - 5, tip = x => "M" + x + " " + (y - 4) + "v8";
  put(parent, "path", {d: tip(from) + tip(to) + "M" + from + " " + y + "H" + to, stroke: theme.ink, fill: "none"});
  write(parent, to, y - 7, ms(less) + " less", {...TO_THE_LEFT, "font-size": 12});
}

// ---- two devices and the link between them --------------------------------------------------------------------------

const MACHINE = 150; // pixels high
const STATE = {idle: "waits", exposed: "waits for gradients", data: "takes the batch", scatter: "sends inputs",
  replicate: "sends weights", gather: "moves outputs", reduce: "adds up gradients", optimizer: "updates weights",
  other: "between phases"};

// Returns a device's phase: of its own track, or, for device 0 under DP, of the main thread. Outside its spans a device
// of DP waits, and a rank is between two phases.
function phaseOf(part, time, device) {
  const at = spansAt(part, time), own = at[trackOf(part, "device", device)], main = device === 0 && at[drivenBy(part)];
  if (!own && drivenBy(part) < 0) return "other";
  return own ? own[PHASE] : main && !["forward", "backward"].includes(main[PHASE]) ? main[PHASE] : "idle";
}

function drawMachine(parent, part, time, width) {
  const wide = Math.min(0.36 * width, 240), over = time >= part.step, noun = drivenBy(part) < 0 ? "rank " : "device ";
  for (const device of DEVICES) {
    const x = device === 0 ? 1 : width - wide - 1, phase = over ? "idle" : phaseOf(part, time, device);
    const works = phase !== "idle" && phase !== "exposed";
    put(parent, "rect", {x, y: 1, width: wide, height: MACHINE - 2, rx: 6, fill: "none",
      stroke: works ? theme.ink : theme.line, "stroke-width": works ? 2 : 1});
    write(parent, x + 10, 20, noun + device, {"font-weight": "bold"});
    put(parent, "rect", {x: x + 10, y: 30, width: 16, height: 16, fill: fillOf(phase), stroke: theme.ink});
    write(parent, x + 32, 43, over ? "done" : part.units && phase === "exposed" ? waitState(part, device, time) : STATE[phase] || phase);
    (part.units ? drawUnits : drawGradients)(parent, part, device, time, x + 10, wide - 20);
  }
  drawLink(parent, over ? null : transferAt(part, time), wide + 10, width - wide - 10);
}

// Draws a device's gradients: a box for each bucket (DP: one box). A box fills as its gradients become ready, and a second
// time as their sum arrives. A ready bucket that has not moved yet has a thick frame.
function drawGradients(parent, part, device, time, left, wide) {
  const gradients = part.gradients[device], none = [Infinity, Infinity];
  const all = {number: -1, bytes: allBytes, ready: none, ...reduceOf(part, device)};
  const boxes = part.buckets.length ? part.buckets : [all], gap = boxes.length > 12 ? 0 : 3, y = 78, high = 36;
  const total = boxes.reduce((sum, box) => sum + box.bytes, 0), ready = gradients.filter(one => one.at <= time).length;
  write(parent, left, 70, "gradients: " + ready + " of " + tensors.length, {...small(), "font-size": 12});
  let x = left;
  for (const box of boxes) {
    const width = box.bytes / total * (wide - gap * (boxes.length - 1));
    const summed = passed(box.moves, box.end, time);
    const level = (share, phase) =>
      put(parent, "rect", {x, y: y + high * (1 - share), width, height: high * share, fill: fillOf(phase)});
    level(filled(gradients.filter(one => one.bucket === box.number), time), "backward");
    level(summed, "reduce");
    put(parent, "rect", {x, y, width, height: high, fill: "none", stroke: theme.ink,
      "stroke-width": time >= box.ready[device] && summed < 1 ? 2.5 : 0.8});
    if (box.number >= 0 && width > 9)
      write(parent, x + width / 2, y + high + 14, String(box.number), {...CENTRED, ...small()});
    x += width + gap;
  }
  if (boxes[0].number < 0 && boxes[0].end <= time) write(parent, left, y + high + 14, "summed, only here", small());
}

// DP's reduction of all gradients: {moves, end}, its begin and end. Only device 0 has the sum.
function reduceOf(part, device) {
  const reduce = part.spans.filter(span => span[PHASE] === "reduce");
  if (device !== 0 || !reduce.length) return {moves: Infinity, end: Infinity};
  return {moves: reduce[0][BEGIN], end: reduce[reduce.length - 1][END]};
}

// The computed share of these gradients' bytes, 0 to 1.
function filled(gradients, time) {
  const total = gradients.reduce((sum, one) => sum + one.bytes, 0);
  return total && gradients.reduce((sum, one) => sum + one.bytes * passed(one.from, one.at, time), 0) / total;
}

// Draws the link. A packet's place depends only on the moved share of the bytes: the same time always has the same picture.
function drawLink(parent, transfer, from, to) {
  const middle = (from + to) / 2, y = 56, below = 78;
  if (!transfer) {
    put(parent, "line", {x1: from, x2: to, y1: y, y2: y, stroke: theme.line, "stroke-dasharray": "4 5"});
    write(parent, middle, 34, "nothing moves", {...CENTRED, ...small(), "font-size": 12});
    return;
  }
  if (transfer.right) drawWay(parent, from, to, y, transfer.done);
  if (transfer.left) drawWay(parent, to, from, transfer.right ? below : y, transfer.done);
  write(parent, middle, 34, transfer.what, {...CENTRED, "font-size": 12});
  write(parent, middle, 108, megabytes(transfer.done * transfer.bytes) + " of", {...CENTRED, "font-size": 12});
  write(parent, middle, 124, megabytes(transfer.bytes) + " MB", {...CENTRED, "font-size": 12});
}

function drawWay(parent, from, to, y, done) {
  const packet = 10, packets = 6, way = to - from, back = to > from ? -8 : 8;
  put(parent, "line", {x1: from, x2: to, y1: y, y2: y, stroke: theme.ink, "stroke-width": 2});
  for (let k = 0; k < packets; k++) {
    const x = from + (done * packets + k / packets) % 1 * (way + (way > 0 ? -packet : packet)) - (way > 0 ? 0 : packet);
    put(parent, "rect", {x, y: y - packet / 2, width: packet, height: packet, fill: theme.moving, stroke: theme.paper});
  }
  put(parent, "path", {d: "M" + to + " " + y + "l" + back + " -6v12z", fill: theme.ink});
}
