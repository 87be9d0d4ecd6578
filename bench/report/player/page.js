// page.js: the state of player.html, its display, and its event handlers (last section). steps.js computes the numbers,
// draw.js draws the pictures, more.js shows other numbers of devices.
const find = id => document.getElementById(id);
const night = matchMedia("(prefers-color-scheme: dark)"), calm = matchMedia("(prefers-reduced-motion: reduce)");
const TITLES = {dp: "DataParallel", ddp: "DistributedDataParallel", fsdp: "Fully sharded training", mine: "Yours" + (data.mine ? " (" + data.mine + ")" : "")};
const page = {whole: null, scene: null, below: "ddp", time: 0, event: -1, settings: {}, playing: false, drawnAt: 0, showTime: []};
// whole: a scene with both DDP and FSDP; scene: the shown scene, with one of the two; time: microseconds since the begin of the
// step; event: index of the event that set the time, or -1; settings: the sliders' values and the algorithm; drawnAt: time of
// the last frame while playing

// ---- display --------------------------------------------------------------------------------------------------------

function showScene(whole) {
  const {[whole.fsdp && page.below === "fsdp" ? "ddp" : "fsdp"]: left, ...shown} = whole, scene = prepare(shown);
  [page.whole, page.scene] = [whole, scene];
  page.time = Math.min(page.time, scene.end);
  for (const radio of document.querySelectorAll("[name=scene]")) radio.checked = radio.value === scene.id;
  for (const radio of document.querySelectorAll("[name=below]")) {
    radio.checked = Boolean(scene[radio.value]);
    radio.disabled = !whole[radio.value];
  }
  for (const [id, {whole, at}] of Object.entries(SETTINGS)) {
    const value = page.settings[id], text = whole ? String(value) : short(value);
    find(id).value = at(value); // a slider may end before the value
    find(id).setAttribute("aria-valuetext", text);
    find(id + "-shown").textContent = text;
  }
  find("algorithm").value = page.settings.algorithm;
  find("time").max = Math.ceil(scene.end);
  find("about").textContent = "Network: " + data.network + ", " + megabytes(allBytes) + " MB of gradients; the bytes move " +
    scene.name + ".";
  for (const [name, title] of Object.entries(TITLES)) {
    find(name).hidden = !scene[name];
    if (scene[name]) find(name + "-title").textContent = title + ": a step takes " + ms(scene[name].step);
  }
  showEvents();
  showAll();
}

// Fills the list of events; a click on an event sets its time.
function showEvents() {
  find("events").replaceChildren(...page.scene.events.map((event, k) => {
    const item = document.createElement("li"), button = document.createElement("button");
    button.textContent = ms(event.at) + "  " + event.text;
    button.addEventListener("click", () => {
      if (page.playing) play(false);
      goTo(event.at, k);
    });
    item.append(button);
    return item;
  }));
}

// Redraws everything: after a change of scene, width or theme.
function showAll() {
  theme = night.matches ? THEMES.dark : THEMES.light;
  makePatterns(find("patterns"));
  showKey();
  page.showTime = partsOf(page.scene).map(name => {
    const part = page.scene[name];
    const [svg, width] = picture(name, "rows", rowsHeight(part), "The rows of " + part.name + "'s step");
    return drawRows(svg, part, page.scene.end, width);
  });
  showMore();
  showTime();
}

// Replaces a place's content by an empty picture; returns [svg, its width].
function picture(name, place, height, label) {
  const holder = document.querySelector("#" + name + " ." + place);
  const svg = put(holder, "svg", {height, role: "img", "aria-label": label});
  holder.replaceChildren(svg);
  return [svg, Math.max(holder.clientWidth, 200)];
}

function showKey() {
  const used = new Set(partsOf(page.scene).flatMap(name => page.scene[name].spans).map(span => span[PHASE]));
  if (used.delete("waiting")) used.add("idle"); // they look alike
  find("key").replaceChildren(...Object.keys(PATTERNS).filter(phase => used.has(phase)).map(phase => {
    const item = document.createElement("li"), svg = put(item, "svg", {width: 22, height: 16, "aria-hidden": "true"});
    put(svg, "rect", {x: 0.5, y: 0.5, width: 21, height: 15, fill: fillOf(phase), stroke: theme.line});
    item.append(NAMES[phase] || phase);
    return item;
  }));
}

