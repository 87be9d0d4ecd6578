// units.js: the units of fully sharded training (FSDP) on player.html: the times at which each is gathered, used, freed
// and reduced; their sentences; the picture of a rank's units.
//
// A part of FSDP also has
//   moves  {kind: "all_gather" | "reduce_scatter", unit, bytes, ready: [by rank], moves, end}, in the order of the link
//   uses   by rank: {unit, phase: "forward" | "backward", begin, end}; a unit is freed as its use ends
//   units  {number, gathers, reduce}: the moves of each

// ---- from a trace or from the model ---------------------------------------------------------------------------------

const holds = (span, at) => span[BEGIN] < at && at <= span[END];
const isUnitMove = span => span[PHASE] === "all_gather" || span[PHASE] === "reduce_scatter";

// Returns a rank's moves: {span, ready}, enqueued at `ready`. Moves that were enqueued in the step before are skipped.
function movesOfRank(part, rank) {
  const marks = part.ready.filter(mark => mark[0] === rank), link = trackOf(part, "link", rank);
  return part.spans.filter(span => isUnitMove(span) && span[TRACK] === link).flatMap(span => {
    const k = marks.findIndex(mark => mark[1] === span[BUCKET] && mark[2] <= span[BEGIN]);
    return k < 0 ? [] : [{span, ready: marks.splice(k, 1)[0][2]}];
  });
}

// Returns the moves of both ranks, which enqueue the same moves in the same order.
function movesOf(part) {
  const [own, other] = DEVICES.map(rank => movesOfRank(part, rank));
  return own.slice(0, other.length).map(({span, ready}, k) => ({kind: span[PHASE], unit: span[BUCKET], bytes: span[BYTES],
    ready: [ready, other[k].ready], moves: Math.min(span[BEGIN], other[k].span[BEGIN]), end: Math.max(span[END], other[k].span[END])}));
}

// Returns the uses of a rank's units. In an exposed span a rank waits for a unit's weights and then enqueues the next
// gather. A unit's use begins at the end of an exposed span, and ends with the next exposed span or the loss:
//
//   unit                        its use begins at the end of the exposed span
//   root, not gathered ahead    in which its own gather is enqueued
//   backward's first, enqueued  in which the next gather is enqueued
//     at the end of forward
//   others                      after the one in which its own gather is enqueued
function usesOf(part, rank) {
  const spans = part.spans.filter(span => span[TRACK] === trackOf(part, "device", rank));
  const stops = spans.filter(span => ["exposed", "loss"].includes(span[PHASE])), gathers = part.moves.filter(move => move.kind === "all_gather");
  const loss = spans.find(span => span[PHASE] === "loss") || [0, Infinity];
  const reduces = part.moves.filter(move => move.kind === "reduce_scatter");
  const waits = stops.filter(span => span[PHASE] === "exposed" && !reduces.some(move => holds(span, move.ready[rank])));
  return gathers.map((gather, k) => {
    const [own, next] = [gather, gathers[k + 1]].map(move => move ? waits.findIndex(span => holds(span, move.ready[rank])) : -1);
    const wait = own < 0 && next < 0 ? waits.at(-1) : waits[own < 0 || own === next ? next : own + 1];
    if (!wait) return null;
    const phase = wait[BEGIN] < loss[BEGIN] ? "forward" : "backward";
    const stop = stops.find(span => span[BEGIN] >= wait[END]), end = spans.findLast(span => span[PHASE] === "backward");
    return {unit: gather.unit, phase, begin: wait[END], end: stop ? stop[BEGIN] : end ? end[END] : part.step};
  }).filter(Boolean);
}

