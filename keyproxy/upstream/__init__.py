"""The way to the provider: one HTTP client, one constant address, our key."""
