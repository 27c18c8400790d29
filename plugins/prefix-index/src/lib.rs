//! Which endpoint holds which blocks of a prompt: block hashing and the one prefix index.
