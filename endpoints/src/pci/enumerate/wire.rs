//! Registers as something to wait for: one request at a time, and its answer.
//!
//! Shape: the enumerator's outside sees [`Wire::request`] and [`Wire::answer`], its inside awaits.
//! Units: octets.
//! Source: see the enumerator.

use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use weft_parsers::fabric::Bdf;

use super::{EnumerateError, Request};
use crate::pci::space::{ByteEnables, Reg};

/// What a request brought: a value, or nothing.
#[derive(Clone, Copy, Debug)]
struct Answer(Option<u32>);

#[derive(Clone, Copy, Debug, Default)]
struct Exchange {
    request: Option<Request>,
    answer: Option<Answer>,
    count: u64,
    max: u64,
}

/// Shared by the two sides of one enumerator; never contended.
#[derive(Clone, Debug)]
pub(super) struct Wire(Arc<Mutex<Exchange>>);

impl Wire {
    pub(super) fn new(max: u64) -> Self {
        Self(Arc::new(Mutex::new(Exchange { max, ..Exchange::default() })))
    }

    fn exchange(&self) -> MutexGuard<'_, Exchange> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn request(&self) -> Option<Request> {
        self.exchange().request
    }

    pub(super) fn answer(&self, value: Option<u32>) {
        let mut exchange = self.exchange();
        if exchange.request.take().is_some() {
            exchange.answer = Some(Answer(value));
        }
    }

    pub(super) fn count(&self) -> u64 {
        self.exchange().count
    }

    async fn ask(&self, request: Request) -> Result<Option<u32>, EnumerateError> {
        {
            let mut exchange = self.exchange();
            if exchange.count >= exchange.max {
                return Err(EnumerateError::TooManyAccesses { max: exchange.max });
            }
            exchange.count += 1;
            exchange.request = Some(request);
        }
        let arrived = poll_fn(|_| self.exchange().answer.take().map_or(Poll::Pending, Poll::Ready));
        let Answer(value) = arrived.await;
        Ok(value)
    }

    /// The double word that holds `offset`; all ones where nothing answers.
    pub(super) async fn read(&self, bdf: Bdf, offset: u16) -> Result<u32, EnumerateError> {
        let answer = self.ask(Request::Read { bdf, reg: Reg::at(offset) }).await?;
        Ok(answer.unwrap_or(u32::MAX))
    }

    /// The u16 at `offset`.
    pub(super) async fn read16(&self, bdf: Bdf, offset: u16) -> Result<u16, EnumerateError> {
        let [a, b, c, d] = self.read(bdf, offset).await?.to_le_bytes();
        Ok(u16::from_le_bytes(if offset & 2 == 0 { [a, b] } else { [c, d] }))
    }

    pub(super) async fn write(
        &self,
        bdf: Bdf,
        offset: u16,
        value: u32,
    ) -> Result<(), EnumerateError> {
        let enables = ByteEnables::ALL;
        self.ask(Request::Write { bdf, reg: Reg::at(offset), value, enables }).await.map(|_| ())
    }

    pub(super) async fn write16(
        &self,
        bdf: Bdf,
        offset: u16,
        value: u16,
    ) -> Result<(), EnumerateError> {
        let value = u32::from(value) << (8 * (offset & 2));
        let (reg, enables) = (Reg::at(offset), ByteEnables::of(offset, 2));
        self.ask(Request::Write { bdf, reg, value, enables }).await.map(|_| ())
    }

    pub(super) async fn wait(&self, ns: u64) -> Result<(), EnumerateError> {
        self.ask(Request::Wait { ns }).await.map(|_| ())
    }
}
