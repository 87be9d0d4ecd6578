// more.js: the last section of player.html, the model's steps on other numbers of devices: a bar and a sentence for each
// strategy. All times are seconds, as in the model.
const BAR = 46; // pixels of a bar and its gap
const asMs = seconds => short(1e3 * seconds) + " ms";
const total = moves => moves.reduce((sum, move) => sum + move.end - move.begin, 0);
const hiddenOf = (moves, exposed) => asMs(Math.max(0, total(moves) - exposed)) + " are hidden behind ";

function sayBreakEven([name, gbit]) {
  if (gbit === 0) return name + " trains more rows a second than one device on any network";
  if (gbit === Infinity) return name + " trains fewer rows a second than one device on every network";
  return name + " trains more rows a second than one device from " + short(gbit) + " Gbit/s on";
}

function saySteps({devices, link}, {dp, ddp, fsdp}, even) {
  if (devices === 1) return "One device communicates with none: all strategies take the same step.";
  const [slower, faster] = ddp.step < dp.step ? ["DP", "DDP"] : ["DDP", "DP"];
  const times = Math.max(dp.step, ddp.step) / Math.min(dp.step, ddp.step);
  return "On " + devices + " devices, over " + short(link.bytes_per_s / GBIT) + " Gbit/s, " + slower + "'s step takes " +
    times.toFixed(2) + " times as long as " + faster + "'s: DP " + asMs(dp.step) + ", DDP " + asMs(ddp.step) + ", fully sharded (FSDP) " + asMs(fsdp.step) + ". " +
    [["DP", even.dp], ["DDP", even.ddp], ["FSDP", even.fsdp]].map(sayBreakEven).join("; ") + ".";
}

// Computes and shows the steps for the current settings. data-numbers holds the numbers for a test.
function showMore() {
  const cluster = clusterOf(page.settings), buckets = model.makeBuckets(cluster), moves = model.walk(cluster).moves;
  const steps = {dp: model.dp(cluster), ddp: model.ddp(cluster), fsdp: model.fsdp(cluster)}, even = {};
  for (const name in steps) even[name] = model.breakEven(cluster, model[name]);
  find("more-says").textContent = saySteps(cluster, steps, even);
  find("more-ddp").textContent = "DDP's " + buckets.length + (buckets.length === 1 ? " bucket takes " : " buckets take ") +
    asMs(total(buckets)) + " to all-reduce, of which " + hiddenOf(buckets, steps.ddp.exposed) + "backward and " +
    asMs(steps.ddp.exposed) + " are exposed.";
  find("more-fsdp").textContent = "FSDP gathers the weights of a unit before its forward and before its backward, one unit ahead, " +
    "and reduces its gradients after it: " + asMs(total(moves)) + ", of which " + hiddenOf(moves, steps.fsdp.exposed) +
    "computing and " + asMs(steps.fsdp.exposed) + " are exposed.";
  drawBars([["one device", model.single(cluster.rows)], ["DP", steps.dp], ["DDP", steps.ddp], ["FSDP", steps.fsdp]]);
  find("more").dataset.numbers = JSON.stringify({...steps, buckets,
    even: Object.fromEntries(Object.entries(even).map(([name, gbit]) => [name, String(gbit)]))});
}

function drawBars(steps) {
  const longest = Math.max(...steps.map(([, parts]) => parts.step));
  const [svg, width] = picture("more", "bars", BAR * steps.length, "A step of one device, DP, DDP and FSDP by phases");
  const room = width - LEFT - 84; // the rows' names to the left, a step's time to the right
  steps.forEach(([name, parts], k) => {
    let x = LEFT;
    const y = BAR * k + 5, high = BAR - 12;
    write(svg, LEFT - 6, y + 22, name, TO_THE_LEFT);
    for (const phase of PARTS) {
      const wide = parts[phase] / longest * room;
      if (wide > 0.3) {
        const rect = put(svg, "rect", {x, y, width: wide, height: high, fill: fillOf(phase), stroke: theme.line, "stroke-width": 0.5});
        put(rect, "title", {}, phase + " " + asMs(parts[phase]));
        labelIn(svg, x, wide, y + 22, phase, phase);
      }
      x += wide;
    }
    write(svg, x + 6, y + 22, asMs(parts.step));
  });
}
