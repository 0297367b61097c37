"""What people look at. Never imports torch; computes no figure of its own."""
