"""What a caller may hand in, under what policy, and how it becomes encoded bytes or pixels."""
