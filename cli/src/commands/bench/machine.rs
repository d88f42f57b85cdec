//! The origin of figures: machine, kernel, versions, ports, command line.
//!
//! Read from files of /proc and /sys; a field is `None` if its file cannot be read.
//!
//! Source: proc(5); Linux Documentation/ABI/testing/sysfs-class-net; docs/bench.md.

use std::fs;
use std::path::Path;

use serde::Serialize;
use weft_dataplane::port::PortCaps;

/// The machine and process that measured.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    pub weft: &'static str,
    /// Whether weft was built with optimisation and without debug assertions.
    pub optimised: bool,
    /// Words of the command line, including the program's name.
    pub command: Vec<String>,
    /// Start time, in seconds since 1970 (UTC).
    pub started_unix_s: i64,
    /// The processor's model name.
    pub cpu: Option<String>,
    /// Processors that the process may use.
    pub cpus: usize,
    /// Whether a hypervisor runs below this kernel.
    pub is_virtual: bool,
    /// The frequency governor of the first processor.
    pub governor: Option<String>,
    /// The kernel's name and version.
    pub kernel: Option<String>,
}

fn read(path: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

impl Machine {
    #[must_use]
    pub fn here() -> Self {
        let info = read("/proc/cpuinfo").unwrap_or_default();
        let field = |name: &str| {
            let line = info.lines().find(|line| line.starts_with(name))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        };
        let flags = field("flags").unwrap_or_default();
        Self {
            weft: env!("CARGO_PKG_VERSION"),
            optimised: !cfg!(debug_assertions),
            command: std::env::args().collect(),
            started_unix_s: rustix::time::clock_gettime(rustix::time::ClockId::Realtime).tv_sec,
            cpu: field("model name"),
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            // CPUID leaf 1, ECX bit 31: hypervisors set it, processors don't.
            is_virtual: flags.split(' ').any(|flag| flag == "hypervisor"),
            governor: read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            kernel: read("/proc/sys/kernel/osrelease").map(|release| format!("Linux {release}")),
        }
    }

    /// The command line, quoted for a POSIX shell.
    #[must_use]
    pub fn command_line(&self) -> String {
        let plain = |word: &str| {
            let safe = |c: char| c.is_ascii_alphanumeric() || "-_=.,:/@%+".contains(c);
            !word.is_empty() && word.chars().all(safe)
        };
        let quote = |word: &String| {
            if plain(word) { word.clone() } else { format!("'{}'", word.replace('\'', r"'\''")) }
        };
        self.command.iter().map(quote).collect::<Vec<_>>().join(" ")
    }

    /// Start time, as 2026-11-22 01:02:03 UTC.
    #[must_use]
    pub fn started(&self) -> String {
        utc(self.started_unix_s)
    }
}

/// Formats a time as date and time of day (the date by Howard Hinnant's `civil_from_days`).
fn utc(unix_s: i64) -> String {
    let (days, second) = (unix_s.div_euclid(86_400), unix_s.rem_euclid(86_400));
    let z = days + 719_468; // days since 1 March of year 0
    // The Gregorian calendar repeats after 400 years: 146,097 days. Years that begin in March have their leap day last.
    let (era, day_of_era) = (z.div_euclid(146_097), z.rem_euclid(146_097));
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    // From March on, five months have 153 days: 31, 30, 31, 30, 31.
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

/// A port and the interface or hardware behind it.
#[derive(Clone, Debug, Serialize)]
pub struct Link {
    /// Name of the interface, or another device's argument.
    pub device: String,
    /// Kind of port, as in `port.kind`.
    pub kind: &'static str,
    /// Kernel driver of the interface's hardware.
    pub driver: Option<String>,
    /// Whether the interface has no hardware behind it; `None` if the device is no interface.
    pub is_virtual: Option<bool>,
    /// Link rate in bit/s, as the hardware reports it.
    pub bps: Option<u64>,
    /// The interface's MTU in bytes.
    pub mtu: Option<u64>,
    /// Remark on the port, such as why `auto` did not choose AF_XDP.
    pub note: Option<String>,
}

impl Link {
    /// Describes the port of `caps`; `note` is a remark from opening it.
    #[must_use]
    pub fn of(caps: &PortCaps, note: Option<String>) -> Self {
        Self { note, ..Self::below(Path::new("/sys/class/net"), caps) }
    }

    fn below(root: &Path, caps: &PortCaps) -> Self {
        let dir = root.join(&caps.device);
        // Devices of other kinds may be paths, which must not lead out of the folder.
        let known = !caps.device.contains('/') && dir.is_dir();
        let number = |file: &str| -> Option<u64> {
            fs::read_to_string(dir.join(file)).ok()?.trim().parse().ok()
        };
        let driver = fs::read_link(dir.join("device/driver")).ok();
        // `device` links an interface to its bus (PCI, USB); a veth, tap or bridge has none.
        let is_virtual = known.then(|| !dir.join("device").exists());
        let hardware = is_virtual == Some(false);
        Self {
            device: caps.device.clone(),
            kind: caps.kind,
            driver: driver.and_then(|path| Some(path.file_name()?.to_str()?.to_owned())),
            is_virtual,
            // A veth or tap reports a nominal rate that does not limit it.
            bps: number("speed").filter(|mbps| hardware && *mbps > 0).map(|mbps| mbps * 1_000_000),
            mtu: number("mtu").filter(|_| known),
            note: None,
        }
    }

    /// Kind and device as a phrase for reports.
    #[must_use]
    pub fn words(&self) -> String {
        let Self { device, kind, .. } = self;
        let what = match (&self.driver, self.is_virtual) {
            (Some(driver), _) => format!(", driver {driver}"),
            (None, Some(true)) => ", a virtual interface".to_owned(),
            (None, _) => String::new(),
        };
        let rate =
            self.bps.map_or(String::new(), |bps| format!(", {} Gbit/s", bps / 1_000_000_000));
        let note = self.note.as_ref().map_or(String::new(), |note| format!(" ({note})"));
        format!("{kind} {device}{what}{rate}{note}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_dataplane::time::LinkRate;

    #[test]
    fn times_are_those_of_the_calendar() {
        #[rustfmt::skip] // columns: seconds since 1970, what date -u says
        let cases = [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_782_399, "2000-02-28 23:59:59 UTC"),
            (951_782_400, "2000-02-29 00:00:00 UTC"),
            (1_795_309_323, "2026-11-22 01:02:03 UTC"),
            (4_107_542_400, "2100-03-01 00:00:00 UTC"),
        ];
        for (unix_s, want) in cases {
            assert_eq!(utc(unix_s), want);
        }
    }

    #[test]
    fn links_tell_hardware_from_virtual_interfaces() {
        let root = tempfile::tempdir().unwrap();
        let make = |name: &str, speed: &str| {
            fs::create_dir(root.path().join(name)).unwrap();
            fs::write(root.path().join(name).join("speed"), speed).unwrap();
            fs::write(root.path().join(name).join("mtu"), "1500\n").unwrap();
        };
        make("veth0", "10000\n");
        make("nic0", "25000\n");
        make("down0", "-1\n");
        for name in ["nic0", "down0"] {
            fs::create_dir(root.path().join(name).join("device")).unwrap();
            let driver = root.path().join(name).join("device/driver");
            std::os::unix::fs::symlink("../../drivers/ice", driver).unwrap();
        }
        #[rustfmt::skip] // columns: device, virtual, bit/s, in words
        let cases = [
            ("veth0", Some(true),  None,                 "test veth0, a virtual interface"),
            ("nic0",  Some(false), Some(25_000_000_000), "test nic0, driver ice, 25 Gbit/s"),
            ("down0", Some(false), None,                 "test down0, driver ice"),
            ("gone0", None,        None,                 "test gone0"),
        ];
        for (device, is_virtual, bps, words) in cases {
            let caps = PortCaps {
                kind: "test",
                device: device.to_owned(),
                frame_len_max: 1_522,
                rate: LinkRate::gbps(100),
                tx_partial_csum: false,
                virtual_time: false,
            };
            let link = Link::below(root.path(), &caps);
            assert_eq!((link.is_virtual, link.bps), (is_virtual, bps), "{device}");
            assert_eq!(link.words(), words);
        }
    }

    #[test]
    fn command_lines_can_be_typed_again() {
        let words = ["weft", "bench", "--set", "a.b=c d", "it's"].map(str::to_owned).to_vec();
        let machine = Machine { command: words, ..Machine::here() };
        assert_eq!(machine.command_line(), r"weft bench --set 'a.b=c d' 'it'\''s'");
    }
}
