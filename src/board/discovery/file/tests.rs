//! What the endpoints file may say, and what a mistake costs.

use super::*;

fn read(text: &str) -> EndpointsFile {
    parse(text.as_bytes(), false).unwrap_or_else(|e| panic!("{text:?}: {e}"))
}

/// `namespace/name@host:port` of every entry, in order.
fn shown(file: &EndpointsFile) -> Vec<String> {
    let host = |host: &Host| match host {
        Host::Address(address) => address.to_string(),
        Host::Name(name) => name.clone(),
    };
    file.entries.iter().map(|e| format!("{}@{}:{}", e.name, host(&e.host), e.port)).collect()
}

#[test]
fn reads_what_yaml_allows() {
    let a = "default/a@127.0.0.1:1";
    for (text, expected) in [
        ("endpoints: [{name: a, address: 127.0.0.1, port: \"1\"}]", vec![a]),
        ("endpoints: [{name: a, address: 127.0.0.1, port: 1}]", vec![a]),
        (
            "endpoints:\n- name: a\n  address: 127.0.0.1\n  port: '1'\n- name: b\n  address: ::1\n  port: 2\n",
            vec![a, "default/b@::1:2"],
        ),
        ("{\"endpoints\":[{\"name\":\"a\",\"address\":\"127.0.0.1\",\"port\":\"1\"}]}", vec![a]),
        ("endpoints:\r\n- name: a\r\n  address: 127.0.0.1\r\n  port: \"1\"\r\n", vec![a]),
        ("Endpoints: [{NAME: a, Address: 127.0.0.1, PORT: \"1\"}]", vec![a]),
        ("endpoints: [{name: a, address: 127.0.0.1, port: 1}]\n---\nendpoints: []\n", vec![a]),
        ("all: &l {address: 127.0.0.1, port: \"1\"}\nendpoints: [{name: a, <<: *l}]", vec![a]),
        ("\u{feff}endpoints: [{name: a, address: 127.0.0.1, port: \"1\"}]", vec![a]),
        ("endpoints: [{address: 127.0.0.1, port: 1}]", vec!["default/@127.0.0.1:1"]),
        ("endpoints: [{name: null, namespace: '', address: h, port: 1}]", vec!["default/@h:1"]),
        ("endpoints: [{name: 7, namespace: n, address: h, port: '+08000'}]", vec!["n/7@h:8000"]),
        ("endpoints: [{name: a, address: h, port: 65535}]", vec!["default/a@h:65535"]),
        ("endpoints: [{name: a, address: h, port: 1, port: 2}]", vec!["default/a@h:2"]),
    ] {
        let file = read(text);
        assert_eq!((shown(&file), file.bad), (expected.iter().map(|s| (*s).to_owned()).collect(), vec![]), "{text:?}");
    }
}

#[test]
fn a_file_may_have_no_endpoints() {
    for text in ["", "# nothing\n", "null\n", "{}", "endpoints: []", "endpoints: null", "endpoints:\n", "other: 1"] {
        assert_eq!(read(text).entries, vec![], "{text:?}");
    }
}

#[test]
fn a_file_that_does_not_parse_is_refused_with_its_place() {
    for (text, line) in [
        ("[{name: a, address: 127.0.0.1, port: 1}]", Some(1)),
        ("hello", Some(1)),
        ("\nendpoints: 5", Some(2)),
        ("endpoints: {}", Some(1)),
        ("endpoints:\n\t- name: a\n", Some(2)),
        ("endpoints: [}", Some(1)),
        ("endpoints:\n- name: a\n  port", None),
        ("\0", Some(1)),
    ] {
        let error = parse(text.as_bytes(), false).unwrap_err();
        assert!(line.is_none_or(|line| error.place.unwrap().line == line), "{text:?}: {error}");
    }
    assert_eq!(parse(b"\0\x01\x02\xff", false).unwrap_err().place, None);
}

fn labels(text: &str) -> Vec<(String, String)> {
    let file = read(&format!("endpoints: [{{address: h, port: 1, labels: {text}}}]"));
    file.entries[0].labels.clone().into_iter().collect()
}

#[test]
fn labels_are_text_as_it_is_written() {
    for (text, expected) in [
        ("null", vec![]),
        ("{}", vec![]),
        ("{tier: gold}", vec![("tier", "gold")]),
        ("{tier: null}", vec![("tier", "")]),
        ("{tier: on, fast: true}", vec![("fast", "true"), ("tier", "on")]),
        ("{version: 1.10, n: 007, big: 1e3}", vec![("big", "1e3"), ("n", "007"), ("version", "1.10")]),
        ("{é: ü, version: 1.10}", vec![("version", "1.10"), ("é", "ü")]),
        ("{a: !!int 5, b: !!float 2.50}", vec![("a", "5"), ("b", "2.5")]),
        ("{1: x, key: \"true\"}", vec![("1", "x"), ("key", "true")]),
    ] {
        let expected: Vec<_> = expected.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        assert_eq!(labels(text), expected, "{text}");
    }
}

#[test]
fn a_number_behind_an_alias_is_told_as_a_number() {
    let file = read("x: &v 5\nendpoints: [{address: h, port: 1, labels: {n: *v}}]");
    assert_eq!(file.entries[0].labels["n"], "5");
}

