//! Claim Ownership: rights of each session, and the owners after each operation.

use super::*;
use weft_parsers::cci::Payload;
use weft_parsers::cci::component::{Owners, PbrIdentity};

fn try_claim(toy: &mut Toy, session: Session, claim: ClaimOwnership) -> ReturnCode {
    ask(toy, 0, session, &Request::ClaimOwnership(claim)).0
}

/// PIDs of the component, the primary, the secondary.
fn state(toy: &mut Toy) -> (u16, u16, u16) {
    let (code, payload) =
        ask(toy, 0, Session::InBand { port: 7, pid: pid(0x999) }, &Request::IdentifyPbrComponent);
    assert_eq!(code, ReturnCode::Success);
    let it = PbrIdentity::parse(&payload).unwrap();
    (it.pid.bits(), it.primary.bits(), it.secondary.bits())
}

/// Whether the session may use a command of the primary.
fn owns(toy: &mut Toy, session: Session) -> bool {
    ask(toy, 0, session, &Request::GetSvState).0 == ReturnCode::Success
}

const REGISTER: ClaimOp = ClaimOp::RegisterPrimary;
const SECONDARY: ClaimOp = ClaimOp::RegisterSecondary;
const UPDATE: ClaimOp = ClaimOp::UpdatePid;
const PROMOTE: ClaimOp = ClaimOp::PromoteSecondary;

//= docs/spec/cxl-fabric.md "The fabric manager"
#[test]
fn a_stand_in_owns_until_somebody_claims() {
    let (mut toy, stand_in) = (Toy::new(), Session::Fm(7));
    toy.common_mut().ownership.set_stand_in(stand_in);
    assert!(owns(&mut toy, stand_in) && !owns(&mut toy, FIRST));
    // A stand-in is no registered primary, so it cannot register a secondary.
    assert_eq!(try_claim(&mut toy, stand_in, claim(SECONDARY, 2, 0x10)), ReturnCode::InvalidInput);
    assert_eq!(try_claim(&mut toy, FIRST, claim(REGISTER, 1, 0x10)), ReturnCode::Success);
    assert!(!owns(&mut toy, stand_in) && owns(&mut toy, FIRST));
    toy.common_mut().forget(FIRST);
    toy.common_mut().forget(stand_in);
    assert!(!owns(&mut toy, stand_in), "the primary may come back");
    assert_eq!(try_claim(&mut toy, Session::Fm(3), claim(UPDATE, 1, 0x11)), ReturnCode::Success);
    assert!(owns(&mut toy, Session::Fm(3)));
}

//= docs/spec/wire-formats.md §4.4: Invalid Input
#[test]
fn refused_claims_change_nothing() {
    let fresh = Toy::new();
    let mut both = Toy::owned();
    assert_eq!(try_claim(&mut both, FIRST, claim(SECONDARY, 2, 0x10)), ReturnCode::Success);
    let owned = Toy::owned();
    #[rustfmt::skip] // columns: name, component, who, operation, fabric manager, component's PID
    let cases = [
        ("secondary without a primary", &fresh, FIRST, SECONDARY, 1, 0x10),
        ("update without a primary", &fresh, FIRST, UPDATE, 1, 0x10),
        ("promote without a secondary", &fresh, FIRST, PROMOTE, 1, 0x10),
        ("FM without a PID", &fresh, FIRST, REGISTER, 0xFFF, 0x10),
        ("component without a PID", &fresh, FIRST, REGISTER, 1, 0xFFF),
        ("in another's name", &fresh, Session::InBand { port: 7, pid: pid(3) }, REGISTER, 1, 0x10),
        ("again", &owned, FIRST, REGISTER, 1, 0x10),
        ("there is a primary", &owned, SECOND, REGISTER, 2, 0x10),
        ("secondary of a stranger", &owned, SECOND, SECONDARY, 2, 0x10),
        ("the primary as secondary", &owned, FIRST, SECONDARY, 1, 0x10),
        ("secondary FFF", &owned, FIRST, SECONDARY, 0xFFF, 0x10),
        ("update of a stranger", &owned, SECOND, UPDATE, 2, 0x10),
        ("update to FFF", &owned, FIRST, UPDATE, 1, 0xFFF),
        ("promote without a secondary", &owned, FIRST, PROMOTE, 1, 0x10),
        ("second secondary", &both, FIRST, SECONDARY, 3, 0x10),
        ("promote the primary", &both, FIRST, PROMOTE, 1, 0x10),
        ("promote a stranger", &both, Session::Fm(3), PROMOTE, 3, 0x10),
        ("promote in another's name", &both, Session::InBand { port: 7, pid: pid(3) }, PROMOTE, 2, 0x10),
    ];
    for (name, component, session, op, fm, own) in cases {
        let mut toy = component.clone();
        let code = try_claim(&mut toy, session, claim(op, fm, own));
        assert_eq!(code, ReturnCode::InvalidInput, "{name}");
        assert_eq!(&toy, component, "{name}");
    }
    let mut toy = both.clone();
    let other_uuid = ClaimOwnership { fm_uuid: [9; 16], ..claim(PROMOTE, 2, 0x10) };
    assert_eq!(try_claim(&mut toy, SECOND, other_uuid), ReturnCode::InvalidInput);
    assert_eq!(
        try_claim(&mut toy, SECOND, ClaimOwnership { op: UPDATE, ..other_uuid }),
        ReturnCode::InvalidInput
    );
    assert_eq!(
        ask(&mut toy, 0, HOST, &Request::ClaimOwnership(claim(REGISTER, 1, 1))).0,
        ReturnCode::Unsupported
    );
    assert_eq!(toy, both);
}

