// steps.js: the numbers of player.html: steps from traces or from the model, their gradients, buckets and events.
//
// A scene is {id, name, dp, ddp, fsdp, mine}; a prepared scene has only one of ddp and fsdp; mine is the reader's own
// strategy, if any. dp, ddp, fsdp and mine are parts, one step of a strategy each: {step, tracks, spans, ready} as
// returned by read_step of report/traces.py, times in microseconds since the begin of the step. prepare adds buckets,
// gradients, idle spans, and the events at which "next event" stops.
const data = JSON.parse(document.getElementById("data").textContent);
const TRACK = 0, BEGIN = 1, END = 2, PHASE = 3, BUCKET = 4, BYTES = 5; // the columns of a span
const DEVICES = [0, 1];
const PART_NAMES = {dp: "DP", ddp: "DDP", fsdp: "FSDP", mine: "Yours"};
const partsOf = scene => Object.keys(PART_NAMES).filter(name => scene[name]);
const model = stepModel(data.profile);
const tensors = data.profile.tensors; // {bytes, ready}, in the order in which their gradients become ready
const allBytes = tensors.reduce((sum, tensor) => sum + tensor.bytes, 0);

const trackOf = (part, kind, device) => part.tracks.findIndex(track => track.kind === kind && track.device === device);
const drivenBy = part => trackOf(part, "drives", 0); // DP's main thread; -1 in DDP
const passed = (begin, end, time) => time <= begin ? 0 : time >= end ? 1 : (time - begin) / (end - begin); // 0 to 1

// Returns the spans at this time, by track: of nested spans the innermost, which is the last in the list.
function spansAt(part, time) {
  const at = [];
  for (const span of part.spans) if (span[BEGIN] <= time && time < span[END]) at[span[TRACK]] = span;
  return at;
}

// ---- a step that the model computes ---------------------------------------------------------------------------------

// Returns a part whose tracks have these phases [name, seconds] in sequence; "" is a pause.
function layOut(seconds, tracks, phases) {
  const part = {step: seconds * 1e6, tracks, spans: [], ready: []};
  phases.forEach((list, track) => {
    let at = 0;
    for (const [phase, length] of list) {
      if (phase && length > 0) part.spans.push([track, at, at + length * 1e6, phase, -1, 0]);
      at += length * 1e6;
    }
  });
  return part;
}

function layOutDP(a, rows) {
  const half = a.gather / 2; // outputs to device 0, and later their gradients back
  const main = [["scatter", a.scatter], ["replicate", a.replicate], ["forward", a.forward], ["gather", half],
    ["loss", a.loss], ["gather", half], ["backward", a.backward], ["reduce", a.reduce], ["optimizer", a.optimizer]];
  const device = [["", a.scatter + a.replicate], ["forward", a.forward], ["", half + a.loss + half],
    ["backward", a.backward]];
  const tracks = [{kind: "drives", device: 0, label: "main thread"},
    ...DEVICES.map(k => ({kind: "device", device: k, label: "device " + k}))];
  return {...layOut(a.step, tracks, [main, device, device]), rows};
}

function layOutDDP(b, buckets) {
  const rank = ["forward", "loss", "backward", "exposed", "optimizer"].map(name => [name, b[name]]);
  const tracks = DEVICES.flatMap(k => [{kind: "device", device: k, label: "rank " + k},
    {kind: "link", device: k, label: "rank " + k + ", link"}]);
  const part = layOut(b.step, tracks, [rank, [], rank, []]);
  const from = b.forward + b.loss; // a bucket's times count from the begin of backward
  buckets.forEach((bucket, number) => DEVICES.forEach(k => {
    const at = seconds => (from + seconds) * 1e6;
    part.ready.push([k, number, at(bucket.ready)]);
    part.spans.push([2 * k + 1, at(bucket.begin), at(bucket.end), "moving", number, bucket.bytes]);
  }));
  return part;
}

