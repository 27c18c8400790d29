//! What texts become, and which are refused.

use proptest::prelude::*;

use super::*;

/// The node as compact text, so that tables are short.
fn shown(node: &Node) -> String {
    match &node.value {
        Value::Null => "null".into(),
        Value::Bool(v) => v.to_string(),
        Value::Int(v) => v.to_string(),
        Value::Float(v) => format!("{v:?}"),
        Value::String(v) => format!("{v:?}"),
        Value::List(items) => format!("[{}]", items.iter().map(shown).collect::<Vec<_>>().join(",")),
        Value::Map(entries) => {
            let entries: Vec<_> = entries.iter().map(|(k, _, v)| format!("{k}:{}", shown(v))).collect();
            format!("{{{}}}", entries.join(","))
        }
    }
}

fn check(text: &str, want: &str) {
    let node = parse(text, Duplicates::Refuse).unwrap_or_else(|e| panic!("{text:?}: {e:?}"));
    assert_eq!(shown(&node), want, "{text:?}");
}

fn refused(text: &str) -> Vec<String> {
    parse(text, Duplicates::Refuse).expect_err(text).iter().map(ToString::to_string).collect()
}

#[test]
fn lists_and_maps_nest() {
    check("a: 1\nb:\n- x\n- y: [1, two, '3']\n", r#"{a:1,b:["x",{y:[1,"two","3"]}]}"#);
    check("{\"a\": {\"b\": [true, null, 1.5]}}", "{a:{b:[true,null,1.5]}}");
    check("{\n\t\"a\": 1,\n\t\"b\": 2\n}", "{a:1,b:2}");
}

#[test]
fn an_empty_text_is_null() {
    for text in ["", "\n", "# only a comment\n", "---\n", "\u{feff}", "---\n...\n"] {
        check(text, "null");
    }
}

#[test]
fn only_the_first_document_counts() {
    check("a: 1\n---\na: 2\n", "{a:1}");
    check("---\na: 1\n...\n%%% no yaml", "{a:1}");
}

#[test]
fn windows_line_ends_and_a_byte_order_mark_do_not_matter() {
    check("\u{feff}a: 1\r\nb:\r\n- x\r\n", r#"{a:1,b:["x"]}"#);
}

#[test]
fn quotes_and_tags_decide_over_looks() {
    check(
        "a: '1'\nb: \"true\"\nc: !!str 1\nd: |\n  12\ne: ! 5\nf: !!float 1\n",
        concat!(r#"{a:"1",b:"true",c:"1","#, r#"d:"12\n",e:"5",f:1.0}"#),
    );
    assert_eq!(refused("a: !!int x"), ["line 1 column 4: expected a value of !!int"]);
}

#[test]
fn a_key_keeps_its_text() {
    check("on: 1\n2: x\nnull: z\n", r#"{on:1,2:"x",null:"z"}"#);
}

#[test]
fn aliases_and_merge_keys_are_followed() {
    check("a: &x {p: 1}\nb: *x\n", "{a:{p:1},b:{p:1}}");
    check("a: &x {p: 1, q: 2}\nb:\n  <<: *x\n  q: 3\n", "{a:{p:1,q:2},b:{q:3,p:1}}");
    check("a: &x {p: 1}\nb: &y {p: 2, r: 4}\nc: {<<: [*x, *y]}\n", "{a:{p:1},b:{p:2,r:4},c:{p:1,r:4}}");
    check("\"<<\": 1\n", "{<<:1}");
}

#[test]
fn the_place_is_that_of_the_value() {
    let node = parse("a:\n  b: 7\n  c:\n  - x\n", Duplicates::Refuse).unwrap();
    let a = node.find("a").unwrap();
    let at = |node: &Node| (node.place.line, node.place.column);
    assert_eq!(at(a.find("b").unwrap()), (2, 6));
    let Value::List(items) = &a.find("c").unwrap().value else { panic!("{a:?}") };
    assert_eq!(at(&items[0]), (4, 5));
}

#[test]
fn repeated_keys_are_all_named_unless_the_last_wins() {
    assert_eq!(
        refused("a: 1\nb: 2\na: 3\nb: 4\n"),
        [
            "line 3 column 1: duplicate key \"a\", first at line 1",
            "line 4 column 1: duplicate key \"b\", first at line 2"
        ]
    );
    let node = parse("a: 1\nb: 2\na: 3\n", Duplicates::LastWins).unwrap();
    assert_eq!(shown(&node), "{a:3,b:2}");
}

#[test]
fn bad_syntax_is_told_with_its_line() {
    for (text, line) in [
        ("a: 1\nb: [1, 2\n", 3),
        ("a:\n\tb: 1\n", 2),
        ("a: 'x\n", 1),
        ("a: b: c\n", 1),
        ("a: *nobody\n", 1),
        ("a: 1\n b: 2\n", 2),
        ("a: &x [*x]\n", 1),
        ("a: 1\nb: \u{0}\n", 2),
        ("[a, b]: 1\n", 1),
        ("a: {<<: 5}\n", 1),
    ] {
        let errors = parse(text, Duplicates::Refuse).expect_err(text);
        assert_eq!(errors.len(), 1, "{text:?}: {errors:?}");
        assert_eq!(errors[0].place.line, line, "{text:?}: {errors:?}");
    }
}

#[test]
fn a_deep_or_growing_text_is_refused() {
    let deep = "[".repeat(10_000);
    assert_eq!(refused(&deep).len(), 1);
    let deep: String = (0..200).map(|i| format!("{}a:\n", " ".repeat(i))).collect();
    assert!(refused(&deep)[0].contains("more than 100 deep"));
    let bomb: String = std::iter::once("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned())
        .chain((1..9).map(|i| format!("a{i}: &a{i} [{}]\n", vec![format!("*a{}", i - 1); 10].join(", "))))
        .collect();
    assert!(refused(&bomb)[0].contains("aliases add more than"));
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(text in "[a-c:\\-\\[\\]{},&*!|> '\"#?%@\\t\\r\\n0-9.~<é\\\\]{0,60}") {
        let _ = parse(&text, Duplicates::Refuse);
    }

    #[test]
    fn no_characters_make_it_panic(text in "\\PC{0,40}") {
        let _ = parse(&text, Duplicates::LastWins);
    }
}
