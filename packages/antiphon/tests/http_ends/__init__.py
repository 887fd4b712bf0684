"""Tests of `antiphon.http`. The folder is not named `http`, which is a module of the standard library."""
