"""Descriptions of the interface: the OpenAPI document, the reference page, the pages of error codes."""
