"""`python -m infobus.cli`: the command line where the script `infobus` is not installed."""

from infobus.cli.main import main

main()
