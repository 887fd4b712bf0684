"""The gateway: any client to any model, repaired, rotated, reloaded and measured. `antiphon serve` runs it."""
