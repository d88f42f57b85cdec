//! `weft gen`: writes a capture of frames of any format, with chosen fields.
//!
//! Makes a [`FrameSpec`] of the flags for each (format, priority): a stream. Streams take turns, and stamps follow back
//! to back at the link's rate. Lengths are without FCS.
//!
//! Source: docs/spec/wire-formats.md §1 and §2.

use std::io::Write;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use serde::Serialize;
use weft_config::TrafficConfig;
use weft_config::resolve::traffic_of;
use weft_dataplane::port::capture::{CaptureFormat, CaptureWriter, Direction, Meta};
use weft_dataplane::time::{Instant, LinkRate, Span};
use weft_dataplane::types::{Pri, PriSet};
use weft_hosts::classes::PriMap;
use weft_hosts::frames::{FrameSpec, Kind, PayloadBits, RhSpec, Station};
use weft_hosts::stamp::Stamp;
use weft_parsers::{
    Dscp, Ecn, Gen2Order, KeyWords, MacAddr, Pause, Pcp, Pfc, RhOpcode, Tci, TrafficClass, Vid,
};

use super::decode::{Order, capture_error};
use super::frames::{SizesArg, check_len, kind_of, on_vc};
use super::{progress, write_json};
use crate::error::CliError;
use crate::settings::SettingsArgs;

/// Maximum number of frames in one run.
const FRAMES_MAX: u64 = 1 << 32;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum EcnArg {
    /// ECN bits 00
    NotEct,
    /// ECN bits 01
    Ect1,
    /// ECN bits 10
    Ect0,
    /// ECN bits 11
    Ce,
}

/// Opcode of the RC Link header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OpcodeArg {
    /// A request
    Send,
    /// ACK or NAK
    Ack,
    /// Congestion notification
    Cnp,
    /// An undefined opcode
    Reserved,
}

/// Arguments of `weft gen`.
#[derive(Args, Debug)]
pub struct GenArgs {
    /// Frame formats: standard, gen1, gen2, lite, ethernet, roce6, pfc, pause; by default `traffic.pkt_format`
    #[arg(value_name = "FORMAT", value_parser = kind)]
    pub formats: Vec<Kind>,
    /// Capture file to write: pcapng if its name ends with .pcapng, else pcap
    #[arg(short, long, value_name = "FILE")]
    pub out: PathBuf,
    /// Number of frames for each (format, priority)
    #[arg(short = 'n', long, value_name = "N", default_value_t = 1)]
    pub count: u64,
    /// Frame sizes in bytes: N, N-M, N,M,..., or imix
    #[arg(long, default_value = "256")]
    pub size: SizesArg,
    /// Priorities to generate a stream for, selected by header fields; 0 is the lowest
    #[arg(long, value_delimiter = ',', value_name = "PRI")]
    pub pri: Vec<u8>,
    /// Virtual channel: sets the Traffic Class, and the PCP by `traffic.vc_pcp_mapping`
    #[arg(long, value_name = "VC", conflicts_with_all = ["pri", "pcp", "tc"])]
    pub vc: Option<u8>,
    /// Seed for random frame sizes
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Link rate in Gbit/s, for timestamps: frames follow back to back
    #[arg(long, value_name = "GBPS", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub gbps: u64,
    /// Extra gap between two frames in nanoseconds
    #[arg(long, value_name = "NS", default_value_t = 0)]
    pub gap_ns: u64,
    /// Timestamp of the first frame in nanoseconds
    #[arg(long, value_name = "NS", default_value_t = 0)]
    pub start_ns: u64,
    /// Print a summary of the frames as JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub settings: SettingsArgs,
    #[command(flatten)]
    pub ends: Ends,
    #[command(flatten)]
    pub fields: Fields,
}

