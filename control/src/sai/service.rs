//! Methods of the SAI service.
//!
//! [`Service::answer`] takes a client's message and returns the bytes of the answer; [`SaiSwitch`] is the running
//! switch. Bytes are cells times the size of a cell.
//! Source: docs/sai.md; docs/spec/pipeline.md §4, §7, §9, §10.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weft_dataplane::pipeline::{PortLedger, QueueLedger};
use weft_dataplane::stats::{DropReason, OUTPUT_REASONS};
use weft_dataplane::types::{PRIS_MAX, PerPri, PortId, Pri};
use weft_parsers::AddrKey;
use weft_rpc::Refused;

use super::answer::{Answer, Attribute};
use super::args::{Fault, arg, attribute_in, attribute_of, counter_ids, object, station};
use super::objects::{
    self, FAILURE, GroupCounter, INVALID_PARAMETER, ITEM_NOT_FOUND, NOT_SUPPORTED, Object,
    PoolCounter, PortCounter, QueueCounter, SUCCESS, attribute, pfc_tx_class,
};
use super::scheduler;
use super::thrift::{Fields, Message, MessageKind, Output, Value, exception};
use crate::report::watermarks::Mark;

/// Prefix that clients may put before the names of methods.
const PREFIX: &str = "sai_thrift_";

/// Facts that do not change while a configuration is in force.
#[derive(Clone, Debug, Default)]
pub struct Shape {
    /// Names of the ports, by number; `None` for the port to the switch's own functions.
    pub names: Vec<Option<String>>,
    pub cell_bytes: u64,
    /// Number of priorities.
    pub pris: usize,
    /// By priority, the priority group that counts its frames.
    pub pri_to_pg: [u8; PRIS_MAX],
    /// By priority, the PFC classes that the switch's PAUSE names.
    pub classes: PerPri<u8>,
}

/// The running switch, as the service sees it. All methods may be called from several threads at once.
pub trait SaiSwitch: Send + Sync {
    fn shape(&self) -> Shape;

    /// Counters of a port, read while workers run.
    fn port(&self, port: PortId) -> PortLedger;

    /// Cells that an input's lossy frames of a priority use now.
    fn lossy_cells(&self, input: PortId, pri: Pri) -> u64;

    /// Watermarks, in cells; with `restart` they restart afterwards.
    ///
    /// # Errors
    /// Workers do not answer.
    fn watermarks(&self, marks: &[Mark], restart: bool) -> Result<Vec<u64>, Refused>;

    /// Lets a port send, or holds its queues; in force when it returns.
    ///
    /// # Errors
    /// As [`Backend::port_tx`](crate::requests::Backend::port_tx).
    fn set_tx(&self, port: &str, on: bool) -> Result<(), Refused>;

    /// Adds a static entry of the FDB.
    ///
    /// # Errors
    /// The FDB has no room, or there is no such port.
    fn add_station(&self, vid: u16, addr: AddrKey, port: &str) -> Result<(), Refused>;

    /// Removes an entry of the FDB.
    ///
    /// # Errors
    /// There is no such entry.
    fn remove_station(&self, vid: u16, addr: AddrKey) -> Result<(), Refused>;

    /// Removes all learned entries of the FDB.
    ///
    /// # Errors
    /// Workers do not answer.
    fn flush_stations(&self) -> Result<(), Refused>;
}

/// State of one call for counters. All of them are of one object, whose port is read once, if at all.
struct Look<'a> {
    switch: &'a dyn SaiSwitch,
    shape: Shape,
    ledger: OnceCell<PortLedger>,
}

impl Look<'_> {
    /// Counters of `port`, which is that of the object.
    fn ledger(&self, port: PortId) -> &PortLedger {
        self.ledger.get_or_init(|| self.switch.port(port))
    }
}

