#!/bin/sh
# report_page.sh BIN_DIR: report.html in a browser without a window, at three widths, light and dark: nothing is
# wider than the page, figures stay legible, and no text has the colour of what it stands on. Ends with 77 where
# there is no chromium, gnuplot or Jinja2.
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome) || exit 77
bench=$(cd "$(dirname "$0")/../../bench" && pwd)
. "$(dirname "$0")/checks.sh"
needs_report

run "a comparison" "$bench/compare.sh" --bin "$bin" --quick --repeats 1 --patience 0 --model toy --world 2 --out "$work/out"
cat >judge.html <<'END'
<script>
const light = colour => { // the lightness that an eye sees, 0 to 1
    const [r, g, b, a] = colour.match(/[\d.]+/g).map(Number)
    return a === 0 ? -1 : (0.2126 * r + 0.7152 * g + 0.0722 * b) / 255
}
const faults = []
const page = light(getComputedStyle(document.body).backgroundColor)
if (document.documentElement.scrollWidth > innerWidth) faults.push("wider than the page: " + document.documentElement.scrollWidth)
for (const table of document.querySelectorAll(".wide"))
    if (table.scrollWidth > table.clientWidth + 1) faults.push("a table is cut off: " + table.textContent.slice(0, 40) + " by " + (table.scrollWidth - table.clientWidth))
for (const link of document.querySelectorAll('a[href^="#"]'))
    if (!document.getElementById(link.getAttribute("href").slice(1))) faults.push("no " + link.getAttribute("href"))
if (!/^toy \(/.test(document.querySelector("h1 + p").textContent.trim())) faults.push("line one is no answer: " + document.querySelector("h1 + p").textContent)
let texts = 0
for (const svg of document.querySelectorAll("figure > svg")) {
    const title = svg.querySelector("title").textContent
    if (!title || title === "Gnuplot" || !svg.querySelector("desc").textContent) faults.push("no title or text: " + title)
    const shrunk = svg.getBoundingClientRect().width / svg.viewBox.baseVal.width
    const paper = light(getComputedStyle(svg.querySelector("rect")).fill)
    if (Math.abs(paper - page) > 0.05) faults.push(title + ": another ground than the page's")
    const series = svg.querySelector("[onclick]") // a click fades it, another brings it back
    const click = () => { series.dispatchEvent(new MouseEvent("click", { bubbles: true })); return series.style.opacity }
    if (click() !== "0.1" || click() !== "") faults.push(title + ": a series does not answer to a click")
    for (const text of svg.querySelectorAll("text")) {
        if (!text.textContent.trim()) continue
        texts++
        const style = getComputedStyle(text.querySelector("tspan") || text), colour = getComputedStyle(text).fill
        const pixels = parseFloat(style.fontSize) * shrunk
        if (pixels < 7) faults.push(title + ": " + pixels + " pixels: " + text.textContent)
        if (/rgb\((1, 1, 1|254, 254, 254)\)/.test(colour)) continue // stands on a coloured bar
        if (Math.abs(light(colour) - page) < 0.3) faults.push(title + ": " + colour + ": " + text.textContent)
    }
}
for (const cell of document.querySelectorAll("td, p, li"))
    if (Math.abs(light(getComputedStyle(cell).color) - page) < 0.3) { faults.push("text: " + cell.textContent); break }
for (const cell of document.querySelectorAll("td"))
    if (!cell.closest("section") && /^[-+]?\d+(\.\d+)?( %| ms| GB\/s|$)/.test(cell.textContent) && getComputedStyle(cell).textAlign !== "right")
        { faults.push("not to the right: " + cell.textContent); break }
document.body.setAttribute("data-texts", texts)
document.body.setAttribute("data-page", page < 0.5 ? "dark" : "light")
document.body.setAttribute("data-faults", faults.join("; "))
</script>
END
sed '/^<\/body>/e cat judge.html' out/report.html >page.html

for width in 500 800 1600; do
    for scheme in light dark; do
        checks=$((checks + 1))
        dark=
        [ $scheme = light ] || dark="--force-dark-mode --blink-settings=preferredColorScheme=0"
        # shellcheck disable=SC2086 # the options are words
        timeout 100 "$browser" --headless --no-sandbox --disable-gpu --user-data-dir="$work/browser" $dark \
            --window-size=$width,900 --dump-dom "file://$work/page.html" >dom 2>browser.txt </dev/null ||
            fail "the browser: $(tail -n 3 browser.txt)"
        grep -q "data-page=\"$scheme\"" dom || fail "$width pixels: the page is not $scheme"
        [ "$(sed -n 's/.*data-texts="\([0-9]*\)".*/\1/p' dom)" -gt 50 ] || fail "$width pixels: hardly any text"
        grep -q 'data-faults=""' dom || fail "$width pixels, $scheme: $(grep -o 'data-faults="[^"]*"' dom)"
    done
done
checks=$((checks + 1))
! grep -Eo '(src|href)="?https?:[^ ]*' out/report.html >wrong.txt || fail "the page loads $(cat wrong.txt)"

tally report_page
