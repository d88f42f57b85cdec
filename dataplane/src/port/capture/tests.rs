//! Captures against themselves, against pcap-parser, and cut off or damaged at every byte.
//!
//! Files built in memory.
//!
//! Units: ns, bytes.

use std::io::{Cursor, Write};
use std::sync::{Arc, Mutex};

use pcap_parser::{Block, PcapBlockOwned, PcapError};

use super::*;

/// A file in memory that can still be looked at when the writer has it.
#[derive(Clone, Default)]
struct Sink(Arc<Mutex<Vec<u8>>>);

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

const FRAMES: [(u64, usize, Option<&str>); 5] = [
    (0, 14, None),
    (1_700_000_000_123_456_789, 60, Some("dropped: dt")),
    (1_700_000_000_123_456_790, 61, None),
    (4_294_967_295_999_999_999, 1_514, Some("x")),
    (1, 0, Some("")),
];

fn frame(len: usize) -> Vec<u8> {
    (0..len).map(|i| u8::try_from(i % 251).unwrap()).collect()
}

fn written(format: CaptureFormat, snaplen: u32) -> Vec<u8> {
    let sink = Sink::default();
    let mut writer = CaptureWriter::new("mem", sink.clone(), format, snaplen).unwrap();
    for (ts_ns, len, comment) in FRAMES {
        writer.write(ts_ns, &frame(len), comment).unwrap();
    }
    assert_eq!(writer.finish().unwrap(), FRAMES.len() as u64);
    sink.0.lock().unwrap().clone()
}

fn read(bytes: &[u8]) -> Result<Vec<Record>, CaptureError> {
    CaptureReader::new("mem", Cursor::new(bytes.to_vec()))?.collect()
}

#[test]
fn what_is_written_is_read_back() {
    for format in [CaptureFormat::Pcap, CaptureFormat::PcapNg] {
        for snaplen in [0, 100] {
            let records = read(&written(format, snaplen)).unwrap();
            assert_eq!(records.len(), FRAMES.len());
            for (record, (ts_ns, len, comment)) in records.iter().zip(FRAMES) {
                let want = Record {
                    ts_ns,
                    data: frame(if snaplen == 0 { len } else { len.min(100) }),
                    orig_len: u32::try_from(len).unwrap(),
                    comment: comment.filter(|_| format == CaptureFormat::PcapNg).map(str::to_owned),
                    ..Record::default()
                };
                assert_eq!(*record, want, "{format:?} {snaplen}");
                assert_eq!(record.is_truncated(), snaplen == 100 && len > 100);
            }
        }
    }
}

#[test]
fn the_same_calls_give_the_same_bytes() {
    for format in [CaptureFormat::Pcap, CaptureFormat::PcapNg] {
        assert_eq!(written(format, 0), written(format, 0));
    }
}

/// Every frame that an independent reader finds: stamp as the file has it, lengths, bytes.
fn oracle(bytes: Vec<u8>) -> Vec<(u64, u32, Vec<u8>)> {
    let mut reader = pcap_parser::create_reader(1 << 16, Cursor::new(bytes)).unwrap();
    let mut found = Vec::new();
    loop {
        let (used, block) = match reader.next() {
            Ok(next) => next,
            Err(PcapError::Eof) => return found,
            Err(PcapError::Incomplete(_)) => {
                reader.refill().unwrap();
                continue;
            }
            Err(error) => panic!("{error:?}"),
        };
        match block {
            PcapBlockOwned::Legacy(b) => {
                let ts = u64::from(b.ts_sec) * 1_000_000_000 + u64::from(b.ts_usec);
                found.push((ts, b.origlen, b.data.to_vec()));
            }
            PcapBlockOwned::NG(Block::EnhancedPacket(b)) => {
                let ts = u64::from(b.ts_high) << 32 | u64::from(b.ts_low);
                found.push((ts, b.origlen, b.data[..b.caplen as usize].to_vec()));
            }
            PcapBlockOwned::NG(Block::InterfaceDescription(b)) => {
                assert_eq!((b.linktype.0, b.if_tsresol), (1, 9));
            }
            PcapBlockOwned::LegacyHeader(h) => assert!(h.is_nanosecond_precision()),
            PcapBlockOwned::NG(_) => {}
        }
        reader.consume(used);
    }
}

