"""How bodies and streams are decoded and encoded, for every format."""
