// player.js: plays one step of DP above one of DDP. Read it from the end: the page, then what is drawn, then the words,
// then where the numbers come from.
//
// A scene is {id, name, dp, ddp}; dp and ddp are parts, each one step {step, tracks, spans, ready} as player.py's
// read_step has it, with times in microseconds since the step began. A part of a trace and one of the model have the
// same form, so that all below draws both.
"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const find = id => document.getElementById(id);
const TRACK = 0, BEGIN = 1, END = 2, PHASE = 3, BUCKET = 4, BYTES = 5; // the columns of a span

// ---- scenes ---------------------------------------------------------------------------------------------------------

const model = stepModel(data.profile);
const tensors = data.profile.tensors; // in the order in which their gradients become ready
const allBytes = tensors.reduce((sum, tensor) => sum + tensor.bytes, 0);

// A step that the model computes, as a part. Each list of phases is one track's, one after the other.
function layOut(step, tracks, phases) {
  const part = {step: step * 1e6, tracks, spans: [], ready: []};
  phases.forEach((list, track) => {
    let at = 0;
    for (const [phase, seconds] of list) {
      if (seconds > 0 && phase) part.spans.push([track, at, at + seconds * 1e6, phase, -1, 0]);
      at += seconds * 1e6;
    }
  });
  return part;
}

// What the model says of two devices with the traces' rows, over this link and with buckets of this cap.
function computed(gbit, cap) {
  const cluster = {devices: 2, rows: data.profile.rows[1], link: {bytes_per_s: gbit * GBIT, latency_s: data.latency_us * 1e-6},
    bucket_cap_mb: cap, algorithm: "ring", copy_s: 0, sum_s: 0};
  const a = model.dp(cluster), b = model.ddp(cluster), buckets = model.makeBuckets(cluster);
  const worker = [["", a.scatter + a.replicate], ["forward", a.forward], ["", a.gather / 2 + a.loss + a.gather / 2], ["backward", a.backward]];
  const dp = layOut(a.step, [{kind: "drives", device: 0, label: "main thread"}, {kind: "device", device: 0, label: "device 0"},
    {kind: "device", device: 1, label: "device 1"}],
  [[["scatter", a.scatter], ["replicate", a.replicate], ["forward", a.forward], ["gather", a.gather / 2], ["loss", a.loss],
    ["gather", a.gather / 2], ["backward", a.backward], ["reduce", a.reduce], ["optimizer", a.optimizer]], worker, worker]);
  const rank = ["forward", "loss", "backward", "exposed", "optimizer"].map(name => [name, b[name]]);
  const ddp = layOut(b.step, [0, 1].flatMap(k => [{kind: "device", device: k, label: "rank " + k},
    {kind: "link", device: k, label: "rank " + k + ", link"}]), [rank, [], rank, []]);
  const from = (b.forward + b.loss) * 1e6;
  buckets.forEach((bucket, k) => [0, 1].forEach(device => {
    ddp.ready.push([device, k, from + bucket.ready * 1e6]);
    ddp.spans.push([2 * device + 1, from + bucket.begin * 1e6, from + bucket.end * 1e6, "moving", k, bucket.bytes]);
  }));
  return {id: "model", name: "over " + short(gbit) + " Gbit/s, computed", dp, ddp, numbers: {dp: a, ddp: b, buckets}};
}

// When each gradient is ready on a device: [{bytes, bucket, at}]. A bucket's last gradient is ready when the trace says
// that the bucket is; all else is at the profile's share of the way there.
function gradientsOf(part, device) {
  const backward = part.spans.filter(span => span[PHASE] === "backward" && part.tracks[span[TRACK]].device === device &&
    part.tracks[span[TRACK]].kind === "device");
  if (!backward.length) return [];
  let from = Math.min(...backward.map(span => span[BEGIN])), share = 0, first = 0;
  const end = Math.max(...backward.map(span => span[END])), all = [];
  const closes = (last, bucket, at) => { // the gradients up to this one, ready between from and at
    for (let k = first; k <= last; k++) {
      const way = tensors[last].ready > share ? (tensors[k].ready - share) / (tensors[last].ready - share) : 1;
      all.push({bytes: tensors[k].bytes, bucket, at: from + way * (at - from)});
    }
    [from, share, first] = [at, tensors[last].ready, last + 1];
  };
  for (const bucket of part.buckets) {
    let last = first, bytes = tensors[first] ? tensors[first].bytes : 0; // a bucket pads each gradient to 64 bytes
    while (last + 1 < tensors.length && bytes + Math.ceil(tensors[last + 1].bytes / 64) * 64 <= bucket.bytes) bytes += Math.ceil(tensors[++last].bytes / 64) * 64;
    if (last < tensors.length) closes(last, bucket.number, bucket.ready[device]);
  }
  if (!part.buckets.length) closes(tensors.length - 1, -1, end - (1 - tensors[tensors.length - 1].ready) * (end - from));
  return all;
}

