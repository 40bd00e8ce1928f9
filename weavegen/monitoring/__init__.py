"""What an installation is doing: metrics, spans, progress."""
