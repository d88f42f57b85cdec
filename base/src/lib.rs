//! Building blocks of all parts that know nothing of frames.
//!
//! `sync` has the machine's atomics or the model checker's; `ring`, `growing`, `free` and
//! `counters` pass things between threads with them. `eventfd` wakes a thread that sleeps,
//! `threads` reports one that has ended, `slice` and `priority` set when one gets its turn,
//! `processors` where it runs. `rng` is seeded; `files` opens files, `memory` tries whether memory
//! is left, `mctp_socket` is the kernel's MCTP, `markup` escapes text, `causes` prints an error
//! with its causes, and `wait` lets time pass or waits for a condition.
//!
//! Source: ARCHITECTURE.md "Layout of the tree".
//!
//! Two threads share no lock: one writes into a ring, the other reads from it, each at its own pace.
//!
//! ```
//! use std::thread;
//! use weft_base::ring::ring;
//! use weft_base::rng::Rng;
//!
//! let (mut to, mut from) = ring(4);
//! let reader = thread::spawn(move || {
//!     let mut sum = 0;
//!     for _ in 0..3 {
//!         sum += loop {
//!             match from.pop() {
//!                 Some(number) => break number,
//!                 None => thread::yield_now(),
//!             }
//!         };
//!     }
//!     sum
//! });
//! for number in [1, 2, 3] {
//!     to.push(number).expect("there is room for four");
//! }
//! assert_eq!(reader.join().expect("it does not panic"), 6);
//!
//! // Random numbers are a function of their seed.
//! let draw = |seed| Rng::new(seed).below(1_000);
//! assert_eq!(draw(7), draw(7));
//! ```
//!
//! [`ring::Tx`] and [`ring::Rx`] are the two ends of a ring, [`free`] is a list of free numbers
//! that several threads may use, [`counters`] count from several threads; [`eventfd`] wakes a
//! thread that sleeps until something has come.

#![warn(missing_docs)]

pub mod causes;
pub mod counters;
#[expect(unsafe_code, reason = "eventfd")]
pub mod eventfd;
pub mod files;
pub mod free;
pub mod growing;
pub mod markup;
#[expect(unsafe_code, reason = "AF_MCTP")]
pub mod mctp_socket;
#[expect(unsafe_code, reason = "mallopt, mmap, an allocator")]
pub mod memory;
#[expect(unsafe_code, reason = "setpriority, sched_setscheduler")]
pub mod priority;
pub mod processors;
#[expect(unsafe_code, reason = "slots handed between two threads")]
pub mod ring;
pub mod rng;
#[expect(unsafe_code, reason = "sched_setattr")]
pub mod slice;
pub mod sync;
#[expect(unsafe_code, reason = "gettid, tgkill")]
pub mod threads;
pub mod wait;
