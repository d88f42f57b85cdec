//! Virtual output queues: `voq[input][output][pri]`, up to 64 x 64 x 8, each a FIFO of descriptors.
//!
//! A queue is a list of cache lines, each with up to five descriptors and the number of the next
//! line; an empty queue has no line. One worker, the owner of the crossbar, reads and writes all of
//! them, so nothing here is atomic. Occupancy is one word per (output, pri), in which bit i is
//! input i: the crossbar's requests are read from it.
//!
//! Source: docs/spec/pipeline.md §5; unrolled linked lists (Shao, Reppy and Appel, LFP 1994).
#![expect(clippy::cast_possible_truncation, reason = "the number of lines is checked once")]

use crate::desc::{Desc, PackedDesc};
use crate::queues::{QUEUES_MAX, QueueId, QueueSet};
use crate::types::{PORTS_MAX, PRIS_MAX, PortId, PortSet, Pri, PriSet};

const NIL: u32 = u32::MAX;

/// Descriptors in a line: five of 12 bytes and the `u32` of the next line fill 64 bytes.
const FRAMES: usize = 5;

#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line {
    frames: [PackedDesc; FRAMES],
    next: u32,
}

const _: () = assert!(size_of::<Line>() == 64, "a cache line");

const EMPTY_LINE: Line = Line { frames: [PackedDesc::NONE; FRAMES], next: NIL };

/// Position of a descriptor: the line's number and, in the low three bits, the index within the
/// line.
type Place = u32;

const IN_LINE: u32 = 7;
const LINE_SHIFT: u32 = 3;

/// A queue's frames: from place `head` to before place `tail`; both are [`NIL`] when the queue is
/// empty.
#[derive(Clone, Copy)]
struct Ends {
    head: Place,
    tail: Place,
}

const EMPTY: Ends = Ends { head: NIL, tail: NIL };

const _: () = assert!(NIL & IN_LINE >= FRAMES as u32, "at the end of an empty queue is no place");

/// All virtual output queues of a switch.
pub struct Voqs {
    /// Lines that were allocated so far; all `lines_max` of them unless the queues grow on demand.
    lines: Vec<Line>,
    lines_max: usize,
    free: Vec<u32>,
    /// Indexed by input, then queue: `input * QUEUES_MAX + queue`.
    queues: Box<[Ends]>,
    /// `occupied[output * PRIS_MAX + pri]`: inputs with a non-empty queue.
    occupied: Box<[PortSet]>,
    /// By output: priorities at which some word of `occupied` is not empty.
    occupied_pris: Box<[PriSet]>,
    /// Outputs with at least one such priority.
    outputs: PortSet,
    ports: usize,
    pris: usize,
}

#[inline]
fn word(occupied: &mut [PortSet], output: PortId, pri: Pri) -> &mut PortSet {
    let at = output.index() * PRIS_MAX + pri.index();
    occupied.get_mut(at).expect("a word for each queue that a switch can have")
}

impl Voqs {
    /// All queues of a switch with `ports` ports and `pris` priorities, with room for at least `frames`
    /// frames, however they are spread.
    ///
    /// # Panics
    /// When there are more than 64 ports, 8 priorities or 2^28 frames.
    #[must_use]
    pub fn new(ports: usize, pris: usize, frames: usize) -> Self {
        let mut voqs = Self::growing(ports, pris, frames);
        voqs.lines = vec![EMPTY_LINE; voqs.lines_max];
        // `pop` takes from the end, so lines are handed out from 0 upwards, and the line that was
        // freed last, which is the likeliest to be in the cache, is used first.
        voqs.free = (0..voqs.lines_max as u32).rev().collect();
        voqs
    }

    /// Like [`Self::new`], but lines are allocated as frames come: a network in virtual time has
    /// many switches, and most of their queues stay short.
    ///
    /// # Panics
    /// As [`Self::new`].
    #[must_use]
    pub fn growing(ports: usize, pris: usize, frames: usize) -> Self {
        assert!(ports <= PORTS_MAX && pris <= PRIS_MAX && frames < 1 << 28, "a switch's size");
        let queues = ports * ports * pris;
        // Only the first and the last line of a queue can be partly filled, and hold one frame at
        // worst. So `frames` fit however they are spread: `has_room` and `push_all` rely on it.
        let lines_max = frames.div_ceil(FRAMES) + 2 * queues.min(frames);
        Self {
            lines: Vec::new(),
            lines_max,
            free: Vec::new(),
            queues: vec![EMPTY; ports * QUEUES_MAX].into(),
            occupied: [PortSet::EMPTY; PORTS_MAX * PRIS_MAX].into(),
            occupied_pris: [PriSet::EMPTY; PORTS_MAX].into(),
            outputs: PortSet::EMPTY,
            ports,
            pris,
        }
    }