// Adds moves, uses and units to a part. A unit with a single gather is the root: it stays whole until its gradients are reduced.
function addUnits(part) {
  part.moves = movesOf(part);
  part.uses = part.uses || DEVICES.map(rank => usesOf(part, rank));
  const numbers = [...new Set(part.moves.map(move => move.unit))].sort((a, b) => a - b);
  part.units = numbers.map(number => {
    const of = part.moves.filter(move => move.unit === number), gathers = of.filter(move => move.kind === "all_gather");
    const reduce = of.find(move => move.kind === "reduce_scatter");
    if (gathers.length === 1 && reduce) part.uses.forEach((uses, rank) => {
      const first = uses.find(use => use.unit === number);
      part.uses[rank] = uses.filter(use => use.unit !== number);
      if (first) part.uses[rank].push({...first, phase: "root", end: reduce.ready[rank]});
    });
    return {number, gathers, reduce};
  });
}

function layOutFSDP(c, walked) {
  const tracks = DEVICES.flatMap(k => [{kind: "device", device: k, label: "rank " + k}, {kind: "link", device: k, label: "rank " + k + ", link"}]);
  const part = layOut(c.step, tracks, [[], [], [], []]), micros = seconds => seconds * 1e6;
  part.uses = DEVICES.map(() => walked.spans.filter(span => span.unit !== undefined).map(span =>
    ({unit: span.unit, phase: span.phase, begin: micros(span.begin), end: micros(span.end)})));
  DEVICES.forEach(k => {
    for (const {phase, begin, end} of [...walked.spans, {phase: "optimizer", begin: c.step - c.optimizer, end: c.step}])
      if (end > begin) part.spans.push([2 * k, micros(begin), micros(end), phase, -1, 0]);
    for (const {kind, unit, bytes, start, begin, end} of walked.moves) {
      part.spans.push([2 * k + 1, micros(begin), micros(end), kind, unit, bytes / 2]); // a rank sends its half
      part.ready.push([k, unit, micros(start)]);
    }
  });
  return part;
}

// ---- words ----------------------------------------------------------------------------------------------------------

const useAt = (part, rank, time) => part.uses[rank].find(use => use.phase !== "root" && use.begin <= time && time < use.end);

// Is a unit whole on a rank? From the end of its gather until its use ends.
const isWhole = (part, unit, rank, time) => unit.gathers.some((gather, k) => gather.end <= time && time < freedAt(part, unit, rank, k));

// The time at which a rank frees the unit after its k-th gather.
function freedAt(part, unit, rank, k) {
  const uses = part.uses[rank].filter(use => use.unit === unit.number);
  return uses[k] ? uses[k].end : Infinity;
}

// The unit whose gradients a rank enqueues for reduction in this exposed span; undefined if the rank waits for weights.
const givenIn = (part, rank, span) => part.moves.find(move =>
  move.kind === "reduce_scatter" && holds(span, move.ready[rank]));

const waitState = (part, rank, time) =>
  givenIn(part, rank, spansAt(part, time)[trackOf(part, "device", rank)]) ? "hands over gradients" : "waits for weights";

// Verb phrases for one rank and for all ranks.
function sayRank(part, rank, span, time) {
  const phase = span ? span[PHASE] : "other", use = useAt(part, rank, time);
  if (use && (phase === "forward" || phase === "backward"))
    return ["runs " + phase + " through unit " + use.unit, "run " + phase + " through unit " + use.unit];
  if (phase === "optimizer") return ["updates its half of the weights", "update their halves of the weights"];
  if (phase !== "exposed") return SAYS[phase] || [phase, phase];
  const given = givenIn(part, rank, span);
  if (given) return ["hands over the gradients of unit " + given.unit, "hand over the gradients of unit " + given.unit];
  const next = part.uses[rank].find(one => one.begin >= span[END]);
  return next ? ["waits for the weights of unit " + next.unit, "wait for the weights of unit " + next.unit] : SAYS.exposed;
}

function sayFSDP(part, at, moved, time) {
  const said = sayBoth("rank", DEVICES.map(rank => sayRank(part, rank, at[trackOf(part, "device", rank)], time)));
  const counts = DEVICES.map(rank => part.units.filter(unit => isWhole(part, unit, rank, time)).length);
  return said + (moved ? "; the " + moved.what + " move both ways " + ofBytes(moved) : "") + "; " +
    [...new Set(counts)].join(" and ") + " of " + part.units.length + " units whole";
}

