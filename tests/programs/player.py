#!/usr/bin/env python3
"""player.py BIN: the page that plays a step (bench/report/player), made from real traces of the programs, in a headless
browser: the spans shown at ten times are the trace's, other traces give other spans; keys, the address, stills, widths; the
model's numbers equal bench_scale's to nine digits. Status 77 without chromium. (The generator's test is in tests/report.)
"""
import collections
import html
import itertools
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(sys.argv[1])
WORK = pathlib.Path(tempfile.mkdtemp())
CHROMIUM = next(filter(None, map(shutil.which, ["chromium", "chromium-browser", "google-chrome"])), None)
failures = []


def check(what, holds, seen=""):
    if not holds:
        failures.append(what)
        print(f"FAILED: {what} {str(seen)[:600]}")


def run(*command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=300, cwd=WORK)
    return done.returncode, done.stdout, done.stderr


def must_run(*command):
    status, out, errors = run(*command)
    check(f"{command}", status == 0, errors)
    return out


# ---- real traces --------------------------------------------------------------------------------------------------------

def make(page, scenes):
    """Makes a page from traces {name in the results: file}."""
    results = WORK / page.removesuffix(".html")
    results.mkdir()
    (results / "facts.txt").write_text("traced mlp-96-64-96\nlink an emulated link of 1 Gbit/s and 20 us\n")
    shutil.copy(WORK / "profile.json", results)
    for name, file in scenes.items():
        shutil.copy(WORK / file, results / name)
    must_run("env", f"PYTHONPATH={ROOT}/bench", sys.executable, "-B", "-m", "report", "player", results)
    shutil.copy(results / "player.html", WORK / page)


def trace_both():
    must_run(BIN / "bench_profile", "--hidden", "96,64,96", "--rows", 16, "--rounds", 2, "--save", "profile.json")
    options = ["--device", "cpu", "--model", "mlp", "--hidden", "96,64,96", "--data", "digits", "--global-batch", 32, "--steps", 7, "--no-eval"]
    for where, link in (("memory", []), ("link", ["--link", "1,20"])):
        must_run(BIN / "train_dp", "--devices", 2, *options, *link, "--trace", f"dp-{where}.json", "--out", "dp")
        must_run(BIN / "ddprun", "--standalone", "--nproc-per-node", 2, BIN / "train_ddp", *options, *link,
                 "--bucket-cap-mb", 0.02, "--trace", f"ddp-{where}.json", "--out", "ddp")
        must_run(BIN / "ddprun", "--standalone", "--nproc-per-node", 2, BIN / "train_fsdp", *options, *link, "--trace", f"fsdp-{where}.json", "--out", "fsdp")


def raw_spans(file):
    """(begin of the shortest step, its length, spans) of a trace: read independently of the generator."""
    events = json.loads((WORK / file).read_text())["traceEvents"]
    spans = [e for e in events if e["ph"] == "X"]
    steps = {}
    for number in {s["args"]["number"] for s in spans if s["name"] == "optimizer"} - {0, 1}:
        drives = {(s["pid"], s["tid"]) for s in spans if s["name"] == "optimizer"}
        of = [s for s in spans if s.get("args", {}).get("number") == number and (s["pid"], s["tid"]) in drives]
        begin = min(s["ts"] for s in of)
        steps[max(s["ts"] + s["dur"] for s in of) - begin] = begin, number
    begin, number = steps[min(steps)]
    spans = [s for s in spans if "_" in s["name"] or s.get("args", {}).get("number", number) == number] # phases of other steps are not shown
    return begin, min(steps), spans, {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e.get("name") == "thread_name"}


def trace_at(file, micros):
    """{thread: phase} at this time of the trace's shortest step."""
    begin, length, spans, names = raw_spans(file)
    now, shown = begin + micros, {}
    for (pid, tid), name in names.items():
        inside = [s for s in spans if (s["pid"], s["tid"]) == (pid, tid) and s["ts"] <= now < s["ts"] + s["dur"]]
        if not inside or micros >= length:
            continue
        span = inside[-1]
        phase = span["name"]
        if "_" in phase: # a collective
            last = max(s["ts"] for s in spans if s["name"] == phase and s["args"].get("number") == span["args"]["number"])
            phase = "waiting" if now < last else "moving" if phase == "all_reduce" else phase
        shown[f"{pid} {name}"] = phase
    return shown


# ---- the page in a browser ----------------------------------------------------------------------------------------------

