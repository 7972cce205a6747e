"""Tests of redis_acker.testing, and Storm's own tests of timeouts and acking, by behaviour."""
