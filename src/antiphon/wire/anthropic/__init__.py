"""Anthropic's Messages API: requests, responses, streams and rules."""