DRIVER = """
requestAnimationFrame = then => setTimeout(() => then(performance.now()), 16); // a browser without a window draws no frames
const press = key => document.body.dispatchEvent(new KeyboardEvent("keydown", {key, bubbles: true}));
const input = (id, value) => { find(id).value = value; find(id).dispatchEvent(new Event("input", {bubbles: true})); };
const rects = name => [...document.querySelectorAll("#" + name + " .rows rect[data-phase]")];
const thread = (name, rect) => page.scene[name].tracks[rect.dataset.track].thread;
const seen = name => rects(name).filter(r => !["idle", "other"].includes(r.dataset.phase)).map(r => [thread(name, r), r.dataset.phase, r.dataset.begin, r.dataset.end].join(" "));
const shownNow = name => rects(name).filter(r => "now" in r.dataset && r.dataset.phase !== "idle").map(r => [thread(name, r), r.dataset.phase]);
const state = () => [page.scene.id, find("clock").textContent, find("gbit-shown").textContent, find("cap-shown").textContent, location.hash];
const answer = value => parent.postMessage([window.name, value], "*");
"""
HOST = """<!DOCTYPE html><meta name="color-scheme" content="light dark"><script>
const answers = {};
onmessage = ({data: [name, value]}) => { answers[name] = value; document.body.setAttribute("data-answers", JSON.stringify(answers)); };
</script><body>"""
Question = collections.namedtuple("Question", "page script address flags width", defaults=["", (), 1400])


def drive(questions):
    """Returns each script's answer in its page. All pages are frames of one, because starting a browser takes longer than a page."""
    answers = {}
    for _ in range(3): # on a busy machine the browser's clock may end before a picture is painted
        left = {number: asked for number, asked in enumerate(questions) if str(number) not in answers}
        for flags in dict.fromkeys(asked.flags for asked in left.values()):
            answers.update(frames({number: asked for number, asked in left.items() if asked.flags == flags}, flags))
    for number, asked in enumerate(questions):
        check("the page answers", str(number) in answers, asked)
    return [answers.get(str(number)) for number in range(len(questions))]


def frames(questions, flags):
    host = HOST
    for number, asked in questions.items():
        text = (WORK / asked.page).read_text().replace("</body>", f"<script>{DRIVER}\n{asked.script}</script></body>")
        (WORK / f"driven-{number}.html").write_text(text)
        host += f'<iframe name="{number}" src="driven-{number}.html{asked.address}" style="width: {asked.width}px; height: 1000px; border: 0"></iframe>\n'
    (WORK / "host.html").write_text(host)
    _, dom, errors = run(CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={WORK}/browser", *flags,
                         "--window-size=1700,1000", "--virtual-time-budget=20000", "--dump-dom", f"file://{WORK}/host.html")
    found = re.search(r'data-answers="([^"]*)"', dom)
    return json.loads(html.unescape(found[1])) if found else print(errors[-400:]) or {}


def drive_all(tests):
    """Each test yields its questions and gets their answers; one browser answers the questions of all tests."""
    asked = [(test, next(test)) for test in tests]
    while asked:
        answers, more = drive([question for _, questions in asked for question in questions]), []
        for test, questions in asked:
            mine, answers = answers[:len(questions)], answers[len(questions):]
            try:
                more.append((test, test.send(mine)))
            except StopIteration:
                pass
        asked = more