/// Reads one counter of an object; `None` if there is no such object.
type Counting = fn(&Service, &Look<'_>, Object, i32) -> Result<Option<u64>, Fault>;

/// Carries out the methods. Counts at the last clear are kept for all clients together.
pub struct Service {
    switch: Arc<dyn SaiSwitch>,
    cleared: Mutex<BTreeMap<(Object, i32), u64>>,
}

impl Service {
    #[must_use]
    pub fn new(switch: Arc<dyn SaiSwitch>) -> Self {
        Self { switch, cleared: Mutex::default() }
    }

    /// Carries out a call and returns its answer; `None` for a call that waits for none.
    #[must_use]
    pub fn answer(&self, message: &Message) -> Option<Vec<u8>> {
        let bytes = match self.call(&message.name, &message.args) {
            Ok(answer) => {
                let mut out = Output::answer(message, MessageKind::Reply);
                answer.write(&mut out);
                out.stop();
                out.into_bytes()
            }
            Err(Fault(code, text)) => Output::exception(message, code, &text),
        };
        // Also after an error: a oneway call gets no exception.
        (message.kind == MessageKind::Call).then_some(bytes)
    }

    fn call(&self, name: &str, args: &Fields) -> Result<Answer, Fault> {
        Ok(match name.strip_prefix(PREFIX).unwrap_or(name) {
            "get_switch_attribute" => self.switch_attributes(),
            "set_switch_attribute" => Answer::Status(set_switch(args)),
            "get_port_list_by_front_port" => {
                Answer::One(attribute::SWITCH_PORT_LIST, Attribute::Objects(self.ports()))
            }
            "get_port_id_by_front_port" => Answer::Id(self.port_by_name(args)?),
            "set_port_attribute" => Answer::Status(self.set_port(args)?),
            "get_port_attribute" => Answer::Many(self.port_attributes(args)?),
            "get_sys_port_obj_id_by_port_id" => Answer::Id(self.system_port(args)?),
            "get_system_port_attribute" => Answer::Many(self.system_port_attributes(args)?),
            "get_port_stats" => self.stats(args, Self::port_count)?,
            "clear_port_all_stats" => Answer::Status(self.clear_port(args)?),
            "get_queue_stats" => self.stats(args, Self::queue_count)?,
            "clear_queue_stats" => Answer::Status(self.clear_queue(args)?),
            "get_pg_stats" => self.stats(args, Self::group_count)?,
            "get_buffer_pool_stats" => self.stats(args, Self::pool_count)?,
            "clear_buffer_pool_stats" => Answer::Status(self.clear_pool(args)?),
            "create_scheduler_profile" => Answer::Id(scheduler::create(args)?),
            "create_fdb_entry" => Answer::Status(self.add_station(args)?),
            "delete_fdb_entry" => Answer::Status(self.remove_station(args)?),
            "flush_fdb_entries" => Answer::Status(status(self.switch.flush_stations())),
            other => {
                // The name is the client's: it is cut before it goes into the answer.
                let shown: String = other.chars().take(80).collect();
                return Err(Fault(exception::UNKNOWN_METHOD, format!("no method {shown}")));
            }
        })
    }

    fn cleared(&self) -> MutexGuard<'_, BTreeMap<(Object, i32), u64>> {
        self.cleared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ports(&self) -> Vec<i64> {
        let shape = self.switch.shape();
        let ids = shape.names.iter().zip(0..).filter(|(name, _)| name.is_some());
        ids.map(|(_, port)| Object::Port(port).id()).collect()
    }

    fn switch_attributes(&self) -> Answer {
        let ports = self.ports();
        let count = i32::try_from(ports.len()).unwrap_or(i32::MAX);
        Answer::Many(vec![
            (attribute::SWITCH_PORT_NUMBER, Attribute::U32(count)),
            (attribute::SWITCH_PORT_LIST, Attribute::Objects(ports)),
        ])
    }

    /// Id of the port of a name; [`objects::NULL`] if there is none.
    fn port_by_name(&self, args: &Fields) -> Result<i64, Fault> {
        let wanted = arg(args, 1, "a port name", Value::as_text)?;
        let shape = self.switch.shape();
        let mut names = shape.names.iter().zip(0..);
        let found = names.find(|(name, _)| name.as_deref() == Some(wanted));
        Ok(found.map_or(objects::NULL, |(_, port)| Object::Port(port).id()))
    }

    fn system_port(&self, args: &Fields) -> Result<i64, Fault> {
        let number = arg(args, 1, "a port number", Value::as_int)?;
        let shape = self.switch.shape();
        let port = u8::try_from(number).ok().filter(|&port| name_of(&shape, port).is_some());
        Ok(port.map_or(objects::NULL, |port| Object::SystemPort(port).id()))
    }

    fn system_port_attributes(&self, args: &Fields) -> Result<Vec<(i32, Attribute)>, Fault> {
        let shape = self.switch.shape();
        let Some(Object::SystemPort(port)) = object(args)? else { return Ok(Vec::new()) };
        if name_of(&shape, port).is_none() {
            return Ok(Vec::new());
        }
        let voqs = queues(&shape, port);
        Ok(vec![(attribute::SYSTEM_PORT_QOS_VOQ_LIST, Attribute::Objects(voqs))])
    }

    fn port_attributes(&self, args: &Fields) -> Result<Vec<(i32, Attribute)>, Fault> {
        let shape = self.switch.shape();
        let Some(Object::Port(port)) = object(args)? else { return Ok(Vec::new()) };
        if name_of(&shape, port).is_none() {
            return Ok(Vec::new());
        }
        // All eight numbers, as SAI has them; groups without a priority count 0.
        let groups = (0..8).map(|group| Object::PriorityGroup(port, group).id()).collect();
        Ok(vec![
            (attribute::PORT_QOS_QUEUE_LIST, Attribute::Objects(queues(&shape, port))),
            (attribute::PORT_INGRESS_PRIORITY_GROUP_LIST, Attribute::Objects(groups)),
        ])
    }

    fn set_port(&self, args: &Fields) -> Result<i32, Fault> {
        let shape = self.switch.shape();
        let (id, value) = attribute_of(args, 2)?;
        let Some(Object::Port(port)) = object(args)? else { return Ok(ITEM_NOT_FOUND) };
        let Some(name) = name_of(&shape, port) else { return Ok(ITEM_NOT_FOUND) };
        let on = value.get(&1).and_then(Value::as_bool);
        Ok(match (id, on) {
            // Two attributes hold a port: this one, and a scheduler profile whose rate is next to nothing.
            (attribute::PORT_PKT_TX_ENABLE, Some(on)) => status(self.switch.set_tx(name, on)),
            (attribute::PORT_PKT_TX_ENABLE | attribute::PORT_ADMIN_STATE, None) => {
                INVALID_PARAMETER
            }
            // A port of this switch is always up for the administrator.
            (attribute::PORT_ADMIN_STATE, Some(true)) => SUCCESS,
            (attribute::PORT_QOS_SCHEDULER_PROFILE_ID, _) => {
                match value.get(&12).and_then(Value::as_int).and_then(scheduler::sends) {
                    Some(sends) => status(self.switch.set_tx(name, sends)),
                    None => INVALID_PARAMETER,
                }
            }
            _ => NOT_SUPPORTED,
        })
    }

    /// Counters of an object in the order of the request; empty if there is no such object.
    fn stats(&self, args: &Fields, count: Counting) -> Result<Answer, Fault> {
        let ids = counter_ids(args)?;
        let Some(object) = object(args)? else { return Ok(Answer::Counts(Vec::new())) };
        let look = self.look();
        let mut counts = Vec::with_capacity(ids.len());
        for id in ids {
            let Some(value) = count(self, &look, object, id)? else {
                return Ok(Answer::Counts(Vec::new()));
            };
            counts.push(i64::try_from(value).unwrap_or(i64::MAX));
        }
        Ok(Answer::Counts(counts))
    }

    fn look(&self) -> Look<'_> {
        let switch = &*self.switch;
        Look { switch, shape: switch.shape(), ledger: OnceCell::new() }
    }

    /// Increase of a counter since a client cleared it.
    fn since(&self, object: Object, id: i32, count: u64) -> u64 {
        count.wrapping_sub(self.cleared().get(&(object, id)).copied().unwrap_or(0))
    }

    fn port_count(&self, look: &Look<'_>, object: Object, id: i32) -> Result<Option<u64>, Fault> {
        let Object::Port(port) = object else { return Ok(None) };
        let Some(port) = real(&look.shape, port) else { return Ok(None) };
        let count = port_counter(&look.shape, look.ledger(port), id).ok_or_else(|| unknown(id))?;
        // A level is shown as it is: clearing it would make no sense.
        let is_level = id == PortCounter::OutQueueLength as i32;
        Ok(Some(if is_level { count } else { self.since(object, id, count) }))
    }

    fn queue_count(&self, look: &Look<'_>, object: Object, id: i32) -> Result<Option<u64>, Fault> {
        let Object::Queue(port, queue) = object else { return Ok(None) };
        let shape = &look.shape;
        let Some((port, pri)) = real(shape, port).zip(pri_of(shape, queue)) else {
            return Ok(None);
        };
        let count =
            |of: &dyn Fn(&QueueLedger) -> u64| look.ledger(port).pri.get(pri.index()).map_or(0, of);
        Ok(Some(match QueueCounter::of(id).ok_or_else(|| unknown(id))? {
            QueueCounter::Packets => self.since(object, id, count(&|queue| queue.dequeued)),
            QueueCounter::OccupancyBytes => count(&|queue| queue.depth) * shape.cell_bytes,
            QueueCounter::SharedWatermarkBytes => {
                // Reading a queue's watermark restarts it, unlike the pool's (docs/sai.md).
                self.mark(Mark::Depth(port.get(), queue), true)? * shape.cell_bytes
            }
        }))
    }

    fn group_count(&self, look: &Look<'_>, object: Object, id: i32) -> Result<Option<u64>, Fault> {
        let Object::PriorityGroup(port, group) = object else { return Ok(None) };
        let shape = &look.shape;
        let Some(port) = real(shape, port).filter(|_| usize::from(group) < PRIS_MAX) else {
            return Ok(None);
        };
        let pris: Vec<Pri> = members(shape, group).collect();
        let sum = |of: &dyn Fn(&QueueLedger) -> u64| {
            let queues = &look.ledger(port).pri;
            pris.iter().filter_map(|pri| queues.get(pri.index())).map(of).sum::<u64>()
        };
        Ok(Some(match GroupCounter::of(id).ok_or_else(|| unknown(id))? {
            GroupCounter::Packets => self.since(object, id, sum(&arrived)),
            GroupCounter::DroppedPackets => {
                self.since(object, id, sum(&|queue| dropped(queue, DropReason::Headroom)))
            }
            GroupCounter::OccupancyBytes => {
                let lossy: u64 = pris.iter().map(|&pri| self.switch.lossy_cells(port, pri)).sum();
                (sum(&|queue| queue.pg_used + queue.headroom_used) + lossy) * shape.cell_bytes
            }
            GroupCounter::SharedWatermarkBytes => {
                self.group_mark(port, group, &pris)? * shape.cell_bytes
            }
            GroupCounter::XoffRoomWatermarkBytes => {
                // Each priority has headroom of its own; the group's is their sum.
                let marks: Vec<_> =
                    pris.iter().map(|pri| Mark::Headroom(port.get(), pri.get())).collect();
                self.marks(&marks, true)?.iter().sum::<u64>() * shape.cell_bytes
            }
        }))
    }

    /// Highest fill of a priority group, without headroom. A lossless priority has the group to itself, lossy ones
    /// share it.
    fn group_mark(&self, port: PortId, group: u8, pris: &[Pri]) -> Result<u64, Fault> {
        if pris.is_empty() {
            return Ok(0);
        }
        let mut marks = vec![Mark::Lossy(port.get(), group)];
        marks.extend(pris.iter().map(|pri| Mark::Group(port.get(), pri.get())));
        Ok(self.marks(&marks, true)?.into_iter().max().unwrap_or(0))
    }

    fn pool_count(&self, look: &Look<'_>, object: Object, id: i32) -> Result<Option<u64>, Fault> {
        if object != Object::BufferPool {
            return Ok(None);
        }
        let mark = pool_mark(PoolCounter::of(id).ok_or_else(|| unknown(id))?);
        // Pools are only restarted by their clear method.
        Ok(Some(self.mark(mark, false)? * look.shape.cell_bytes))
    }

    fn mark(&self, mark: Mark, restart: bool) -> Result<u64, Fault> {
        Ok(self.marks(&[mark], restart)?.first().copied().unwrap_or(0))
    }

    fn marks(&self, marks: &[Mark], restart: bool) -> Result<Vec<u64>, Fault> {
        if marks.is_empty() {
            return Ok(Vec::new());
        }
        let read = self.switch.watermarks(marks, restart);
        read.map_err(|refused| Fault(exception::INTERNAL_ERROR, refused.message))
    }

    fn clear_port(&self, args: &Fields) -> Result<i32, Fault> {
        let shape = self.switch.shape();
        let Some(object @ Object::Port(port)) = object(args)? else { return Ok(ITEM_NOT_FOUND) };
        let Some(port) = real(&shape, port) else { return Ok(ITEM_NOT_FOUND) };
        let ledger = self.switch.port(port);
        let known = PortCounter::ALL.iter().map(|counter| *counter as i32);
        let mut cleared = self.cleared();
        // PFC counters of the eight classes have even numbers from 104 (`pfc_tx_class`).
        for id in known.chain((104..=118).step_by(2)) {
            if let Some(count) = port_counter(&shape, &ledger, id) {
                cleared.insert((object, id), count);
            }
        }
        Ok(SUCCESS)
    }

    fn clear_queue(&self, args: &Fields) -> Result<i32, Fault> {
        let shape = self.switch.shape();
        let ids = counter_ids(args)?;
        let Some(object @ Object::Queue(port, queue)) = object(args)? else {
            return Ok(ITEM_NOT_FOUND);
        };
        let Some((port, pri)) = real(&shape, port).zip(pri_of(&shape, queue)) else {
            return Ok(ITEM_NOT_FOUND);
        };
        for id in ids {
            match QueueCounter::of(id) {
                Some(QueueCounter::Packets) => {
                    let ledger = self.switch.port(port);
                    let count = ledger.pri.get(pri.index()).map_or(0, |queue| queue.dequeued);
                    self.cleared().insert((object, id), count);
                }
                Some(QueueCounter::SharedWatermarkBytes) => {
                    self.mark(Mark::Depth(port.get(), queue), true)?;
                }
                // A fill cannot be cleared.
                Some(QueueCounter::OccupancyBytes) | None => return Ok(INVALID_PARAMETER),
            }
        }
        Ok(SUCCESS)
    }

    fn clear_pool(&self, args: &Fields) -> Result<i32, Fault> {
        let ids = counter_ids(args)?;
        if object(args)? != Some(Object::BufferPool) {
            return Ok(ITEM_NOT_FOUND);
        }
        let Some(counters) = ids.into_iter().map(PoolCounter::of).collect::<Option<Vec<_>>>()
        else {
            return Ok(INVALID_PARAMETER);
        };
        let marks: Vec<_> = counters.into_iter().map(pool_mark).collect();
        self.marks(&marks, true)?;
        Ok(SUCCESS)
    }

    fn add_station(&self, args: &Fields) -> Result<i32, Fault> {
        let shape = self.switch.shape();
        let Some((vid, addr)) = station(args)? else { return Ok(INVALID_PARAMETER) };
        let mut port = None;
        for value in arg(args, 2, "attributes", Value::as_list)? {
            let (id, value) = attribute_in(value)?;
            if id == attribute::FDB_ENTRY_BRIDGE_PORT_ID {
                port = value.get(&12).and_then(Value::as_int).and_then(Object::of);
            }
        }
        let Some(Object::Port(port)) = port else { return Ok(INVALID_PARAMETER) };
        let Some(name) = name_of(&shape, port) else { return Ok(ITEM_NOT_FOUND) };
        Ok(status(self.switch.add_station(vid, addr, name)))
    }

    fn remove_station(&self, args: &Fields) -> Result<i32, Fault> {
        let Some((vid, addr)) = station(args)? else { return Ok(INVALID_PARAMETER) };
        Ok(self.switch.remove_station(vid, addr).map_or(ITEM_NOT_FOUND, |()| SUCCESS))
    }
}

