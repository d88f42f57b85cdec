//! A device of DPDK: found or created, configured, started, queried, closed.
//!
//! Named by devargs, such as `net_tap0,iface=t0` or `0000:03:00.0`.
//!
//! Source: DPDK 22.11 `rte_ethdev.h`, `rte_dev.h`.

use core::ptr::null;
use std::ffi::{CStr, CString, c_int};
use std::io;

use weft_dpdk_sys as sys;
use weft_parsers::MacAddr;

use super::{calls, interrupts};
use crate::port::error::{Refused, at};

/// Bytes of a frame that the MTU does not count: addresses, type and a tag.
const BESIDE_MTU: usize = 18;
/// Bytes that some drivers want in a receive buffer beyond the MTU: header, two tags, FCS.
const AROUND_MTU: usize = 26;
/// Smallest MTU that DPDK accepts.
const MTU_MIN: usize = 68;

/// Counters since the device was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Frames that were lost before the port could receive them.
    pub rx_lost: u64,
    /// Frames that the device took and did not send.
    pub tx_failed: u64,
}

/// A device that this port owns.
pub struct Device {
    id: u16,
    owner: u64,
    info: sys::rte_eth_dev_info,
    driver: String,
    bus: String,
    hides_partial: bool,
    started: bool,
    before: Counts,
}

// SAFETY: the pointers of `info` are DPDK's own, which stay while the device does.
unsafe impl Send for Device {}

/// Parameters of a device.
pub struct Setup {
    /// Number of receive queues.
    pub queues: u16,
    /// Descriptors of each receive queue.
    pub rx_descriptors: u16,
    /// Descriptors of the transmit queue.
    pub tx_descriptors: u16,
    /// Longest frame in bytes, without FCS.
    pub frame_len_max: usize,
    /// Bytes for a frame in a receive buffer.
    pub room: usize,
    /// Mempool that receive queues take buffers from.
    pub mempool: *mut sys::rte_mempool,
}

impl Device {
    /// Finds or creates the device that `devargs` describe, and takes ownership.
    ///
    /// # Errors
    /// There is no such device or driver, its arguments are wrong, or another port has it.
    pub fn attach(devargs: &str) -> Result<Self, Refused> {
        let text = CString::new(devargs)
            .map_err(|e| at("read the device's arguments")(io::Error::other(e)))?;
        // DPDK names a virtual device by its driver. The kernel refuses this one's memory with weft's buffers (chunks
        // below 2048 bytes); with longer ones it lost frames between pages of its mempool.
        if devargs.starts_with("net_af_xdp") {
            let why = "use kind = \"af_xdp\" with the interface as device: weft opens AF_XDP itself, without DPDK's copies";
            return Err(at("attach the device")(io::Error::other(why)));
        }
        // It may have been made by `eal_args`, or left by a port before.
        let id = if let Some(id) = Self::find(devargs) {
            id
        } else {
            // SAFETY: a C string.
            calls::call(|| unsafe { sys::rte_dev_probe(text.as_ptr()) })
                .map_err(at("attach the device"))?;
            Self::find(devargs).ok_or_else(|| {
                let none = "its driver made no Ethernet port of this name";
                at("find the device's port")(io::Error::other(none))
            })?
        };
        let owner = Self::own(id)?;
        let mut info = sys::rte_eth_dev_info::default();
        // SAFETY: `info` is what the call fills.
        calls::call(|| unsafe { sys::rte_eth_dev_info_get(id, &raw mut info) })
            .map_err(at("ask for the device's facts"))?;
        // SAFETY: DPDK has filled in the device that it belongs to.
        let bus = unsafe { sys::rte_dev_bus(info.device) };
        // SAFETY: a bus of DPDK's.
        let bus = unsafe { sys::rte_bus_name(bus) };
        let (driver, bus) = (text_of(info.driver_name), text_of(bus));
        let hides_partial = driver == "net_af_packet";
        Ok(Self {
            id,
            owner,
            info,
            driver,
            bus,
            hides_partial,
            started: false,
            before: Counts::default(),
        })
    }

    /// DPDK's port number of an existing device.
    fn find(devargs: &str) -> Option<u16> {
        let name = devargs.split(',').next().unwrap_or(devargs);
        // A PCI address may be given without its domain.
        [name.to_owned(), format!("0000:{name}")].iter().find_map(|name| {
            let (name, mut id) = (CString::new(name.as_str()).ok()?, 0);
            // SAFETY: a C string, and a number to fill in; no port of that name is a refusal.
            (unsafe { sys::rte_eth_dev_get_port_by_name(name.as_ptr(), &raw mut id) } == 0)
                .then_some(id)
        })
    }

    /// Reserves the port against other users of DPDK in this process.
    fn own(id: u16) -> Result<u64, Refused> {
        let at = |source| Refused { call: "take the device", source };
        let mut owner = sys::rte_eth_dev_owner::default();
        // SAFETY: `owner.id` is what the call fills.
        calls::call(|| unsafe { sys::rte_eth_dev_owner_new(&raw mut owner.id) }).map_err(at)?;
        for (to, &from) in owner.name.iter_mut().zip(b"weft") {
            *to = from.cast_signed();
        }
        // SAFETY: DPDK copies the owner.
        calls::call(|| unsafe { sys::rte_eth_dev_owner_set(id, &raw const owner) }).map_err(at)?;
        Ok(owner.id)
    }

