"""What hosts look like: facts, operations and deploys, registered with the engine."""
