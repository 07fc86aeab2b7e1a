"""What every SQLite file of the house needs: opening, locks, group commit, and checks."""