    /// Splits the borrow: the lines, and the ends of all queues of `input`.
    #[inline]
    fn of(&mut self, input: PortId) -> (Store<'_>, &mut [Ends]) {
        let Self { lines, lines_max, free, queues, .. } = self;
        let first = input.index() * QUEUES_MAX;
        let own = queues.get_mut(first..first + QUEUES_MAX).unwrap_or_default();
        (Store { lines, lines_max: *lines_max, free }, own)
    }

    /// Whether the switch has such a queue: ids can name any of 64 ports and 8 priorities.
    #[inline]
    const fn has(&self, input: PortId, queue: QueueId) -> bool {
        let (output, pri) = (queue.output().index(), queue.pri().index());
        input.index() < self.ports && output < self.ports && pri < self.pris
    }

    /// Appends a frame of `input` to a queue.
    ///
    /// # Errors
    /// The frame when there is no room, or no such queue.
    #[inline]
    pub fn push(&mut self, input: PortId, queue: QueueId, desc: Desc) -> Result<(), Desc> {
        if !self.has(input, queue) {
            return Err(desc);
        }
        let (mut store, queues) = self.of(input);
        let Some(ends) = queues.get_mut(usize::from(queue.get())) else { return Err(desc) };
        store.append(ends, desc)?;
        self.note(input, queue);
        Ok(())
    }

    /// Whether `frames` more frames fit, however they are spread over the queues.
    #[inline]
    #[must_use]
    pub fn has_room(&self, frames: usize) -> bool {
        self.free.len() + (self.lines_max - self.lines.len()) >= frames
    }

    /// Appends a burst of `input`: each frame to the queue beside it. `touched` is the set of these
    /// queues, and the caller has asked [`Self::has_room`].
    ///
    /// # Panics
    /// When there is no room, or no such queue.
    #[inline]
    pub fn push_all(
        &mut self,
        input: PortId,
        touched: &QueueSet,
        frames: impl Iterator<Item = (Desc, QueueId)>,
    ) {
        let (mut store, queues) = self.of(input);
        for (desc, queue) in frames {
            let ends = queues.get_mut(usize::from(queue.get())).expect("an input of this switch");
            let pushed = store.append(ends, desc);
            assert!(pushed.is_ok(), "the caller made sure that there is room");
        }
        // Once for each queue instead of once for each frame: the frames of a burst share few
        // queues.
        for queue in touched.iter() {
            self.note(input, queue);
        }
    }

    /// Marks a queue as occupied in all three levels.
    #[inline]
    fn note(&mut self, input: PortId, queue: QueueId) {
        word(&mut self.occupied, queue.output(), queue.pri()).insert(input);
        if let Some(pris) = self.occupied_pris.get_mut(queue.output().index()) {
            pris.insert(queue.pri());
        }
        self.outputs.insert(queue.output());
    }

    /// Inputs that have frames for (`output`, `pri`).
    #[inline]
    #[must_use]
    pub fn waiting(&self, output: PortId, pri: Pri) -> PortSet {
        self.occupied.get(output.index() * PRIS_MAX + pri.index()).copied().unwrap_or_default()
    }

    /// Priorities at which any input has frames for `output`.
    #[inline]
    #[must_use]
    pub fn waiting_pris(&self, output: PortId) -> PriSet {
        self.occupied_pris.get(output.index()).copied().unwrap_or_default()
    }

    /// Outputs for which any input has frames.
    #[inline]
    #[must_use]
    pub const fn outputs(&self) -> PortSet {
        self.outputs
    }

    /// Whether `input` has frames for any output.
    #[inline]
    #[must_use]
    pub fn waits_from(&self, input: PortId) -> bool {
        self.outputs.iter().any(|output| {
            let mut pris = self.waiting_pris(output).iter();
            pris.any(|pri| self.waiting(output, pri).contains(input))
        })
    }

    /// Takes the oldest frame off a queue.
    pub fn pop(&mut self, input: PortId, queue: QueueId) -> Option<Desc> {
        let mut queue = self.queue(input, queue)?;
        let desc = queue.run(1).first().map(|frame| frame.unpack());
        queue.settle();
        desc
    }

