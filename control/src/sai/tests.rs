use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use weft_base::rng::Rng;
use weft_base::wait;
use weft_dataplane::pipeline::{PortLedger, QueueLedger};
use weft_dataplane::stats::DropReason;
use weft_dataplane::types::{PerPri, PortId, Pri};
use weft_parsers::AddrKey;
use weft_rpc::Refused;

use super::objects::{
    FAILURE, INVALID_PARAMETER, ITEM_NOT_FOUND, NOT_SUPPORTED, NULL, Object, SUCCESS,
};
use super::service::{SaiSwitch, Shape};
use super::thrift::{Fields, Kind, Message, MessageKind, Output, Value, WireError};
use super::*;
use crate::report::watermarks::Mark;

/// Two ports of eight priorities, of which 3 and 4 have groups of their own; notes what it is told, and how often ports are
/// read.
#[derive(Default)]
struct Fake(Mutex<Vec<String>>, AtomicUsize);

impl Fake {
    fn note(&self, text: String) {
        self.0.lock().unwrap().push(text);
    }

    fn told(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

impl SaiSwitch for Fake {
    fn shape(&self) -> Shape {
        Shape {
            names: vec![Some("p0".into()), Some("p1".into()), None],
            cell_bytes: 100,
            pris: 8,
            pri_to_pg: [0, 0, 0, 3, 4, 0, 0, 0],
            classes: PerPri([1, 2, 4, 8, 16, 32, 64, 128]),
        }
    }

    fn port(&self, port: PortId) -> PortLedger {
        self.1.fetch_add(1, Ordering::Relaxed);
        let base = 1_000 * (port.index() as u64 + 1);
        let queue = |pri: u64| {
            let mut queue = QueueLedger {
                enqueued: base + 10 * pri,
                copies: pri,
                dequeued: base + pri,
                pause_tx: pri,
                resume_tx: 1,
                depth: pri + 1,
                pg_used: if (3..=4).contains(&pri) { 20 } else { 0 },
                headroom_used: if pri == 3 { 5 } else { 0 },
                ..QueueLedger::default()
            };
            queue.drops[DropReason::Dt as usize] = 2;
            queue.drops[DropReason::Headroom as usize] = 3;
            queue.output_drops[0] = 7; // dt
            queue.output_drops[1] = 50; // headroom
            queue
        };
        let mut ledger = PortLedger {
            rx_frames: base + 500,
            consumed: 100,
            rx_group_frames: 50,
            tx_frames: base,
            tx_group_frames: 30,
            tx_bytes: base * 64,
            pri: (0..8).map(queue).collect(),
            ..PortLedger::default()
        };
        ledger.drops[DropReason::Malformed as usize] = 7;
        ledger.drops[DropReason::Headroom as usize] = 24;
        ledger.drops[DropReason::TxError as usize] = 1;
        ledger
    }

    fn lossy_cells(&self, _input: PortId, pri: Pri) -> u64 {
        pri.index() as u64
    }

    fn watermarks(&self, marks: &[Mark], restart: bool) -> Result<Vec<u64>, Refused> {
        self.note(format!("{marks:?} {restart}"));
        Ok((1..=marks.len() as u64).collect())
    }

    fn set_tx(&self, port: &str, on: bool) -> Result<(), Refused> {
        self.note(format!("tx {port} {on}"));
        if port == "p1" { Err(Refused::because("no")) } else { Ok(()) }
    }

    fn add_station(&self, vid: u16, addr: AddrKey, port: &str) -> Result<(), Refused> {
        self.note(format!("add {vid} {addr} {port}"));
        Ok(())
    }

    fn remove_station(&self, vid: u16, addr: AddrKey) -> Result<(), Refused> {
        self.note(format!("remove {vid} {addr}"));
        Err(Refused::because("none"))
    }

    fn flush_stations(&self) -> Result<(), Refused> {
        self.note("flush".into());
        Ok(())
    }
}

/// A call of `name` with the arguments that `write` writes.
fn call(name: &str, strict: bool, write: impl FnOnce(&mut Output)) -> Vec<u8> {
    let message =
        Message { name: name.into(), kind: MessageKind::Call, seq: 7, strict, args: Fields::new() };
    let mut out = Output::answer(&message, MessageKind::Call);
    write(&mut out);
    out.stop();
    out.into_bytes()
}

fn ids(out: &mut Output, number: i16, ids: &[i32]) {
    out.field(Kind::List, number).list(Kind::I32, ids.len());
    for &id in ids {
        out.i32(id);
    }
}

fn stats(name: &str, object: i64, counters: &[i32]) -> Vec<u8> {
    call(name, true, |out| {
        out.field(Kind::I64, 1).i64(object);
        ids(out, 2, counters);
        out.field(Kind::I32, 3).i32(i32::try_from(counters.len()).unwrap());
    })
}

/// An attribute whose value is a bool, or an object, of field `field`.
fn attribute(out: &mut Output, id: i32, field: i16, value: i64) {
    out.field(Kind::I32, 1).i32(id);
    out.field(Kind::Struct, 2);
    if field == 1 {
        out.field(Kind::Bool, 1).byte(u8::from(value != 0));
    } else {
        out.field(Kind::I64, field).i64(value);
    }
    out.stop();
    out.stop();
}

fn set_port(object: i64, id: i32, field: i16, value: i64) -> Vec<u8> {
    call("sai_thrift_set_port_attribute", true, |out| {
        out.field(Kind::I64, 1).i64(object);
        out.field(Kind::Struct, 2);
        attribute(out, id, field, value);
    })
}

/// An answer: the value of a reply, or the code and text of an exception.
fn read_answer(bytes: &[u8]) -> Result<Option<Value>, (i64, String)> {
    let name_len = || u32::from_be_bytes(bytes[..4].try_into().unwrap()) as usize;
    let at = if bytes[0] & 0x80 != 0 { 3 } else { 4 + name_len() };
    let kind = bytes[at];
    // Marked as a call, the answer can be read by `read_message`.
    let mut call = bytes.to_vec();
    call[at] = MessageKind::Call as u8;
    let mut rest = &*call;
    let message = read_message(&mut rest).unwrap().unwrap();
    assert_eq!((message.seq, rest.len()), (7, 0), "one whole message");
    if kind == MessageKind::Exception as u8 {
        let text = message.args[&1].as_text().unwrap().to_owned();
        return Err((message.args[&2].as_int().unwrap(), text));
    }
    assert_eq!(kind, MessageKind::Reply as u8);
    Ok(message.args.get(&0).cloned())
}

fn ask(service: &Service, bytes: &[u8]) -> Result<Option<Value>, (i64, String)> {
    let message = read_message(&mut &*bytes).unwrap().unwrap();
    read_answer(&service.answer(&message).unwrap())
}

fn int(service: &Service, bytes: &[u8]) -> i64 {
    ask(service, bytes).unwrap().unwrap().as_int().unwrap()
}

fn counts(service: &Service, bytes: &[u8]) -> Vec<i64> {
    let answer = ask(service, bytes).unwrap().unwrap();
    answer.as_list().unwrap().iter().map(|value| value.as_int().unwrap()).collect()
}

/// Attributes of a list, by number: how many objects there are and the first, or the number.
fn attributes(value: &Value) -> Vec<(i64, i64, i64)> {
    let list = value.as_struct().unwrap();
    let all = list[&1].as_list().unwrap();
    assert_eq!(list[&2].as_int(), Some(i64::try_from(all.len()).unwrap()));
    let of = |attribute: &Value| {
        let fields = attribute.as_struct().unwrap();
        let (id, value) = (fields[&1].as_int().unwrap(), fields[&2].as_struct().unwrap());
        assert_eq!(value.len(), 1, "one member is set");
        if let Some(number) = value.get(&7) {
            return (id, number.as_int().unwrap(), 0);
        }
        let objects = value[&16].as_struct().unwrap();
        let list = objects[&2].as_list().unwrap();
        assert_eq!(objects[&1].as_int(), Some(i64::try_from(list.len()).unwrap()));
        (id, i64::try_from(list.len()).unwrap(), list[0].as_int().unwrap())
    };
    all.iter().map(of).collect()
}

fn service() -> (Arc<Fake>, Service) {
    let fake = Arc::new(Fake::default());
    (fake.clone(), Service::new(fake))
}

/// A call and its answer, octet for octet: strict and not.
#[test]
fn bytes_are_those_of_the_protocol() {
    let (_, service) = service();
    let name = b"sai_thrift_get_port_id_by_front_port";
    let mut strict = vec![0x80, 0x01, 0x00, 0x01, 0, 0, 0, 36];
    strict.extend(name);
    strict.extend([0, 0, 0, 9, 11, 0, 1, 0, 0, 0, 2, b'p', b'1', 0]);
    let mut old = vec![0, 0, 0, 36];
    old.extend(name);
    old.extend([1, 0, 0, 0, 9, 11, 0, 1, 0, 0, 0, 2, b'p', b'1', 0]);
    for (bytes, is_strict) in [(strict, true), (old, false)] {
        let message = read_message(&mut &*bytes).unwrap().unwrap();
        assert_eq!((message.strict, message.seq), (is_strict, 9));
        assert_eq!(message.args[&1].as_text(), Some("p1"));
        let answer = service.answer(&message).unwrap();
        let mut want =
            if is_strict { vec![0x80, 0x01, 0x00, 0x02, 0, 0, 0, 36] } else { vec![0, 0, 0, 36] };
        want.extend(name);
        if !is_strict {
            want.push(2);
        }
        want.extend([0, 0, 0, 9, 10, 0, 0, 0, 1, 0, 0, 0, 0, 0, 2, 0]);
        assert_eq!(answer, want);
    }
}

#[test]
fn ports_queues_and_groups_are_named() {
    let (_, service) = service();
    let (port, none) = (Object::Port(0).id(), Object::Port(2).id());
    let by_name = |name: &str| {
        let bytes = call("get_port_id_by_front_port", false, |out| {
            out.field(Kind::Binary, 1).binary(name.as_bytes());
        });
        int(&service, &bytes)
    };
    assert_eq!((by_name("p0"), by_name("p9"), by_name("")), (port, NULL, NULL));
    let empty = |name: &str| ask(&service, &call(name, true, |_| ())).unwrap().unwrap();
    let ports = attributes(&empty("sai_thrift_get_switch_attribute"));
    assert_eq!(ports, [(0, 2, 0), (2, 2, port)], "the port to the switch's own functions is none");
    let front = empty("sai_thrift_get_port_list_by_front_port");
    assert_eq!(front.as_struct().unwrap()[&1].as_int(), Some(2), "one attribute");
    let of = |name: &str, id: i64| {
        let bytes = call(name, true, |out| out.field(Kind::I64, 1).i64(id));
        attributes(&ask(&service, &bytes).unwrap().unwrap())
    };
    let (queue, group) = (Object::Queue(0, 0).id(), Object::PriorityGroup(0, 0).id());
    assert_eq!(of("sai_thrift_get_port_attribute", port), [(5, 8, queue), (27, 8, group)]);
    for id in [none, NULL, -1, queue, Object::Port(63).id()] {
        assert_eq!(of("sai_thrift_get_port_attribute", id), []);
    }
    let bytes = call("sai_thrift_get_sys_port_obj_id_by_port_id", true, |out| {
        out.field(Kind::I32, 1).i32(1);
    });
    let system = int(&service, &bytes);
    let voqs = of("sai_thrift_get_system_port_attribute", system);
    assert_eq!(voqs, [(2, 8, Object::Queue(1, 0).id())]);
}

#[test]
fn counters_are_what_the_switch_counts() {
    let (fake, service) = service();
    let port = Object::Port(0).id();
    let all = [1, 2, 3, 99, 9, 10, 11, 12, 100, 14, 104, 110, 118];
    let want = [1_343, 50, 24, 24, 64_000, 970, 30, 57, 57, 36, 1, 4, 8];
    assert_eq!(counts(&service, &stats("sai_thrift_get_port_stats", port, &all)), want);
    assert_eq!(fake.1.load(Ordering::Relaxed), 1, "a port is read once a call");
    let clear =
        call("sai_thrift_clear_port_all_stats", true, |out| out.field(Kind::I64, 1).i64(port));
    assert_eq!(int(&service, &clear), i64::from(SUCCESS));
    let mut cleared = [0; 13];
    cleared[9] = 36; // a level
    assert_eq!(counts(&service, &stats("sai_thrift_get_port_stats", port, &all)), cleared);
    let other = Object::Port(1).id();
    assert_eq!(counts(&service, &stats("get_port_stats", other, &[10])), [1_970], "alone");

    let queue = Object::Queue(1, 3).id();
    assert_eq!(
        counts(&service, &stats("sai_thrift_get_queue_stats", queue, &[0, 24, 27])),
        [2_003, 400, 100]
    );
    assert_eq!(fake.told(), ["[Depth(1, 3)] true"], "a read restarts that watermark alone");
    let clear = stats("sai_thrift_clear_queue_stats", queue, &[0, 27]);
    assert_eq!(int(&service, &clear), i64::from(SUCCESS));
    assert_eq!(counts(&service, &stats("sai_thrift_get_queue_stats", queue, &[0])), [0]);
    let (lossless, lossy) = (Object::PriorityGroup(0, 3).id(), Object::PriorityGroup(0, 0).id());
    fake.told();
    let group =
        |id, counters: &[i32]| counts(&service, &stats("sai_thrift_get_pg_stats", id, counters));
    // 1,030 queued and 5 refused less 3 copies; 20 + 5 cells, and 3 of lossy frames.
    assert_eq!(group(lossless, &[0, 2, 8]), [1_032, 2_800, 3]);
    // Priorities 0, 1, 2, 5, 6, 7: 6,210 queued, 30 refused, 21 copies; cells as their numbers.
    assert_eq!(group(lossy, &[0, 2, 8]), [6_219, 2_100, 18]);
    assert_eq!(group(Object::PriorityGroup(0, 7).id(), &[0, 2, 5, 7, 8]), [0; 5], "nobody's");
    assert_eq!(group(lossless, &[5, 7]), [200, 100]);
    assert_eq!(fake.told(), ["[Lossy(0, 3), Group(0, 3)] true", "[Headroom(0, 3)] true"][..]);

    let pool = Object::BufferPool.id();
    assert_eq!(pool, 0x18_0000_0000_0001);
    let read = call("sai_thrift_get_buffer_pool_stats", true, |out| {
        out.field(Kind::I64, 1).i64(pool);
        ids(out, 2, &[1, 20]);
    });
    assert_eq!(counts(&service, &read), [100, 100]);
    assert_eq!(
        fake.told(),
        ["[Shared] false", "[HeadroomPool] false"],
        "only a clear restarts these"
    );
    let clear = stats("sai_thrift_clear_buffer_pool_stats", pool, &[1]);
    assert_eq!((int(&service, &clear), fake.told()), (0, vec!["[Shared] true".to_owned()]));
    for (name, id) in [("get_port_stats", queue), ("get_queue_stats", port), ("get_pg_stats", NULL)]
    {
        assert!(counts(&service, &stats(name, id, &[0])).is_empty(), "{name}: no such object");
    }
    let (code, text) = ask(&service, &stats("get_queue_stats", queue, &[0, 77])).unwrap_err();
    assert_eq!((code, text.as_str()), (6, "this switch does not count 77"));
}

#[test]
fn what_is_set_acts_or_is_refused() {
    let (fake, service) = service();
    let (port, other) = (Object::Port(0).id(), Object::Port(1).id());
    #[rustfmt::skip] // columns: port, attribute, field, value, status, what the switch was told
    let cases = [
        (port,            97, 1,  0, SUCCESS,           "tx p0 false"),
        (port,            97, 1,  1, SUCCESS,           "tx p0 true"),
        (other,           97, 1,  0, FAILURE,           "tx p1 false"),
        (port,            97, 12, 1, INVALID_PARAMETER, ""),
        (port,            34, 1,  1, SUCCESS,           ""),
        (port,            34, 1,  0, NOT_SUPPORTED,     ""),
        (port,            82, 12, Object::Scheduler(false).id(), SUCCESS, "tx p0 false"),
        (port,            82, 12, Object::Scheduler(true).id(),  SUCCESS, "tx p0 true"),
        (port,            82, 12, NULL,  SUCCESS,       "tx p0 true"),
        (port,            82, 12, port,  INVALID_PARAMETER, ""),
        (port,            5,  12, 5, NOT_SUPPORTED,     ""),
        (Object::Port(2).id(), 97, 1, 0, ITEM_NOT_FOUND, ""),
        (NULL,            97, 1,  0, ITEM_NOT_FOUND,    ""),
    ];
    for (port, id, field, value, status, told) in cases {
        let got = int(&service, &set_port(port, id, field, value));
        assert_eq!(got, i64::from(status), "{port:#x} {id}");
        assert_eq!(fake.told().concat(), told, "{port:#x} {id}");
    }
    for (id, status) in [(83, SUCCESS), (213, SUCCESS), (5, NOT_SUPPORTED)] {
        let bytes = call("sai_thrift_set_switch_attribute", true, |out| {
            out.field(Kind::Struct, 1);
            attribute(out, id, 12, 0);
        });
        assert_eq!(int(&service, &bytes), i64::from(status), "{id}");
    }
    let entry = |name: &str, port: i64| {
        call(name, true, |out| {
            out.field(Kind::Struct, 1);
            out.field(Kind::Binary, 1).binary(b"02:00:00:00:00:05");
            out.field(Kind::I64, 2).i64(7);
            out.stop();
            out.field(Kind::List, 2).list(Kind::Struct, 1);
            attribute(out, 3, 12, port);
        })
    };
    assert_eq!(int(&service, &entry("sai_thrift_create_fdb_entry", port)), 0);
    assert_eq!(
        int(&service, &entry("sai_thrift_create_fdb_entry", NULL)),
        i64::from(INVALID_PARAMETER)
    );
    assert_eq!(
        int(&service, &entry("sai_thrift_delete_fdb_entry", port)),
        i64::from(ITEM_NOT_FOUND)
    );
    let flush = call("sai_thrift_flush_fdb_entries", true, |out| {
        out.field(Kind::List, 1).list(Kind::Struct, 0);
    });
    assert_eq!(int(&service, &flush), 0);
    let told = fake.told();
    assert_eq!(told, ["add 7 02:00:00:00:00:05 p0", "remove 7 02:00:00:00:00:05", "flush"]);
}

#[test]
fn what_cannot_be_carried_out_is_an_exception() {
    let (_, service) = service();
    let nothing = |name: &str| call(name, true, |_| ());
    let (code, text) = ask(&service, &nothing("sai_thrift_remove_everything")).unwrap_err();
    assert_eq!((code, text.as_str()), (1, "no method remove_everything"));
    for name in [
        "sai_thrift_get_port_stats",
        "sai_thrift_set_port_attribute",
        "sai_thrift_create_fdb_entry",
    ] {
        let (code, text) = ask(&service, &nothing(name)).unwrap_err();
        assert_eq!(code, 7, "{name}: {text}");
        assert!(text.starts_with("expected "), "{name}: {text}");
    }
    let mut oneway =
        read_message(&mut &*nothing("sai_thrift_get_switch_attribute")).unwrap().unwrap();
    oneway.kind = MessageKind::Oneway;
    assert_eq!(service.answer(&oneway), None);
}

/// Lengths and depths that the message cannot have are refused.
#[test]
fn claims_of_clients_are_bounded() {
    const DEPTH: usize = 40;
    let deep = call("x", true, |out| {
        out.field(Kind::Struct, 1);
        for _ in 0..DEPTH {
            out.field(Kind::Struct, 1);
        }
        (0..=DEPTH).for_each(|_| out.stop());
    });
    let lists = call("x", true, |out| {
        out.field(Kind::List, 1);
        for _ in 0..DEPTH {
            out.list(Kind::List, 1);
        }
        out.list(Kind::I32, 0);
    });
    let read = |bytes: &[u8]| read_message(&mut &*bytes);
    assert!(matches!(read(&deep), Err(WireError::TooDeep)), "{:?}", read(&deep));
    assert!(matches!(read(&lists), Err(WireError::TooDeep)));
    let claim = |kind: Kind, count: u32| {
        call("x", true, |out| {
            out.field(kind, 1);
            if kind != Kind::Binary {
                out.byte(Kind::Bool as u8);
            }
            out.i32(count.cast_signed());
        })
    };
    for kind in [Kind::Binary, Kind::List, Kind::Set] {
        assert!(matches!(read(&claim(kind, 0x7FFF_FFFF)), Err(WireError::TooLong(_))), "{kind:?}");
        assert!(
            matches!(read(&claim(kind, 0xFFFF_FFFF)), Err(WireError::Malformed(_))),
            "{kind:?}"
        );
    }
    for start in
        [&[0x7F, 0xFF, 0xFF, 0xFF][..], &[0x80, 0x02, 0, 1, 0, 0, 0, 0], b"GET / HTTP/1.1\r\n\r\n"]
    {
        assert!(read(start).is_err(), "{start:x?}");
    }
    assert!(read(&[]).unwrap().is_none());
}

/// Seeded mutations of good messages: each is answered, or refused as a whole, and allocates within bounds.
fn mutate(rounds: u64) {
    let (_, service) = service();
    let good = [
        stats("sai_thrift_get_port_stats", Object::Port(0).id(), &[1, 2, 3, 110]),
        stats("sai_thrift_get_pg_stats", Object::PriorityGroup(0, 3).id(), &[0, 2, 5]),
        set_port(Object::Port(0).id(), 97, 1, 0),
        call("get_port_id_by_front_port", false, |out| out.field(Kind::Binary, 1).binary(b"p0")),
    ];
    let mut rng = Rng::new(0x5A1);
    let (mut answered, mut refused) = (0_u64, 0_u64);
    for round in 0..rounds {
        let mut bytes = good[usize::try_from(rng.below(good.len() as u64)).unwrap()].clone();
        for _ in 0..=rng.below(4) {
            let at = usize::try_from(rng.below(bytes.len() as u64)).unwrap();
            match rng.below(4) {
                0 => bytes[at] = u8::try_from(rng.below(256)).unwrap(),
                1 => bytes[at] ^= 1 << rng.below(8),
                2 => drop(bytes.remove(at)),
                _ => bytes.insert(
                    at,
                    [0, 1, 12, 13, 15, 0x7F, 0x80, 0xFF][usize::try_from(rng.below(8)).unwrap()],
                ),
            }
        }
        match read_message(&mut &*bytes) {
            Ok(Some(message)) => {
                let answer = service.answer(&message);
                assert!(answer.is_none_or(|bytes| bytes.len() < 20_000), "round {round}");
                answered += 1;
            }
            Ok(None) | Err(_) => refused += 1,
        }
    }
    assert!(
        answered > rounds / 10 && refused > rounds / 10,
        "{answered} answered, {refused} refused"
    );
}

#[test]
fn mutated_messages_are_answered_or_refused() {
    mutate(20_000);
}

#[test]
#[ignore = "soak: a million messages"]
fn soak_a_million_mutated_messages() {
    mutate(1_000_000);
}

fn server(limits: Limits) -> (Arc<Fake>, TcpServer) {
    let fake = Arc::new(Fake::default());
    let server =
        start_within("127.0.0.1:0".parse().unwrap(), Arc::new(Service::new(fake.clone())), limits);
    (fake, server.unwrap())
}

fn connect(server: &TcpServer) -> TcpStream {
    let stream = TcpStream::connect(server.addr()).unwrap();
    stream.set_read_timeout(Some(wait::LONG)).unwrap();
    stream
}

/// Calls over a connection; returns the value of the reply.
fn over(stream: &mut TcpStream, bytes: &[u8]) -> Result<Option<Value>, (i64, String)> {
    stream.write_all(bytes).unwrap();
    let mut answer = vec![0; 4_096];
    let mut had = 0;
    loop {
        let count = stream.read(&mut answer[had..]).unwrap();
        assert_ne!(count, 0, "the connection is kept");
        had += count;
        let mut copy = answer[..had].to_vec();
        copy[3] = MessageKind::Call as u8;
        if matches!(read_message(&mut &*copy), Ok(Some(_))) {
            return read_answer(&answer[..had]);
        }
    }
}

#[test]
fn a_connection_is_kept_through_unknown_methods() {
    let (fake, server) = server(LIMITS);
    let mut stream = connect(&server);
    let unknown = call("sai_thrift_nothing", true, |_| ());
    assert_eq!(over(&mut stream, &unknown).unwrap_err().0, 1);
    let off = set_port(Object::Port(0).id(), 97, 1, 0);
    assert_eq!(over(&mut stream, &off).unwrap().unwrap().as_int(), Some(0));
    assert_eq!(fake.told(), ["tx p0 false"]);
    // In pieces, and two at once.
    for piece in unknown.chunks(1) {
        stream.write_all(piece).unwrap();
    }
    assert_eq!(over(&mut stream, &[]).unwrap_err().0, 1);
    stream.write_all(&off).unwrap();
    assert_eq!(over(&mut stream, &[]).unwrap().unwrap().as_int(), Some(0));
}

/// A client that sends nothing, half a message or nonsense is sent away; others go on.
#[test]
fn others_go_on() {
    let short = Duration::from_millis(200);
    let (_, server) = server(Limits { idle: short, request: short, ..LIMITS });
    let nobody = || {
        wait::until(wait::LONG, "nobody is connected", || {
            (server.counts().open == 0).then_some(())
        });
    };
    let whole = call("sai_thrift_get_switch_attribute", true, |_| ());
    let claim = call("x", true, |out| {
        out.field(Kind::Binary, 1).i32(i32::MAX);
    });
    for (what, bytes) in [
        ("nothing", &[][..]),
        ("half", &whole[..20]),
        ("a claim", &claim),
        ("nonsense", &b"GET / HTTP/1.1\r\n"[..]),
    ] {
        let mut bad = connect(&server);
        bad.write_all(bytes).unwrap();
        let mut good = connect(&server);
        assert!(over(&mut good, &whole).is_ok(), "beside {what}");
        let mut rest = Vec::new();
        let _ = bad.read_to_end(&mut rest); // closed, or reset as bytes were left
        assert_eq!(rest, b"", "{what}");
        drop(good);
        nobody();
    }
    let crowd: Vec<TcpStream> = (0..100).map(|_| connect(&server)).collect();
    let mut good = connect(&server);
    assert!(over(&mut good, &whole).is_ok(), "beside a crowd");
    drop((crowd, good));
    nobody();
}
