"""The chat: what a person uses in a terminal and on a page, and the guided tour that needs no model."""
