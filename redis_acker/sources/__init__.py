"""Sources: spouts that read from files, queues and streams."""
