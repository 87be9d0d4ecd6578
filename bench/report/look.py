"""Palette, dashes, fonts and the phases' names: the source of gnuplot's style, the page's CSS and player.html's colours.

The colours are Okabe and Ito's, which are distinct for all kinds of colour vision; the others are Paul Tol's.
"""

FONT = "sans-serif"
FONT_SIZE = 14  # pixels in a figure

COLOURS = {
    "black": "#000000", "orange": "#E69F00", "sky": "#56B4E9", "green": "#009E73", "yellow": "#F0E442",
    "blue": "#0072B2", "vermilion": "#D55E00", "purple": "#CC79A7", "indigo": "#332288", "wine": "#882255",
    "grey": "#999999", "pale": "#DDDDDD", "pink": "#F2A6C4", "forest": "#00664B", "slate": "#444444",
    "deep": "#0073B3",  # blue that stays on a dark page, because it is drawn over sky
}
# A strategy is the same colour, dash (gnuplot's, and LONG_DASH) and mark in every figure, so that a grey print tells them apart.
LONG_DASH = "set dashtype 6 (24, 8)"
STRATEGIES = {"single": ("black", 3, 9), "dp": ("orange", 2, 7), "ddp": ("blue", 1, 5), "mine": ("green", 4, 13),
              "zero1": ("sky", 5, 11), "fsdp": ("purple", 6, 15)}
# mine: the wrapper or all-reduce that compare.sh --mine loads.
NAMES = {"single": "one device", "dp": "DP", "ddp": "DDP", "mine": "yours", "zero1": "ZeRO-1", "fsdp": "FSDP"}
SHARDED = ("zero1", "fsdp")  # compared with DDP by a rank's memory
# The phases of a step in the order in which they are stacked. Neighbours differ in lightness as well.
PHASES = {
    "data": "grey", "scatter": "yellow", "replicate": "vermilion", "forward": "sky", "gather": "purple", "loss": "indigo",
    "backward": "blue", "reduce": "orange", "exposed": "pink", "optimizer": "forest", "other": "pale",
}
# gnuplot's pattern over the colour of a phase that looks like its neighbours in a grey print.
HATCHES = {"data": 6, "scatter": 7, "replicate": 5, "gather": 7, "reduce": 4, "exposed": 1, "optimizer": 2}
MOVING = "slate"  # a communicator's thread while bytes move
ON_DARK = ("loss", "backward", "optimizer", "moving")  # text on these is white
# Phases in which DP's device 0 works while the other devices wait.
DEVICE_0 = ("scatter", "replicate", "gather", "reduce")

# The page: colours by day and by night.
PAGE = {"ink": ("#222", "#ddd"), "paper": ("#fff", "#16181c"), "faint": ("#f5f5f5", "#24272d"), "line": ("#ddd", "#444"),
        "grey": ("#767676", "#8c8c8c"), "link": ("#0058a3", "#7cc0f0")}

