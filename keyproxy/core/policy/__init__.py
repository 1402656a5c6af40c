"""What a request body may hold: an allowlist over a parsed body, down to the last nested field."""