function showTime() {
  for (const show of page.showTime) show(page.time);
  for (const name of partsOf(page.scene)) {
    const [svg, width] = picture(name, "machine", MACHINE, sentence(page.scene[name], page.time));
    drawMachine(svg, page.scene[name], page.time, width);
  }
  find("time").value = Math.round(page.time);
  find("time").setAttribute("aria-valuetext", ms(page.time));
  find("clock").textContent = ms(page.time) + " of " + ms(page.scene.end);
  say();
}

// Writes the current event, if any, and a sentence for each part. While playing, the text is not announced to screen
// readers, which would read without end.
function say() {
  const texts = partsOf(page.scene).map(name => sentence(page.scene[name], page.time)), now = find("now");
  if (page.event >= 0) texts.unshift(page.scene.events[page.event].text);
  now.setAttribute("aria-live", page.playing ? "off" : "polite");
  if (now.textContent === texts.join("")) return;
  now.replaceChildren(...texts.map(text => Object.assign(document.createElement("span"), {textContent: text})));
}

// ---- time -----------------------------------------------------------------------------------------------------------

function goTo(time, event = -1) {
  page.time = Math.max(0, Math.min(time, page.scene.end));
  page.event = event;
  showTime();
  if (!page.playing) keepAddress();
}

// Goes to the next event (1) or the previous one (-1), also among events of the same time.
function goToEvent(direction) {
  const events = page.scene.events;
  let to = page.event + direction;
  if (page.event < 0 && direction > 0) to = events.findIndex(event => event.at > page.time);
  if (page.event < 0 && direction > 0 && to < 0) to = events.length - 1;
  if (page.event < 0 && direction < 0) to = events.filter(event => event.at < page.time).length - 1;
  to = Math.max(0, Math.min(to, events.length - 1));
  goTo(events[to].at, to);
}

function play(on) {
  page.playing = on;
  find("play").textContent = on ? "Pause" : "Play";
  if (!on) return goTo(page.time, page.event);
  if (page.time >= page.scene.end) goTo(0);
  page.drawnAt = performance.now();
  say();
  requestAnimationFrame(nextPicture);
}

// Draws the next frame while playing. With prefers-reduced-motion: the next event, every two seconds.
function nextPicture(now) {
  if (!page.playing) return;
  const seconds = (now - page.drawnAt) / 1000;
  if (!calm.matches) goTo(page.time + seconds / Number(find("speed").value) * page.scene.end);
  else if (seconds > 2) goToEvent(1);
  if (!calm.matches || seconds > 2) page.drawnAt = now;
  if (page.time >= page.scene.end) play(false);
  else requestAnimationFrame(nextPicture);
}

// ---- the address: #scene=link&t=12.345 (milliseconds), &below=fsdp, and settings as &gbit=2.5&cap=0.5&algorithm=tree --

function keepAddress() {
  const kept = new URLSearchParams({scene: page.scene.id, t: (page.time / 1000).toFixed(3)});
  if (page.scene.fsdp) kept.set("below", "fsdp");
  for (const id in SETTINGS) if (page.settings[id] !== SETTINGS[id].usual) kept.set(id, page.settings[id]);
  if (page.settings.algorithm !== "ring") kept.set("algorithm", page.settings.algorithm);
  history.replaceState(null, "", "#" + kept);
}

function readAddress() {
  const asked = new URLSearchParams(location.hash.slice(1));
  const number = (name, least, most, usual) => asked.get(name) && isFinite(asked.get(name)) ?
    Math.min(most, Math.max(least, Number(asked.get(name)))) : usual;
  for (const [id, {least, most, usual, whole}] of Object.entries(SETTINGS))
    page.settings[id] = whole ? Math.round(number(id, least, most, usual)) : number(id, least, most, usual);
  page.settings.algorithm = asked.get("algorithm") === "tree" ? "tree" : "ring";
  page.time = 1000 * number("t", 0, 1e9, 0);
  page.event = -1;
  page.below = asked.get("below") === "fsdp" ? "fsdp" : "ddp";
  const traced = data.scenes.find(scene => scene.id === asked.get("scene")) || data.scenes[0];
  showScene(asked.get("scene") === "model" || !traced ? computed(page.settings) : traced);
}

