//! Tests of both halves of CXL.cache.

mod explore;
mod home;
