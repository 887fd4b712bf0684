"""What a long turn costs: how large its requests are, how often a cached prompt breaks, and the bill."""
