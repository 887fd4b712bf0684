"""Streams: bytes into events, and the frames in which every format reads and writes them."""