    pub const fn id(&self) -> u16 {
        self.id
    }

    /// Whether the driver can use buffers outside of its mempool's own memory. The virtual devices listed were tried.
    /// Of PCI devices, drivers can that find memory by its DMA mapping, if addresses on the bus are those of the
    /// process.
    pub fn takes_foreign_memory(&self) -> bool {
        match self.bus.as_str() {
            "vdev" => ["net_null", "net_ring", "net_pcap", "net_af_packet", "net_tap"]
                .contains(&self.driver.as_str()),
            "pci" => {
                // These look a buffer up in their mempool's memory, where chunks of the pool are not.
                let by_mempool = ["mlx5_pci", "net_mlx5", "mlx4_pci", "net_mlx4"];
                // SAFETY: plain call.
                let mode = unsafe { sys::rte_eal_iova_mode() };
                mode == sys::rte_iova_mode_RTE_IOVA_VA
                    && !by_mempool.contains(&self.driver.as_str())
            }
            _ => false,
        }
    }

    /// Whether it is a PCI device, which accesses buffers by DMA and needs them mapped.
    pub fn is_pci(&self) -> bool {
        self.bus == "pci"
    }

    /// Whether its wires are rings in memory, which another port may use, too.
    pub fn is_ring(&self) -> bool {
        self.driver == "net_ring"
    }

    /// DPDK's handle of the device, for mapping memory.
    pub const fn handle(&self) -> *mut sys::rte_device {
        self.info.device
    }

    /// Whether partial checksums look complete: a packet socket reports them in metadata that this driver does not
    /// read.
    pub fn hides_partial_checksums(&self) -> bool {
        self.hides_partial
    }

    /// Whether the device is started.
    pub const fn is_started(&self) -> bool {
        self.started
    }

    pub fn driver(&self) -> &str {
        &self.driver
    }

    /// The device's MAC address; `None` if it has no unicast address.
    pub fn mac(&self) -> Option<MacAddr> {
        let mut address = sys::rte_ether_addr::default();
        // SAFETY: `address` is what the call fills.
        let got = unsafe { sys::rte_eth_macaddr_get(self.id, &raw mut address) };
        let mac = MacAddr(address.addr_bytes);
        (got == 0 && mac != MacAddr::ZERO && !mac.is_group()).then_some(mac)
    }

    /// Sets queues, MTU and promiscuous mode, and starts the device.
    ///
    /// # Errors
    /// The device does not support the setup.
    pub fn start(&mut self, setup: &Setup) -> Result<(), Refused> {
        let id = self.id;
        self.configure(setup)?;
        let (mut rx, mut tx) = (setup.rx_descriptors, setup.tx_descriptors);
        // SAFETY: both numbers are changed to what the device can do.
        let adjusted =
            || unsafe { sys::rte_eth_dev_adjust_nb_rx_tx_desc(id, &raw mut rx, &raw mut tx) };
        calls::call(adjusted).map_err(at("fit the number of descriptors"))?;
        // SAFETY: plain call.
        let node = unsafe { sys::rte_eth_dev_socket_id(id) }.cast_unsigned();
        for queue in 0..setup.queues {
            // SAFETY: the mempool outlives the device's queues.
            calls::call(|| unsafe {
                sys::rte_eth_rx_queue_setup(id, queue, rx, node, null(), setup.mempool)
            })
            .map_err(at("set up a receive queue"))?;
        }
        // SAFETY: the driver's own settings are taken.
        calls::call(|| unsafe { sys::rte_eth_tx_queue_setup(id, 0, tx, node, null()) })
            .map_err(at("set up the transmit queue"))?;
        // Before the start: many drivers refuse a new MTU while they run.
        self.set_mtu(setup.frame_len_max)?;
        // SAFETY: plain call.
        calls::call(|| unsafe { sys::rte_eth_dev_start(id) }).map_err(at("start the device"))?;
        self.started = true;
        // SAFETY: plain call.
        where_supported(|| unsafe { sys::rte_eth_promiscuous_enable(id) })
            .map_err(at("make the device promiscuous"))?;
        // A device that an earlier port used keeps its counters.
        self.before = self.read_counts().unwrap_or_default();
        Ok(())
    }