# {selector: declaration} for gnuplot's colours that have too little contrast on a dark page.
DARK_FIGURE = {
    'rect[fill="#ffffff"]': "fill: #16181c",
    '[fill="black"], [fill="rgb(0,0,0)"], [fill="rgb(68,68,68)"], [fill="rgb(102,102,102)"]': "fill: #ddd",
    'polygon[fill="rgb( 68,  68,  68)"], polygon[fill="rgb(  0,   0,   0)"]': "fill: #7d838c",
    'polygon[fill="rgb(255, 255, 255)"]': "fill: #16181c",  # the ground of the hatch of waiting spans
    '[color="black"], [color="rgb(  0,   0,   0)"]': "color: #ddd",
    '[color="#FFFFFF"]': "color: #16181c",
    '[fill="rgb(187, 187, 187)"]': "fill: #6c727b",  # disturbed data, grey here, too
    '[stroke="rgb(187, 187, 187)"]': "stroke: #6c727b",
    '[color="rgb(187, 187, 187)"]': "color: #6c727b",
    '[stroke="rgb(  0,   0,   0)"], [stroke="rgb( 68,  68,  68)"]': "stroke: #bbb",
    '[stroke="rgb(102, 102, 102)"]': "stroke: #aaa",
    '[stroke="rgb(228, 228, 228)"]': "stroke: #3a3d43",
    '[stroke="rgb(255, 255, 255)"]': "stroke: #16181c",
    '[fill="rgb(0,114,178)"]': "fill: #56b4e9",
    '[fill="rgb(160,110,0)"]': "fill: #e69f00",  # DP's and the reader's own names
    '[fill="rgb(0,102,75)"]': "fill: #2fa67f",
    'polygon[fill="rgb( 51,  34, 136)"]': "fill: #6f5fd0",  # loss
    '[fill="rgb(51,34,136)"]': "fill: #9a90ff",  # lines in indigo and wine, and their names
    '[stroke="rgb( 51,  34, 136)"]': "stroke: #9a90ff",
    '[color="rgb( 51,  34, 136)"]': "color: #9a90ff",
    '[fill="rgb(136,34,85)"]': "fill: #e06aa3",
    '[stroke="rgb(136,  34,  85)"]': "stroke: #e06aa3",
    '[color="rgb(136,  34,  85)"]': "color: #e06aa3",
    '[stroke="rgb(  0, 114, 178)"]': "stroke: #3d95d6",
    '[color="rgb(  0, 114, 178)"]': "color: #3d95d6",
}


def phase_colours():
    return {phase: COLOURS[colour] for phase, colour in PHASES.items()}


def hatch_colour(phase):
    """A darker shade of the phase's colour, of a dark one a lighter one."""
    parts = (int(COLOURS[PHASES[phase]][i:i + 2], 16) for i in (1, 3, 5))
    return "#" + "".join(f"{round(128 + part / 2 if phase in ON_DARK else 0.65 * part):02X}" for part in parts)


def chosen(values, otherwise):
    """A gnuplot expression: the value of `values` for the strategy's name."""
    return "".join(f'strategy eq "{name}" ? {value} : ' for name, value in values.items() if name != otherwise) + values[otherwise]


def gnuplot():
    """The lines of plots/palette.gp."""
    lines = [f'{name} = "{colour}"' for name, colour in COLOURS.items()]
    kinds = [*((COLOURS[colour], HATCHES.get(phase, 0), hatch_colour(phase)) for phase, colour in PHASES.items()),
             (COLOURS[MOVING], 0, "#000000"), ("#FFFFFF", 4, "#666666")]
    arrays = {"phase_colour": [f'"{kind[0]}"' for kind in kinds], "hatch": [str(kind[1]) for kind in kinds],
              "hatch_colour": [f'"{kind[2]}"' for kind in kinds]}
    lines += [
        f'figure_font = "{FONT},{FONT_SIZE}"',
        f'phases = "{" ".join(PHASES)}"', 'kinds = phases." moving waiting"',
        *(f"array {name}[{len(kinds)}] = [{', '.join(values)}]" for name, values in arrays.items()),
        f'on_dark = "{" ".join(ON_DARK)}"', LONG_DASH,
    ]
    for what, place, quote in (("colour", 0, '"%s"'), ("dash", 1, "%s"), ("mark", 2, "%s")):
        of = {name: quote % (COLOURS[look[0]] if place == 0 else look[place]) for name, look in STRATEGIES.items()}
        lines.append(f"{what}_of(strategy) = " + chosen(of, "single"))
    lines.append("name_of(strategy) = " + chosen({name: f'"{text}"' for name, text in NAMES.items()}, "single"))
    return "\n".join(lines) + "\n"


def css():
    """The variables of the page's CSS."""
    day, night = (" ".join(f"--{name}: {colours[k]};" for name, colours in PAGE.items()) for k in (0, 1))
    return (f":root {{ color-scheme: light dark; {day} --font: {FONT} }}\n"
            f"@media (prefers-color-scheme: dark) {{ :root {{ {night} }} }}\n")


def dark_figure():
    rules = "\n".join(f"{what} {{ {how} }}" for what, how in DARK_FIGURE.items())
    return f"<style>@media (prefers-color-scheme: dark) {{\n{rules}\n}}\n[onclick] {{ cursor: pointer }}</style>\n"