    /// One queue, to take frames off; `None` when there is no such queue.
    #[inline]
    pub fn queue(&mut self, input: PortId, queue: QueueId) -> Option<Queue<'_>> {
        let Self { lines, free, queues, occupied, occupied_pris, outputs, .. } = self;
        let ends = queues.get_mut(input.index() * QUEUES_MAX + usize::from(queue.get()))?;
        let word = word(occupied, queue.output(), queue.pri());
        let pris = occupied_pris.get_mut(queue.output().index())?;
        Some(Queue { lines, free, word, pris, outputs, input, id: queue, ends })
    }
}

/// One virtual output queue while a run of frames is taken off it. [`Queue::settle`] ends the run
/// and brings the occupancy words up to date.
#[must_use = "`settle` notes what was taken"]
pub struct Queue<'a> {
    lines: &'a [Line],
    free: &'a mut Vec<u32>,
    word: &'a mut PortSet,
    pris: &'a mut PriSet,
    outputs: &'a mut PortSet,
    input: PortId,
    id: QueueId,
    ends: &'a mut Ends,
}

impl<'a> Queue<'a> {
    /// Takes the oldest frames: at most `most`, and only those that lie in one line. Empty if the
    /// queue is.
    #[inline]
    pub(crate) fn run(&mut self, most: usize) -> &'a [PackedDesc] {
        let Ends { head, tail } = *self.ends;
        let (number, first) = (head >> LINE_SHIFT, head & IN_LINE);
        let is_last = number == tail >> LINE_SHIFT;
        let end = if is_last { tail & IN_LINE } else { FRAMES as u32 };
        // An empty queue's head is `NIL`, which is beyond all lines: it needs no test of its own.
        let Some(line) = self.lines.get(number as usize) else { return &[] };
        let count = ((end - first) as usize).min(most) as u32;
        let run = line.frames.get(first as usize..(first + count) as usize).unwrap_or_default();
        // `most` ended the run within the line, so that the line stays in use.
        if first + count < end {
            self.ends.head = head + count;
            return run;
        }
        // The line is used up, also if it is the last one and was not full: an empty queue has no
        // line. The caller still reads `run` from it, which is safe as only an append could reuse
        // the line, and that needs the borrow of `lines` that `run` holds.
        self.free.push(number);
        if is_last {
            *self.ends = EMPTY;
        } else {
            self.ends.head = line.next << LINE_SHIFT;
        }
        run
    }

    /// Brings the occupancy words up to date; true if the queue is empty now.
    #[inline]
    #[expect(clippy::must_use_candidate, reason = "most callers only end a run")]
    pub fn settle(self) -> bool {
        let empty = self.ends.head == NIL;
        if empty {
            self.word.remove(self.input);
            if self.word.is_empty() {
                self.pris.remove(self.id.pri());
                if self.pris.is_empty() {
                    self.outputs.remove(self.id.output());
                }
            }
        }
        empty
    }
}

/// The part of [`Voqs`] that allocates lines.
struct Store<'a> {
    lines: &'a mut Vec<Line>,
    lines_max: usize,
    free: &'a mut Vec<u32>,
}

impl Store<'_> {
    /// Appends a frame to a queue.
    #[inline]
    fn append(&mut self, ends: &mut Ends, desc: Desc) -> Result<(), Desc> {
        let line = self.lines.get_mut((ends.tail >> LINE_SHIFT) as usize);
        let place = line.and_then(|line| line.frames.get_mut((ends.tail & IN_LINE) as usize));
        // No place in two cases: the last line is full (`tail` points at index 5), or the queue is
        // empty (`NIL`, whose index of 7 is beyond a line, too).
        let Some(place) = place else { return self.extend(ends, desc) };
        *place = desc.pack();
        ends.tail += 1;
        Ok(())
    }

    /// Appends a frame in a line of its own.
    #[inline]
    fn extend(&mut self, ends: &mut Ends, desc: Desc) -> Result<(), Desc> {
        let number = match self.free.pop() {
            Some(number) => number,
            None if self.lines.len() < self.lines_max => {
                self.lines.push(EMPTY_LINE);
                self.lines.len() as u32 - 1
            }
            None => return Err(desc),
        };
        let line = self.lines.get_mut(number as usize).expect("the number of a line");
        let [first, ..] = &mut line.frames;
        *first = desc.pack();
        // `next` of the new line may be left from its last use: `run` reads it only in a line that
        // is not the last one, and the next call of this function sets it before that.
        if ends.tail == NIL {
            ends.head = number << LINE_SHIFT;
        } else if let Some(tail) = self.lines.get_mut((ends.tail >> LINE_SHIFT) as usize) {
            tail.next = number;
        }
        ends.tail = number << LINE_SHIFT | 1;
        Ok(())
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