// ---- stills: all parts in one picture of 1920 by 1080, for a projector - ---------------------------------------------

function stillPicture() {
  const parts = partsOf(page.scene).map(name => page.scene[name]), scale = parts.length > 2 ? 1.43 : 1; // a third needs room
  const svg = put(document.createElement("div"), "svg", {xmlns: "http://www.w3.org/2000/svg", width: 1920, height: 1080,
    viewBox: "0 0 " + 960 * scale + " " + 540 * scale});
  put(svg, "rect", {width: 960 * scale, height: 540 * scale, fill: theme.paper});
  makePatterns(put(svg, "defs", {}));
  write(svg, 24, 34, "One step on two devices, " + ms(page.time) + " after it began", {"font-size": 20});
  write(svg, 24, 54, data.network + "; the bytes move " + page.scene.name, {"font-size": 12, fill: theme.faint});
  parts.forEach((part, k) => {
    const y = 84 + 232 * k, at = (x, down) => put(svg, "g", {transform: "translate(" + x + " " + (y + down) + ")"});
    write(svg, 24, y, sentence(part, page.time), {"font-size": 14});
    drawMachine(at(24, 26), part, page.time, 390);
    drawRows(at(430, 18), part, page.scene.end, 960 * scale - 454)(page.time);
  });
  return new XMLSerializer().serializeToString(svg);
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

// ---- event handlers -------------------------------------------------------------------------------------------------

function addScene(id, name, make) {
  const label = document.createElement("label"), radio = document.createElement("input");
  Object.assign(radio, {type: "radio", name: "scene", value: id});
  radio.addEventListener("change", () => change(make()));
  label.append(radio, " " + name);
  find("scenes").append(label);
}

function change(scene) {
  page.event = -1;
  showScene(scene);
  keepAddress();
}

// Connects a control that stops playing before it acts.
function stops(id, event, act) {
  find(id).addEventListener(event, happened => {
    if (page.playing) play(false);
    act(happened);
  });
}

function pressKey(event) {
  if (event.ctrlKey || event.altKey || event.metaKey || event.target.matches("select")) return;
  const pressesIt = event.target.closest("button, summary, input[type=radio]"); // these use the space bar themselves
  const button = {n: "next", p: "previous", " ": pressesIt ? null : "play"}[event.key.toLowerCase()];
  if (!button) return;
  event.preventDefault();
  find(button).click();
}

for (const scene of data.scenes) addScene(scene.id, scene.name, () => scene);
addScene("model", "as computed", () => computed(page.settings));
for (const radio of document.querySelectorAll("[name=below]")) radio.addEventListener("change", () => {
  page.below = radio.value;
  change(page.whole);
});
find("cap").max = Math.log10(allBytes / 1048576); // all gradients
// The sliders of link and buckets switch to the computed scene; the others change the computed scene, or only the bars.
for (const id of [...Object.keys(SETTINGS), "algorithm"]) stops(id, "input", () => {
  page.settings[id] = id === "algorithm" ? find(id).value : SETTINGS[id].of(Number(find(id).value));
  change(["gbit", "cap"].includes(id) || page.scene.id === "model" ? computed(page.settings) : page.whole);
});
find("play").addEventListener("click", () => play(!page.playing));
stops("next", "click", () => goToEvent(1));
stops("previous", "click", () => goToEvent(-1));
stops("time", "input", () => goTo(Number(find("time").value)));
find("time").addEventListener("keydown", event => { // a microsecond, its step, would be too little
  const way = {ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1}[event.key];
  if (!way) return;
  event.preventDefault();
  goTo(page.time + way * page.scene.end / 100);
});
find("save-svg").addEventListener("click", () => save(new Blob([stillPicture()], {type: "image/svg+xml"}), "svg"));
find("save-png").addEventListener("click", savePNG);
document.addEventListener("keydown", pressKey);
addEventListener("hashchange", readAddress);
addEventListener("resize", showAll);
night.addEventListener("change", showAll);
readAddress();
