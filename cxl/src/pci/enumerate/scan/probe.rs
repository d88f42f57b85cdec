//! Probes a function: header, capabilities, sizes of BARs, hot-plug slot.
//!
//! The result is a [`Node`], or a [`ProblemKind`] for a function that is left out.
//!
//! Source: PCIe 6.0 §2.3.1, §7.5, §7.6.3; CXL 3.1 §8.1.

use weft_parsers::fabric::Bdf;

use super::Scanner;
use crate::pci::cxl::{self, CxlKind};
use crate::pci::enumerate::wire::Done;
use crate::pci::express::PortKind;
use crate::pci::function::BarKind;
use crate::pci::regs::{self, cap, doe, dvsec, express, ext, lnr};
use crate::pci::tree::{Bar, Below, Node, ProblemKind};

/// Vendor ID of a function that is not ready (PCIe 6.0 §2.3.1, retry status with software visibility).
const NOT_READY: u16 = 0x0001;
/// First byte behind a configuration space.
const EXT_END: u16 = 0x1000;
/// Maximum length of the capability list, end included: double words between header and 100h.
const LIST_MAX: usize = 49;
/// Maximum length of the extended capability list, end included.
const EXT_MAX: usize = 961;

impl Scanner {
    /// Vendor and Device ID of a function, after waiting for it to become ready; `None` if there is none.
    pub(super) fn probe(&mut self, bdf: Bdf) -> Done<Option<u32>> {
        for retry in 0..=self.host.retries {
            let id = self.wire.read(bdf, regs::VENDOR)?;
            let [a, b, ..] = id.to_le_bytes();
            match u16::from_le_bytes([a, b]) {
                0 | u16::MAX => return Ok(None),
                NOT_READY if retry < self.host.retries => {
                    self.wire.wait(self.host.retry_ns)?;
                }
                NOT_READY => {}
                _ => return Ok(Some(id)),
            }
        }
        self.problem(bdf, ProblemKind::NotReady);
        Ok(None)
    }

    pub(super) fn node(&mut self, bdf: Bdf, id: u32, header: u8) -> Done<Option<Node>> {
        let bars = match header {
            0 => 6,
            1 => 2,
            // All ones: the function was there at the probe.
            0x7F => {
                self.problem(bdf, ProblemKind::Lost);
                return Ok(None);
            }
            _ => {
                self.problem(bdf, ProblemKind::Header(header));
                return Ok(None);
            }
        };
        let [a, b, c, d] = id.to_le_bytes();
        let mut node = Node {
            bdf,
            vendor: u16::from_le_bytes([a, b]),
            device: u16::from_le_bytes([c, d]),
            class: self.wire.read(bdf, regs::REVISION)? >> 8,
            ..Node::default()
        };
        // BARs are sized below, and their patterns must not be decoded.
        self.wire.write16(bdf, regs::COMMAND, 0)?;
        self.capabilities(&mut node)?;
        if node.express.is_some() {
            self.extended(&mut node)?;
        }
        node.bars = self.bars(bdf, bars)?;
        if header == 1 {
            if let Some((_, at)) = node.express {
                let [.., port] = self.wire.read(bdf, at + express::LINK_CAP)?.to_le_bytes();
                node.port = Some(port);
            }
            let slot = self.slot(&node)?;
            let pref64 = self.wire.read(bdf, regs::PREF_WINDOW)? & 0xF == 1;
            node.below = Some(Below { pref64, slot, ..Below::default() });
        }
        // Everything above was read as all ones if the function left meanwhile; its id, read again, tells.
        if self.wire.read(bdf, regs::VENDOR)? != id {
            self.problem(bdf, ProblemKind::Lost);
            return Ok(None);
        }
        Ok(Some(node))
    }

    fn capabilities(&mut self, node: &mut Node) -> Done<()> {
        let bdf = node.bdf;
        // Without the bit the pointer is undefined.
        if self.wire.read16(bdf, regs::STATUS)? & regs::status::CAPABILITIES == 0 {
            return Ok(());
        }
        let [first, ..] = self.wire.read(bdf, regs::CAPABILITIES)?.to_le_bytes();
        let mut at = u16::from(first & !3);
        // Bounded, as a broken list may lead back into itself.
        for _ in 0..LIST_MAX {
            if at == 0 {
                return Ok(());
            }
            if at < 0x40 {
                break;
            }
            let [id, next, low, high] = self.wire.read(bdf, at)?.to_le_bytes();
            match id {
                cap::EXPRESS if node.express.is_none() => {
                    let kind =
                        PortKind::from_bits(u16::from_le_bytes([low, high]).to_le_bytes()[0] >> 4);
                    node.express = Some((kind, at));
                }
                cap::MSI if node.msi.is_none() => node.msi = Some(at),
                _ => {}
            }
            at = u16::from(next & !3);
        }
        self.problem(bdf, ProblemKind::Capabilities(at));
        Ok(())
    }

