//! Hosts and traffic that hang on a switch's ports.
