//! Stations: the mirror of the forwarding table.
//!
//! Shape: by key, port and when it was heard.
//! Units: ticks of the caller's own.
//! Source: pipeline.md §3.

use std::io::ErrorKind;

use aya::maps::{HashMap, MapError};

use crate::XdpError;
use crate::layout::{Station, map};
use crate::load::Xdp;

impl Xdp {
    fn stations_mut(&mut self) -> Result<HashMap<&mut aya::maps::MapData, u64, Station>, XdpError> {
        let all = self.ebpf.map_mut(map::STATIONS).ok_or(XdpError::Missing(map::STATIONS))?;
        HashMap::try_from(all).map_err(XdpError::map(map::STATIONS))
    }

    /// Puts a station in, or changes it.
    ///
    /// # Errors
    /// The table is full.
    pub fn put_station(&mut self, key: u64, port: u8, is_fixed: bool) -> Result<(), XdpError> {
        let heard = self.words().control().tick;
        let station = Station { port: u16::from(port), fixed: u16::from(is_fixed), heard };
        self.stations_mut()?.insert(key, station, 0).map_err(XdpError::map(map::STATIONS))
    }

    /// A station, if it is there.
    ///
    /// # Errors
    /// The kernel refuses the map.
    pub fn station(&self, key: u64) -> Result<Option<Station>, XdpError> {
        let all = self.ebpf.map(map::STATIONS).ok_or(XdpError::Missing(map::STATIONS))?;
        let all =
            HashMap::<_, u64, Station>::try_from(all).map_err(XdpError::map(map::STATIONS))?;
        match all.get(&key, 0) {
            Ok(station) => Ok(Some(station)),
            Err(MapError::KeyNotFound) => Ok(None),
            Err(why) => Err(XdpError::map(map::STATIONS)(why)),
        }
    }

    /// Takes a station out; true if it was there.
    ///
    /// # Errors
    /// The kernel refuses the map.
    pub fn remove_station(&mut self, key: u64) -> Result<bool, XdpError> {
        match self.stations_mut()?.remove(&key) {
            Ok(()) => Ok(true),
            Err(MapError::SyscallError(why)) if why.io_error.kind() == ErrorKind::NotFound => {
                Ok(false)
            }
            Err(why) => Err(XdpError::map(map::STATIONS)(why)),
        }
    }

    /// All stations with their keys, in no order; those that come or go meanwhile may be in or not.
    ///
    /// # Errors
    /// The kernel refuses the map.
    pub fn stations(&self) -> Result<Vec<(u64, Station)>, XdpError> {
        let all = self.ebpf.map(map::STATIONS).ok_or(XdpError::Missing(map::STATIONS))?;
        let all =
            HashMap::<_, u64, Station>::try_from(all).map_err(XdpError::map(map::STATIONS))?;
        let found = all.iter().filter_map(Result::ok).collect();
        Ok(found)
    }
}