// The buckets of DDP: [{number, bytes, ready: [by device], moves, end}]; none of DP.
function bucketsOf(part) {
  const found = new Map();
  for (const [device, number, at] of part.ready) { // a rank that is late may still move a bucket of the step before
    if (!found.has(number)) found.set(number, {number, bytes: 0, ready: [0, 0], moves: Infinity, end: 0});
    found.get(number).ready[device] = at;
  }
  for (const span of part.spans) {
    const bucket = span[PHASE] === "moving" && found.get(span[BUCKET]);
    if (!bucket || span[BEGIN] < bucket.ready[part.tracks[span[TRACK]].device]) continue;
    bucket.bytes = span[BYTES];
    bucket.moves = Math.min(bucket.moves, span[BEGIN]);
    bucket.end = Math.max(bucket.end, span[END]);
  }
  return [...found.values()].filter(bucket => bucket.bytes).sort((a, b) => a.number - b.number);
}

function prepare(scene) {
  for (const name of ["dp", "ddp"]) {
    const part = scene[name];
    part.name = name.toUpperCase();
    part.buckets = bucketsOf(part);
    part.gradients = [0, 1].map(device => gradientsOf(part, device));
    part.phases = part.spans.map(span => span[PHASE]);
    part.spans = part.spans.concat(idle(part));
  }
  scene.end = Math.max(scene.dp.step, scene.ddp.step);
  scene.events = eventsOf(scene);
  return scene;
}

// DP's devices but device 0 wait wherever they have no span: device 0's main thread works for them.
function idle(part) {
  const gaps = [];
  part.tracks.forEach((track, k) => {
    if (track.kind !== "device" || track.device === 0 || !part.tracks.some(other => other.kind === "drives")) return;
    let at = 0;
    for (const span of part.spans.filter(one => one[TRACK] === k).concat([[k, part.step, part.step]])) {
      if (span[BEGIN] > at) gaps.push([k, at, span[BEGIN], "idle", -1, 0]);
      at = Math.max(at, span[END]);
    }
  });
  return gaps;
}

// The spans that hold this time, of one track the innermost.
function spansAt(part, time) {
  const at = [];
  for (const span of part.spans) if (span[BEGIN] <= time && time < span[END]) at[span[TRACK]] = span;
  return at;
}

// ---- words ----------------------------------------------------------------------------------------------------------

const short = x => x >= 100 ? x.toFixed(0) : x >= 10 ? x.toFixed(1) : x.toPrecision(2);
const ms = us => (us / 1000).toFixed(2) + " ms";
const megabytes = bytes => (bytes / 1e6).toFixed(bytes < 95e3 ? 3 : 1);
const share = (span, time) => (time - span[BEGIN]) / (span[END] - span[BEGIN]);

// What a phase is called, as "device 0 ..." or "both ...". Of DP the driving thread's phases are device 0's work.
const SAYS = {data: "takes the batch", forward: "runs forward", loss: "computes the loss", backward: "runs backward",
  optimizer: "updates the weights", exposed: "waits for gradients", other: "is between two phases", replicate: "sends buffers"};
const DP_SAYS = {data: "The main thread takes the batch", scatter: "Device 0 sends device 1 its half of the batch",
  replicate: "Device 0 sends all weights to device 1", forward: "Both devices run forward",
  gather: "Outputs and their gradients move between the devices", loss: "Device 0 computes the loss of the whole batch",
  backward: "Both devices run backward", reduce: "Device 0 takes device 1's gradients and adds them to its own",
  optimizer: "Device 0 updates the weights alone", other: "The main thread is between two phases"};

function sayDP(part, at, time) {
  const main = at[part.tracks.findIndex(track => track.kind === "drives")];
  const phase = main ? main[PHASE] : "other";
  let text = DP_SAYS[phase] || phase;
  if (phase === "replicate" || phase === "reduce") text += " (" + megabytes(share(main, time) * allBytes) + " of " + megabytes(allBytes) + " MB)";
  if (phase === "backward") text += ": " + readyText(part, 0, time);
  if (["scatter", "replicate", "loss", "reduce", "optimizer"].includes(phase)) text += "; device 1 waits";
  return text;
}

const readyText = (part, device, time) => part.gradients[device].filter(one => one.at <= time).length + " of " +
  part.gradients[device].length + " gradients are ready";