def test_spans():
    both = ("memory", "dp-memory.json", "ddp-memory.json"), ("link", "dp-link.json", "ddp-link.json")
    names = ["trace-dp.json", "trace-ddp.json", "trace-link-dp.json", "trace-link-ddp.json"]
    make("page.html", {**dict(zip(names, ["dp-memory.json", "ddp-memory.json", "dp-link.json", "ddp-link.json"])),
                       "trace-fsdp.json": "fsdp-memory.json", "trace-link-fsdp.json": "fsdp-link.json"})
    make("swapped.html", dict(zip(names, ["ddp-memory.json", "dp-memory.json", "ddp-link.json", "dp-link.json"])))
    asked, times = [], {}
    for scene, *files in both:
        length = raw_spans(files[0])[1]
        times[scene] = [round(length * (k + 0.5) / 10) for k in range(10)]
        at = f"#scene={scene}"
        asked += [Question("page.html", f"answer({times[scene]}.map(t => {{ input('time', t); return [shownNow('dp'), shownNow('ddp')] }}))", at),
                  Question("page.html", f"answer({times[scene]}.map(t => {{ input('time', t); return shownNow('fsdp') }}))", at + "&below=fsdp"),
                  Question("page.html", "answer([seen('dp'), seen('ddp')])", at), Question("swapped.html", "answer([seen('dp'), seen('ddp')])", at)]
    answers = yield asked
    here, there = (set(answers[k][0] + answers[k][1]) for k in (2, 6))
    check("the switch changes every span", not here & there)
    for scene, *files in both:
        shown, sharded, one, other, *answers = answers
        for time, parts in zip(times[scene], shown):
            for part, file in zip(parts, files):
                check(f"{scene} at {time} us, {file}", dict(part) == trace_at(file, time), (part, trace_at(file, time)))
        file = f"fsdp-{scene}.json"
        for time, part in zip(times[scene], sharded):
            check(f"{scene} at {time} us, {file}", dict(part) == trace_at(file, time), (part, trace_at(file, time)))
        check(f"{scene}: something is shown of FSDP", sum(map(len, sharded)) > 8)
        check(f"{scene}: something is shown", sum(len(part) for parts in shown for part in parts) > 8)
        check(f"{scene}: other files are other spans", not set(one[0]) & set(other[0]) and not set(one[1]) & set(other[1]))
        check(f"{scene}: and these are the files'", [one[1], one[0]] == other and min(map(len, one)) > 10, one)


def test_hand():
    found, played, calm, named, listed = yield [
        Question("page.html", """
        const log = [];
        const note = () => log.push([page.time, find("now").textContent, document.querySelectorAll("[data-now]").length]);
        for (let k = 0; k < 200 && page.time < page.scene.end; k++) { press("n"); note(); }
        const there = log.length;
        press("p"); note();
        goTo(page.scene.events.find(event => event.at > 0).at); // as the slider does
        press("n"); note();
        answer({log, there, ends: page.scene.end, events: page.scene.events});
    """, "#scene=link"),
        Question("page.html", """
        press(" ");
        const began = [page.playing, find("play").textContent, find("now").getAttribute("aria-live")];
        setTimeout(() => { const at = page.time; press(" "); answer([began, at, page.playing, find("play").textContent, find("now").getAttribute("aria-live")]); }, 3000);
    """),
        Question("page.html", """
        press(" ");
        setTimeout(() => answer([page.event, page.time, page.scene.events[Math.max(page.event, 0)].at]), 5000);
    """, flags=("--force-prefers-reduced-motion",)),
        Question("page.html", "answer([...document.querySelectorAll('button, input, select')].map(e => (e.labels[0] || e).textContent.trim()))"),
        Question("page.html", """
        const buttons = [...document.querySelectorAll("#events button")];
        answer([buttons.map(b => b.textContent), page.scene.events.map(e => e.text), (buttons[7].click(), page.time === page.scene.events[7].at), page.event]);
    """)]
    events, log = found["events"], found["log"]
    times = [time for time, _, _ in log[:found["there"]]]
    check("N stops at every event", times == [e["at"] for e in events if e["at"] > 0] and len(times) >= 12, (times, events))
    check("and says it", all(words.startswith(event["text"]) for (_, words, _), event in
                             zip(log, [e for e in events if e["at"] > 0])), log[:3])
    check("both parts are in the words", all("DP: " in words and "DDP: " in words for _, words, _ in log))
    check("N leaves an event that the slider came to", log.pop()[0] > min(e["at"] for e in events if e["at"] > 0), log)
    check("P goes back by one", log[-1][0] == [e["at"] for e in events][-2], log[-1])
    check("space plays and pauses", played[0] == [True, "Pause", "off"] and played[1] > 0 and played[2:] == [False, "Play", "polite"], played)
    check("less motion: from event to event", calm[0] > 0 and calm[1] == calm[2], calm)
    check("all that is used has a name", len(named) > 12 and all(named), named)
    check("the list of all events leads to each", listed[2:] == [True, 7] and len(listed[0]) == len(listed[1]) and
          all(button.endswith(text) for button, text in zip(*listed[:2])), listed)