/// Status for setting an attribute of the switch. Those that are accepted have no effect on an L2 switch of one chip.
fn set_switch(args: &Fields) -> i32 {
    match attribute_of(args, 1) {
        Ok((attribute::SWITCH_SRC_MAC_ADDRESS | attribute::SWITCH_CREDIT_WD, _)) => SUCCESS,
        Ok(_) => NOT_SUPPORTED,
        Err(_) => INVALID_PARAMETER,
    }
}

fn status(done: Result<(), Refused>) -> i32 {
    done.map_or(FAILURE, |()| SUCCESS)
}

fn unknown(id: i32) -> Fault {
    Fault(exception::INTERNAL_ERROR, format!("this switch does not count {id}"))
}

fn name_of(shape: &Shape, port: u8) -> Option<&str> {
    shape.names.get(usize::from(port))?.as_deref()
}

fn real(shape: &Shape, port: u8) -> Option<PortId> {
    name_of(shape, port)?;
    PortId::new(port.into())
}

fn pri_of(shape: &Shape, queue: u8) -> Option<Pri> {
    Pri::ALL.into_iter().take(shape.pris).find(|pri| pri.get() == queue)
}

fn queues(shape: &Shape, port: u8) -> Vec<i64> {
    let all = Pri::ALL.into_iter().take(shape.pris);
    all.map(|pri| Object::Queue(port, pri.get()).id()).collect()
}