function sayDDP(part, at, time) {
  const ranks = [0, 1].map(device => at[part.tracks.findIndex(track => track.kind === "device" && track.device === device)]);
  const [first, second] = ranks.map(span => SAYS[span ? span[PHASE] : "other"] || span[PHASE]);
  const plural = text => text.replace(/^(\w+?)(e?)s\b/, (all, verb, e) => ({i: "are"})[verb] || verb + e);
  let text = first === second ? "Both ranks " + plural(first) : "Rank 0 " + first + ", rank 1 " + second;
  if (ranks.some(span => span && span[PHASE] === "backward")) text += " (" + readyText(part, 0, time) + " on rank 0)";
  const queued = part.buckets.filter(bucket => Math.max(...bucket.ready) <= time && time < bucket.moves).length;
  const moving = part.buckets.find(bucket => bucket.moves <= time && time < bucket.end);
  if (moving) text += "; bucket " + moving.number + " moves both ways (" + megabytes((time - moving.moves) / (moving.end - moving.moves) * moving.bytes) +
    " of " + megabytes(moving.bytes) + " MB)" + (queued ? ", " + queued + " more wait" + (queued === 1 ? "s" : "") : "");
  return text;
}

function sentence(part, time) {
  if (time >= part.step) return part.name + ": the step is over after " + ms(part.step) + ".";
  const at = spansAt(part, time);
  return part.name + ": " + (part.tracks.some(track => track.kind === "drives") ? sayDP : sayDDP)(part, at, time) + ".";
}

// What "next event" stops at, in order: [{at, text}]. Spans of less than 20 microseconds are no events.
function eventsOf(scene) {
  const events = [{at: 0, text: "Both steps begin."}];
  for (const part of [scene.dp, scene.ddp]) {
    const add = (at, text) => events.push({at, text: part.name + ": " + text + "."});
    let before = {};
    for (const span of part.spans) {
      const track = part.tracks[span[TRACK]];
      if (track.kind === "link" || span[PHASE] === "other" || span[PHASE] === "idle" || span[END] - span[BEGIN] < 20) continue;
      if (before[span[TRACK]] !== span[PHASE]) add(span[BEGIN], track.label + " begins " + span[PHASE]);
      before[span[TRACK]] = span[PHASE];
    }
    for (const bucket of part.buckets) {
      bucket.ready.forEach((at, device) => add(at, "bucket " + bucket.number + " is full on rank " + device));
      add(bucket.moves, "bucket " + bucket.number + " begins to move");
      add(bucket.end, "bucket " + bucket.number + " is summed on both ranks");
    }
    add(part.step, "the step is over");
  }
  return events.sort((a, b) => a.at - b.at);
}

// ---- drawing --------------------------------------------------------------------------------------------------------

// The colour of a phase is the report's; its pattern tells it apart in grey: a path in a tile of 8 by 8.
const PATTERNS = {data: "M2 2h2v2h-2z", scatter: "M1 1h2M5 5h2", replicate: "M-2 2L2 -2M0 8L8 0M6 10L10 6", forward: "", gather: "M0 4h8M4 0v8",
  loss: "M4 0v8", backward: "M0 4h8", reduce: "M-2 6L2 10M0 0L8 8M6 -2L10 2", exposed: "M-2 2L2 -2M0 8L8 0M6 10L10 6M0 0L8 8",
  optimizer: "M0 0h4v4h-4zM4 4h4v4h-4z", other: "", moving: "", waiting: "M-2 2L2 -2M0 8L8 0M6 10L10 6", idle: "M-2 2L2 -2M0 8L8 0M6 10L10 6"};
const NAMES = {exposed: "exposed: waits for gradients", moving: "bytes move", idle: "waits", waiting: "waits for the other rank", other: "between phases"};
const THEMES = [{ink: "#222222", faint: "#6b6b6b", line: "#bbbbbb", paper: "#ffffff", moving: "#444444", mark: "#000000"},
  {ink: "#dddddd", faint: "#a5a5a5", line: "#55585e", paper: "#16181c", moving: "#bbbbbb", mark: "#000000"}];
const night = matchMedia("(prefers-color-scheme: dark)");
let theme = THEMES[night.matches ? 1 : 0];
const ON_DARK = ["loss", "backward", "optimizer"];
const colourOf = phase => phase === "moving" ? theme.moving : phase === "waiting" || phase === "idle" ? theme.paper : data.colours[phase];

function put(parent, name, attributes, text) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const key in attributes) element.setAttribute(key, attributes[key]);
  if (text !== undefined) element.textContent = text;
  parent.appendChild(element);
  return element;
}
const write = (parent, x, y, text, more) => put(parent, "text", Object.assign({x, y, fill: theme.ink, "font-family": "sans-serif", "font-size": 13}, more), text);