/// Addresses.
#[derive(Args, Debug)]
#[command(next_help_heading = "Addresses")]
pub struct Ends {
    /// Sender's number, from which its addresses are made: 02:00:00:00:HH:LL, 10.0.H.L, `fd00::HHLL`, id
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub src: u16,
    /// Receiver's number, from which its addresses are made
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub dst: u16,
    /// Sender's MAC address
    #[arg(long, value_name = "MAC")]
    pub src_mac: Option<MacAddr>,
    /// Receiver's MAC address
    #[arg(long, value_name = "MAC")]
    pub dst_mac: Option<MacAddr>,
    /// Sender's id in GEN2 and Lite frames
    #[arg(long, value_name = "ID", value_parser = number::<u16>)]
    pub src_id: Option<u16>,
    /// Receiver's id in GEN2 and Lite frames
    #[arg(long, value_name = "ID", value_parser = number::<u16>)]
    pub dst_id: Option<u16>,
    /// Sender's IPv4 address
    #[arg(long, value_name = "IP")]
    pub src_ip: Option<Ipv4Addr>,
    /// Receiver's IPv4 address
    #[arg(long, value_name = "IP")]
    pub dst_ip: Option<Ipv4Addr>,
    /// Sender's IPv6 address
    #[arg(long, value_name = "IP")]
    pub src_ip6: Option<Ipv6Addr>,
    /// Receiver's IPv6 address
    #[arg(long, value_name = "IP")]
    pub dst_ip6: Option<Ipv6Addr>,
}

/// Header fields; a format uses the fields that it has.
#[derive(Args, Debug)]
#[command(next_help_heading = "Fields")]
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line")]
pub struct Fields {
    /// Tag frames with this VLAN; 0 is priority-tagged
    #[arg(long, value_name = "VID", value_parser = clap::value_parser!(u16).range(0..=4095))]
    pub vlan: Option<u16>,
    /// Priority code point of the VLAN tag
    #[arg(long, value_parser = clap::value_parser!(u8).range(0..=7))]
    pub pcp: Option<u8>,
    /// Set the drop eligible bit of the VLAN tag
    #[arg(long)]
    pub dei: bool,
    /// EtherType of the VLAN tag
    #[arg(long, value_name = "TYPE", value_parser = number::<u16>)]
    pub tpid: Option<u16>,
    /// EtherType of AFH or plain Ethernet
    #[arg(long, value_name = "TYPE", value_parser = number::<u16>)]
    pub ether_type: Option<u16>,
    /// DSCP of the IP header
    #[arg(long, value_parser = clap::value_parser!(u8).range(0..=63))]
    pub dscp: Option<u8>,
    /// ECN codepoint of the IP header
    #[arg(long)]
    pub ecn: Option<EcnArg>,
    /// Time to live, or hop limit
    #[arg(long)]
    pub ttl: Option<u8>,
    /// IPv4 identification
    #[arg(long, value_parser = number::<u16>)]
    pub ip_id: Option<u16>,
    /// UDP source port
    #[arg(long)]
    pub sport: Option<u16>,
    /// UDP destination port
    #[arg(long)]
    pub dport: Option<u16>,
    /// Traffic Class byte of AFH
    #[arg(long, value_parser = number::<u8>)]
    pub tc: Option<u8>,
    /// `Key_words` byte of GEN2 and Lite
    #[arg(long, value_parser = number::<u8>)]
    pub key_words: Option<u8>,
    /// Byte order of GEN2 and Lite
    #[arg(long, value_enum, default_value_t = Order::Slap)]
    pub gen2_order: Order,
    /// Payload bits in a GEN2 header, the same in every frame; by default they differ
    #[arg(long, value_name = "HI,LO", value_parser = payload_bits)]
    pub payload_bits: Option<(u32, u32)>,
    /// XPU id in Lite frames
    #[arg(long, value_parser = number::<u16>)]
    pub xpu: Option<u16>,
    /// Opcode of the RC Link header
    #[arg(long, value_enum)]
    pub opcode: Option<OpcodeArg>,
    /// Ask for an ACK in the RC Link header
    #[arg(long)]
    pub fack: bool,
    /// Timestamp of the RC Link header
    #[arg(long, value_parser = number::<u16>)]
    pub timestamp: Option<u16>,
    /// Partition key
    #[arg(long, value_parser = number::<u8>)]
    pub p_key: Option<u8>,
    /// Packet sequence number, the same in every frame; by default it counts up
    #[arg(long, value_parser = clap::value_parser!(u16).range(0..=4095))]
    pub psn: Option<u16>,
    /// Destination queue pair
    #[arg(long, value_parser = clap::value_parser!(u16).range(0..=8191))]
    pub qp: Option<u16>,
    /// Syndrome of an ACK
    #[arg(long, value_parser = number::<u8>)]
    pub syndrome: Option<u8>,
    /// Class of a PFC frame and its pause time in quanta of 512 bit times; 0 resumes; may be given several times
    #[arg(long = "class", value_name = "CLASS:QUANTA", value_parser = class)]
    pub classes: Vec<(u8, u16)>,
    /// Pause time of a PAUSE frame, in quanta of 512 bit times
    #[arg(long, default_value_t = 0xFFFF, value_parser = number::<u16>)]
    pub quanta: u16,
    /// Append an ICRC
    #[arg(long)]
    pub icrc: bool,
    /// Fill the payload with zeros, without the signature that `weft traffic` checks
    #[arg(long)]
    pub plain: bool,
    /// Allow payloads above the format's maximum
    #[arg(long)]
    pub oversize: bool,
}

