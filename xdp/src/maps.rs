//! Maps of a loaded object, by name.
//!
//! [`map_of`] returns a map as aya's type for its kind; [`mapped`] maps an array into memory.
//!
//! Source: bpf(2), mmap(2).

use std::os::fd::AsFd;

use aya::Ebpf;
use aya::maps::{Map, MapData};

use crate::XdpError;
use crate::sys::Mapped;

/// A map, for writing.
pub(crate) fn map_of<'a, T>(ebpf: &'a mut Ebpf, name: &'static str) -> Result<T, XdpError>
where
    T: TryFrom<&'a mut Map, Error = aya::maps::MapError>,
{
    let found = ebpf.map_mut(name).ok_or(XdpError::Missing(name))?;
    T::try_from(found).map_err(XdpError::map(name))
}

/// Maps an array of `words` words of 8 bytes into memory.
pub(crate) fn mapped(ebpf: &Ebpf, name: &'static str, words: usize) -> Result<Mapped, XdpError> {
    let Some(Map::Array(data)) = ebpf.map(name) else { return Err(XdpError::Missing(name)) };
    let data: &MapData = data;
    Mapped::new(data.fd().as_fd(), words).map_err(|source| XdpError::Mmap { name, source })
}
