#!/usr/bin/env python3
"""Markdown to HTML: tables, anchors, links to numbers, figures and sections."""

import re
import unittest

from made import Made
from report import figures, look
from report.markdown import Page


def page(lines, made):
    return Page(made.folder).convert(lines)


class Markdown(unittest.TestCase):
    def test_blocks(self):
        with Made() as made:
            html = "\n".join(page(["# A & B", "", "a `<b>` **c** *d*", "e", "", "- one", "  more", "- two", "", "```", "*x*", "```"], made).lines)
            self.assertEqual(html, '<h1 id="a--b">A &amp; B</h1>\n<p>\na <code>&lt;b&gt;</code> <b>c</b> <i>d</i>\ne\n</p>\n<ul>\n<li>one\n  more\n'
                             "<li>two\n</ul>\n<pre>\n*x*\n</pre>")

    def test_table(self):
        with Made() as made:
            html = page(["| a | b |", "|---|---:|", "| x | 1 |", "| all | disturbed |"], made).lines
            self.assertEqual(html[1], '<tr><th>a</th><th class="number">b</th></tr>')
            self.assertEqual(html[3], '<tr class="disturbed"><td>all</td><td class="number">disturbed</td></tr>')
            self.assertEqual(sum("disturbed" in line for line in html), 1)

    def test_links(self):
        with Made() as made:
            made.csv("a.csv", ["x"], [1])
            html = "\n".join(page(["[a.csv](a.csv) and [there](#here)"], made).lines)
            self.assertIn('<a download="a.csv" href="data:text/csv;base64,eAoxCg==">a.csv</a>', html)
            self.assertIn('<a href="#here">there</a>', html)

    def test_section(self):
        """The ids in a section begin with its name; properties of its machine that are the page's are not repeated."""
        with Made() as made:
            made.write("out-x/section.md", ["## X", "", "- Memory: 1 GiB", "- Command: x"])
            made.write("out/none", [])
            found = Page(made.folder / "out").convert(["[section](../out-x/section.md)", "", "## The machine", "", "- Memory: 1 GiB"])
            self.assertEqual([heading[1] for heading in found.headings], ["x-x", "the-machine"])
            self.assertEqual("\n".join(found.lines).count("Memory"), 1)
            self.assertIn("<li>Command: x", found.lines)

    def test_figure(self):
        with Made() as made:
            made.write("f.svg", ['<?xml version="1.0"?>', '<svg id="a">', '<use href="#b"/>', "</svg>"])
            self.assertEqual(page(["![F](f.svg)"], made).lines,
                             ['<figure id="figure-f">', '<svg id="f-a">', '<use href="#f-b"/>', "</svg>", "</figure>"])

    def test_finish(self):
        svg = "\n".join(["<svg ", "<title>Gnuplot</title>", "<desc>x</desc>", '<g id="gnuplot_plot_1" ><title>file using</title>',
                         "<g onmousemove=\"gnuplot_svg.showHypertext(evt,'dp: 3 ms')\">"])
        lines = figures.finish(svg, "A < B", "C & D").splitlines()
        self.assertEqual(lines[:3], ['<svg role="img"', "<title>A &lt; B</title>", "<desc>C &amp; D</desc>"])
        self.assertIn("onclick=", lines[-2])
        self.assertNotIn("file using", lines[-2])
        self.assertEqual(lines[-1], '<g class="value"><title>dp: 3 ms</title>')


class Look(unittest.TestCase):
    def test_phases(self):
        """Each phase has its own colour, the same in gnuplot's palette and elsewhere."""
        self.assertEqual(len(set(look.PHASES.values())), len(look.PHASES))
        self.assertIn(f'phases = "{" ".join(look.PHASES)}"', look.gnuplot())
        for strategy, colour in (("dp", "orange"), ("ddp", "blue"), ("mine", "green"), ("zero1", "sky"), ("fsdp", "purple")):
            self.assertIn(f'strategy eq "{strategy}" ? "{look.COLOURS[colour]}"', look.gnuplot())
        for k, what in enumerate(("colour", "dash", "mark")):
            self.assertEqual(len({one[k] for one in look.STRATEGIES.values()}), len(look.STRATEGIES), what)
        self.assertIn("--grey: #767676;", look.css())

    def test_titles(self):
        """In a dark page, the colour of DDP's loss on more devices differs from that of the wider line below it;
        text in a bar keeps its colour."""
        for path in figures.PLOTS.glob("*.gp"):
            self.assertRegex(figures.title_of(path.stem), r"[\w)]$", path.name)

    def test_dark(self):
        """On a dark page the loss of DDP on more devices differs from the wider line below it; text in a bar keeps its colour."""
        def luminance(name):
            parts = [int(look.COLOURS[name][i:i + 2], 16) for i in (1, 3, 5)]
            stroke = "rgb({:3}, {:3}, {:3})".format(*parts)
            shown = look.DARK_FIGURE.get(f'[stroke="{stroke}"]', look.COLOURS[name])[-6:]
            return sum(share * (int(shown[i:i + 2], 16) / 255) ** 2.2 for share, i in ((0.21, 0), (0.72, 2), (0.07, 4)))
        below, above = re.search(r"\? (\w+) : (\w+)\)$", (figures.PLOTS / "loss.gp").read_text(), re.M).groups()
        self.assertEqual(below, "sky")
        self.assertGreater((luminance(below) + 0.05) / (luminance(above) + 0.05), 1.8)
        for path in figures.PLOTS.glob("*.gp"):
            self.assertNotRegex(path.read_text(), r'textcolor rgb \(.*"(black|white)"', path.name)


if __name__ == "__main__":
    unittest.main()
