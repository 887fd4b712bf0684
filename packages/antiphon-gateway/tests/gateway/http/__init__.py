"""The ports of the gateway, over HTTP."""
