"""Tests of the command line, and the terminal it is run on."""
