//! The page of the manager's socket has all requests and answers.
//!
//! The table and the lines of JSON in docs/fm-socket.md are compared with [`Request`] and [`Response`].
//!
//! Source: docs/fm-socket.md.

use std::collections::BTreeSet;

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::service::{Request, Response};

/// All names of an enum, from the deserializer's error.
fn names<T: DeserializeOwned + std::fmt::Debug>(unknown: &str) -> BTreeSet<String> {
    let error = serde_json::from_str::<T>(unknown).unwrap_err().to_string();
    let (_, list) = error.split_once("expected one of").expect("it lists them");
    list.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// Requests and answers of the page's table.
fn in_table(page: &str) -> (BTreeSet<String>, BTreeSet<String>) {
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `"));
    let quoted = |cell: Option<&str>| -> Vec<String> {
        cell.into_iter().flat_map(|cell| cell.split('`').step_by(2)).map(str::to_owned).collect()
    };
    let (mut requests, mut answers) = (BTreeSet::new(), BTreeSet::new());
    for mut cells in rows.map(|row| row.split(" | ")).skip(1) {
        for request in quoted(cells.next()).into_iter().filter(|name| !name.is_empty()) {
            assert!(requests.insert(request.clone()), "{request} has one row");
        }
        let cell = cells.next().and_then(|cell| cell.strip_prefix('`'));
        answers.extend(quoted(cell).into_iter().filter(|name| !name.is_empty()));
    }
    (requests, answers)
}

/// Every request and every answer is in the page, once in its table, and each of its lines is one.
#[test]
fn the_page_has_every_request_and_every_answer() {
    let page = include_str!("../../../docs/fm-socket.md");
    let lines: Vec<&str> = page.lines().filter(|line| line.starts_with('{')).collect();
    let (mut asked, mut answered) = (BTreeSet::new(), BTreeSet::new());
    for line in lines {
        let value: Value = serde_json::from_str(line).unwrap();
        if let Some(cmd) = value.get("cmd") {
            let request = serde_json::from_str::<Request>(line);
            request.unwrap_or_else(|error| panic!("{line}: {error}"));
            asked.insert(cmd.as_str().unwrap().to_owned());
        } else {
            let answer: Response =
                serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}"));
            assert_eq!(serde_json::to_value(&answer).unwrap(), value, "all of its fields");
            answered.extend(value.as_object().unwrap().keys().cloned());
        }
    }
    let (requests, answers) =
        (names::<Request>(r#"{"cmd": "?"}"#), names::<Response>(r#"{"?": 0}"#));
    assert_eq!((&asked, &answered), (&requests, &answers));
    assert_eq!(in_table(page), (requests, answers));
}
