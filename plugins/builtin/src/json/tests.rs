//! Tests of the scanner: tables, and properties against an independent reader.

use proptest::prelude::*;

use super::ids::{BadId, Ids};
use super::text::unescaped;
use super::{Fault, Field, Scanner};

fn scan(body: &[u8]) -> Result<(), Fault> {
    let mut s = Scanner::new(body);
    s.skip()?;
    s.end()
}

#[test]
fn accepts_and_refuses_by_the_grammar() {
    let long = format!("\"{}\\n{}\"", "x".repeat(1000), "y".repeat(77));
    for (body, good) in [
        ("null", true),
        ("true", true),
        ("tru", false),
        ("nulL", false),
        (" [1, 2.5e-3 ,-0, {} , [] ]\n", true),
        ("[1,]", false),
        ("[,1]", false),
        ("[1 2]", false),
        ("{\"a\":1,}", false),
        ("{\"a\" 1}", false),
        ("{\"a\":}", false),
        ("{a:1}", false),
        ("{\"a\":[{\"b\":[]}],\"c\":{}}", true),
        ("[}", false),
        ("{\"a\":1]", false),
        ("[[1]", false),
        ("1 2", false),
        ("01", false),
        ("1.", false),
        (".5", false),
        ("1e", false),
        ("-", false),
        ("+1", false),
        ("NaN", false),
        ("", false),
        ("  ", false),
        ("\"a", false),
        ("\"\\x\"", false),
        ("\"\\u12g4\"", false),
        ("\"\\ud800\"", true),
        ("\"a\tb\"", false),
        ("\"\u{7f}\u{80}\"", true),
        (long.as_str(), true),
    ] {
        assert_eq!(scan(body.as_bytes()).is_ok(), good, "{body:?}");
    }
    assert!(scan(b"\"\xff\xfe\"").is_ok());
}

#[test]
fn finds_a_control_character_at_any_place_of_a_long_string() {
    for at in 0..200 {
        let mut body = vec![b'x'; 202];
        body[0] = b'"';
        body[201] = b'"';
        assert!(scan(&body).is_ok());
        body[at + 1] = 0x1f;
        assert_eq!(scan(&body), Err(Fault { at: at + 1, wanted: "no control character in a string" }));
    }
}

#[test]
fn takes_any_nesting_up_to_its_limit() {
    for n in [1, 63, 64, 65, 128, 129, 200, 9_999] {
        for (open, close) in [("[", "]"), ("{\"a\":", "}"), ("[{\"a\":", "}]")] {
            let n = if open.len() == 6 { n / 2 } else { n };
            assert_eq!(scan(format!("{}1{}", open.repeat(n), close.repeat(n)).as_bytes()), Ok(()), "{open} {n}");
        }
    }
    assert!(scan(&b"[".repeat(200_000)).is_err());
    assert!(scan(format!("{}1{}", "[".repeat(200_000), "]".repeat(200_000)).as_bytes()).is_err());
}

#[test]
fn closes_brackets_of_the_kind_that_was_opened() {
    for n in [1, 63, 64, 65, 130] {
        let open: String = (0..n).map(|i| if i % 3 == 0 { "{\"a\":" } else { "[" }).collect();
        let close: Vec<&str> = (0..n).map(|i| if i % 3 == 0 { "}" } else { "]" }).rev().collect();
        assert_eq!(scan(format!("{open}1{}", close.concat()).as_bytes()), Ok(()));
        for wrong in 0..n {
            let mut close = close.clone();
            close[wrong] = if close[wrong] == "}" { "]" } else { "}" };
            assert!(scan(format!("{open}1{}", close.concat()).as_bytes()).is_err(), "{n} {wrong}");
        }
    }
}

fn ids(body: &str) -> (Field<Ids>, Vec<u32>) {
    let mut out = Vec::new();
    let mut s = Scanner::new(body.as_bytes());
    let read = s.ids(&mut out).expect("the grammar is right");
    s.end().expect("all is read");
    (read, out.chunks_exact(4).map(|c| u32::from_le_bytes(c.try_into().expect("four bytes"))).collect())
}

