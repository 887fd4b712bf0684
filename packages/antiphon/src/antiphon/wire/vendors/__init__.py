"""Facts that several formats of one vendor share."""