/// Priorities that priority group `group` counts.
fn members(shape: &Shape, group: u8) -> impl Iterator<Item = Pri> {
    let of = Pri::ALL.into_iter().zip(shape.pri_to_pg).take(shape.pris);
    of.filter(move |&(_, own)| own == group).map(|(pri, _)| pri)
}

const fn pool_mark(counter: PoolCounter) -> Mark {
    match counter {
        PoolCounter::WatermarkBytes => Mark::Shared,
        PoolCounter::XoffRoomWatermarkBytes => Mark::HeadroomPool,
    }
}

fn dropped(queue: &QueueLedger, reason: DropReason) -> u64 {
    queue.drops.get(reason as usize).copied().unwrap_or(0)
}

/// Frames that asked for room in the buffer, admitted or not, each counted once.
fn arrived(queue: &QueueLedger) -> u64 {
    // A replicated frame is enqueued once for each output: the copies beyond the first are taken off.
    let refused = dropped(queue, DropReason::Dt) + dropped(queue, DropReason::Headroom);
    (queue.enqueued + refused).saturating_sub(queue.copies)
}

fn port_counter(shape: &Shape, port: &PortLedger, id: i32) -> Option<u64> {
    if let Some(class) = pfc_tx_class(id) {
        // Frames of several priorities may name one class: all of them are added up.
        let pris = Pri::ALL.into_iter().filter(|&pri| shape.classes[pri] >> class & 1 != 0);
        let sent = |queue: &QueueLedger| queue.pause_tx + queue.resume_tx;
        return Some(pris.filter_map(|pri| port.pri.get(pri.index())).map(sent).sum());
    }
    let drops = |reason: DropReason| port.drops.get(reason as usize).copied().unwrap_or(0);
    Some(match PortCounter::of(id)? {
        PortCounter::InUnicast => {
            // Frames that were dropped before their destination was known are in neither counter.
            let unknown = [
                DropReason::Malformed,
                DropReason::Truncated,
                DropReason::Runt,
                DropReason::Fcs,
                DropReason::BadGso,
                DropReason::XskRing,
                DropReason::Injected,
            ];
            let others = port.consumed + port.rx_group_frames;
            port.rx_frames.saturating_sub(others + unknown.into_iter().map(drops).sum::<u64>())
        }
        PortCounter::InNonUnicast => port.rx_group_frames,
        PortCounter::InDiscards | PortCounter::InDropped => drops(DropReason::Headroom),
        PortCounter::OutOctets => port.tx_bytes,
        PortCounter::OutUnicast => port.tx_frames.saturating_sub(port.tx_group_frames),
        PortCounter::OutNonUnicast => port.tx_group_frames,
        PortCounter::OutDiscards | PortCounter::OutDropped => {
            let of_queue = |queue: &QueueLedger| {
                let counts = OUTPUT_REASONS.iter().zip(queue.output_drops);
                // Headroom is counted at the input, by `InDiscards`.
                let own = counts.filter(|(reason, _)| **reason != DropReason::Headroom);
                own.map(|(_, count)| count).sum::<u64>()
            };
            port.pri.iter().map(of_queue).sum::<u64>() + drops(DropReason::TxError)
        }
        PortCounter::OutQueueLength => port.pri.iter().map(|queue| queue.depth).sum(),
    })
}
