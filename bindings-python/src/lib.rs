//! Bandog for Python.
