//! Accesses of a host to the registers of its virtual switch that change it, and commands of its GAE's mailbox.
//!
//! Source: CXL 3.1 sections 7.7.2.6, 8.2.8.4; docs/spec/wire-formats.md §4.6.

use weft_cxl::cci::{Session, serve};
use weft_cxl::pci::mailbox::{self, Command};
use weft_cxl::pci::{ByteEnables, Reg};
use weft_dataplane::pbr::Function;
use weft_dataplane::time::Instant;
use weft_parsers::cci::{Header, Opcode, header};
use weft_parsers::fabric::Hpa;

use super::Switch;
use crate::event::Event;

impl Switch {
    /// Writes a register of a function; false if there is no such function.
    pub fn config_write(
        &mut self,
        vcs: u8,
        function: Function,
        reg: Reg,
        value: u32,
        enables: ByteEnables,
    ) -> bool {
        self.change(|vcses, _| vcses.config_write(vcs, function, reg, value, enables))
    }

    /// Writes registers of a function in memory; false if the address is not one of them. A commit of `CacheID`s that
    /// the write requests has been judged, or has begun, on return.
    pub fn register_write(
        &mut self,
        now: Instant,
        vcs: u8,
        function: Function,
        address: Hpa,
        bytes: &[u8],
    ) -> bool {
        if function == Function::Gae {
            return self.gae_write(now, vcs, address, bytes);
        }
        self.change(|vcses, ports| vcses.component_write(ports, vcs, function, address, bytes))
    }

    /// Writes registers of the GAE in memory; false if the address is not the GAE's. A command whose doorbell is rung
    /// has been carried out on return.
    pub fn gae_write(&mut self, now: Instant, vcs: u8, address: Hpa, bytes: &[u8]) -> bool {
        let state = self.vcses.get_mut(vcs);
        let Some(effects) = state.and_then(|state| state.gae_write(address, bytes)) else {
            return false;
        };
        // One interrupt for both causes: the register write itself, and the end of the command it rang for.
        let mut interrupt = effects.interrupt;
        if let Some(command) = effects.command {
            interrupt |= self.mailbox_command(now, vcs, &command);
        }
        if interrupt {
            self.vcses.push(Event::GaeInterrupt { vcs });
        }
        true
    }

    /// Carries out a command of the mailbox for its host; true if an interrupt must be sent.
    fn mailbox_command(&mut self, now: Instant, vcs: u8, command: &Command) -> bool {
        // `serve` takes whole messages, so that a host's command passes the same checks as a manager's.
        let mut message = vec![0; header::LEN];
        let header = Header::request(Opcode(command.opcode), 0);
        let written = header.emit(command.payload.len(), &mut message);
        debug_assert!(written.is_some(), "a mailbox is smaller than a payload may be");
        message.extend_from_slice(&command.payload);
        let mut out = Vec::new();
        serve(self, now, Session::Host { vcs }, &message, &mut out);
        let gae = self.vcses.get_mut(vcs).and_then(|state| state.gae.as_mut());
        let Some(gae) = gae else { return false };
        match Header::parse(&out) {
            Ok((header, payload)) => {
                gae.mailbox.complete(header.return_code.bits(), header.vendor_status, payload)
            }
            // Commands of hosts are all answered at once; a pending or ignored one would leave the doorbell set for
            // ever.
            Err(_) => gae.mailbox.complete(mailbox::code::INTERNAL, 0, &[]),
        }
    }
}
