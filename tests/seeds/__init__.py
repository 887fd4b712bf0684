"""The seeds, played end to end."""