function makePatterns(defs) {
  defs.replaceChildren();
  for (const phase in PATTERNS) {
    const pattern = put(defs, "pattern", {id: "fill-" + phase, width: 8, height: 8, patternUnits: "userSpaceOnUse"});
    put(pattern, "rect", {width: 8, height: 8, fill: colourOf(phase)});
    const waits = phase === "waiting" || phase === "idle", solid = phase === "optimizer" || phase === "data";
    put(pattern, "path", {d: PATTERNS[phase], stroke: waits ? theme.faint : ON_DARK.includes(phase) ? "#ffffff" : theme.mark, "stroke-width": solid ? 0 : 1.1,
      "stroke-opacity": waits ? 1 : 0.4, fill: solid ? "#ffffff" : "none", "fill-opacity": 0.25});
  }
}
const fillOf = phase => "url(#fill-" + phase + ")";

// The rows of a part, from x on, so wide that the longer step takes all of it. Returns a function that moves the time.
function drawRows(parent, part, end, width) {
  const top = TOP, left = 94, row = 30, scale = (width - left - 6) / end, bottom = top + row * part.tracks.length;
  const spans = part.spans.map((span, k) => {
    const [track, begin, finish, phase, bucket] = span, x = left + begin * scale, wide = Math.max((finish - begin) * scale, 0.4), y = top + row * track;
    const rect = put(parent, "rect", {x, y: y + 3, width: wide, height: row - 6, fill: fillOf(phase), stroke: theme.line, "stroke-width": phase === "idle" ? 0 : 0.5});
    Object.assign(rect.dataset, {track, phase, begin, end: finish, bucket});
    put(rect, "title", {}, part.tracks[track].label + ": " + (NAMES[phase] || phase) + (bucket >= 0 ? ", bucket " + bucket : "") + ", " + ms(finish - begin));
    const label = bucket >= 0 ? phase === "moving" ? String(bucket) : "" : phase === "idle" ? "waits" : phase;
    if (label && phase !== "other" && wide > 7.2 * label.length + 6) {
      const white = ON_DARK.includes(phase) || (phase === "moving" && theme === THEMES[0]);
      write(parent, x + wide / 2, y + 20, label, {"text-anchor": "middle", fill: white ? "#ffffff" : phase === "idle" ? theme.ink : "#000000",
        stroke: colourOf(phase), "stroke-width": 4, "paint-order": "stroke", "stroke-linejoin": "round", "pointer-events": "none"});
    }
    return {span, rect};
  });
  part.tracks.forEach((track, k) => write(parent, left - 6, top + row * k + 20, track.label, {"text-anchor": "end", "font-size": 12}));
  for (const [device, bucket, at] of part.ready) {
    const y = top + row * part.tracks.findIndex(track => track.kind === "device" && track.device === device), x = left + at * scale;
    put(parent, "path", {d: "M" + x + " " + (y + row - 3) + "l-4 6h8z", fill: theme.ink}, "").appendChild(document.createElementNS("http://www.w3.org/2000/svg", "title"))
      .textContent = "bucket " + bucket + " is full";
  }
  put(parent, "line", {x1: left, x2: left + end * scale, y1: bottom + 2, y2: bottom + 2, stroke: theme.line});
  const every = [0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000].find(step => end / 1000 / step <= (width > 600 ? 12 : 6)) || 5000;
  for (let tick = 0; tick * 1000 <= end; tick += every)
    write(parent, left + tick * 1000 * scale, bottom + 16, String(+tick.toFixed(1)), {"text-anchor": "middle", "font-size": 11, fill: theme.faint});
  write(parent, left - 6, bottom + 16, "ms", {"text-anchor": "end", "font-size": 11, fill: theme.faint});
  if (end - part.step > 0.01 * end) { // what the other one takes more
    const from = left + part.step * scale + 1, to = left + end * scale - 1, y = top - 5;
    put(parent, "path", {d: "M" + from + " " + (y - 4) + "v8M" + to + " " + (y - 4) + "v8M" + from + " " + y + "H" + to, stroke: theme.ink, fill: "none"});
    write(parent, to, y - 7, ms(end - part.step) + " less", {"text-anchor": "end", "font-size": 12});
  }
  const head = put(parent, "line", {y1: top - 4, y2: bottom + 2, stroke: theme.ink, "stroke-width": 2});
  return time => {
    const x = left + Math.min(time, end) * scale;
    head.setAttribute("x1", x);
    head.setAttribute("x2", x);
    const at = spansAt(part, time);
    for (const {span, rect} of spans) {
      const now = at[span[TRACK]] === span;
      if (now === ("now" in rect.dataset)) continue;
      if (now) rect.dataset.now = ""; else delete rect.dataset.now;
      rect.setAttribute("stroke", now ? theme.ink : theme.line);
      rect.setAttribute("stroke-width", now ? 2.5 : span[PHASE] === "idle" ? 0 : 0.5);
    }
  };
}
const TOP = 26, rowsHeight = part => TOP + 30 * part.tracks.length + 22;

