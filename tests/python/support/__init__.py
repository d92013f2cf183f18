"""What the behaviour tests share beside conftest.py."""
