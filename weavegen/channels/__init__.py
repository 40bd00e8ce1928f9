"""Channels: messages between agents and people, also on Discord."""