// What moves between the devices at this time: {what, done, bytes, right, left}, or nothing.
function transferAt(part, at, time) {
  const bucket = part.buckets.find(one => one.moves <= time && time < one.end);
  if (bucket) return {what: "bucket " + bucket.number, bytes: bucket.bytes, done: (time - bucket.moves) / (bucket.end - bucket.moves), right: true, left: true};
  const main = at[part.tracks.findIndex(track => track.kind === "drives")];
  if (!main) return null;
  const done = share(main, time);
  if (main[PHASE] === "replicate") return {what: "weights", bytes: allBytes, done, right: true};
  if (main[PHASE] === "reduce") return {what: "gradients", bytes: allBytes, done, left: true};
  if (main[PHASE] === "scatter") return {what: "inputs", bytes: data.profile.rows[1] * data.profile.sample_bytes, done, right: true};
  if (main[PHASE] === "gather") return {what: "outputs", bytes: data.profile.rows[1] * data.profile.output_bytes, done, left: true};
  return null;
}

// What a device does at this time: the phase of its track; under DP device 0's, or the main thread's work for it.
function phaseOf(part, at, device) {
  const own = at[part.tracks.findIndex(track => track.kind === "device" && track.device === device)];
  const main = device === 0 && at[part.tracks.findIndex(track => track.kind === "drives")];
  return (main && (!own || !["forward", "backward"].includes(main[PHASE])) ? main : own || [0, 0, 0, "idle"])[PHASE];
}

const STATE = {idle: "waits", exposed: "waits for gradients", data: "takes the batch", scatter: "sends inputs", replicate: "sends weights",
  gather: "collects outputs", loss: "loss", reduce: "adds up gradients", optimizer: "updates weights", other: "between phases"};
const MACHINE = 150; // pixels high

// The two devices, their gradients and the link between them, at one time.
function drawMachine(parent, part, time, width) {
  const at = spansAt(part, time), wide = Math.min(0.36 * width, 240), over = time >= part.step;
  [0, 1].forEach(device => {
    const x = device === 0 ? 1 : width - wide - 1, phase = over ? "idle" : phaseOf(part, at, device);
    const works = phase !== "idle" && phase !== "exposed";
    put(parent, "rect", {x, y: 1, width: wide, height: MACHINE - 2, rx: 6, fill: "none", stroke: works ? theme.ink : theme.line, "stroke-width": works ? 2 : 1});
    write(parent, x + 10, 20, part.buckets.length ? "rank " + device : "device " + device, {"font-weight": "bold"});
    put(parent, "rect", {x: x + 10, y: 30, width: 16, height: 16, fill: fillOf(phase), stroke: theme.ink, "stroke-width": 0.7});
    const state = over ? "done" : part.buckets.length && phase === "replicate" ? "sends buffers" : STATE[phase] || phase;
    write(parent, x + 32, 43, state);
    drawGradients(parent, part, device, time, x + 10, wide - 20);
  });
  drawLink(parent, over ? null : transferAt(part, at, time), wide + 10, width - wide - 10);
}

// A device's gradients as boxes, a box for a bucket (DP: one), as wide as their bytes; filled as far as they are ready.
function drawGradients(parent, part, device, time, x, wide) {
  const gradients = part.gradients[device], count = gradients.filter(one => one.at <= time).length;
  const boxes = part.buckets.length ? part.buckets : [{number: -1, bytes: allBytes, ready: [Infinity, Infinity], moves: Infinity, end: Infinity}];
  const total = boxes.reduce((sum, box) => sum + box.bytes, 0), gap = boxes.length > 12 ? 1 : 3, y = 78, high = 36;
  const main = spansAt(part, time)[part.tracks.findIndex(track => track.kind === "drives")];
  const reduced = part.buckets.length || device ? 0 : main && main[PHASE] === "reduce" ? share(main, time) :
    part.spans.some(span => span[PHASE] === "reduce" && span[END] <= time) ? 1 : 0;
  write(parent, x, 70, "gradients" + (gradients.length ? ": " + count + " of " + gradients.length : ""), {"font-size": 12, fill: theme.faint});
  for (const box of boxes) {
    const w = Math.max(box.bytes / total * (wide - gap * (boxes.length - 1)), 1);
    const own = gradients.filter(one => one.bucket === box.number);
    const ready = time >= box.ready[device] ? 1 : filled(own, time, part, device);
    const summed = part.buckets.length ? (time >= box.end ? 1 : time >= box.moves ? (time - box.moves) / (box.end - box.moves) : 0) : reduced;
    put(parent, "rect", {x, y: y + high * (1 - ready), width: w, height: high * ready, fill: fillOf("backward")});
    put(parent, "rect", {x, y: y + high * (1 - summed), width: w, height: high * summed, fill: fillOf("optimizer")});
    put(parent, "rect", {x, y, width: w, height: high, fill: "none", stroke: theme.ink, "stroke-width": time >= box.ready[device] && summed < 1 ? 2 : 0.8});
    if (box.number >= 0 && w > 9) write(parent, x + w / 2, y + high + 14, String(box.number), {"text-anchor": "middle", "font-size": 11, fill: theme.faint});
    x += w + gap;
  }
  if (boxes[0].number < 0) write(parent, x - gap - wide, y + high + 14, reduced ? "summed on device 0" : "", {"font-size": 11, fill: theme.faint});
}

