//! Ports around ports: a macro that hands methods of [`Port`] on to the port inside.
//!
//! `delegate!(caps, wait_fd => |self| self.port);` in an `impl Port` defines these methods. A wrapper names those that
//! it hands on, so a new method of the trait is added here once.

use super::Port;

/// Hands the named methods of [`Port`] on to another port.
macro_rules! delegate {
    ($($method:ident),+ => |$self:ident| $port:expr) => {
        $(delegate!(@$method |$self| $port);)+
    };
    (@caps |$self:ident| $port:expr) => {
        fn caps(&$self) -> &$crate::port::PortCaps {
            $port.caps()
        }
    };
    (@start |$self:ident| $port:expr) => {
        fn start(
            &mut $self,
            bufs: &mut $crate::pool::Bufs,
        ) -> Result<(), $crate::port::PortOpenError> {
            $port.start(bufs)
        }
    };
    (@rx |$self:ident| $port:expr) => {
        fn rx(
            &mut $self,
            now: $crate::time::Instant,
            bufs: &mut $crate::pool::Bufs,
            batch: &mut $crate::batch::Batch,
        ) -> usize {
            $port.rx(now, bufs, batch)
        }
    };
    (@tx_room |$self:ident| $port:expr) => {
        fn tx_room(&mut $self, now: $crate::time::Instant) -> usize {
            $port.tx_room(now)
        }
    };
    (@tx |$self:ident| $port:expr) => {
        fn tx(
            &mut $self,
            now: $crate::time::Instant,
            bufs: &mut $crate::pool::Bufs,
            batch: &mut $crate::batch::Batch,
        ) -> usize {
            $port.tx(now, bufs, batch)
        }
    };
    (@sending |$self:ident| $port:expr) => {
        fn sending(&mut $self) -> usize {
            $port.sending()
        }
    };
    (@service |$self:ident| $port:expr) => {
        fn service(
            &mut $self,
            now: $crate::time::Instant,
            bufs: &mut $crate::pool::Bufs,
        ) -> Result<(), $crate::port::PortError> {
            $port.service(now, bufs)
        }
    };
    (@link_up |$self:ident| $port:expr) => {
        fn link_up(&$self) -> bool {
            $port.link_up()
        }
    };
    (@fast_path |$self:ident| $port:expr) => {
        fn fast_path(&mut $self) -> Option<&mut dyn $crate::port::FastPath> {
            $port.fast_path()
        }
    };
    (@super_frames |$self:ident| $port:expr) => {
        fn super_frames(&mut $self) -> Option<&mut dyn $crate::port::SuperFrames> {
            $port.super_frames()
        }
    };
    (@counters |$self:ident| $port:expr) => {
        fn counters(&$self) -> $crate::port::PortCounters {
            $port.counters()
        }
    };
    (@link_fd |$self:ident| $port:expr) => {
        fn link_fd(&$self) -> Option<std::os::fd::BorrowedFd<'_>> {
            $port.link_fd()
        }
    };
    (@rx_gauge |$self:ident| $port:expr) => {
        fn rx_gauge(&$self) -> Option<$crate::port::RxGauge> {
            $port.rx_gauge()
        }
    };
    (@wait_fd |$self:ident| $port:expr) => {
        fn wait_fd(&$self) -> Option<std::os::fd::BorrowedFd<'_>> {
            $port.wait_fd()
        }
    };
    (@next_event |$self:ident| $port:expr) => {
        fn next_event(&$self) -> Option<$crate::time::Instant> {
            $port.next_event()
        }
    };
    (@idle_at |$self:ident| $port:expr) => {
        fn idle_at(&$self) -> Option<$crate::time::Instant> {
            $port.idle_at()
        }
    };
    (@release |$self:ident| $port:expr) => {
        fn release(&mut $self, bufs: &mut $crate::pool::Bufs) {
            $port.release(bufs);
        }
    };
}
pub(super) use delegate;

impl<P: Port + ?Sized> Port for Box<P> {
    delegate!(
        caps, start, rx, tx_room, tx, sending, service, link_up, fast_path, super_frames, counters, rx_gauge, wait_fd, link_fd,
        next_event, idle_at, release => |self| **self
    );
}
