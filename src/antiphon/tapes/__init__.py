"""Tapes: recorded requests and their answers in one file, and how a new request finds its recorded answer."""
