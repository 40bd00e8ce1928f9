"""Exports in the hands of TRL's own trainers, in an environment of their own (scripts/trl.sh)."""