def test_words():
    found, = yield [Question("page.html", """
        const said = (part, begin, end) => sentence(part, (begin + end) / 2), {dp, ddp} = page.scene;
        answer({main: dp.spans.filter(s => s[TRACK] === drivenBy(dp)).map(s => [s[PHASE], said(dp, s[BEGIN], s[END])]),
            buckets: ddp.buckets.map(b => [b.number, said(ddp, b.moves, b.end)]),
            early: ddp.spans.filter(s => s[PHASE] === "waiting").map(s => [s[BUCKET], said(ddp, s[BEGIN], s[END])]),
            over: [sentence(dp, dp.step), sentence(dp, dp.step - 0.001)], bytes: megabytes(allBytes / 2),
            between: [dp, ddp].map(part => phaseOf({...part, spans: []}, 1, 1)), said: sentence({...ddp, spans: []}, 1)});
    """, "#scene=link")]
    words = {"scatter": "sends device 1 its half", "replicate": "sends all weights", "loss": "computes the loss of the whole batch",
             "reduce": "adds device 1's gradients", "optimizer": "updates the weights alone"}
    for phase, said in found["main"]:
        check(f"{phase} is said", [one for one, text in words.items() if text in said] == [phase] * (phase in words), said)
        check(f"{phase}: half of the bytes", phase not in ("replicate", "reduce") or f"({found['bytes']} of " in said, said)
        check(f"{phase}: who waits", phase not in words or said.endswith("; device 1 waits."), said)
    check("all phases were there", set(words) <= {phase for phase, _ in found["main"]}, found["main"])
    check("a bucket moves", found["buckets"] and all(f"bucket {k} moves both ways" in said for k, said in found["buckets"]), found["buckets"])
    check("a rank waits", all(f"has begun bucket {k} and waits" in said for k, said in found["early"]), found["early"])
    check("outside its spans a rank is between two phases, and a device of DP waits", found["between"] == ["idle", "other"] and
          "Both ranks are between two phases" in found["said"], (found["between"], found["said"]))
    check("the step is over, and not before", ["is over" in said for said in found["over"]] == [True, False], found["over"])


def test_units():
    """Fully sharded training: its moves are the trace's, and each unit is gathered, computes, is freed and is reduced in that order."""
    script = """
        const part = page.scene.fsdp, uses = part.uses.flatMap((of, rank) => of.map(use => [rank, use]));
        const during = (rank, {phase, begin, end}) => { // between two spans a rank may have been kept from its core
            const span = part.spans.find(s => s[TRACK] === trackOf(part, "device", rank) && s[PHASE] === phase && s[END] > begin && s[BEGIN] < end);
            return (Math.max(span[BEGIN], begin) + Math.min(span[END], end)) / 2;
        };
        const count = (rank, time) => part.units.filter(unit => isWhole(part, unit, rank, time)).length;
        answer({moves: part.moves.map(m => [m.kind, m.unit, m.moves, m.end]), uses: part.uses,
            said: uses.map(([rank, use]) => [rank, use.phase, use.unit, sentence(part, during(rank, use))]),
            whole: Array.from({length: 400}, (_, k) => Math.max(...DEVICES.map(rank => count(rank, k * part.step / 400)))),
            events: page.scene.events.filter(e => e.text.startsWith("FSDP")), only: [Boolean(page.scene.ddp), find("ddp").hidden, find("fsdp").hidden],
            boxes: document.querySelectorAll("#fsdp .machine svg rect").length});
    """
    *both, rooted = yield [*(Question("page.html", script, f"#scene={scene}&below=fsdp&t=2") for scene in ("memory", "link")), Question("page.html", """
        const rooted = data.profile.tensors.map(one => ({...one, unit: [1, 4].includes(one.unit) ? 0 : one.unit - 1}));
        const other = stepModel({...data.profile, tensors: rooted}), cluster = {devices: 2, rows: 16, link: {bytes_per_s: 1e8, latency_s: 1e-5}};
        const part = layOutFSDP(other.fsdp(cluster), other.walk(cluster));
        prepare({fsdp: part});
        const root = part.units[2], after = root.gathers[0].end, until = root.reduce.ready[0];
        answer([part.units.map(unit => unit.gathers.length), [0.01, 0.5, 0.99].map(k => isWhole(part, root, 0, after + k * (until - after))),
            isWhole(part, root, 1, until), sentence(part, after / 2)]);
    """)]
    for scene, found in zip(("memory", "link"), both):
        begin, length, spans, _ = raw_spans(f"fsdp-{scene}.json")
        moves = {}
        for s in spans:
            if s["name"] in ("all_gather", "reduce_scatter") and begin <= s["ts"] < begin + length and s["args"].get("bucket", -1) >= 0:
                moves.setdefault(s["args"]["number"], []).append(s)
        wanted = [[of[0]["name"], of[0]["args"]["bucket"], round(max(s["ts"] for s in of) - begin, 3), round(max(s["ts"] + s["dur"] for s in of) - begin, 3)]
                  for _, of in sorted(moves.items()) if len(of) == 2]
        check(f"{scene}: the moves are the trace's", found["moves"] == wanted and len(wanted) == 12, (found["moves"], wanted))
        for uses in found["uses"]:
            order = [(use["phase"], use["unit"]) for use in uses]
            check(f"{scene}: the units' order", order == [("forward", k) for k in range(4)] + [("backward", 3 - k) for k in range(4)], order)
            for use, move in zip(uses, (m for m in found["moves"] if m[0] == "all_gather")):
                check(f"{scene}: gathered, then computed with", move[1] == use["unit"] and move[2] < use["begin"] < use["end"], (move, use))
            for use, move in zip(uses[4:], (m for m in found["moves"] if m[0] == "reduce_scatter")):
                check(f"{scene}: freed, then reduced", move[1] == use["unit"] and use["end"] <= move[2], (move, use))
        for rank, phase, unit, said in found["said"]:
            check(f"{scene}: what rank {rank} computes", f" {phase} through unit {unit}" in said, said)
        check(f"{scene}: at most two units are whole", max(found["whole"]) in (1, 2), found["whole"])
        texts = [event["text"] for event in found["events"]]
        for words, times in (("weights of unit 2 begin to move", 2), ("unit 2 is gathered", 2), ("forward through unit 2", 1), ("backward through unit 2", 1),
                             ("freed the weights of unit 2", 2), ("gradients of unit 2 begin to move", 1), ("gradients of unit 2 are summed", 1)):
            check(f"{scene}: an event: {words}", sum(words in text for text in texts) == times, texts)
        check(f"{scene}: FSDP is below DP alone", found["only"] == [False, True, False] and found["boxes"] > 2 * 4 * 3, found)
    check("the root is gathered once and stays whole", rooted[:3] == [[2, 2, 1], [True] * 3, False] and "wait for the weights of unit" in rooted[3], rooted)