#[test]
fn an_independent_reader_agrees() {
    for format in [CaptureFormat::Pcap, CaptureFormat::PcapNg] {
        let want: Vec<_> = FRAMES
            .iter()
            .map(|&(ts, len, _)| (ts, u32::try_from(len).unwrap(), frame(len)))
            .collect();
        assert_eq!(oracle(written(format, 0)), want, "{format:?}");
    }
}

/// Records up to the end of a file that is cut off, and the reader's warnings.
fn read_cut(bytes: &[u8]) -> Result<(Vec<Record>, Vec<String>), CaptureError> {
    let mut reader = CaptureReader::new("mem", Cursor::new(bytes.to_vec()))?;
    let records = reader.by_ref().collect::<Result<_, _>>()?;
    Ok((records, reader.warnings()))
}

#[test]
fn a_file_cut_off_anywhere_ends_with_the_last_whole_record_and_says_so() {
    for format in [CaptureFormat::Pcap, CaptureFormat::PcapNg] {
        let whole = written(format, 0);
        let all = read(&whole).unwrap();
        let (mut clean, mut cut) = (0, 0);
        for len in 0..whole.len() {
            match read_cut(&whole[..len]) {
                Ok((records, warnings)) => {
                    assert_eq!(records, all[..records.len()], "{format:?} {len}");
                    clean += usize::from(warnings.is_empty());
                    cut +=
                        usize::from(warnings.iter().any(|said| said.contains("file ends inside")));
                }
                // Without a header it is no capture.
                Err(CaptureError::Short { need, had, .. }) => {
                    assert!(had < need && len < 28, "{format:?} {len}");
                }
                Err(error) => panic!("{format:?} {len}: {error}"),
            }
        }
        assert_eq!(clean + cut, whole.len() - if format == CaptureFormat::Pcap { 24 } else { 28 });
        // After the header(s) and after each record but the last.
        let want = match format {
            CaptureFormat::Pcap => FRAMES.len(),
            CaptureFormat::PcapNg => FRAMES.len() + 1,
        };
        assert_eq!(clean, want, "{format:?}");
    }
}

#[test]
fn no_damaged_byte_makes_the_reader_panic_or_run_on() {
    for format in [CaptureFormat::Pcap, CaptureFormat::PcapNg] {
        let whole = written(format, 0);
        let mut refused = 0;
        for at in 0..whole.len() {
            for value in [0x00, 0x01, 0x7F, 0x80, 0xFF] {
                let mut damaged = whole.clone();
                damaged[at] = value;
                match read_cut(&damaged) {
                    Ok((records, warnings)) => {
                        assert!(records.len() <= FRAMES.len() + 1);
                        refused += usize::from(!warnings.is_empty());
                    }
                    Err(_) => refused += 1,
                }
            }
        }
        assert!(refused > 100, "{format:?} {refused}");
    }
}

/// A pcapng file in either order, block by block.
struct Built {
    bytes: Vec<u8>,
    big: bool,
}

impl Built {
    fn new(big: bool) -> Self {
        let mut built = Self { bytes: Vec::new(), big };
        built.section();
        built
    }

    fn u16(&self, v: u16) -> Vec<u8> {
        if self.big { v.to_be_bytes().to_vec() } else { v.to_le_bytes().to_vec() }
    }

    fn u32(&self, v: u32) -> Vec<u8> {
        if self.big { v.to_be_bytes().to_vec() } else { v.to_le_bytes().to_vec() }
    }