// The sliders' settings: limits, default (usual), and the conversion of a slider's position to a value (of) and back (at).
const power = base => ({of: x => Math.round(100 * Math.pow(base, x)) / 100, at: y => Math.log(Math.max(y, 0.001)) / Math.log(base)});
const SETTINGS = {
  gbit: {least: 0.001, most: 10000, usual: data.gbit, ...power(10)},
  cap: {least: 0, most: 1000, usual: 1, ...power(10)}, // MiB
  devices: {least: 1, most: 4096, usual: 8, whole: true, of: x => Math.pow(2, x), at: Math.log2},
  latency: {least: 0, most: 1e6, usual: data.latency_us, ...power(10)}, // microseconds, as `call`, the cost of a collective
  call: {least: 0, most: 1e6, usual: 0, of: x => x, at: y => y},
  rows: {least: 1, most: 1e6, usual: data.profile.rows[1], whole: true, of: x => Math.round(Math.pow(2, x)), at: Math.log2},
};

// The model's cluster for these settings.
const clusterOf = ({gbit, cap, devices, latency, call, rows, algorithm}) => ({devices, rows, bucket_cap_mb: cap, algorithm,
  call_s: call * 1e-6, copy_s: 0, sum_s: 0, link: {bytes_per_s: gbit * GBIT, latency_s: latency * 1e-6}});

// The scene that the model computes for the settings, on two devices.
function computed(settings) {
  const cluster = clusterOf({...settings, devices: 2});
  return {id: "model", name: "over " + short(settings.gbit) + " Gbit/s, computed",
    dp: layOutDP(model.dp(cluster), cluster.rows), ddp: layOutDDP(model.ddp(cluster), model.makeBuckets(cluster)),
    fsdp: layOutFSDP(model.fsdp(cluster), model.walk(cluster))};
}

// ---- data derived from a part ---------------------------------------------------------------------------------------