#[test]
fn a_bad_entry_is_left_out_with_its_name_line_and_reason() {
    for (fields, reason) in [
        ("address: \"http://10.0.0.1\", port: 1", "address: expected an IP address or a host name, found a scheme"),
        ("address: \"\", port: 1", "address: expected an IP address or a host name, found nothing"),
        ("port: 1", "address: expected an address, found none"),
        ("address: {}, port: 1", "address: expected a string, found a map"),
        ("address: 5, port: 1", "address: expected a string, found an integer"),
        ("address: h", "port: expected a port, found none"),
        ("address: h, port: null", "port: expected a port, found none"),
        ("address: h, port: 0", "port: expected a whole number from 1 to 65535, found 0"),
        ("address: h, port: \"0\"", "port: expected a whole number from 1 to 65535, found 0"),
        ("address: h, port: -1", "port: expected a whole number from 1 to 65535, found -1"),
        ("address: h, port: \"65536\"", "port: expected a whole number from 1 to 65535, found \"65536\""),
        ("address: h, port: 99999", "port: expected a whole number from 1 to 65535, found 99999"),
        ("address: h, port: http", "port: expected a whole number from 1 to 65535, found \"http\""),
        ("address: h, port: \"\"", "port: expected a whole number from 1 to 65535, found \"\""),
        ("address: h, port: \" 1\"", "port: expected a whole number from 1 to 65535, found \" 1\""),
        ("address: h, port: \"1.5\"", "port: expected a whole number from 1 to 65535, found \"1.5\""),
        ("address: h, port: 1.5", "port: expected a whole number from 1 to 65535, found a number"),
        ("address: h, port: [1]", "port: expected a whole number from 1 to 65535, found a list"),
        ("address: h, port: 1, labels: [x]", "labels: expected a map, found a list"),
        ("address: h, port: 1, labels: {a: [x]}", "labels: a: expected a string, found a list"),
    ] {
        let file = read(&format!(
            "endpoints:\n- {{name: a, address: h, port: 1}}\n- {{name: spoiled, {fields}}}\n- {{name: b, address: h, port: 2}}\n"
        ));
        assert_eq!(shown(&file), ["default/a@h:1", "default/b@h:2"], "{fields}");
        let [bad] = file.bad.as_slice() else { panic!("{fields}: {:?}", file.bad) };
        assert_eq!((bad.name.as_ref().unwrap().name.as_str(), bad.line), ("spoiled", 3), "{fields}");
        assert!(bad.reason.starts_with(reason), "{fields}: {}", bad.reason);
    }
}

#[test]
fn an_entry_whose_name_cannot_be_read_is_told_by_its_line() {
    let file = read("endpoints:\n- 5\n- {name: [x], address: h, port: 1}\n- {name: a, address: h, port: 1}\n");
    assert_eq!(shown(&file), ["default/a@h:1"]);
    assert_eq!(file.bad.iter().map(|b| (b.name.clone(), b.line)).collect::<Vec<_>>(), [(None, 2), (None, 3)]);
}

#[test]
fn of_two_entries_of_one_name_the_last_counts() {
    let entry = |name: &str, port: &str| format!("- {{name: {name}, address: h, port: {port}}}\n");
    let text = |entries: &[(&str, &str)]| {
        entries.iter().fold("endpoints:\n".to_owned(), |text, (name, port)| text + &entry(name, port))
    };
    let file = read(&text(&[("a", "1"), ("b", "2"), ("a", "3"), ("a", "4")]));
    assert_eq!(shown(&file), ["default/b@h:2", "default/a@h:4"]);
    assert_eq!(file.repeated.iter().map(ToString::to_string).collect::<Vec<_>>(), ["default/a"]);
    let file = read(&text(&[("a", "0"), ("a", "3")]));
    assert_eq!((shown(&file), file.bad.len()), (vec!["default/a@h:3".to_owned()], 0));
    let file = read(&text(&[("a", "3"), ("a", "0")]));
    assert_eq!((shown(&file), file.bad.len()), (vec![], 1));
    let file = read("endpoints: [{name: x, namespace: one, address: h, port: 1}, {name: x, address: h, port: 2}]");
    assert_eq!((shown(&file).len(), file.repeated.len()), (2, 0));
}

#[test]
fn unknown_keys_are_passed_over_and_told_once() {
    let file = read(
        "version: 3\nendpoints: [{address: h, port: 1, extra: {deep: [1, {x: y}]}}, {name: b, address: h, port: 1, extra: 2}]",
    );
    assert_eq!((file.entries.len(), file.bad.len()), (2, 0));
    assert_eq!(file.unknown, ["version", "extra"]);
}

#[test]
fn the_rank_is_read_where_it_can_be() {
    for (text, rank) in [("3", 3), ("\"4\"", 4), ("null", 0), ("-1", 0), ("x", 0)] {
        let file = read(&format!("endpoints: [{{address: h, port: 1, rankIndex: {text}}}]"));
        assert_eq!(file.entries[0].rank, rank, "{text}");
    }
}

proptest::proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200)) {
        let _ = parse(&bytes, false);
    }

    #[test]
    fn every_entry_is_taken_or_named(entries in proptest::collection::vec("[a-c0-9 :.{}\\[\\]'\",!&*-]{0,12}", 0..6)) {
        let items = entries.iter().map(|e| format!("- {{name: {e}, address: h, port: {e}}}\n"));
        let text = items.fold("endpoints:\n".to_owned(), |text, item| text + &item);
        if let Ok(file) = parse(text.as_bytes(), false) {
            let names: std::collections::HashSet<_> = file.entries.iter().map(|e| &e.name).collect();
            proptest::prop_assert_eq!(names.len(), file.entries.len());
            proptest::prop_assert!(file.bad.iter().all(|b| !b.reason.is_empty() && b.line > 1));
        }
    }
}
