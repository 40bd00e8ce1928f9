"""Exports read by TRL's own trainers, in a separate environment (scripts/trl.sh)."""
