"""The figures: each is a ratio against something else measured in the same run, so it means the same on every machine."""
