"""HTTP of both ends: a server, a client, and what they share. It knows nothing of models, keys or formats."""
