//! What SAI calls the parts of a switch: object ids, and numbers of attributes and counters.
//!
//! [`Object`] to and from an id; [`PortCounter`] and its like from the number that a client asks by.
//!
//! Units: frames, bytes.
//! Source: Switch Abstraction Interface (SAI) 1.x, saitypes.h, saiport.h, saiqueue.h, saibuffer.h, saischeduler.h, saiswitch.h,
//! saisystemport.h: numbers that stay over versions; docs/sai.md.

use weft_dataplane::types::{PORTS_MAX, PRIS_MAX};

/// SAI's number of each kind of object, which an id has in its upper bits.
const PORT: i64 = 1;
const QUEUE: i64 = 21;
const SCHEDULER: i64 = 22;
const BUFFER_POOL: i64 = 24;
const PRIORITY_GROUP: i64 = 26;
const SYSTEM_PORT: i64 = 95;
const KIND_SHIFT: u32 = 48;

/// No object.
pub const NULL: i64 = 0;

/// Status of a call that was carried out.
pub const SUCCESS: i32 = 0;
/// Status of a call that failed.
pub const FAILURE: i32 = -1;
/// Status of a call that this switch cannot carry out.
pub const NOT_SUPPORTED: i32 = -2;
/// Status of a call with arguments that are none.
pub const INVALID_PARAMETER: i32 = -5;
/// Status of a call about something that is not there.
pub const ITEM_NOT_FOUND: i32 = -7;

/// A part of a switch, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Object {
    /// A port.
    Port(u8),
    /// A port as an output: its VOQs are those queues.
    SystemPort(u8),
    /// A queue of an output.
    Queue(u8, u8),
    /// A priority group of an input.
    PriorityGroup(u8, u8),
    /// The buffer.
    BufferPool,
    /// A scheduler profile: one that a port may send by, or one by which it sends nothing.
    Scheduler(bool),
}

impl Object {
    /// The id, never [`NULL`].
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
        kind << KIND_SHIFT | (number + 1)
    }

    /// The object of an id; none if there can be no such one.
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

/// Numbers of attributes.
pub mod attribute {
    /// Switch: how many ports there are.
    pub const SWITCH_PORT_NUMBER: i32 = 0;
    /// Switch: which.
    pub const SWITCH_PORT_LIST: i32 = 2;
    /// Switch: source address of frames that it routes.
    pub const SWITCH_SRC_MAC_ADDRESS: i32 = 83;
    /// Switch: watchdog of credits between its chips.
    pub const SWITCH_CREDIT_WD: i32 = 213;
    /// Port: its queues.
    pub const PORT_QOS_QUEUE_LIST: i32 = 5;
    /// Port: its priority groups.
    pub const PORT_INGRESS_PRIORITY_GROUP_LIST: i32 = 27;
    /// Port: whether it is up as far as the administrator says.
    pub const PORT_ADMIN_STATE: i32 = 34;
    /// Port: the scheduler profile that it sends by.
    pub const PORT_QOS_SCHEDULER_PROFILE_ID: i32 = 82;
    /// Port: whether it sends.
    pub const PORT_PKT_TX_ENABLE: i32 = 97;
    /// Scheduler profile: the most bytes, or frames, a second; 0 is no limit.
    pub const SCHEDULER_MAX_BANDWIDTH_RATE: i32 = 5;
    /// System port: its VOQs.
    pub const SYSTEM_PORT_QOS_VOQ_LIST: i32 = 2;
    /// FDB entry: the port behind which the station is.
    pub const FDB_ENTRY_BRIDGE_PORT_ID: i32 = 3;
}

/// A counter: the name that it has here, and its number.
macro_rules! counters {
    ($(#[$doc:meta])* $name:ident { $($(#[$of:meta])* $counter:ident = $number:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum $name { $($(#[$of])* $counter = $number,)+ }

        impl $name {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$counter,)+];

            /// The one that a client asks by `number`.
            #[must_use]
            pub const fn of(number: i32) -> Option<Self> {
                match number { $($number => Some(Self::$counter),)+ _ => None }
            }
        }
    };
}

counters! {
    /// Counters of a port; PFC frames apart.
    PortCounter {
        /// Received for one station.
        InUnicast = 1,
        /// Received for groups.
        InNonUnicast = 2,
        /// Dropped for want of headroom.
        InDiscards = 3,
        /// Bytes sent, without FCS and PFC frames.
        OutOctets = 9,
        /// Sent to one station.
        OutUnicast = 10,
        /// Sent to groups.
        OutNonUnicast = 11,
        /// Dropped that were to leave here, headroom apart.
        OutDiscards = 12,
        /// Cells queued.
        OutQueueLength = 14,
        /// As `InDiscards`.
        InDropped = 99,
        /// As `OutDiscards`.
        OutDropped = 100,
    }
}

counters! {
    /// Counters of a queue.
    QueueCounter {
        /// Sent.
        Packets = 0,
        /// Bytes of the cells in use.
        OccupancyBytes = 24,
        /// The most there were.
        SharedWatermarkBytes = 27,
    }
}

counters! {
    /// Counters of a priority group.
    GroupCounter {
        /// Received, dropped ones included.
        Packets = 0,
        /// Bytes of the cells in use, headroom included.
        OccupancyBytes = 2,
        /// The most there were, headroom apart.
        SharedWatermarkBytes = 5,
        /// The most there were of headroom.
        XoffRoomWatermarkBytes = 7,
        /// Dropped for want of headroom.
        DroppedPackets = 8,
    }
}

counters! {
    /// Counters of the buffer.
    PoolCounter {
        /// The most bytes of the shared part.
        WatermarkBytes = 1,
        /// The most bytes of headroom.
        XoffRoomWatermarkBytes = 20,
    }
}

/// The PFC class whose frames a port's counter of this number counts that were sent; none if it is another one.
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

/// The number of the counter of a class's PFC frames that a port sent.
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