    fn configure(&self, setup: &Setup) -> Result<(), Refused> {
        // SAFETY: numbers, null pointers and flags, all of which may be zero.
        let mut conf: sys::rte_eth_conf = unsafe { core::mem::zeroed() };
        if setup.queues > 1 {
            conf.rxmode.mq_mode = sys::rte_eth_rx_mq_mode_RTE_ETH_MQ_RX_RSS;
            conf.rx_adv_conf.rss_conf = sys::rte_eth_rss_conf {
                rss_hf: self.info.flow_type_rss_offloads & sys::WEFT_DPDK_RSS,
                ..Default::default()
            };
        }
        if setup.room < setup.frame_len_max - BESIDE_MTU + AROUND_MTU {
            conf.rxmode.offloads = self.info.rx_offload_capa & sys::WEFT_DPDK_RX_SCATTER;
        }
        // SAFETY: DPDK's own word of flags, or null.
        let flags = unsafe { self.info.dev_flags.as_ref() }.copied().unwrap_or(0);
        if self.is_pci() && flags & sys::WEFT_DPDK_LINK_INTERRUPT != 0 {
            conf.intr_conf.set_lsc(1); // so that asking for the link is cheap
        }
        // SAFETY: DPDK copies the settings.
        calls::call(|| unsafe {
            sys::rte_eth_dev_configure(self.id, setup.queues, 1, &raw const conf)
        })
        .map(drop)
        .map_err(at("configure the device"))
    }

    /// Sets the MTU for frames of `frame_len_max`, or the device's largest. A device whose present MTU exceeds the
    /// maximum that it reports keeps the present one.
    fn set_mtu(&self, frame_len_max: usize) -> Result<(), Refused> {
        let at = |source| Refused { call: "set the MTU", source };
        let mut now = 0;
        // SAFETY: `now` is what the call fills.
        calls::call(|| unsafe { sys::rte_eth_dev_get_mtu(self.id, &raw mut now) }).map_err(at)?;
        let info = &self.info;
        let longest = usize::try_from(info.max_rx_pktlen).unwrap_or(usize::MAX);
        let most = longest.saturating_sub(BESIDE_MTU).min(info.max_mtu.into());
        let want = (frame_len_max - BESIDE_MTU).max(MTU_MIN);
        let mtu = u16::try_from(if want > most { most.max(now.into()) } else { want });
        let mtu = mtu.unwrap_or(u16::MAX);
        if mtu == now {
            return Ok(());
        }
        // SAFETY: plain call.
        where_supported(|| unsafe { sys::rte_eth_dev_set_mtu(self.id, mtu) }).map_err(at)
    }

    /// Whether the device is started and its link is up.
    pub fn link_up(&self) -> bool {
        /// Aligned, as DPDK writes the link state as one 8-byte word.
        #[repr(C, align(8))]
        #[derive(Default)]
        struct Aligned(sys::rte_eth_link);
        let mut link = Aligned::default();
        // SAFETY: `link` is what the call fills.
        let got = unsafe { sys::rte_eth_link_get_nowait(self.id, &raw mut link.0) };
        self.started && got == 0 && link.0.link_status() != 0
    }

    /// Counters since the device was started.
    ///
    /// # Errors
    /// The device is gone.
    pub fn counts(&self) -> io::Result<Counts> {
        let now = self.read_counts()?;
        Ok(Counts {
            rx_lost: now.rx_lost.saturating_sub(self.before.rx_lost),
            tx_failed: now.tx_failed.saturating_sub(self.before.tx_failed),
        })
    }

    fn read_counts(&self) -> io::Result<Counts> {
        let mut stats = sys::rte_eth_stats::default();
        // SAFETY: `stats` is what the call fills.
        let got = unsafe { sys::rte_eth_stats_get(self.id, &raw mut stats) };
        if got < 0 {
            return Err(io::Error::from_raw_os_error(-got));
        }
        // net_tap counts frames that it did not take; these are still in the batch and will be sent again.
        let tx_failed = if self.driver == "net_tap" { 0 } else { stats.oerrors };
        Ok(Counts { rx_lost: stats.imissed + stats.ierrors + stats.rx_nombuf, tx_failed })
    }

    /// Stops the device, which then returns most of its buffers.
    pub fn stop(&mut self) {
        if core::mem::take(&mut self.started) {
            // SAFETY: plain call; a refusal leaves what `close` ends.
            unsafe { sys::rte_eth_dev_stop(self.id) };
        }
    }
}

/// Closes and removes the device, which returns all its buffers. A ring stays, as another port may be at its other end.
impl Drop for Device {
    fn drop(&mut self) {
        self.stop();
        if self.is_ring() {
            // SAFETY: plain call.
            unsafe { sys::rte_eth_dev_owner_unset(self.id, self.owner) };
            return;
        }
        // Its driver may still be handling a lost link, and would free the far end's memory a second time.
        interrupts::settle();
        // SAFETY: the device is stopped and nobody but us has it.
        drop(calls::call(|| unsafe { sys::rte_eth_dev_close(self.id) }));
        // SAFETY: its only port is closed.
        drop(calls::call(|| unsafe { sys::rte_dev_remove(self.info.device) }));
    }
}

/// Makes a call that a driver may not support; that is no error.
fn where_supported(call: impl FnOnce() -> c_int) -> io::Result<()> {
    match calls::call(call) {
        Err(e) if e.kind() == io::ErrorKind::Unsupported => Ok(()),
        result => result.map(drop),
    }
}

/// Copies a C string of DPDK; empty for null.
fn text_of(text: *const core::ffi::c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: DPDK's names end with a zero and stay while their device does.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}
