"""Fixtures for the pages of the course."""

from lesson_pages import own_page, page, shared, site  # noqa: F401
