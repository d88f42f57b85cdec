//! Names of the parts of a switch in SAI: object ids, and numbers of attributes and counters.
//!
//! [`Object`] to and from an id; [`PortCounter`] and the like from the number that a client uses.
//!
//! Source: Switch Abstraction Interface (SAI) 1.x, saitypes.h, saiport.h, saiqueue.h, saibuffer.h, saischeduler.h,
//! saiswitch.h, saisystemport.h: numbers that do not change between versions; docs/sai.md.

use weft_dataplane::types::{PORTS_MAX, PRIS_MAX};

/// SAI's number of each type of object, which stands in the upper bits of an id.
const PORT: i64 = 1;
const QUEUE: i64 = 21;
const SCHEDULER: i64 = 22;
const BUFFER_POOL: i64 = 24;
const PRIORITY_GROUP: i64 = 26;
const SYSTEM_PORT: i64 = 95;
const KIND_SHIFT: u32 = 48;

/// The id of no object.
pub const NULL: i64 = 0;

pub const SUCCESS: i32 = 0;
pub const FAILURE: i32 = -1;
/// Status of a call that this switch cannot carry out.
pub const NOT_SUPPORTED: i32 = -2;
/// Status of a call whose arguments make no sense.
pub const INVALID_PARAMETER: i32 = -5;
/// Status of a call about an object that does not exist.
pub const ITEM_NOT_FOUND: i32 = -7;

/// A part of a switch, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Object {
    Port(u8),
    /// A port as an output; its queues are VOQs.
    SystemPort(u8),
    /// A queue of an output: port, priority.
    Queue(u8, u8),
    /// A priority group of an input: port, group.
    PriorityGroup(u8, u8),
    BufferPool,
    /// A scheduler profile: true if a port sends with it, false if it is held.
    Scheduler(bool),
}

impl Object {
    /// Its id, never [`NULL`].
    #[must_use]
    pub fn id(self) -> i64 {
        let pris = i64::try_from(PRIS_MAX).unwrap_or(8);
        let at = |port: u8, pri: u8| i64::from(port) * pris + i64::from(pri);
        let (kind, number) = match self {
            Self::Port(port) => (PORT, port.into()),
            Self::SystemPort(port) => (SYSTEM_PORT, port.into()),
            Self::Queue(port, queue) => (QUEUE, at(port, queue)),
            Self::PriorityGroup(port, group) => (PRIORITY_GROUP, at(port, group)),
            Self::BufferPool => (BUFFER_POOL, 0),
            Self::Scheduler(sends) => (SCHEDULER, i64::from(!sends)),
        };
        // The number is stored plus one: the id of the first object would else have no bits below its type.
        kind << KIND_SHIFT | (number + 1)
    }

    /// The object of `id`; `None` if there can be no such object.
    #[must_use]
    pub fn of(id: i64) -> Option<Self> {
        let number = usize::try_from((id & ((1 << KIND_SHIFT) - 1)) - 1).ok()?;
        let port = || u8::try_from(number).ok().filter(|_| number < PORTS_MAX);
        let pair = || {
            let (port, pri) = (number / PRIS_MAX, number % PRIS_MAX);
            let port = u8::try_from(port).ok().filter(|_| port < PORTS_MAX)?;
            Some((port, u8::try_from(pri).ok()?))
        };
        Some(match id >> KIND_SHIFT {
            PORT => Self::Port(port()?),
            SYSTEM_PORT => Self::SystemPort(port()?),
            QUEUE => pair().map(|(port, queue)| Self::Queue(port, queue))?,
            PRIORITY_GROUP => pair().map(|(port, group)| Self::PriorityGroup(port, group))?,
            BUFFER_POOL if number == 0 => Self::BufferPool,
            SCHEDULER if number <= 1 => Self::Scheduler(number == 0),
            _ => return None,
        })
    }
}

pub mod attribute {
    /// Switch: number of its ports.
    pub const SWITCH_PORT_NUMBER: i32 = 0;
    /// Switch: its ports.
    pub const SWITCH_PORT_LIST: i32 = 2;
    /// Switch: source address of frames that it routes.
    pub const SWITCH_SRC_MAC_ADDRESS: i32 = 83;
    /// Switch: watchdog of credits between its chips.
    pub const SWITCH_CREDIT_WD: i32 = 213;
    pub const PORT_QOS_QUEUE_LIST: i32 = 5;
    pub const PORT_INGRESS_PRIORITY_GROUP_LIST: i32 = 27;
    /// Port: whether the administrator has it up.
    pub const PORT_ADMIN_STATE: i32 = 34;
    /// Port: its scheduler profile.
    pub const PORT_QOS_SCHEDULER_PROFILE_ID: i32 = 82;
    pub const PORT_PKT_TX_ENABLE: i32 = 97;
    /// Scheduler profile: limit in bytes or frames a second; 0 means none.
    pub const SCHEDULER_MAX_BANDWIDTH_RATE: i32 = 5;
    pub const SYSTEM_PORT_QOS_VOQ_LIST: i32 = 2;
    /// FDB entry: the station's port.
    pub const FDB_ENTRY_BRIDGE_PORT_ID: i32 = 3;
}

