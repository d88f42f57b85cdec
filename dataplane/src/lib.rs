//! The switching core and the ports it runs on.