fn in_band(port: u8, spid: u16) -> Session {
    Session::InBand { port, pid: pid(spid) }
}

#[test]
fn ownership_goes_from_the_first_to_the_second() {
    let mut toy = Toy::new();
    assert_eq!(state(&mut toy), (0xFFF, 0xFFF, 0xFFF));
    assert!(!owns(&mut toy, FIRST));
    let (code, payload) =
        ask(&mut toy, 0, FIRST, &Request::ClaimOwnership(claim(REGISTER, 1, 0x10)));
    assert_eq!((code, payload.len()), (ReturnCode::Success, 36));
    let owners = Owners::parse(&payload).unwrap();
    assert_eq!((owners.primary, owners.primary_uuid), (pid(1), [1; 16]));
    assert_eq!((owners.secondary, owners.secondary_uuid), (Pid::NONE, [0; 16]));
    assert_eq!(state(&mut toy), (0x10, 1, 0xFFF));
    assert!(owns(&mut toy, FIRST) && !owns(&mut toy, SECOND));
    assert!(!owns(&mut toy, in_band(7, 1)) && !owns(&mut toy, in_band(7, 2)), "by its SPID alone");

    assert_eq!(try_claim(&mut toy, FIRST, claim(SECONDARY, 2, 0x22)), ReturnCode::Success);
    assert_eq!(state(&mut toy), (0x10, 1, 2));
    assert!(!owns(&mut toy, SECOND) && !owns(&mut toy, in_band(7, 2)));
    assert_eq!(try_claim(&mut toy, FIRST, claim(UPDATE, 1, 0x11)), ReturnCode::Success);
    assert_eq!(state(&mut toy), (0x11, 1, 2));

    assert_eq!(try_claim(&mut toy, SECOND, claim(PROMOTE, 2, 0x33)), ReturnCode::Success);
    assert_eq!(state(&mut toy), (0x11, 2, 0xFFF));
    assert!(owns(&mut toy, SECOND) && !owns(&mut toy, in_band(7, 2)));
    assert!(!owns(&mut toy, FIRST) && !owns(&mut toy, in_band(7, 1)));
}

#[test]
fn an_fm_that_connects_again_makes_itself_known() {
    let mut toy = Toy::owned();
    let again = Session::Fm(9);
    assert!(!owns(&mut toy, again));
    assert_eq!(try_claim(&mut toy, again, claim(UPDATE, 1, 0x10)), ReturnCode::Success);
    assert!(owns(&mut toy, again) && owns(&mut toy, FIRST));
    toy.common.forget(FIRST);
    assert!(owns(&mut toy, again) && !owns(&mut toy, FIRST), "its number may be another's now");
    assert_eq!(state(&mut toy), (0x10, 1, 0xFFF));
}

/// A message from the fabric has the rights of the port by which it came, as any sender can write any SPID.
#[test]
fn a_claim_out_of_the_fabric_makes_its_port_the_primarys() {
    let mut toy = Toy::new();
    let nobody = in_band(7, 0xFFF);
    assert_eq!(try_claim(&mut toy, nobody, claim(REGISTER, 1, 0x10)), ReturnCode::Success);
    assert!(owns(&mut toy, in_band(7, 1)) && !owns(&mut toy, nobody));
    assert!(!owns(&mut toy, in_band(8, 1)), "the same SPID by another port");
    // A refused claim gives no rights.
    let stranger = ClaimOwnership { fm_uuid: [9; 16], ..claim(UPDATE, 1, 0x10) };
    assert_eq!(try_claim(&mut toy, in_band(8, 1), stranger), ReturnCode::InvalidInput);
    assert_eq!(
        try_claim(&mut toy, in_band(8, 1), claim(REGISTER, 1, 0x10)),
        ReturnCode::InvalidInput
    );
    assert!(!owns(&mut toy, in_band(8, 1)));
    // The manager's path has changed: it identifies itself through the new port, too, and keeps the old one.
    assert_eq!(try_claim(&mut toy, in_band(8, 1), claim(UPDATE, 1, 0x10)), ReturnCode::Success);
    assert!(owns(&mut toy, in_band(8, 1)) && owns(&mut toy, in_band(7, 1)));
    toy.common.ownership.forget_way(7);
    assert!(!owns(&mut toy, in_band(7, 1)), "somebody else may be behind that link now");
    assert!(owns(&mut toy, in_band(8, 1)));
    // Another manager takes over: all sessions and ports of the first lose their rank.
    assert_eq!(try_claim(&mut toy, in_band(8, 1), claim(SECONDARY, 2, 0x22)), ReturnCode::Success);
    assert_eq!(try_claim(&mut toy, in_band(9, 2), claim(PROMOTE, 2, 0x10)), ReturnCode::Success);
    assert!(owns(&mut toy, in_band(9, 2)));
    assert!(!owns(&mut toy, in_band(8, 1)) && !owns(&mut toy, in_band(8, 2)));
}
