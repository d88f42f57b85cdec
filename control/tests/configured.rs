//! Configurations held against the parts of the switch that go by them: thresholds of a chip's profile, addresses as
//! `weft decode` shows them, and capabilities that the process keeps.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use weft_config::profiles::PROFILES;
use weft_config::resolve::{Config, Timing};
use weft_config::{ConfigError, Settings, Sources};
use weft_control::conform::Params;
use weft_control::decode::decode;
use weft_control::live::confine::{self, CapabilitySet};
use weft_dataplane::snapshot::Snapshot;
use weft_dataplane::types::PortId;

const TWO: &str = "[[port]]\nname = 'p0'\n[[port]]\nname = 'p1'\n";

fn live(text: &str) -> Config {
    Config::resolve(&Settings::read("f", text).unwrap(), Timing::Live).unwrap()
}

/// Null ports need no capability, so that these two are the bus's own.
#[test]
fn the_kernels_mctp_keeps_raw_sockets_and_low_ports() {
    let text = "[fabric]\nuuid = '5ed8a1c0-0000-4000-8000-000000000001'\ncci_mctp = 'mctp'\n\
        cci_mctp_insecure = true\n[[port]]\nname = 'h'\nkind = 'null'\nrole = 'usp'\n\
        [[port]]\nname = 'd'\nkind = 'null'\nrole = 'dsp'\n";
    let kept = confine::needed(&live(text));
    assert_eq!(kept, CapabilitySet::NET_BIND_SERVICE | CapabilitySet::NET_RAW);
}

/// Groups are named as `weft decode` shows them, and their ports by the name of a LAG, too.
#[test]
fn a_group_takes_what_decode_shows_and_the_name_of_a_lag() {
    let ethernet = [0x01, 0, 0x5E, 0, 0, 1, 2, 0, 0, 0, 0, 1, 0x08, 0x00];
    let gen1 = [0x03, 0, 0, 0, 0, 5, 0x20, 0, 0, 0, 0, 1, 0x88, 0xB5];
    for (name, head, shown) in
        [("ethernet", ethernet, "01:00:5e:00:00:01"), ("gen1", gen1, "gen1:030000000005")]
    {
        let frame = [&head[..], &[0; 46]].concat();
        let decoded = decode(&frame, &weft_parsers::ParseConfig::DEFAULT);
        assert_eq!(decoded.dst.as_deref(), Some(shown), "{name}");
        let lag = "[[lag]]\nname = 'up'\nports = ['p0', 'p1']\n";
        let group = format!("[[group]]\naddr = '{shown}'\nports = ['up']\n");
        let config = live(&(TWO.to_owned() + lag + &group));
        let group = &config.switch.forward.groups[0];
        assert_eq!(group.addr.to_string(), shown, "{name}");
        assert_eq!(group.ports.lowest(), PortId::new(0), "{name}");
    }
}

fn sources(profile: &str, ports: usize, set: &[&str]) -> Sources {
    Sources {
        profile: Some(profile.to_owned()),
        port: (0..ports).map(|port| format!("p{port}=null")).collect(),
        set: set.iter().map(|text| (*text).to_owned()).collect(),
        ..Sources::default()
    }
}

fn params(sources: &Sources) -> Params {
    let config = Config::resolve(&sources.settings().unwrap(), Timing::Live).unwrap();
    Params::of(&Snapshot::compile(config.switch, 0).unwrap(), 64, 1)
}

/// The published counts come out, however many ports there are.
#[test]
fn profiles_trigger_where_the_chip_does() {
    #[rustfmt::skip] // columns: profile, first PAUSE, first drop, frames to release
    let published = [
        ("th2-100g-40m", 4_490, 4_779, 12),
        ("th2-40g-300m", 4_457, 4_978, 12),
        ("th-40g-300m",  6_542, 7_063, 12),
        ("th-100g-300m", 6_542, 7_835, 12),
    ];
    assert_eq!(
        published.map(|(name, ..)| name).as_slice(),
        PROFILES.iter().map(|p| p.name).collect::<Vec<_>>()
    );
    for (name, pfc, drop, dismiss) in published {
        for ports in [2, 32] {
            let params = params(&sources(name, ports, &[]));
            assert_eq!((params.cell_size, params.packet_cells), (208, 1));
            for row in params.rows.iter().filter(|row| row.lossless) {
                let found = (row.trig_pfc, row.trig_ingr_drp, row.dismiss_pfc, row.fill_min);
                assert_eq!(
                    found,
                    (Some(pfc), Some(drop), Some(dismiss), 6),
                    "{name}, {ports} ports"
                );
                assert!(row.pri == 3 || row.pri == 4);
            }
        }
    }
}

#[test]
fn file_and_flags_lie_over_a_profile() {
    let one = params(&sources("th2-100g-40m", 2, &["buffer.shared_cells=9000"]));
    let row = one.rows.iter().find(|row| row.lossless).unwrap();
    assert_eq!(row.trig_pfc, Some(1_007)); // 6 + 9001 / 9
    let mut file = sources("th2-100g-40m", 2, &[]);
    file.file = Some(("f".into(), "[buffer]\nshared_cells = 9000\n".into()));
    assert_eq!(params(&file).rows, one.rows);
    let ConfigError(problems) = sources("th3", 2, &[]).settings().unwrap_err();
    assert!(problems[0].to_string().contains("th2-100g-40m"), "{}", problems[0]);
    let both = sources("th2-100g-40m", 2, &["buffer.buffer_size_mb=8"]);
    let told = Config::resolve(&both.settings().unwrap(), Timing::Live).unwrap_err().to_string();
    assert!(told.contains("shared_cells") && told.contains("--profile th2-100g-40m"), "{told}");
}
