//! Commands of the page that a switch does not have.

use weft_cxl::cci::Common;

use super::*;

/// A switch refuses commands of GFDs and memory devices to the FM and to a host, at any length, and does not change.
#[test]
fn commands_of_other_components_are_unsupported_and_change_nothing() {
    let mut bench = Bench::new();
    let listed = bench.switch.commands().iter().chain(Common::COMMANDS);
    let had: Vec<Opcode> = listed.map(|it| it.opcode).collect();
    let absent = Opcode::LAID_OUT.iter().filter(|opcode| !had.contains(opcode));
    let before = bench.switch.clone();
    let mut refused = Vec::new();
    for &opcode in absent {
        for (session, len) in [(FM, 0), (FM, 1), (FM, 64), (HOST, 0), (HOST, 64)] {
            let mut bytes = vec![0, 9, 0];
            bytes.extend(opcode.0.to_le_bytes());
            bytes.extend([len, 0, 0, 0, 0, 0, 0]);
            bytes.resize(bytes.len() + usize::from(len), 0);
            let (served, out) = bench.send(session, &bytes);
            assert_eq!(served, Served::Response, "{opcode}");
            let (header, payload) = Header::parse(&out).expect("a whole message");
            let got = (header.opcode, header.return_code, payload.len());
            assert_eq!(got, (opcode, ReturnCode::Unsupported, 0), "{len} bytes");
        }
        refused.push(opcode.0);
    }
    assert!(bench.switch == before);
    // A switch sends no notifications of GFDs, and has no interrupt for its manager.
    assert!(
        [0x0102, 0x0103, 0x0106, 0x0107].iter().all(|opcode| refused.contains(opcode)),
        "{refused:04X?}"
    );
    let all_of_a_gfd = (0x4900..=0x4914).all(|opcode| refused.contains(&opcode));
    assert!(all_of_a_gfd && refused.contains(&0x5604), "{refused:04X?}");
}