    fn extended(&mut self, node: &mut Node) -> Done<()> {
        let bdf = node.bdf;
        let mut at = 0x100;
        for _ in 0..EXT_MAX {
            let header = self.wire.read(bdf, at)?;
            let [a, b, c, d] = header.to_le_bytes();
            // All ones: the function has left, or has no extended space. Zero: it has no extended capabilities.
            if header == 0 || header == u32::MAX {
                return Ok(());
            }
            match u16::from_le_bytes([a, b]) {
                ext::SERIAL if at <= 0xFF4 => {
                    let low = self.wire.read(bdf, at + 4)?;
                    let high = self.wire.read(bdf, at + 8)?;
                    node.serial = Some(u64::from(high) << 32 | u64::from(low));
                }
                ext::LNR if at <= 0xFF8 => {
                    let [low, high, ..] = self.wire.read(bdf, at + lnr::CAP)?.to_le_bytes();
                    (node.lnr, node.lnr_capability) = (Some(at), u16::from_le_bytes([low, high]));
                }
                ext::DVSEC if at <= 0xFF4 => self.dvsec(node, at)?,
                ext::DOE if at <= EXT_END - doe::LEN => node.doe.push(at),
                _ => {}
            }
            at = u16::from_le_bytes([c, d]) >> 4 & !3;
            if at == 0 {
                return Ok(());
            }
            if at < 0x100 {
                break;
            }
        }
        self.problem(bdf, ProblemKind::Capabilities(at));
        Ok(())
    }

    fn dvsec(&mut self, node: &mut Node, at: u16) -> Done<()> {
        let bdf = node.bdf;
        let header1 = self.wire.read(bdf, at + dvsec::HEADER1)?;
        let header2 = self.wire.read(bdf, at + dvsec::HEADER2)?;
        if header1 & 0xFFFF != u32::from(dvsec::CXL) {
            return Ok(());
        }
        let [id_low, id_high, low, high] = header2.to_le_bytes();
        match u16::from_le_bytes([id_low, id_high]) {
            dvsec::CXL_DEVICE => {
                node.cxl = CxlKind::from_bits(u16::from_le_bytes([low, high]));
                node.cache_control =
                    node.cxl.filter(|it| it.has_cache() && at <= 0xFC8).map(|_| at);
                if matches!(node.cxl, Some(CxlKind::Type2 | CxlKind::Type3)) && at <= 0xFC8 {
                    self.read_memory(node, at)?;
                }
            }
            dvsec::LOCATOR => {
                let len = u16::try_from(header1 >> 20).unwrap_or(0);
                let end = at.saturating_add(len).min(0x1000);
                let mut words = Vec::new();
                for offset in (at..end).step_by(4) {
                    words.push(self.wire.read(bdf, offset)?);
                }
                node.blocks = cxl::register_blocks(&words);
            }
            _ => {}
        }
        Ok(())
    }

    /// Sizes the BARs by writing ones.
    fn bars(&mut self, bdf: Bdf, count: u8) -> Done<Vec<Bar>> {
        let mut bars = Vec::new();
        let mut index = 0;
        while index < count {
            let this = index;
            index += 1;
            let low = self.size_register(bdf, this)?;
            if low == 0 {
                continue;
            }
            let wide = low & 7 == 4;
            let high = if wide && index < count {
                index += 1;
                self.size_register(bdf, this + 1)?
            } else {
                u32::MAX
            };
            if let Some(bar) = parse_bar(this, low, high, !wide || this + 1 < count) {
                bars.push(bar);
            } else {
                let high = if wide { high } else { 0 };
                let answer = u64::from(high) << 32 | u64::from(low);
                self.problem(bdf, ProblemKind::Bar { index: this, answer });
            }
        }
        Ok(bars)
    }

    fn size_register(&mut self, bdf: Bdf, index: u8) -> Done<u32> {
        let at = regs::BAR0 + 4 * u16::from(index);
        self.wire.write(bdf, at, u32::MAX)?;
        let answer = self.wire.read(bdf, at)?;
        self.wire.write(bdf, at, 0)?;
        Ok(answer)
    }

    /// The number of a hot-plug slot, whose old events are cleared.
    pub(super) fn slot(&mut self, node: &Node) -> Done<Option<u16>> {
        let Some((Some(kind), at)) = node.express else { return Ok(None) };
        let caps = self.wire.read16(node.bdf, at + express::CAP)?;
        if !kind.is_above_link() || caps & express::CAP_SLOT == 0 {
            return Ok(None);
        }
        let slot = self.wire.read(node.bdf, at + express::SLOT_CAP)?;
        if slot & express::SLOT_CAP_HOT_PLUG == 0 {
            return Ok(None);
        }
        let status = self.wire.read16(node.bdf, at + express::SLOT_STA)?;
        self.wire.write16(node.bdf, at + express::SLOT_STA, status)?;
        Ok(u16::try_from(slot >> 19).ok())
    }
}

/// A BAR, from the values read back after ones were written to it; `None` if they are impossible.
fn parse_bar(index: u8, low: u32, high: u32, whole: bool) -> Option<Bar> {
    let (kind, mask) = match low & 7 {
        1 | 5 => {
            // The upper half of an I/O BAR may be hardwired to 0.
            let mask = low & !3;
            (BarKind::Io, if mask >> 16 == 0 { mask | 0xFFFF_0000 } else { mask })
        }
        0 => (BarKind::Mem32 { prefetch: low & 8 != 0 }, low & !15),
        4 if whole => (BarKind::Mem64 { prefetch: low & 8 != 0 }, low & !15),
        _ => return None,
    };
    let mask = u64::from(mask) | u64::from(high) << 32;
    let size = (!mask).checked_add(1)?;
    let fits = matches!(kind, BarKind::Mem64 { .. }) || size <= 1 << 31;
    (size.is_power_of_two() && fits).then_some(Bar { index, kind, size, address: None })
}
