//! What chats are made of messages.

use serde_json::{Value, json};

use super::*;

fn chat(body: Value) -> Value {
    serde_json::from_slice(&as_chat(body.to_string().as_bytes(), "the/model").unwrap()).unwrap()
}

#[track_caller]
fn check(messages: Value, want: Value) {
    let got = chat(json!({"model": "m", "max_tokens": 5, "messages": messages}));
    assert_eq!(got, json!({"model": "the/model", "messages": want}));
}

fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

fn image(url: &str) -> Value {
    json!({"type": "image_url", "image_url": {"url": url}})
}

#[test]
fn the_system_text_leads() {
    let hi = json!({"role": "user", "content": "hi"});
    let kind = json!({"role": "system", "content": "be kind"});
    for system in
        [json!("be kind"), json!([text("be "), text("x-anthropic-billing-header: 1"), text("kind"), {"type": "other"}])]
    {
        assert_eq!(chat(json!({"system": system, "messages": [hi]}))["messages"], json!([kind, hi]));
        check(json!([{"role": "system", "content": system}, hi]), json!([kind, hi]));
    }
    for system in [json!(null), json!([]), json!(""), json!([text("x-anthropic-billing-header")])] {
        assert_eq!(chat(json!({"system": system, "messages": [hi]}))["messages"], json!([hi]));
    }
}

#[test]
fn one_text_is_a_string_and_more_are_parts() {
    check(json!([{"role": "user", "content": [text("hi")]}]), json!([{"role": "user", "content": "hi"}]));
    let two = json!([{"role": "user", "content": [text("a"), text("b")]}]);
    check(two.clone(), two);
}

#[test]
fn images_become_urls() {
    for (source, url) in [
        (json!({"type": "base64", "data": "QUJD"}), "data:image/jpeg;base64,QUJD"),
        (json!({"type": "base64", "media_type": "image/png", "data": "QUJD"}), "data:image/png;base64,QUJD"),
        (json!({"type": "url", "url": "https://h/a.png"}), "https://h/a.png"),
    ] {
        let sent = json!([{"role": "user", "content": [text("see"), {"type": "image", "source": source}]}]);
        check(sent, json!([{"role": "user", "content": [text("see"), image(url)]}]));
    }
}

#[test]
fn tool_calls_carry_their_input_as_python_writes_it() {
    for (input, arguments) in [
        (r#"{"b":1,"a":"é"}"#, r#"{"b": 1, "a": "\u00e9"}"#),
        ("{}", "{}"),
        ("null", "{}"),
        ("{ \"z\":1.50 }", r#"{"z": 1.50}"#),
    ] {
        let body = format!(
            r#"{{"messages":[{{"role":"assistant","content":[{{"type":"tool_use","id":"t1","name":"f","input":{input}}}]}}]}}"#
        );
        let got: Value = serde_json::from_slice(&as_chat(body.as_bytes(), "m").unwrap()).unwrap();
        let function = json!({"name": "f", "arguments": arguments});
        let call = json!({"id": "t1", "type": "function", "function": function});
        assert_eq!(got["messages"], json!([{"role": "assistant", "tool_calls": [call]}]));
    }
    let call = json!({"id": "call_0000000000", "type": "function", "function": {"name": "f", "arguments": "{}"}});
    check(
        json!([{"role": "assistant", "content": [text("wait"), {"type": "tool_use", "name": "f"}]}]),
        json!([{"role": "assistant", "content": "wait", "tool_calls": [call]}]),
    );
}

#[test]
fn what_a_tool_gave_back_goes_before_the_message() {
    let result = |content: Value| json!({"type": "tool_result", "tool_use_id": "t1", "content": content});
    let tool = |content: &str| json!({"role": "tool", "tool_call_id": "t1", "content": content});
    check(
        json!([{"role": "user", "content": [result(json!([text("x"), text("y")])), text("go on")]}]),
        json!([tool("x\ny"), {"role": "user", "content": "go on"}]),
    );
    // A user that says nothing else says nothing.
    check(json!([{"role": "user", "content": [result(json!("x"))]}]), json!([tool("x")]));
    let picture = json!({"type": "image", "source": {"data": "QUJD"}});
    check(
        json!([{"role": "user", "content": [result(json!([picture]))]}]),
        json!([tool(""), {"role": "user", "content": [image("data:image/jpeg;base64,QUJD")]}]),
    );
    check(
        json!([{"role": "assistant", "content": [result(json!("x"))]}]),
        json!([{"role": "assistant", "content": "Tool result: x"}]),
    );
}

#[test]
fn thinking_is_reasoning_unless_it_is_redacted() {
    let thought = |text: &str| json!({"type": "thinking", "thinking": text});
    let redacted = json!({"type": "redacted_thinking", "data": "zz"});
    check(
        json!([{"role": "assistant", "content": [thought("h"), redacted, thought("m"), text("ok")]}]),
        json!([{"role": "assistant", "reasoning": "hm", "content": "ok"}]),
    );
}

#[test]
fn tools_become_functions_and_keep_the_order_of_their_schemas() {
    let body = r#"{"messages":[],"tools":[
        {"name":"f","description":"d","input_schema":{"z":1,"a":{"y":2,"b":3}},"strict":true,"defer_loading":false},{"name":"g"}]}"#;
    let got = String::from_utf8(as_chat(body.as_bytes(), "m").unwrap()).unwrap();
    let want = concat!(
        r#""tools":[{"type":"function","function":{"name":"f","description":"d","#,
        r#""parameters":{"z":1,"a":{"y":2,"b":3}},"strict":true,"defer_loading":false}},"#,
        r#"{"type":"function","function":{"name":"g","parameters":{"type":"object"}}}]}"#,
    );
    assert!(got.ends_with(want), "{got}");
}

#[test]
fn what_is_no_messages_request_is_an_error_that_tells_nothing_of_it() {
    for body in [
        "",
        "[]",
        "{}",
        r#"{"messages":5}"#,
        r#"{"messages":[{"content":{"secret":1}}]}"#,
        "{\"messages\":[\"secret\"]}",
    ] {
        let why = as_chat(body.as_bytes(), "m").unwrap_err();
        assert!(why.starts_with("cannot make a chat of messages") && !why.contains("secret"), "{why}");
    }
    assert!(as_chat(b"{\"messages\":[{\"role\":\"user\",\"content\":\"\xff\"}]}", "m").is_err());
}
