"""The job `correlate`: many events become few that mean more."""
