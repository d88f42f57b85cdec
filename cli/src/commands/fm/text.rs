//! Tables and PIDs, as all answers of `weft fm` print them.

use comfy_table::{Table, presets};
use weft_fm::service::request::NamedPid;

pub(super) fn table<const N: usize>(
    heads: [&str; N],
    rows: impl Iterator<Item = [String; N]>,
) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(heads);
    table.add_rows(rows.map(comfy_table::Row::from));
    table.column_iter_mut().for_each(|column| {
        column.set_padding((0, 2));
    });
    // Columns are padded, the last one too, which would leave blanks at the ends of lines.
    table.lines().fold(String::new(), |text, line| text + line.trim_end() + "\n")
}

pub(super) fn pid(bits: u16) -> String {
    format!("{bits:03x}")
}

/// A component's name, with its PID.
pub(super) fn named(who: &NamedPid) -> String {
    format!("{} ({})", who.name, pid(who.pid))
}

pub(super) fn pids(list: &[u16]) -> String {
    if list.is_empty() {
        return "none".to_owned();
    }
    list.iter().map(|bits| pid(*bits)).collect::<Vec<_>>().join(" ")
}
