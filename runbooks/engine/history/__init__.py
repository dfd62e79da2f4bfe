"""What is known of past runs, from their journals."""