// How far the gradients of a box are ready, 0 to 1, the one that is being computed in part.
function filled(gradients, time, part, device) {
  const all = part.gradients[device];
  let bytes = 0, total = 0;
  for (const one of gradients) {
    const k = all.indexOf(one), backward = part.spans.find(span => span[PHASE] === "backward" && part.tracks[span[TRACK]].device === device &&
      part.tracks[span[TRACK]].kind === "device");
    const before = k > 0 ? all[k - 1].at : backward[BEGIN];
    total += one.bytes;
    bytes += one.bytes * (time >= one.at ? 1 : time <= before ? 0 : (time - before) / (one.at - before));
  }
  return total ? bytes / total : 0;
}

// The link from one x to another. Packets lie where the bytes are that have moved, so that every time has its picture.
function drawLink(parent, transfer, from, to) {
  const long = to - from, middle = (from + to) / 2;
  const line = (y, right) => {
    put(parent, "line", {x1: from, x2: to, y1: y, y2: y, stroke: transfer ? theme.ink : theme.line, "stroke-width": 2, "stroke-dasharray": transfer ? "none" : "4 5"});
    if (!transfer) return;
    for (let k = 0; k < 6; k++) {
      const way = (transfer.done * 6 + k / 6) % 1;
      put(parent, "rect", {x: right ? from + way * (long - 10) : to - 10 - way * (long - 10), y: y - 5, width: 10, height: 10, fill: theme.moving, stroke: theme.paper});
    }
    const tip = right ? to : from, back = right ? -8 : 8;
    put(parent, "path", {d: "M" + tip + " " + y + "l" + back + " -6v12z", fill: theme.ink});
  };
  if (!transfer || transfer.right) line(56, true);
  if (transfer && transfer.left) line(transfer.right ? 76 : 56, false);
  write(parent, middle, 34, transfer ? transfer.what : "nothing moves", {"text-anchor": "middle", fill: transfer ? theme.ink : theme.faint, "font-size": 12});
  if (!transfer) return;
  write(parent, middle, 104, megabytes(transfer.done * transfer.bytes) + " of", {"text-anchor": "middle", "font-size": 12});
  write(parent, middle, 120, megabytes(transfer.bytes) + " MB", {"text-anchor": "middle", "font-size": 12});
}

// ---- the page -------------------------------------------------------------------------------------------------------

const still = matchMedia("(prefers-reduced-motion: reduce)");
const page = {scene: null, time: 0, gbit: data.gbit, cap: 1, playing: false, last: 0, event: -1, movers: []};

function sceneNamed(id) {
  return data.scenes.find(scene => scene.id === id);
}

function showScene(scene) {
  page.scene = scene.events ? scene : prepare(scene);
  page.time = Math.min(page.time, page.scene.end);
  find("time").max = Math.ceil(page.scene.end);
  find("gbit-shown").textContent = short(page.gbit);
  find("cap-shown").textContent = short(page.cap);
  find("gbit").value = Math.log10(page.gbit);
  find("cap").value = Math.log10(page.cap);
  for (const radio of document.querySelectorAll("[name=scene]")) radio.checked = radio.value === page.scene.id;
  const {dp, ddp} = page.scene, text = "The network is " + data.network + " (" + megabytes(allBytes) + " MB of gradients); the bytes move " + page.scene.name + ".";
  find("about").textContent = text;
  if (page.scene.numbers) find("player").dataset.numbers = JSON.stringify(page.scene.numbers);
  for (const part of [dp, ddp]) find(part.name.toLowerCase() + "-title").textContent =
    (part === dp ? "DataParallel" : "DistributedDataParallel") + ": a step takes " + ms(part.step);
  showKey();
  drawAll();
}