def test_address():
    wrong = ["#scene=none&t=x&gbit=&cap=-3", "#t=1e99", "#%"]
    first, below, computed, without, more, tree, *states = yield [
        Question("page.html", "document.querySelector('[value=link]').click(); input('time', 1234); answer(state())"),
        Question("page.html", "document.querySelector('[value=fsdp]').click(); input('time', 99); answer([...state(), Boolean(page.scene.fsdp)])"),
        Question("page.html", "input('gbit', -0.5); input('cap', -1.3); input('time', 77); answer(state())"),
        Question("swapped.html", "answer([Boolean(page.scene.ddp), document.querySelector('[value=fsdp]').disabled])", "#below=fsdp"),
        Question("page.html", "input('devices', 6); input('latency', 0.5); input('rows', 3.3); answer([...state(), find('more-says').textContent])", "#scene=link"),
        Question("page.html", "input('algorithm', 'tree'); input('time', 5); answer(state())", "#scene=model"),
        *(Question("page.html", "answer(state())", address) for address in wrong)]
    check("settings of the model leave a trace's scene, and the address keeps them", more[0] == "link" and "On 64 devices" in more[5] and
          more[4] == "#scene=link&t=0.000&devices=64&latency=3.16&rows=10", more)
    check("the algorithm is kept", tree[4] == "#scene=model&t=0.005&algorithm=tree", tree)
    check("the address keeps the scene and the time", first[4] == "#scene=link&t=1.234", first)
    check("the address keeps what is below DP", below[4:] == ["#scene=memory&t=0.099&below=fsdp", True], below)
    check("without FSDP's traces DDP is shown", without == [True, True])
    check("of what is computed, too", computed[4] == "#scene=model&t=0.077&gbit=0.32&cap=0.05", computed)
    for address, state in zip(wrong, states):
        check(f"an address that says nothing: {address}", state[0] == "memory")
    left = first, below[:5], computed, more[:5], tree
    for state, again in zip(left, (yield [Question("page.html", "answer(state())", state[4]) for state in left])):
        check("and gives it back", again == state, (state, again))


