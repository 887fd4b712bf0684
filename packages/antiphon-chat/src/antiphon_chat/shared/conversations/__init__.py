"""Stored conversations as a person sees them: titles, pins and tags, branches, and exports to read elsewhere."""
