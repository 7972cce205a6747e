"""The parts of SparkRunner: what is sent to executors, what they do with it, and what comes back."""