fn kind(text: &str) -> Result<Kind, String> {
    let names = || Kind::ALL.map(Kind::name).join(", ");
    Kind::from_name(text).ok_or_else(|| format!("expected one of {}", names()))
}

/// Parses a decimal number, or a hexadecimal one after 0x.
fn number<T: TryFrom<u64>>(text: &str) -> Result<T, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    };
    let fits = parsed.and_then(|number| T::try_from(number).ok());
    fits.ok_or_else(|| format!("expected a number of {} bits", 8 * size_of::<T>()))
}

fn class(text: &str) -> Result<(u8, u16), String> {
    let expected = || "expected CLASS:QUANTA, 0..=7 and 0..=65535".to_owned();
    let (class, quanta) = text.split_once(':').ok_or_else(expected)?;
    let class = class.parse().ok().filter(|class| *class < 8).ok_or_else(expected)?;
    Ok((class, number(quanta).map_err(|_| expected())?))
}

fn payload_bits(text: &str) -> Result<(u32, u32), String> {
    let bits = |text: &str| number::<u32>(text).ok().filter(|bits| bits >> 24 == 0);
    let pair = text.split_once(',').and_then(|(hi, lo)| Some((bits(hi)?, bits(lo)?)));
    pair.ok_or_else(|| "expected HI,LO, two numbers of 24 bits".to_owned())
}

/// A stream in the capture, for the report.
#[derive(Debug, Serialize)]
struct Made {
    stream: u16,
    format: &'static str,
    pri: Option<u8>,
    frames: u64,
    bytes: u64,
}

