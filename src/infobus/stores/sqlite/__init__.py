"""The parts that every SQLite file of a store needs: opening, locks, group commit and checks."""
