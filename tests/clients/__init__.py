"""Real programs through the gateway, unchanged: `python -m clients` installs them, runs them and prints what came of it.

Each program is given a folder with a note and asked to read it. The gateway forwards to a strict upstream of one format, which
answers the first request with a call of whatever tool the program offers for reading, and the second, if the note came back as
the tool's result, with a line that holds a marker. So a program that prints the marker went through a whole round of tools.
These runs need the package registries and minutes of time: they are not part of the everyday tests. What they taught is in
`packages/antiphon-gateway/tests/gateway/test_real_clients.py`, in small.
"""