#[test]
fn reads_token_ids() {
    let good = |n| Field::Is(Ids { n, bad: None });
    let bad = |n, i, why| Field::Is(Ids { n, bad: Some((i, why)) });
    for (body, read, values) in [
        ("[]", good(0), vec![]),
        ("[0]", good(1), vec![0]),
        (
            "[1,22,333,4444,55555,666666,7777777,88888888,999999999]",
            good(9),
            vec![1, 22, 333, 4444, 55555, 666666, 7777777, 88888888, 999999999],
        ),
        (" [ 1 , 2,\n3 ] ", good(3), vec![1, 2, 3]),
        ("[4294967295, 1.0, 1e3, -0]", good(4), vec![4294967295, 1, 1000, 0]),
        ("[1,\"a,b,c\",2,[3,4],5]", bad(5, 1, BadId::Type), vec![1, 0, 2, 0, 5]),
        ("[1,4294967296]", bad(2, 1, BadId::Value), vec![1, 0]),
        ("[1,-1,1.5]", bad(3, 1, BadId::Value), vec![1, 0, 0]),
        ("[1,null,9,9,9,9]", bad(6, 1, BadId::Null), vec![1, 0, 9, 9, 9, 9]),
        ("[\"1\"]", bad(1, 0, BadId::Type), vec![0]),
        ("[[1],true]", bad(2, 0, BadId::Type), vec![0, 0]),
        ("null", Field::Null, vec![]),
        ("{\"a\":1}", Field::Wrong, vec![]),
    ] {
        assert_eq!(ids(body), (read, values), "{body}");
    }
    for body in ["[1,]", "[01,2,3,4,5]", "[1,02,3,4,5,6]", "[1 2 3 4 5 6]", "[1x2345678]", "[12", "[1;2;3;4;5]", "[,1]"]
    {
        assert!(Scanner::new(body.as_bytes()).ids(&mut Vec::new()).is_err(), "{body}");
    }
}

#[test]
fn matches_keys_that_are_escaped_or_in_another_case() {
    let mut seen = Vec::new();
    let mut s = Scanner::new(br#"{"model":1,"\u006d\u006f\u0064\u0065\u006c":2,"Model":3,"MOD\u0045L":4,"models":5}"#);
    s.object(|s, key| {
        s.skip()?;
        seen.push((key.is("model"), key.folds_to("model")));
        Ok(())
    })
    .expect("the grammar is right");
    assert_eq!(seen, [(true, true), (true, true), (false, true), (false, true), (false, false)]);
}

#[test]
fn unescapes() {
    for (raw, want) in [
        (r#"a\"b\\c\/d\b\f\n\r\t"#, "a\"b\\c/d\u{8}\u{c}\n\r\t"),
        (r"\u00e9\u20ac", "é€"),
        (r"\ud83d\ude00x", "😀x"),
        (r"\ud83dx", "\u{fffd}x"),
        (r"\ude00\ud83d", "\u{fffd}\u{fffd}"),
        (r"\ud83d\u0041", "\u{fffd}A"),
    ] {
        assert_eq!(unescaped(raw.as_bytes()), want.as_bytes(), "{raw}");
    }
}

#[test]
fn reads_whole_numbers_only() {
    for (body, want) in [
        ("0", Field::Is(0)),
        ("3.0", Field::Is(3)),
        ("1e2", Field::Is(100)),
        ("18446744073709551616", Field::Is(u64::MAX)),
        ("-1", Field::Wrong),
        ("1.5", Field::Wrong),
        ("\"5\"", Field::Wrong),
        ("true", Field::Wrong),
        ("null", Field::Null),
    ] {
        assert_eq!(Scanner::new(body.as_bytes()).whole(), Ok(want), "{body}");
    }
}

fn json() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<i64>().prop_map(Into::into),
        any::<f64>().prop_map(Into::into),
        any::<String>().prop_map(Into::into),
    ];
    leaf.prop_recursive(5, 40, 6, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..6).prop_map(Into::into),
            proptest::collection::hash_map(any::<String>(), inner, 0..6)
                .prop_map(|map| serde_json::Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn agrees_with_serde_on_what_is_json(value in json(), pretty: bool, at: prop::sample::Index, byte: Option<u8>) {
        let mut body = if pretty { serde_json::to_vec_pretty(&value) } else { serde_json::to_vec(&value) }.expect("a value");
        if let Some(byte) = byte {
            let at = at.index(body.len());
            body[at] = byte;
        }
        let wanted = serde_json::from_slice::<serde::de::IgnoredAny>(&body).is_ok();
        prop_assert_eq!(scan(&body).is_ok(), wanted, "{}", String::from_utf8_lossy(&body));
    }

    #[test]
    fn unescapes_as_serde_does(text: String) {
        let body = serde_json::to_vec(&text).expect("a string");
        let read = Scanner::new(&body).string().expect("a string").read(&body);
        prop_assert_eq!(read, text);
    }

    #[test]
    fn reads_any_ids(values: Vec<u32>, digits in 1..=10_u32, style in 0..3) {
        let values: Vec<u32> = values.into_iter().map(|id| (u64::from(id) % 10_u64.pow(digits)) as u32).collect();
        let body = match style {
            0 => serde_json::to_string(&values).unwrap(),
            1 => serde_json::to_string(&values).unwrap().replace(',', ", "),
            _ => serde_json::to_string_pretty(&values).unwrap(),
        };
        let (read, out) = ids(&body);
        prop_assert_eq!(read, Field::Is(Ids { n: values.len(), bad: None }));
        prop_assert_eq!(out, values);
    }

    #[test]
    fn never_panics(body: Vec<u8>) {
        let _ = scan(&body);
        let _ = Scanner::new(&body).ids(&mut Vec::new());
        let _ = unescaped(&body);
    }
}
