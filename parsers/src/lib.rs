//! Wire views, emitters and the classification of a frame's first 64 bytes.
#![no_std]
#![forbid(unsafe_code)]
