//! Tests of both halves of CXL.cache.

mod agent;
mod explore;
mod home;
