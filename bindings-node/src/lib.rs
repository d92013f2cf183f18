//! Bandog for Node.
