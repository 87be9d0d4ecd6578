#!/bin/sh
# report_page.sh BIN_DIR FOLDER: the report.html of a comparison of toy, in a headless browser, at three widths, light
# and dark: nothing is wider than the page, figures stay legible, and no text has its background's colour. compare_mine
# calls it with its results. Ends with 77 without chromium.
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome) || exit 77
report=$2/report.html
. "$(dirname "$0")/checks.sh"

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
if (texts <= 50) faults.push("hardly any text")
parent.postMessage(`${innerWidth} pixels: ${page < 0.5 ? "dark" : "light"}, ${texts} texts; ${faults.join("; ").replace(/\s+/g, " ")} :${innerWidth}`, "*")
</script>
END
sed '/^<\/body>/e cat judge.html' "$report" >page.html
# One browser with three frames, because its start takes longer than a page.
{
    echo '<!DOCTYPE html><meta name="color-scheme" content="light dark"><body>'
    echo '<script>onmessage = ({data}) => document.body.append(document.createElement("p"), data)</script>'
    for width in 500 800 1600; do echo "<iframe src=\"page.html\" style=\"width: ${width}px; height: 900px; border: 0\"></iframe>"; done
} >frames.html

for scheme in light dark; do
    dark=
    [ $scheme = light ] || dark="--force-dark-mode --blink-settings=preferredColorScheme=0"
    # shellcheck disable=SC2086 # the options are words
    timeout 100 "$browser" --headless --no-sandbox --disable-gpu --user-data-dir="$work/browser" $dark --window-size=1700,900 \
        --virtual-time-budget=5000 --dump-dom "file://$work/frames.html" >dom 2>browser.txt </dev/null || fail "the browser: $(tail -n 3 browser.txt)"
    for width in 500 800 1600; do
        checks=$((checks + 1))
        said=$(sed -n "s/.*\($width pixels: .*\) :$width.*/\1/p" dom)
        case $said in
        "$width pixels: $scheme, "[0-9][0-9]*' texts; ') ;;
        *) fail "$scheme: ${said:-$width pixels: no answer}" ;;
        esac
    done
done
checks=$((checks + 1))
! grep -Eo '(src|href)="?https?:[^ ]*' "$report" >wrong.txt || fail "the page loads $(cat wrong.txt)"
tally report_page
