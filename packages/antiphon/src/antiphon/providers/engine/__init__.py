"""One upstream request and how its response is read and judged."""