// Returns the events at which "next event" stops: moves, and the times at which the last rank begins to use a unit and has freed it.
function addUnitEvents(part, add) {
  for (const {kind, unit, moves, end} of part.moves) {
    const gathers = kind === "all_gather";
    add(moves, "the " + (gathers ? "weights" : "gradients") + " of unit " + unit + " begin to move");
    add(end, gathers ? "unit " + unit + " is gathered" : "the gradients of unit " + unit + " are summed, half of them on each rank");
  }
  part.uses[0].forEach((use, k) => {
    const both = [use, part.uses[1][k] || use];
    if (use.phase !== "root") add(Math.max(...both.map(one => one.begin)), "both ranks run " + use.phase + " through unit " + use.unit);
    add(Math.max(...both.map(one => one.end)), "both ranks have freed the weights of unit " + use.unit);
  });
}

// ---- the picture of a rank's units ----------------------------------------------------------------------------------

// The label of a computing span: its unit.
function unitLabel(part, span) {
  const use = part.tracks[span[TRACK]].kind === "device" && useAt(part, part.tracks[span[TRACK]].device, span[BEGIN]);
  return use ? String(use.unit) : "";
}

// Draws two rows of boxes, a box per unit, its width proportional to the unit's bytes. Weights: a rank keeps its half; the other
// half is gathered and freed. Gradients: they fill in backward; the reduction leaves the rank's summed half.
function drawUnits(parent, part, rank, time, left, wide) {
  const gap = part.units.length > 12 ? 0 : 3, high = 24, rows = {weights: 72, gradients: 116};
  const total = part.units.reduce((sum, unit) => sum + unit.gathers[0].bytes, 0), room = wide - gap * (part.units.length - 1);
  const whole = part.units.filter(unit => isWhole(part, unit, rank, time)).length;
  write(parent, left, rows.weights - 6, "weights: " + whole + " of " + part.units.length + " whole", {...small(), "font-size": 12});
  write(parent, left, rows.gradients - 5, "gradients", {...small(), "font-size": 12});
  let x = left;
  for (const unit of part.units) {
    const width = unit.gathers[0].bytes / total * room;
    const level = (y, from, to, phase) => put(parent, "rect", {x, y: y + high * from, width, height: high * (to - from),
      fill: phase ? fillOf(phase) : theme.line});
    const frame = y => put(parent, "rect", {x, y, width, height: high, fill: "none", stroke: theme.ink, "stroke-width": 0.8});
    const here = gatheredShare(part, unit, rank, time), own = rank === 0 ? 0 : 0.5; // rank 0 keeps the upper half
    level(rows.weights, own, own + 0.5);
    if (here > 0) level(rows.weights, rank === 0 ? 0.5 : 0.5 - here / 2, rank === 0 ? 0.5 + here / 2 : 0.5, "all_gather");
    frame(rows.weights);
    const use = part.uses[rank].find(one => one.unit === unit.number && one.phase !== "forward");
    const {moves, end} = unit.reduce || {moves: Infinity, end: Infinity}, summed = passed(moves, end, time);
    const computed = use ? passed(use.begin, use.end, time) : 0;
    if (summed < 1) level(rows.gradients, 1 - computed, 1, "backward");
    if (summed > 0) level(rows.gradients, own, own + 0.5 * summed, "reduce_scatter");
    frame(rows.gradients);
    if (width > 9) write(parent, x + width / 2, rows.weights + high / 2 + 4, String(unit.number), {...CENTRED, ...small(), fill: theme.ink,
      stroke: theme.paper, "stroke-width": 3, "paint-order": "stroke"});
    x += width + gap;
  }
}

// The gathered share of the other half of a unit's weights, 0 to 1; 0 after it is freed.
function gatheredShare(part, unit, rank, time) {
  const k = unit.gathers.findLastIndex(gather => gather.moves <= time);
  if (k < 0 || time >= freedAt(part, unit, rank, k)) return 0;
  return passed(unit.gathers[k].moves, unit.gathers[k].end, time);
}
