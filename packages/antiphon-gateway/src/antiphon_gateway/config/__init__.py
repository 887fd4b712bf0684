"""The configuration: settings, files, checks and reloads."""