function showKey() {
  const used = new Set([page.scene.dp, page.scene.ddp].flatMap(part => part.spans.map(span => span[PHASE])));
  used.delete("waiting"), used.has("idle") || page.scene.ddp.phases.includes("waiting") ? used.add("idle") : 0;
  find("key").replaceChildren(...Object.keys(PATTERNS).filter(phase => used.has(phase)).map(phase => {
    const item = document.createElement("li");
    const svg = put(item, "svg", {width: 22, height: 16, "aria-hidden": "true"});
    put(svg, "rect", {x: 0.5, y: 0.5, width: 21, height: 15, fill: fillOf(phase), stroke: theme.line});
    item.append(NAMES[phase] || phase);
    return item;
  }));
}

// Draws the rows anew, for a scene, a width or a theme, and then the time.
function drawAll() {
  page.movers = ["dp", "ddp"].map(name => {
    const part = page.scene[name], holder = document.querySelector("#" + name + " .rows"), width = Math.max(holder.clientWidth, 200);
    holder.replaceChildren();
    const svg = put(holder, "svg", {height: rowsHeight(part), role: "img", "aria-label": part.name + "'s step as rows of spans, " + ms(part.step)});
    return drawRows(svg, part, page.scene.end, width);
  });
  drawTime();
}

function drawTime() {
  for (const move of page.movers) move(page.time);
  for (const name of ["dp", "ddp"]) {
    const part = page.scene[name], holder = document.querySelector("#" + name + " .machine"), width = Math.max(holder.clientWidth, 200);
    const svg = put(document.createElement("div"), "svg", {height: MACHINE, role: "img", "aria-label": sentence(part, page.time)});
    drawMachine(svg, part, page.time, width);
    holder.replaceChildren(svg);
  }
  const slider = find("time");
  slider.value = Math.round(page.time);
  slider.setAttribute("aria-valuetext", ms(page.time));
  slider.step = 1;
  find("clock").textContent = ms(page.time) + " of " + ms(page.scene.end);
  say();
}

// What happens now: the event if there is one, and a sentence for each part. While it plays, screen readers hear
// nothing: it would never end.
function say() {
  const texts = [sentence(page.scene.dp, page.time), sentence(page.scene.ddp, page.time)];
  if (page.event >= 0) texts.unshift(page.scene.events[page.event].text);
  const now = find("now");
  now.setAttribute("aria-live", page.playing ? "off" : "polite");
  if (now.textContent === texts.join("")) return;
  now.replaceChildren(...texts.map(text => Object.assign(document.createElement("span"), {textContent: text})));
}

// Goes to a time of the step, and to an event if it is one.
function goTo(time, event) {
  page.time = Math.max(0, Math.min(time, page.scene.end));
  page.event = event === undefined ? -1 : event;
  drawTime();
  if (!page.playing) keepAddress();
}

// The event after (+1) or before (-1) this time; those at the very same time come one after the other.
function step(direction) {
  const events = page.scene.events;
  let to = page.event + direction;
  if (page.event < 0) to = direction > 0 ? events.findIndex(event => event.at > page.time) : events.findLastIndex(event => event.at < page.time);
  if (to < 0 && page.event < 0 && direction > 0) to = events.length - 1;
  to = Math.max(0, Math.min(to, events.length - 1));
  goTo(events[to].at, to);
}

function play(on) {
  page.playing = on;
  find("play").textContent = on ? "Pause" : "Play";
  if (on && page.time >= page.scene.end) goTo(0);
  if (on) {
    page.last = performance.now();
    say();
    requestAnimationFrame(frame);
  } else goTo(page.time, page.event < 0 ? undefined : page.event);
}

// One picture while it plays. Who asked for less motion sees one event after the other instead, two seconds each.
function frame(now) {
  if (!page.playing) return;
  const passed = now - page.last;
  if (!still.matches) {
    goTo(page.time + passed / 1000 / Number(find("speed").value) * page.scene.end);
    page.last = now;
  } else if (passed > 2000) {
    step(1);
    page.last = now;
  }
  if (page.time >= page.scene.end) play(false);
  else requestAnimationFrame(frame);
}

// ---- the address: #scene=link&t=12.345, and of what is computed &gbit=2.5&cap=0.5 -----------------------------------

function keepAddress() {
  const kept = new URLSearchParams({scene: page.scene.id, t: (page.time / 1000).toFixed(3)});
  if (page.scene.id === "model") kept.set("gbit", page.gbit), kept.set("cap", page.cap);
  history.replaceState(null, "", "#" + kept);
}