    fn block(&mut self, kind: u32, body: &[u8]) {
        let len = self.u32(u32::try_from(body.len() + 12).unwrap());
        self.bytes.extend(self.u32(kind));
        self.bytes.extend(&len);
        self.bytes.extend(body);
        self.bytes.extend(&len);
    }

    fn section(&mut self) {
        let body = [self.u32(BYTE_ORDER), self.u16(1), self.u16(0), vec![0xFF; 8]].concat();
        self.block(BLOCK_SECTION, &body);
    }

    fn option(&self, code: u16, value: &[u8]) -> Vec<u8> {
        let mut bytes = [self.u16(code), self.u16(u16::try_from(value.len()).unwrap())].concat();
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn interface(&mut self, link: u16, snaplen: u32, options: &[u8]) {
        let body = [self.u16(link), self.u16(0), self.u32(snaplen), options.to_vec()].concat();
        self.block(BLOCK_INTERFACE, &body);
    }

    fn packet(&mut self, index: u32, ts: u64, orig: u32, data: &[u8], options: &[u8]) {
        let mut padded = data.to_vec();
        padded.resize(data.len().next_multiple_of(4), 0);
        let body = [
            self.u32(index),
            self.u32(u32::try_from(ts >> 32).unwrap()),
            self.u32(u32::try_from(ts & 0xFFFF_FFFF).unwrap()),
            self.u32(u32::try_from(data.len()).unwrap()),
            self.u32(orig),
            padded,
            options.to_vec(),
        ]
        .concat();
        self.block(BLOCK_PACKET, &body);
    }
}

#[test]
fn stamps_of_every_unit_and_order_become_ns() {
    #[rustfmt::skip] // columns: name, tsresol, offset s, stamp, ns
    let cases = [
        ("default us",   None,       None,      1_000_001_u64,     Some(1_000_001_000_u64)),
        ("ms",           Some(3),    None,      1_001,         Some(1_001_000_000)),
        ("ns",           Some(9),    None,      1_000_000_001, Some(1_000_000_001)),
        ("ps",           Some(12),   None,      1_999,         Some(1)),
        ("2^-10 s",      Some(0x8A), None,      1_536,         Some(1_500_000_000)),
        ("finest",       Some(0xFF), None,      u64::MAX,      Some(0)),
        ("10^-127 s",    Some(0x7F), None,      u64::MAX,      Some(0)),
        ("offset",       Some(9),    Some(-1_i64),  1_000_000_005, Some(5)),
        ("before 1970",  Some(9),    Some(-2),  1_000_000_005, None),
    ];
    for big in [false, true] {
        for (name, resolution, offset, stamp, want) in cases {
            let mut file = Built::new(big);
            let mut options = Vec::new();
            if let Some(resolution) = resolution {
                options.extend(file.option(OPT_IF_TSRESOL, &[resolution]));
            }
            if let Some(offset) = offset {
                let bytes = if big { offset.to_be_bytes() } else { offset.to_le_bytes() };
                options.extend(file.option(OPT_IF_TSOFFSET, &bytes));
            }
            file.interface(1, 0, &options); // without an end mark, which is allowed
            file.packet(0, stamp, 4, &[1, 2, 3, 4], &[]);
            let got = read(&file.bytes);
            assert_eq!(got.ok().map(|r| r[0].ts_ns), want, "{name}, big {big}");
        }
    }
}

/// A frame of `len` bytes with its FCS behind it.
fn with_fcs(len: usize) -> Vec<u8> {
    let mut bytes = frame(len);
    bytes.extend(weft_parsers::crc::fcs(&frame(len)));
    bytes
}

#[test]
fn the_fcs_is_checked_and_taken_off_where_the_file_has_it() {
    let mut wrong = with_fcs(60);
    wrong[63] ^= 1;
    let mut damaged = with_fcs(60);
    damaged[20] ^= 0x80;
    let (whole, cut) = (with_fcs(60), |len| with_fcs(60)[..len].to_vec());
    #[rustfmt::skip] // columns: name, if_fcslen, FCS length of epb_flags, captured, on the wire, want data, want length, FCS, flaw
    let cases = [
        ("no fcs",           None,     0_u32, whole.clone(), 64, 64, 64, Fcs::Absent, Flaw::None),
        ("bytes",            Some(4),  0,     whole.clone(), 64, 60, 60, Fcs::Right,  Flaw::None),
        ("bits",             Some(32), 0,     whole.clone(), 64, 60, 60, Fcs::Right,  Flaw::None),
        ("by packet",        None,     4,     whole.clone(), 64, 60, 60, Fcs::Right,  Flaw::None),
        ("wrong",            Some(4),  0,     wrong.clone(), 64, 60, 60, Fcs::Wrong,  Flaw::Fcs),
        ("wrong by packet",  None,     4,     wrong,         64, 60, 60, Fcs::Wrong,  Flaw::Fcs),
        ("frame damaged",    Some(4),  0,     damaged,       64, 60, 60, Fcs::Wrong,  Flaw::Fcs),
        ("cut inside fcs",   Some(4),  0,     cut(62),       64, 60, 60, Fcs::CutOff, Flaw::None),
        ("cut before fcs",   Some(4),  0,     cut(60),       64, 60, 60, Fcs::CutOff, Flaw::None),
        ("cut in the frame", Some(4),  0,     cut(40),       64, 40, 60, Fcs::CutOff, Flaw::Truncated),
        ("shorter than fcs", Some(4),  0,     cut(3),         3,  0,  0, Fcs::Wrong,  Flaw::Fcs),
        ("longer than said", Some(4),  0,     whole,          0, 60, 60, Fcs::Right,  Flaw::None),
    ];
    for (name, fcs, own, captured, orig, want_data, want_len, want_fcs, flaw) in cases {
        let mut file = Built::new(false);
        let options = fcs.map_or(Vec::new(), |n| file.option(OPT_IF_FCSLEN, &[n]));
        file.interface(1, 0, &options);
        let options = file.option(OPT_EPB_FLAGS, &u32::to_le_bytes(own << 5));
        file.packet(0, 0, orig, &captured, &options);
        let record = &read(&file.bytes).unwrap()[0];
        assert_eq!((record.data.len(), record.orig_len), (want_data, want_len), "{name}");
        assert_eq!((record.fcs, record.flaw()), (want_fcs, flaw), "{name}");
    }
}

/// Link errors that the device saw are read in both byte orders, and from old packet blocks too.
#[test]
fn errors_of_the_link_are_told() {
    for big in [false, true] {
        let mut file = Built::new(big);
        file.interface(1, 0, &[]);
        let flags = |file: &Built, bits: u32| file.option(OPT_EPB_FLAGS, &file.u32(bits));
        for bits in [0, 1 << 24, 1 << 26, 1 << 27, 3 << 30, 0xFFFF] {
            let options = flags(&file, bits & !(0xF << 5)); // says nothing of an FCS
            file.packet(0, 0, 60, &frame(60), &options);
        }
        let mut old = [file.u16(0), file.u16(0), file.u32(0), file.u32(0)].concat();
        old.extend([file.u32(4), file.u32(4), frame(4), flags(&file, 1 << 24)].concat());
        file.block(BLOCK_PACKET_OBSOLETE, &old);
        let records = read(&file.bytes).unwrap();
        let got: Vec<_> =
            records.iter().map(|r| (r.link_errors.names().collect(), r.flaw())).collect();
        let want: [(Vec<&str>, Flaw); 7] = [
            (vec![], Flaw::None),
            (vec!["crc"], Flaw::Fcs),
            (vec!["too_short"], Flaw::Runt),
            (vec!["interframe_gap"], Flaw::None),
            (vec!["preamble", "symbol"], Flaw::Fcs),
            (vec![], Flaw::None),
            (vec!["crc"], Flaw::Fcs),
        ];
        assert_eq!(got, want, "big {big}");
    }
}

#[test]
fn pcap_headers_of_each_order_unit_and_fcs_are_read() {
    #[rustfmt::skip] // columns: name, magic, big, link field, ns, bytes left, FCS
    let cases = [
        ("us little",  MAGIC_US, false, 1_u32,       7_000_008_000_u64, 64, Fcs::Absent),
        ("us big",     MAGIC_US, true,  1,           7_000_008_000,     64, Fcs::Absent),
        ("ns big",     MAGIC_NS, true,  1,           7_000_000_008,     64, Fcs::Absent),
        ("ns fcs",     MAGIC_NS, false, 0x2400_0001, 7_000_000_008,     60, Fcs::Right),
        ("fcs of 0",   MAGIC_NS, false, 0x0400_0001, 7_000_000_008,     64, Fcs::Absent),
    ];
    for (name, magic, big, link, ns, left, fcs) in cases {
        let word = |v: u32| if big { v.to_be_bytes() } else { v.to_le_bytes() };
        let version = if big { [0, 2, 0, 4] } else { [2, 0, 4, 0] };
        let mut bytes = [word(magic), version, word(0), word(0), word(65_535), word(link)].concat();
        bytes.extend([word(7), word(8), word(64), word(64)].concat());
        bytes.extend(with_fcs(60));
        let records = read(&bytes).unwrap();
        let got = (records[0].ts_ns, records[0].data.len(), records[0].fcs);
        assert_eq!(got, (ns, left, fcs), "{name}");
    }
}

#[test]
fn sections_interfaces_and_other_blocks_are_told_apart() {
    let mut file = Built::new(false);
    file.interface(113, 0, &[]); // not Ethernet, but nothing came in by it
    file.interface(1, 100, &file.option(OPT_IF_TSRESOL, &[9]));
    file.block(0x0000_0BAD, &[0; 40]); // a custom block
    file.packet(1, 5, 2_000, &frame(100), &file.option(OPT_COMMENT, b"first"));
    file.big = true;
    file.section();
    file.interface(1, 20, &[]);
    let mut simple = file.u32(40);
    simple.extend(frame(20));
    file.block(BLOCK_PACKET_SIMPLE, &simple);
    let mut old = [file.u16(0), file.u16(9), file.u32(0), file.u32(6)].concat();
    old.extend([file.u32(3), file.u32(3), vec![7, 8, 9, 0]].concat());
    file.block(BLOCK_PACKET_OBSOLETE, &old);

    let records = read(&file.bytes).unwrap();
    let got: Vec<_> = records
        .iter()
        .map(|r| (r.interface, r.ts_ns, r.data.len(), r.orig_len, r.comment.as_deref()))
        .collect();
    let want = [(1, 5, 100, 2_000, Some("first")), (2, 0, 20, 40, None), (2, 6_000, 3, 3, None)];
    assert_eq!(got, want);
}

#[test]
fn what_cannot_be_read_is_refused_by_name() {
    let ng = |build: &dyn Fn(&mut Built)| {
        let mut file = Built::new(false);
        build(&mut file);
        file.bytes
    };
    let pcap = |link: u32, caplen: u32| {
        let head = [MAGIC_NS.to_le_bytes(), [2, 0, 4, 0], [0; 4], [0; 4], [0; 4]].concat();
        let words = [link, 0, 0, caplen, caplen].map(u32::to_le_bytes).concat();
        [head, words].concat()
    };
    #[rustfmt::skip] // columns: name, file, part of the message
    let cases = [
        ("empty", vec![], "file ends inside the file header: 4 bytes needed, 0 there"),
        ("text", b"hello, world".to_vec(), "starts with 0x68656c6c"),
        ("pcap link", pcap(113, 0), "link type 113 is not Ethernet"),
        ("pcap length", pcap(1, 262_145), "record 1 at byte 24: captured length is 262145"),
        ("ng link", ng(&|f| { f.interface(113, 0, &[]); f.packet(0, 0, 0, &[], &[]); }),
            "record 1 at byte 48: link type 113"),
        ("xz", vec![0xFD, b'7', b'z', b'X', b'Z', 0, 0], "packed, and neither by gzip nor by zstd: unpack it first (xz -d)"),
        ("damaged gzip", vec![0x1F, 0x8B, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7], "mem: record 0 at byte 0: read failed"),
        ("damaged zstd", [&[0x28, 0xB5, 0x2F, 0xFD][..], &[0xFF; 20]].concat(), "mem: record 0 at byte 0: read failed"),
        ("no interface", ng(&|f| f.packet(0, 0, 0, &[], &[])), "interface is 0"),
        ("fcs of 3", ng(&|f| { let o = f.option(OPT_IF_FCSLEN, &[3]); f.interface(1, 0, &o); }),
            "if_fcslen is 3"),
        ("huge block", ng(&|f| { f.bytes.extend([6, 0, 0, 0]); f.bytes.extend([0xFC; 4]); }),
            "at most 16 MiB"),
    ];
    for (name, bytes, want) in cases {
        let error = read(&bytes).err().map(|e| e.to_string()).unwrap_or_default();
        assert!(error.contains(want), "{name}: {error}");
    }
    let missing = CaptureReader::open("/nonexistent/x.pcap").err().unwrap();
    assert_eq!(missing.to_string(), "/nonexistent/x.pcap: cannot open capture");
}

/// A capture of two sections with interfaces eth0 and usbmon0, then eth0 and eth1; the frames' lengths tell them apart.
fn several() -> Vec<u8> {
    let mut file = Built::new(false);
    let named = |file: &Built, name: &str| file.option(OPT_IF_NAME, name.as_bytes());
    for (link, name) in [(1, "eth0"), (220, "usbmon0")] {
        let options = [named(&file, name), file.option(OPT_IF_FCSLEN, &[2])].concat();
        file.interface(link, 0, if link == 1 { &options[..8] } else { &options });
    }
    file.packet(0, 1, 14, &frame(14), &[]);
    file.packet(1, 2, 30, &frame(30), &[]);
    file.section();
    for name in ["eth0", "eth1"] {
        let options = named(&file, name);
        file.interface(1, 0, &options);
    }
    file.packet(1, 3, 16, &frame(16), &[]);
    file.packet(0, 4, 15, &frame(15), &[]);
    file.bytes
}

#[test]
fn frames_of_chosen_interfaces_are_read_and_others_left_out() {
    let file = several();
    let numbers = |list: &[u32]| Choice::Numbers(list.to_vec());
    #[rustfmt::skip] // columns: choice, lengths of frames or part of the error
    let cases: [(Choice, Result<&[usize], &str>); 7] = [
        (Choice::Ethernet,                  Ok(&[14, 16, 15])),
        (numbers(&[0]),                     Ok(&[14])),
        (numbers(&[0, 2]),                  Ok(&[14, 15])),
        (Choice::Name("eth0".to_owned()),   Ok(&[14, 15])),
        (numbers(&[1]),                     Err("record 2 at byte")),
        (Choice::Name("eth9".to_owned()),   Err("mem: no interface eth9: it has 0 (eth0), 1 (usbmon0), 2 (eth0), 3 (eth1)")),
        (numbers(&[7]),                     Err("mem: no interface 7: it has 0 (eth0)")),
    ];
    for (choice, want) in cases {
        let mut reader =
            CaptureReader::new("mem", Cursor::new(file.clone())).unwrap().only(choice.clone());
        let got: Result<Vec<_>, _> = reader.by_ref().map(|record| Ok(record?.data.len())).collect();
        match (got.map_err(|error: CaptureError| error.to_string()), want) {
            (Ok(got), Ok(want)) => assert_eq!(got, want, "{choice:?}"),
            (Err(got), Err(want)) => assert!(got.contains(want), "{choice:?}: {got}"),
            (got, want) => panic!("{choice:?}: {got:?} for {want:?}"),
        }
        let said = "mem: interface 1 (usbmon0) is not Ethernet, but of link type 220: its frames are left out (1)";
        let want: &[&str] = if choice == Choice::Ethernet { &[said] } else { &[] };
        assert_eq!(reader.warnings(), want, "{choice:?}");
    }
}

#[test]
fn a_name_of_a_file_is_told_from_that_of_an_interface() {
    let dir = std::env::temp_dir().join(format!("weft-{}-names", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let path = |name: &str| dir.join(name);
    for name in ["a", "a#1", "b#c"] {
        std::fs::write(path(name), "").unwrap();
    }
    #[rustfmt::skip] // columns: text, file, choice
    let cases = [
        ("a",       "a",      Choice::Ethernet),
        ("a#2",     "a",      Choice::Numbers(vec![2])),
        ("a#eth0",  "a",      Choice::Name("eth0".to_owned())),
        ("a#1",     "a#1",    Choice::Ethernet), // there is such a file
        ("b#c",     "b#c",    Choice::Ethernet),
        ("b#c#0",   "b#c",    Choice::Numbers(vec![0])),
        ("a#",      "a#",     Choice::Ethernet),
        ("none#2",  "none#2", Choice::Ethernet), // neither is there: an error names all of it
    ];
    for (text, file, choice) in cases {
        let given = path(text).display().to_string();
        assert_eq!(CaptureName::parse(&given), CaptureName { path: path(file), choice }, "{text}");
    }
    assert_eq!(CaptureName::parse("-").path, std::path::Path::new("/dev/stdin"));
    std::fs::remove_dir_all(&dir).unwrap();
}

/// `bytes` packed by gzip in two members, the second of which begins at `at`.
fn gzip(bytes: &[u8], at: usize) -> Vec<u8> {
    let member = |part: &[u8]| {
        let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        packer.write_all(part).unwrap();
        packer.finish().unwrap()
    };
    [member(&bytes[..at]), member(&bytes[at..])].concat()
}

/// `bytes` packed by zstd in two frames with a skippable one between them.
fn zstd(bytes: &[u8], at: usize) -> Vec<u8> {
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};
    let pack = |part: &[u8]| compress_to_vec(part, CompressionLevel::Fastest);
    let skipped = [0x50, 0x2A, 0x4D, 0x18, 5, 0, 0, 0, 1, 2, 3, 4, 5];
    [&pack(&bytes[..at])[..], &skipped, &pack(&bytes[at..])].concat()
}

#[test]
fn packed_files_are_read_as_what_they_hold() {
    for format in [CaptureFormat::Pcap, CaptureFormat::PcapNg] {
        let whole = written(format, 0);
        for pack in [gzip, zstd] {
            for at in [0, 3, 100, whole.len()] {
                assert_eq!(read(&pack(&whole, at)).unwrap(), read(&whole).unwrap(), "{at}");
            }
        }
    }
}

/// A compressed capture that is cut off also gives all records before the cut. Damage is an error.
#[test]
fn packed_files_are_read_as_far_as_they_go() {
    let whole = written(CaptureFormat::Pcap, 0);
    let all = read(&whole).unwrap();
    for pack in [gzip, zstd] {
        // The second part begins behind the third record.
        let at = 24 + (16 + 14) + (16 + 60) + (16 + 61);
        let (packed, first) = (pack(&whole, at), pack(&whole[..at], at).len());
        let mut most = 0;
        for len in first..packed.len() {
            let (records, warnings) = read_cut(&packed[..len]).unwrap();
            assert_eq!(records, all[..records.len()], "{len}");
            assert!(records.len() >= 3, "{len}: {}", records.len());
            most = most.max(records.len());
            let said = warnings.iter().any(|said| said.contains("file ends inside"));
            assert!(said || records.len() == 3, "{len}: {warnings:?}");
        }
        let mut damaged = packed.clone();
        let last = damaged.len() - 2;
        damaged[last] ^= 1; // of a checksum
        assert!(matches!(read(&damaged), Err(CaptureError::Read { .. })), "{most}");
    }
}

#[test]
fn no_damaged_byte_of_what_is_packed_makes_the_reader_panic_or_run_on() {
    let whole = written(CaptureFormat::PcapNg, 0);
    for pack in [gzip, zstd] {
        let packed = pack(&whole, 100);
        for at in 0..packed.len() {
            for value in [0x00, 0x01, 0x7F, 0x80, 0xFF] {
                let mut damaged = packed.clone();
                damaged[at] = value;
                let records = read_cut(&damaged).map_or(0, |(records, _)| records.len());
                assert!(records <= FRAMES.len(), "{at} {value}");
            }
        }
    }
}

/// A file that claims a window of 1 GiB takes no memory for it.
#[test]
fn a_window_beyond_the_bound_is_refused() {
    let huge = [0x28, 0xB5, 0x2F, 0xFD, 0x00, 20 << 3, 1, 0, 0];
    let error = read(&huge).unwrap_err();
    let cause = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
    assert!(cause.contains("window"), "{error}: {cause}");
}

/// Files of before 1998: libpcap 0.3 wrote the lengths of a record the other way round.
#[test]
fn lengths_of_old_files_are_told_apart() {
    #[rustfmt::skip] // columns: minor version, first length, second length, bytes, on the wire
    let cases = [
        (4, 20, 60, 20, 60),
        (2, 60, 20, 20, 60),
        (3, 20, 60, 20, 60),
        (3, 60, 20, 20, 60),
    ];
    for (minor, first, second, bytes, wire) in cases {
        let words = [MAGIC_US, minor << 16 | 2, 0, 0, 65_535, 1, 0, 0, first, second];
        let mut file = words.map(u32::to_le_bytes).concat();
        file.extend(frame(20));
        let record = &read(&file).unwrap()[0];
        assert_eq!(
            (record.data.len(), record.orig_len),
            (bytes, wire),
            "2.{minor}: {first}, {second}"
        );
    }
}

#[test]
fn a_refused_record_leaves_the_file_whole() {
    let sink = Sink::default();
    let mut writer = CaptureWriter::new("mem", sink.clone(), CaptureFormat::PcapNg, 0).unwrap();
    let a = writer.add_interface("a").unwrap();
    let b = writer.add_interface("b").unwrap();
    assert!(writer.write(1, &frame(60), Some(&"x".repeat(65_536))).is_err());
    assert!(writer.write_with(Meta { interface: 2, ..Meta::default() }, &frame(60)).is_err());
    for (interface, direction) in [(a, Direction::In), (b, Direction::Out)] {
        let meta = Meta { interface, direction, ts_ns: 9, ..Meta::default() };
        writer.write_with(meta, &frame(60)).unwrap();
    }
    assert_eq!(writer.finish().unwrap(), 2);
    let records = read(&sink.0.lock().unwrap()).unwrap();
    assert_eq!(records.iter().map(|r| r.interface).collect::<Vec<_>>(), [a, b]);
    let mut pcap = CaptureWriter::new("mem", Sink::default(), CaptureFormat::Pcap, 0).unwrap();
    assert!(pcap.write(u64::MAX, &frame(60), None).is_err());
}

/// Fails once a number of bytes was written, like a full disk.
struct Full(usize);

impl Write for Full {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 = self.0.checked_sub(bytes.len()).ok_or(std::io::ErrorKind::StorageFull)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_full_disk_is_reported_now_and_at_the_end() {
    let mut writer = CaptureWriter::new("mem", Full(24 + 16 + 60), CaptureFormat::Pcap, 0).unwrap();
    writer.write(0, &frame(60), None).unwrap();
    let error = writer.write(0, &frame(60), None).unwrap_err();
    assert_eq!(error.to_string(), "mem: record 2 at byte 100: write failed");
    assert!(writer.write(0, &frame(60), None).is_err());
    assert!(writer.finish().is_err());
}
