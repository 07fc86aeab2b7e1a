"""The trading floor of paper 000, section 5, in a terminal.

    meridian   adapter   a tagged feed       -> MeridianStory  ┐
    harbor     adapter   a line-by-line feed -> HarborStory    ┤ news.>
    keywords   starts later, attaches Property objects to them ┤
    monitor    shows everything, and knows none of these types ┘

Each is a separate program. `floor` starts them on their own bus, and ends them.
"""
