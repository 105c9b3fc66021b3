"""The demo source: a small HTTP service of our own, its OpenAPI document as data, and where it listens."""
