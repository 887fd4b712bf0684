"""The chat as a part of a gateway: mounted, shared by its workers, and metered."""