function readAddress() {
  const asked = new URLSearchParams(location.hash.slice(1));
  const number = (name, least, most, usual) => asked.has(name) && isFinite(asked.get(name)) ?
    Math.min(most, Math.max(least, Number(asked.get(name)))) : usual;
  page.gbit = number("gbit", 0.001, 10000, data.gbit);
  page.cap = number("cap", 0, 1000, 1);
  page.time = number("t", 0, 1e9, 0) * 1000;
  page.event = -1;
  showScene(asked.get("scene") === "model" ? computed(page.gbit, page.cap) : sceneNamed(asked.get("scene")) || data.scenes[0]);
}

// ---- stills: both parts as one picture of 1920 by 1080, for a projector ---------------------------------------------

function stillPicture() {
  const svg = put(document.createElement("div"), "svg", {xmlns: "http://www.w3.org/2000/svg", width: 1920, height: 1080, viewBox: "0 0 960 540"});
  put(svg, "rect", {width: 960, height: 540, fill: theme.paper});
  makePatterns(put(svg, "defs", {}));
  write(svg, 24, 34, "One step on two devices, " + ms(page.time) + " after it began", {"font-size": 20, "font-weight": "bold"});
  write(svg, 24, 54, data.network + "; the bytes move " + page.scene.name, {"font-size": 12, fill: theme.faint});
  let y = 68;
  for (const part of [page.scene.dp, page.scene.ddp]) {
    wrap(sentence(part, page.time), 128).forEach((line, k) => write(svg, 24, y + 16 + 18 * k, line, {"font-size": 14}));
    drawMachine(put(svg, "g", {transform: "translate(24 " + (y + 42) + ")"}), part, page.time, 390);
    drawRows(put(svg, "g", {transform: "translate(430 " + (y + 34) + ")"}), part, page.scene.end, 506)(page.time);
    y += 232;
  }
  return new XMLSerializer().serializeToString(svg);
}

function wrap(text, letters) {
  return text.split(" ").reduce((lines, word) => {
    const last = lines[lines.length - 1];
    if (last.length + word.length < letters) lines[lines.length - 1] = (last + " " + word).trim(); else lines.push(word);
    return lines;
  }, [""]);
}

function save(blob, kind) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = "step-" + page.scene.id + "-" + (page.time / 1000).toFixed(2) + "ms." + kind;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

function savePNG() {
  const image = new Image();
  image.onload = () => {
    const canvas = Object.assign(document.createElement("canvas"), {width: 1920, height: 1080});
    canvas.getContext("2d").drawImage(image, 0, 0, 1920, 1080);
    canvas.toBlob(blob => save(blob, "png"));
  };
  image.src = "data:image/svg+xml," + encodeURIComponent(stillPicture());
}

// ---- what a reader does ---------------------------------------------------------------------------------------------

for (const scene of data.scenes.concat({id: "model", name: "as computed"})) {
  const label = document.createElement("label"), radio = document.createElement("input");
  Object.assign(radio, {type: "radio", name: "scene", value: scene.id});
  radio.addEventListener("change", () => {
    page.event = -1;
    showScene(scene.id === "model" ? computed(page.gbit, page.cap) : scene);
    keepAddress();
  });
  label.append(radio, " " + scene.name);
  find("scenes").append(label);
}
for (const id of ["gbit", "cap"]) find(id).addEventListener("input", () => {
  page[id] = Math.round(Math.pow(10, Number(find(id).value)) * 100) / 100;
  page.event = -1;
  showScene(computed(page.gbit, page.cap));
  keepAddress();
});
find("play").addEventListener("click", () => play(!page.playing));
find("next").addEventListener("click", () => { if (page.playing) play(false); step(1); });
find("previous").addEventListener("click", () => { if (page.playing) play(false); step(-1); });
find("time").addEventListener("input", () => { if (page.playing) play(false); goTo(Number(find("time").value)); });
find("time").addEventListener("keydown", event => {
  const way = {ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1}[event.key];
  if (!way) return;
  event.preventDefault();
  goTo(page.time + way * page.scene.end / 100);
});
find("save-svg").addEventListener("click", () => save(new Blob([stillPicture()], {type: "image/svg+xml"}), "svg"));
find("save-png").addEventListener("click", savePNG);
document.addEventListener("keydown", event => {
  if (event.ctrlKey || event.altKey || event.metaKey) return;
  const own = event.target.closest("button, select, summary, a, input[type=radio]");
  const button = {n: "next", p: "previous", " ": own ? "" : "play"}[event.key.toLowerCase()];
  if (!button || event.target.matches("select")) return;
  event.preventDefault();
  find(button).click();
});
addEventListener("hashchange", readAddress);
addEventListener("resize", drawAll);
night.addEventListener("change", () => {
  theme = THEMES[night.matches ? 1 : 0];
  makePatterns(find("patterns"));
  drawAll();
});
makePatterns(find("patterns"));
readAddress();
