"""Tools in every format: names, schemas, call ids and arguments."""