def test_model():
    cases = (10, 1), (0.37, 0.02)
    script = """answer([JSON.parse(find('more').dataset.numbers), page.scene.dp.step, page.scene.ddp.step,
        rects('ddp').filter(r => r.dataset.phase === 'moving').length])"""
    answers = yield [Question("page.html", script, f"#scene=model&devices=2&gbit={gbit}&cap={cap}") for gbit, cap in cases]
    for (gbit, cap), (numbers, *lengths) in zip(cases, answers):
        out = must_run(BIN / "bench_scale", "--profile", "profile.json", "--devices", 2, "--gbit", gbit, "--latency-us", 20,
                       "--bucket-cap-mb", cap, "--rows", 16, "--buckets")
        rows = [line.split(",") for line in out.splitlines()]
        head = next(row for row in rows if row[0] == "devices")
        for row in (row for row in rows if len(row) > 1 and row[1] in ("dp", "ddp", "fsdp")):
            for name in head[2:12]:
                check(f"{row[1]} {name}", "%.9g" % (1e3 * numbers[row[1]][name]) == row[head.index(name)], (numbers, row))
        table = rows[next(k for k, row in enumerate(rows) if row[0] == "bucket") + 1:][:len(numbers["buckets"])]
        for bucket, row in zip(numbers["buckets"], table):
            shown = ["%.0f" % bucket["bytes"]] + ["%.9g" % (1e3 * bucket[name]) for name in ("ready", "begin", "end")]
            check("a bucket of the model", shown == row[2:6], (shown, row))
        check("as many buckets", len(table) == len(numbers["buckets"]) > 0)
        check("the steps drawn are the model's", abs(lengths[0] - 1e6 * numbers["dp"]["step"]) < 1e-6 and lengths[2] == 2 * len(table), lengths)


def test_looks():
    dark = "--force-dark-mode", "--blink-settings=preferredColorScheme=0"
    cases = list(itertools.product((500, 1600), ("ddp", "fsdp"), ((), dark)))
    script = """
        answer([document.documentElement.scrollWidth - innerWidth, getComputedStyle(document.body).backgroundColor,
            document.querySelector("svg text").getAttribute("fill"),
            [...document.querySelectorAll(".pictures svg text, .bars svg text")].filter(t => t.getBoundingClientRect().right > innerWidth + 1 || t.getBoundingClientRect().left < -1).length,
            innerWidth, Math.min(...[...document.querySelectorAll("svg text, p, label, li, button")].map(e => parseFloat(getComputedStyle(e).fontSize) *
                (e.closest("svg") ? e.closest("svg").getBoundingClientRect().height / Number(e.closest("svg").getAttribute("height")) || 1 : 1))),
            document.querySelectorAll("#more .bars rect").length])
    """
    saved, *looks = yield [Question("page.html", """
        save = (blob, kind) => blob.arrayBuffer().then(b => { const view = new DataView(b);
            kind === "png" ? answer([stillPicture(), view.getUint32(16), view.getUint32(20), new Set(new Uint8Array(b)).size]) : 0; });
        savePNG();
    """, "#scene=link&t=1&below=fsdp"), *(Question("page.html", script, f"#scene=link&t=1&below={below}", flags, width) for width, below, flags in cases)]
    for (width, _, flags), found in zip(cases, looks):
        check(f"{width} pixels {flags}: nothing is wider than the page", found[0] <= 0 and found[3:5] == [0, width], found)
        check(f"{width} pixels {flags}: no letter is smaller than 11 pixels, and the bars are there", found[5] >= 11 and found[6] > 4, found)
        check(f"{width} pixels {flags}: dark and light", (found[1:3] == ["rgb(22, 24, 28)", "#dddddd"]) == bool(flags), found)
    check("the still is 1920 by 1080 and holds its patterns", saved[1:3] == [1920, 1080] and saved[3] > 50 and
          'width="1920" height="1080"' in saved[0] and "fill-all_gather" in saved[0] and "FSDP: " in saved[0], saved)
    page = (WORK / "page.html").read_text()
    check("the page loads nothing", not re.search(r'(src|href)\s*=\s*"?https?:|@import|fetch\(|XMLHttp', page))


if not CHROMIUM:
    sys.exit(77)
try:
    trace_both()
    drive_all([test() for test in (test_spans, test_hand, test_words, test_units, test_address, test_model, test_looks)])
finally:
    shutil.rmtree(WORK, ignore_errors=True)
print(f"player: {len(failures)} failures")
sys.exit(1 if failures else 0)
