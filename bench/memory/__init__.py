"""How much memory a gateway uses while clients send it more than it may keep."""
