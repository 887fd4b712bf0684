"""What the gateway keeps between requests: answers, conversations, and answers that are generated in the background."""
