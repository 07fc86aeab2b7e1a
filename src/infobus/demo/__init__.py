"""The trading floor of paper 000, section 5, in a terminal.

    meridian   adapter   a tagged feed       -> MeridianStory  ┐
    harbor     adapter   a line-by-line feed -> HarborStory    ┤ news.>
    keywords   comes later, attaches Property objects to them  ┤
    monitor    shows all of it, and knows none of these types  ┘

Each is a program of its own; `floor` starts them on a bus of their own, and ends them.
"""