/// Writes the capture.
///
/// # Errors
/// Fields that a format cannot have; a file that cannot be written.
pub fn run(args: &GenArgs, out: &mut dyn Write) -> Result<(), CliError> {
    let (traffic, maps) = traffic_of(&args.settings.load()?)?;
    let map = PriMap::of_port(&maps.maps, &maps.trust, Pri::default());
    let streams = streams(args, &traffic, &map, maps.pris)?;
    let total = args.count.checked_mul(streams.len() as u64).filter(|total| *total <= FRAMES_MAX);
    let total =
        total.ok_or_else(|| usage(format!("expected at most {FRAMES_MAX} frames in all")))?;
    let mut writer = CaptureWriter::create(&args.out, CaptureFormat::for_path(&args.out), 0)
        .map_err(capture_error)?;
    let interface = writer.add_interface("gen").map_err(capture_error)?;
    let rate = LinkRate::gbps(args.gbps);
    let bar = progress::bar(total, "frames");
    let mut at = Instant::ZERO;
    let mut made: Vec<Made> = (0..)
        .zip(&streams)
        .map(|(stream, (spec, pri))| Made {
            stream,
            format: spec.kind.name(),
            pri: pri.map(Pri::get),
            frames: 0,
            bytes: 0,
        })
        .collect();
    for seq in 0..args.count {
        for ((spec, _), made) in streams.iter().zip(&mut made) {
            let stamp = Stamp { stream: made.stream, seq, sent: at };
            let frame = spec.to_vec(&stamp, args.seed).map_err(|e| usage(e.to_string()))?;
            let ts_ns = args.start_ns.saturating_add(at.as_ns());
            let meta = Meta { ts_ns, interface, direction: Direction::In, ..Meta::default() };
            writer.write_with(meta, &frame).map_err(capture_error)?;
            // All streams share one link: a frame follows the one before, whichever stream that is of.
            at = at + rate.frame_time(frame.len()) + Span::from_ns(args.gap_ns);
            made.frames += 1;
            made.bytes += frame.len() as u64;
        }
        bar.set_position((seq + 1).saturating_mul(streams.len() as u64));
    }
    bar.finish_and_clear();
    writer.finish().map_err(capture_error)?;
    if args.json {
        return write_json(out, &made);
    }
    for Made { stream, format, pri, frames, bytes } in &made {
        let pri = pri.map_or_else(|| "as given".to_owned(), |pri| pri.to_string());
        let line =
            format!("stream {stream}: {format}, priority {pri}: {frames} frames, {bytes} bytes");
        writeln!(out, "{line}").map_err(CliError::Output)?;
    }
    Ok(())
}

fn usage(message: impl Into<String>) -> CliError {
    CliError::Usage(message.into())
}

/// The frames of each stream, with the requested priority if there is one.
fn streams(
    args: &GenArgs,
    traffic: &TrafficConfig,
    map: &PriMap,
    pris: usize,
) -> Result<Vec<(FrameSpec, Option<Pri>)>, CliError> {
    let configured = kind_of(traffic.format);
    let kinds = if args.formats.is_empty() { vec![configured] } else { args.formats.clone() };
    let is_configured = args.settings.config.is_some() || !args.settings.set.is_empty();
    // Without a configuration the default `max_frame_size` must not limit a capture of long frames.
    let most = if is_configured { traffic.frame_len_max } else { usize::MAX };
    let mut streams = Vec::new();
    for kind in kinds {
        let spec = spec(args, traffic, kind)?;
        check_len(&spec, most)?;
        // PFC and PAUSE have no field that selects a priority.
        if args.pri.is_empty() || kind.is_control() {
            streams.push((spec, None));
            continue;
        }
        for &pri in &args.pri {
            let known = Pri::new(pri).filter(|pri| PriSet::first(pris).contains(*pri));
            let message = || format!("--pri: expected 0..={}, found {pri}", pris - 1);
            let pri = known.ok_or_else(|| usage(message()))?;
            let with = spec.clone().with_pri(pri, map).map_err(|e| usage(e.to_string()))?;
            streams.push((with, Some(pri)));
        }
    }
    // Checked before the file is created.
    for (spec, _) in &streams {
        spec.check().map_err(|error| usage(error.to_string()))?;
    }
    Ok(streams)
}

