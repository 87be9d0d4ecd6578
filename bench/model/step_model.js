// step_model.js: bench/model/step_model.c in JavaScript, in the same order of operations, so that both print the same
// digits (tests/programs/model_page.sh). player.html includes it.
//
// stepModel(PROFILE) returns {single, dp, ddp, fsdp, makeBuckets, walk, breakEven} for one network, whose profile
// `bench_profile --save` wrote. All times are seconds.
//
//   cluster  {devices, rows, link: {bytes_per_s, latency_s}, bucket_cap_mb, algorithm: "ring" | "tree", call_s, copy_s,
//            sum_s, shard_s}: rows per device; a cap below 0 is PyTorch's 1 and 25 MiB; call_s per collective (default
//            0); copy_s, sum_s, shard_s per byte (default of shard_s: 0)
//   single(rows), dp(cluster), ddp(cluster), fsdp(cluster)
//            a step's phases {scatter, replicate, ..., optimizer} and their sum, step
//   makeBuckets(cluster)
//            [{bytes, ready, begin, end}], times since the begin of backward
//   walk(cluster)
//            FSDP's step: see there
//   breakEven(cluster, strategy)
//            the least Gbit/s at which `strategy` trains more rows per second than one device; 0 or Infinity
"use strict";
const MEBIBYTE = 1048576, GBIT = 1e9 / 8; // bytes; bytes a second
const PARTS = ["scatter", "replicate", "forward", "gather", "loss", "backward", "reduce", "exposed", "optimizer"];

