"""`python -m infobus.bench.repository [--quick]`."""

from infobus.bench.common.findings import perform_as_program
from infobus.bench.repository.benchmark import run

if __name__ == "__main__":
    perform_as_program(run)