fn spec(args: &GenArgs, traffic: &TrafficConfig, kind: Kind) -> Result<FrameSpec, CliError> {
    let fields = &args.fields;
    let (src, dst) = (args.ends.sender(), args.ends.receiver());
    let mut spec = FrameSpec::new(kind, src, dst);
    // PFC and PAUSE frames have a fixed length.
    if !kind.is_control() {
        spec.sizes = args.size.0.clone();
    }
    let set = |field: &mut u16, value: Option<u16>| *field = value.unwrap_or(*field);
    set(&mut spec.tpid, fields.tpid);
    set(&mut spec.ether_type, fields.ether_type);
    set(&mut spec.ip_id, fields.ip_id);
    set(&mut spec.sport, fields.sport);
    set(&mut spec.dport, fields.dport);
    set(&mut spec.xpu_id, fields.xpu);
    spec.ttl = fields.ttl.unwrap_or(spec.ttl);
    spec.dscp = fields.dscp.and_then(Dscp::new).unwrap_or(spec.dscp);
    spec.ecn = match fields.ecn {
        Some(EcnArg::NotEct) => Ecn::NotEct,
        Some(EcnArg::Ect1) => Ecn::Ect1,
        Some(EcnArg::Ect0) => Ecn::Ect0,
        Some(EcnArg::Ce) => Ecn::Ce,
        None if traffic.ecn => Ecn::Ect0,
        None => Ecn::NotEct,
    };
    spec.gen2_order = Gen2Order::from(fields.gen2_order);
    spec.key_words = fields.key_words.map_or(spec.key_words, KeyWords);
    if let Some((hi, lo)) = fields.payload_bits {
        spec.payload_bits = PayloadBits::Fixed(hi, lo);
    }
    spec.tc = fields.tc.map_or(spec.tc, TrafficClass);
    // The configuration's tag applies only to formats that can have one.
    let can_tag = kind != Kind::Lite && !kind.is_control();
    let vlan = fields.vlan.or((traffic.vlan && can_tag).then_some(1));
    if let Some(vid) = vlan {
        let pcp = Pcp::from_low_bits(fields.pcp.unwrap_or(0));
        spec.vlan = Some(Tci::new(pcp, fields.dei, Vid::from_low_bits(vid)));
    } else if fields.pcp.is_some() || fields.dei {
        return Err(usage("--pcp, --dei: expected --vlan too"));
    }
    spec.rh = rh_of(fields, &spec.rh);
    spec.icrc = fields.icrc;
    spec.stamped = !fields.plain && !kind.is_control();
    spec.oversize = fields.oversize;
    let none = Pfc { enable: 0, quanta: [0; 8] };
    spec.pfc = fields.classes.iter().fold(none, |pfc, &(class, quanta)| pfc.with(class, quanta));
    spec.pause = Pause { quanta: fields.quanta };
    match args.vc {
        Some(vc) => on_vc(spec, vc, traffic),
        None => Ok(spec),
    }
}

fn rh_of(fields: &Fields, default: &RhSpec) -> RhSpec {
    RhSpec {
        opcode: match fields.opcode {
            Some(OpcodeArg::Ack) => RhOpcode::Ack,
            Some(OpcodeArg::Cnp) => RhOpcode::Cnp,
            Some(OpcodeArg::Reserved) => RhOpcode::Reserved,
            Some(OpcodeArg::Send) | None => RhOpcode::Send,
        },
        fack: fields.fack,
        pad: default.pad,
        timestamp: fields.timestamp,
        p_key: fields.p_key.unwrap_or(default.p_key),
        syndrome: fields.syndrome.unwrap_or(default.syndrome),
        psn: fields.psn,
        dest_qp: fields.qp.unwrap_or(default.dest_qp),
    }
}

impl Ends {
    fn sender(&self) -> Station {
        let of = Station::numbered(self.src);
        Station {
            mac: self.src_mac.unwrap_or(of.mac),
            id: self.src_id.unwrap_or(of.id),
            ip4: self.src_ip.unwrap_or(of.ip4),
            ip6: self.src_ip6.unwrap_or(of.ip6),
        }
    }

    fn receiver(&self) -> Station {
        let of = Station::numbered(self.dst);
        Station {
            mac: self.dst_mac.unwrap_or(of.mac),
            id: self.dst_id.unwrap_or(of.id),
            ip4: self.dst_ip.unwrap_or(of.ip4),
            ip6: self.dst_ip6.unwrap_or(of.ip6),
        }
    }
}
