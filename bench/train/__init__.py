"""The worker side: one rank's trainer. Never imports hydra or pandas."""
