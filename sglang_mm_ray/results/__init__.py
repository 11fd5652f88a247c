"""What a pool answers with."""