/// Makes an enum of counters, each with its name here and its number in SAI.
macro_rules! counters {
    ($(#[$doc:meta])* $name:ident { $($(#[$of:meta])* $counter:ident = $number:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum $name { $($(#[$of])* $counter = $number,)+ }

        impl $name {
            pub const ALL: &[Self] = &[$(Self::$counter,)+];

            /// The counter that a client asks for by `number`.
            #[must_use]
            pub const fn of(number: i32) -> Option<Self> {
                match number { $($number => Some(Self::$counter),)+ _ => None }
            }
        }
    };
}

counters! {
    /// Counters of a port, without PFC frames.
    PortCounter {
        /// Received frames to one station.
        InUnicast = 1,
        /// Received frames to groups.
        InNonUnicast = 2,
        /// Received frames that were dropped for want of headroom.
        InDiscards = 3,
        /// Bytes sent, without FCS and PFC frames.
        OutOctets = 9,
        /// Sent frames to one station.
        OutUnicast = 10,
        /// Sent frames to groups.
        OutNonUnicast = 11,
        /// Frames for this port that were dropped, headroom apart.
        OutDiscards = 12,
        /// Cells queued for this port.
        OutQueueLength = 14,
        /// Same as `InDiscards`.
        InDropped = 99,
        /// Same as `OutDiscards`.
        OutDropped = 100,
    }
}

counters! {
    QueueCounter {
        /// Frames sent.
        Packets = 0,
        /// Bytes of the cells in use.
        OccupancyBytes = 24,
        /// Highest number of bytes in use.
        SharedWatermarkBytes = 27,
    }
}

counters! {
    GroupCounter {
        /// Received frames, including dropped ones.
        Packets = 0,
        /// Bytes of the cells in use, including headroom.
        OccupancyBytes = 2,
        /// Highest number of bytes in use, without headroom.
        SharedWatermarkBytes = 5,
        /// Highest number of bytes of headroom in use.
        XoffRoomWatermarkBytes = 7,
        /// Frames dropped for want of headroom.
        DroppedPackets = 8,
    }
}

counters! {
    PoolCounter {
        /// Highest number of bytes of the shared part in use.
        WatermarkBytes = 1,
        /// Highest number of bytes of headroom in use.
        XoffRoomWatermarkBytes = 20,
    }
}

/// The PFC class that the port counter of this number belongs to, which counts PFC frames sent; `None` for other
/// counters.
#[must_use]
pub const fn pfc_tx_class(number: i32) -> Option<u8> {
    match number {
        104 => Some(0),
        106 => Some(1),
        108 => Some(2),
        110 => Some(3),
        112 => Some(4),
        114 => Some(5),
        116 => Some(6),
        118 => Some(7),
        _ => None,
    }
}

/// Number of the port counter of PFC frames sent for `class`.
#[must_use]
pub const fn pfc_tx_counter(class: u8) -> i32 {
    104 + 2 * (class & 7) as i32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_read_as_they_were_given() {
        for object in [
            Object::Port(0),
            Object::Port(63),
            Object::SystemPort(5),
            Object::Queue(63, 7),
            Object::PriorityGroup(1, 0),
            Object::BufferPool,
            Object::Scheduler(true),
            Object::Scheduler(false),
        ] {
            assert_eq!(Object::of(object.id()), Some(object), "{:#x}", object.id());
        }
        let port = Object::Port(0).id();
        for id in [NULL, -1, i64::MIN, i64::MAX, port + 64, port - 1, Object::BufferPool.id() + 1] {
            assert_eq!(Object::of(id), None, "{id:#x}");
        }
    }

    #[test]
    fn classes_are_those_of_their_counters() {
        let classes: Vec<_> =
            (100..125).filter_map(|number| pfc_tx_class(number).map(|c| (number, c))).collect();
        let want: Vec<(i32, u8)> =
            (0..8).map(|class| (104 + 2 * i32::from(class), class)).collect();
        assert_eq!(classes, want);
        assert!((0..8).all(|class| pfc_tx_class(pfc_tx_counter(class)) == Some(class)));
    }
}
