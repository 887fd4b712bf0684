"""What a person sets up for a chat on this machine: keys, models, tools of their own."""