// Returns DDP's buckets in order: {number, bytes, ready: [by rank], moves, end}. A bucket moves from the last rank's begin
// of its all-reduce on. Buckets of the step before, which a late rank may still move, are skipped.
function bucketsOf(part) {
  const found = new Map();
  for (const [rank, number, at] of part.ready) {
    if (!found.has(number)) found.set(number, {number, bytes: 0, ready: [Infinity, Infinity], moves: Infinity, end: 0});
    found.get(number).ready[rank] = at;
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

// Returns the times at which a device's gradients are computed: {bytes, bucket, from, at}, ready at `at`. A bucket's last
// gradient is ready when the bucket is, as traced; the others are interpolated in proportion to the profile's times.
function gradientsOf(part, device) {
  const track = trackOf(part, "device", device), all = [];
  const backward = part.spans.filter(span => span[TRACK] === track && span[PHASE] === "backward");
  if (!backward.length) return all;
  let first = 0, share = 0, from = Math.min(...backward.map(span => span[BEGIN]));
  const end = Math.max(...backward.map(span => span[END]));
  function until(last, bucket, at) {
    const begin = from;
    for (let k = first; k <= last; k++) {
      const ready = begin + passed(share, tensors[last].ready, tensors[k].ready) * (at - begin);
      all.push({bytes: tensors[k].bytes, bucket, from, at: ready});
      from = ready;
    }
    [first, share] = [last + 1, tensors[last].ready];
  }
  for (const bucket of part.buckets) {
    let last = first, bytes = 0; // a bucket pads every gradient to 64 bytes
    for (; last + 1 < tensors.length; last++) {
      bytes += tensors[last].bytes + 64;
      if (bytes >= bucket.bytes) break;
    }
    if (last < tensors.length) until(last, bucket.number, bucket.ready[device]);
  }
  if (!part.buckets.length) until(tensors.length - 1, -1, end);
  return all;
}

// Returns idle spans for DP's devices except device 0: in a gap a device waits for the main thread, which works for device 0.
function idleSpans(part) {
  const gaps = [];
  part.tracks.forEach((track, k) => {
    if (drivenBy(part) < 0 || track.kind !== "device" || track.device === 0) return;
    let at = 0;
    for (const span of [...part.spans.filter(one => one[TRACK] === k), [k, part.step, part.step]]) {
      if (span[BEGIN] > at) gaps.push([k, at, span[BEGIN], "idle", -1, 0]);
      at = Math.max(at, span[END]);
    }
  });
  return gaps;
}

// Returns the events at which "next event" stops: {at, text}. Spans shorter than 20 microseconds, and spans that began in the
// step before, are not events.
function eventsOf(part) {
  const events = [], last = [];
  const add = (at, text) => events.push({at, text: part.name + ": " + text + "."});
  for (const span of part.spans) {
    const {kind, label} = part.tracks[span[TRACK]], phase = span[PHASE];
    if (kind === "link" || phase === "other" || phase === "idle" || span[END] - span[BEGIN] < 20) continue;
    if (part.units && ["forward", "backward", "exposed"].includes(phase)) continue; // unit by unit
    if (span[BEGIN] === 0) continue;
    const again = last[span[TRACK]] === phase || (kind === "drives" && ["forward", "backward"].includes(phase));
    last[span[TRACK]] = phase;
    if (!again) add(span[BEGIN], kind === "drives" ? phase + " begins" : label + " begins " + (NOUNS[phase] || phase));
  }
  for (const {number, ready, moves, end} of part.buckets) {
    ready.forEach((at, rank) => add(at, "bucket " + number + " is full on rank " + rank));
    add(moves, "bucket " + number + " begins to move");
    add(end, "bucket " + number + " is summed on both ranks");
  }
  if (part.units) addUnitEvents(part, add);
  add(part.step, "the step is over");
  return events;
}

function prepare(scene) {
  for (const name of partsOf(scene)) {
    const part = scene[name];
    if (part.name) continue; // prepared
    part.name = PART_NAMES[name];
    if (name === "fsdp") addUnits(part);
    part.buckets = bucketsOf(part);
    part.gradients = DEVICES.map(device => gradientsOf(part, device));
    part.spans = part.spans.concat(idleSpans(part));
  }
  const parts = partsOf(scene).map(name => scene[name]);
  scene.end = Math.max(...parts.map(part => part.step));
  scene.events = [{at: 0, text: parts.length > 2 ? "All steps begin." : "Both steps begin."}, ...parts.flatMap(eventsOf)];
  scene.events.sort((a, b) => a.at - b.at);
  return scene;
}

// Returns the transfer between the devices at this time: {what, bytes, done: 0 to 1, right: from device 0, left: to device 0},
// or null.
function transferAt(part, time) {
  const move = part.units && part.moves.find(one => one.moves <= time && time < one.end);
  if (move) return {what: (move.kind === "all_gather" ? "weights" : "gradients") + " of unit " + move.unit, bytes: move.bytes,
    done: passed(move.moves, move.end, time), right: true, left: true};
  const bucket = part.buckets.find(one => one.moves <= time && time < one.end);
  if (bucket) return {what: "bucket " + bucket.number, bytes: bucket.bytes, done: passed(bucket.moves, bucket.end, time),
    right: true, left: true};
  const at = spansAt(part, time), main = at[drivenBy(part)];
  if (!main) return unnumbered(at.filter(span => span && span[PHASE] === "moving"), time);
  const rows = part.rows || data.profile.rows[1], done = passed(main[BEGIN], main[END], time);
  const after = part.spans.some(span => span[PHASE] === "loss" && span[END] <= time); // the loss is computed
  return {
    scatter: {what: "inputs", bytes: rows * data.profile.sample_bytes, done, right: true},
    replicate: {what: "weights", bytes: allBytes, done, right: true},
    gather: {what: after ? "outputs' gradients" : "outputs", bytes: rows * data.profile.output_bytes, done,
      right: after, left: !after},
    reduce: {what: "gradients", bytes: allBytes, done, left: true},
  }[main[PHASE]] || null;
}

// Returns the transfer of collectives without a bucket, as in a reader's own wrapper: it begins with the last rank's span.
function unnumbered(spans, time) {
  if (!spans.length) return null;
  const span = spans.reduce((last, one) => one[BEGIN] > last[BEGIN] ? one : last);
  return {what: "gradients or buffers", bytes: span[BYTES], done: passed(span[BEGIN], span[END], time), right: true, left: true};
}

// ---- words ----------------------------------------------------------------------------------------------------------

const short = x => x === 0 ? "0" : x >= 100 ? x.toFixed(0) : x >= 10 ? x.toFixed(1) : x.toPrecision(2);
const ms = time => (time / 1000).toFixed(2) + " ms";
const megabytes = bytes => (bytes / 1e6).toFixed(bytes < 95e3 ? 3 : 1);
const ofBytes = moved => "(" + megabytes(moved.done * moved.bytes) + " of " + megabytes(moved.bytes) + " MB)";

const NOUNS = {exposed: "to wait for gradients", data: "to take the batch", loss: "the loss", optimizer: "the optimizer"};
// Verb phrases for one rank and for all ranks.
const SAYS = {data: ["takes the batch", "take their batch"], forward: ["runs forward", "run forward"],
  loss: ["computes the loss", "compute the loss"], backward: ["runs backward", "run backward"],
  optimizer: ["updates its weights", "update their weights"], replicate: ["sends buffers", "exchange buffers"],
  exposed: ["waits for gradients", "wait for gradients"], idle: ["waits", "wait"],
  other: ["is between two phases", "are between two phases"]};
const MAIN_SAYS = {data: "The main thread takes the batch", scatter: "Device 0 sends device 1 its half of the batch",
  replicate: "Device 0 sends all weights to device 1", gather: "Outputs or their gradients move",
  loss: "Device 0 computes the loss of the whole batch", reduce: "Device 0 adds device 1's gradients to its own",
  optimizer: "Device 0 updates the weights alone", other: "The main thread is between two phases"};

// "Both ranks run forward", or "Rank 0 takes the batch, rank 1 runs forward".
function sayDevices(noun, phases) {
  return sayBoth(noun, phases.map(phase => SAYS[phase] || [phase, phase]));
}
function sayBoth(noun, [first, second]) {
  if (first[0] === second[0]) return "Both " + noun + "s " + first[1];
  return noun[0].toUpperCase() + noun.slice(1) + " 0 " + first[0] + ", " + noun + " 1 " + second[0];
}

function sayReady(part, phases, time) {
  const counts = DEVICES.filter(device => phases[device] === "backward").map(device =>
    part.gradients[device].filter(one => one.at <= time).length);
  return counts.length ? ": " + [...new Set(counts)].join(" and ") + " of " + tensors.length + " gradients are ready" : "";
}

function sayDP(part, at, phases, moved) {
  const main = (at[drivenBy(part)] || [])[PHASE] || "other";
  if (main === "forward" || main === "backward") return sayDevices("device", phases.map(phase => phase || "idle"));
  const waits = ["data", "other", "gather"].includes(main) ? "" : "; device 1 waits";
  return MAIN_SAYS[main] + (moved && main !== "gather" ? " " + ofBytes(moved) : "") + waits;
}

function sayDDP(part, at, phases, moved, time) {
  const early = at.find(span => span && span[PHASE] === "waiting");
  const queued = part.buckets.filter(bucket => Math.max(...bucket.ready) <= time && time < bucket.moves).length;
  const moves = moved ? "; " + moved.what + " moves both ways " + ofBytes(moved) : "";
  const waiting = early ? "; rank " + part.tracks[early[TRACK]].device + " has begun bucket " + early[BUCKET] +
    " and waits for the other rank" : "";
  return sayDevices("rank", phases.map(phase => phase || "other")) + sayReady(part, phases, time) + waiting + moves +
    (queued && moved ? ", " + queued + (queued === 1 ? " more waits" : " more wait") : "");
}

// The sentence about a part at this time.
function sentence(part, time) {
  if (time >= part.step) return part.name + ": the step is over after " + ms(part.step) + ".";
  const at = spansAt(part, time), moved = transferAt(part, time);
  const phases = DEVICES.map(device => (at[trackOf(part, "device", device)] || [])[PHASE]);
  const said = drivenBy(part) >= 0 ? sayDP(part, at, phases, moved) + sayReady(part, phases, time) :
    part.units ? sayFSDP(part, at, moved, time) : sayDDP(part, at, phases, moved, time);
  return part.name + ": " + said + ".";
}
