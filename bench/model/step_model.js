// step_model.js: bench/model/step_model.c in a browser, line by line, in the same order of operations, so that both
// print the same digits (tests/programs/model_page.sh). whatif.html and the step that plays bring it in.
//
// stepModel(PROFILE): the functions of one network, whose profile `bench_profile --save` has written. A cluster is
//   {devices, rows, link: {bytes_per_s, latency_s}, bucket_cap_mb, algorithm: "ring" | "tree", call_s, copy_s, sum_s}
// with rows for each device, a cap below 0 for PyTorch's 1 and 25 MiB, call_s for each all-reduce (0 if it is not
// given), and copy_s and sum_s in seconds for a byte. All times are seconds. Parts of a step are {scatter, replicate, ..., optimizer, step}; a bucket is {bytes, ready, begin,
// end}, counted from the begin of backward.
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

  return {single, dp, ddp, makeBuckets, breakEven};
}