function stepModel(profile) {
  const rowTime = (time, rows) => time[0] + time[1] * rows;
  const message = (link, bytes) => link.latency_s + bytes / link.bytes_per_s;
  const halfRing = (link, bytes, count) => (count - 1) * message(link, bytes / count);

  function moveBucket(cluster, bytes) {
    if (cluster.algorithm === "tree") return 2 * Math.ceil(Math.log2(cluster.devices)) * message(cluster.link, bytes);
    return 2 * halfRing(cluster.link, bytes, cluster.devices);
  }
  const allReduce = (cluster, bytes) =>
    cluster.devices === 1 ? 0 : (cluster.call_s || 0) + moveBucket(cluster, bytes);

  function makeBuckets(cluster) {
    const usual = cluster.bucket_cap_mb < 0, backward = rowTime(profile.backward_s, cluster.rows);
    const sum = size => cluster.devices === 1 ? 0 : cluster.sum_s * size;
    const buckets = [];
    let freeAt = 0, bytes = 0, summed = 0, next = 0;
    profile.tensors.forEach((tensor, k) => {
      const cap = usual ? (buckets.length === 0 ? 1 : 25) : cluster.bucket_cap_mb;
      bytes += tensor.bytes;
      if (bytes < Math.trunc(cap * MEBIBYTE) && k + 1 < profile.tensors.length) return;
      const computed = tensor.ready * backward;
      for (; next < buckets.length && buckets[next].begin < computed + summed; next++) summed += sum(buckets[next].bytes);
      const ready = computed + summed, begin = Math.max(ready, freeAt);
      freeAt = begin + Math.max(allReduce(cluster, bytes), sum(bytes));
      buckets.push({bytes, ready, begin, end: freeAt});
      bytes = 0;
    });
    return buckets;
  }

  // The units of fully sharded training in the order of backward: {number, bytes, share, root}. Numbers count from 0 in
  // the order of forward, the root's last, as in train_fsdp's trace.
  function listUnits() {
    const units = [];
    let before = 0, last = null;
    for (const tensor of profile.tensors) {
      if (!(tensor.unit >= 0) || tensor.unit !== last) units.push({root: tensor.unit === 0, bytes: 0, share: 0});
      const unit = units[units.length - 1];
      unit.bytes += tensor.bytes;
      unit.share += tensor.ready - before;
      [before, last] = [tensor.ready, tensor.unit];
    }
    const inner = units.filter(unit => !unit.root);
    for (const unit of units) unit.number = unit.root ? inner.length : inner.length - 1 - inner.indexOf(unit);
    return units;
  }

  // Simulates a rank's forward, loss and backward under FSDP (step_model.c's model_fsdp_exposed). Returns {exposed, moves,
  // spans}, times since the begin of the step. moves: {kind, unit, bytes, start, begin, end}, enqueued at start; spans:
  // {phase, begin, end, unit}, with a unit in forward and backward.
  function walk(cluster) {
    const units = listUnits(), moves = [], spans = [], several = cluster.devices > 1;
    const rootBytes = units.reduce((sum, unit) => sum + (unit.root ? unit.bytes : 0), 0);
    let now = 0, exposed = 0, arrives = 0, reduced = 0, freeAt = 0;
    const add = (phase, end, unit) => {
      spans.push({phase, begin: now, end, unit});
      now = end;
    };
    const wait = (until, bytes) => {
      const copied = Math.max(now, until) + (several ? (cluster.shard_s || 0) * bytes : 0);
      exposed += copied - now;
      add("exposed", copied);
    };
    const move = (kind, unit, bytes) => {
      const begin = Math.max(now, freeAt);
      freeAt = begin + (several ? (cluster.call_s || 0) + halfRing(cluster.link, bytes, cluster.devices) : 0);
      moves.push({kind, unit, bytes, start: now, begin, end: freeAt});
      return freeAt;
    };
    const gatherNext = order => {
      const unit = order.find(one => !one.root);
      if (unit) arrives = move("all_gather", unit.number, unit.bytes);
    };
    const compute = (order, phase, seconds) => {
      order.forEach((unit, k) => {
        if (!unit.root) {
          wait(arrives, unit.bytes);
          gatherNext(order.slice(k + 1));
        }
        add(phase, now + seconds * unit.share, unit.number);
        if (unit.root || phase === "forward") return;
        wait(reduced, unit.bytes);
        reduced = move("reduce_scatter", unit.number, unit.bytes);
      });
    };
    const root = units.find(unit => unit.root);
    if (root) wait(move("all_gather", root.number, rootBytes), rootBytes);
    const forwards = [...units].reverse();
    gatherNext(forwards);
    compute(forwards, "forward", rowTime(profile.forward_s, cluster.rows));
    gatherNext(units); // beside the loss
    add("loss", now + rowTime(profile.loss_s, cluster.rows));
    compute(units, "backward", rowTime(profile.backward_s, cluster.rows));
    wait(reduced, rootBytes);
    if (root) wait(move("reduce_scatter", root.number, rootBytes), 0);
    return {exposed, moves, spans};
  }

  function addUp(parts) {
    parts.step = PARTS.reduce((sum, name) => sum + (parts[name] = parts[name] || 0), 0);
    return parts;
  }
  const single = rows => addUp({forward: rowTime(profile.forward_s, rows), loss: rowTime(profile.loss_s, rows),
    backward: rowTime(profile.backward_s, rows), optimizer: profile.optimizer_s});

  function dp(cluster) {
    const others = cluster.devices - 1, rows = cluster.rows;
    const weights = profile.tensors.reduce((sum, tensor) => sum + tensor.bytes, 0);
    const sent = profile.messages * cluster.link.latency_s + weights / cluster.link.bytes_per_s;
    const allWeights = Math.max(sent, cluster.copy_s * weights);
    const outputs = message(cluster.link, rows * profile.output_bytes);
    return addUp({scatter: others * message(cluster.link, rows * profile.sample_bytes),
      replicate: others * allWeights, forward: rowTime(profile.forward_s, rows), gather: 2 * others * outputs,
      loss: rowTime(profile.loss_s, rows * cluster.devices), backward: rowTime(profile.backward_s, rows),
      reduce: others * allWeights, optimizer: profile.optimizer_s});
  }

  function ddp(cluster) {
    const buckets = makeBuckets(cluster), end = buckets[buckets.length - 1].end;
    const backward = rowTime(profile.backward_s, cluster.rows);
    return addUp({forward: rowTime(profile.forward_s, cluster.rows), loss: rowTime(profile.loss_s, cluster.rows),
      backward, exposed: end > backward ? end - backward : 0, optimizer: profile.optimizer_s});
  }

  const fsdp = cluster => addUp({forward: rowTime(profile.forward_s, cluster.rows), loss: rowTime(profile.loss_s, cluster.rows),
    backward: rowTime(profile.backward_s, cluster.rows), exposed: walk(cluster).exposed,
    optimizer: profile.optimizer_s / cluster.devices});

  function breakEven(cluster, strategy) {
    const pays = gbit => {
      const at = Object.assign({}, cluster, {link: {bytes_per_s: gbit * GBIT, latency_s: cluster.link.latency_s}});
      return strategy(at).step < at.devices * single(at.rows).step;
    };
    let slow = 1e-6, fast = 1e6;
    if (pays(slow)) return 0;
    if (!pays(fast)) return Infinity;
    for (let i = 0; i < 100; i++) {
      const middle = Math.sqrt(slow * fast);
      if (pays(middle)) fast = middle; else slow = middle;
    }
    return fast;
  }

  return {single, dp, ddp, fsdp, makeBuckets, walk, breakEven};
}
