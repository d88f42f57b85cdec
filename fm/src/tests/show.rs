//! Inventories as text, and costs of paths.
//!
//! A line of three switches with a GFD at its end.
//!
//! Units: ps, MB/s.
//! Source: CXL 3.1 section 7.7.12.4.

use super::fake::{Fake, Shared};
use super::fake_gfd::GfdState;
use super::plan::set_up;
use crate::components::cdat::{Figures, cost, link_cost};
use crate::model::graph::{SwitchId, generate};
use crate::model::inventory::Inventory;
use crate::plan::Plan;
use crate::show::display_names::DisplayNames;
use crate::show::overview::NameRow;
use crate::show::topology::{dot, tree};

fn line() -> (Inventory, Plan) {
    let mut fake = Fake::of(&generate::line(3, 1).unwrap());
    fake.add(SwitchId(2), Some(GfdState::new(8)));
    let (inventory, plan, _) = set_up(&Shared::new(fake));
    (inventory, plan)
}

#[test]
fn a_path_costs_its_switches_and_links_and_is_as_fast_as_the_slowest() {
    let (mut inventory, plan) = line();
    let figures = Figures { switch_ps: 100_300, link_ps: 5_000 };
    let gfd = inventory.gfds[0].pid;
    let far = cost(&inventory, &plan, SwitchId(0), gfd, figures).unwrap();
    assert_eq!((far.latency_base, far.latency), (1_000, 311), "3 x 100.3 + 2 x 5, rounded up");
    assert_eq!((far.bandwidth_base, far.bandwidth), (100, 1_210), "16 lanes at 64 GT/s");
    let near = cost(&inventory, &plan, SwitchId(2), gfd, figures).unwrap();
    assert_eq!((near.latency, near.bandwidth), (101, 0));
    let link = |from| link_cost(&inventory, &plan, SwitchId(from), gfd, figures).unwrap();
    assert_eq!((link(0).latency, link(0).bandwidth), (111, 1_210), "without the two at its ends");
    assert_eq!((link(1).latency, link(2).latency), (5, 0));
    for port in &mut inventory.switches[1].ports {
        (port.width, port.speed) = (4, 5);
    }
    let slow = cost(&inventory, &plan, SwitchId(0), gfd, figures).unwrap();
    assert_eq!(slow.bandwidth, 157, "4 lanes at 32 GT/s");
    assert_eq!(
        cost(
            &inventory,
            &plan,
            SwitchId(0),
            weft_parsers::fabric::Pid::from_low_bits(0x999),
            figures
        ),
        None
    );
}

#[test]
fn an_inventory_is_shown_as_tree_and_as_graph() {
    let (mut inventory, _) = line();
    let link = *inventory.links.first().unwrap();
    inventory.down.insert(link);
    let (mut text, mut graph) = (String::new(), String::new());
    tree(&inventory, &DisplayNames::default(), &mut text).unwrap();
    dot(&inventory, &DisplayNames::default(), &mut graph).unwrap();
    let third = inventory.switches[2].pid;
    assert!(text.starts_with("s0 PID 000 50505050-5050-5050-0000-000000000000\n"), "{text}");
    assert!(text.contains(&format!("\n    s2 PID {third} ")), "two levels down: {text}");
    assert!(text.contains("GFD 003, 2048 MiB") && text.contains(", down\n"), "{text}");
    assert_eq!(graph.matches("\"host ").count(), 3, "{graph}");
    assert_eq!((graph.matches(" -- ").count(), graph.matches("dashed").count()), (6, 1), "{graph}");
}

/// No character of a name ends a label of the graph: quotes that are not escaped come in pairs.
#[test]
fn names_in_a_graph_are_escaped() {
    let (inventory, _) = line();
    let name = r#"a"]; x [label="\"#;
    let row = |switch, port| NameRow { switch, port, name: name.to_owned() };
    let rows: Vec<NameRow> = inventory.by_id().map(|(id, _)| row(id, None)).collect();
    let mut graph = String::new();
    dot(&inventory, &DisplayNames::from(&rows[..]), &mut graph).unwrap();
    assert_eq!(graph.matches(r#"label="a\"]; x [label=\"\\\nPID "#).count(), 3, "{graph}");
    for line in graph.lines() {
        let bare = line.replace(r"\\", "").replace(r#"\""#, "");
        assert_eq!(bare.matches('"').count() % 2, 0, "{line}");
    }
}
