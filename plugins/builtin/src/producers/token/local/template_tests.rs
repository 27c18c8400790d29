//! Templates of the well-known kinds and what engines make of them.

use std::time::{Duration, UNIX_EPOCH};

use serde_json::{Value as Json, json};

use super::*;

fn template(source: &str) -> Result<Template, String> {
    let special = BTreeMap::from([("bos_token".to_owned(), Value::from("<s>"))]);
    Template::new(BTreeMap::from([(DEFAULT.to_owned(), source.to_owned())]), special)
}

fn rendered(source: &str, chat: Json) -> Result<String, String> {
    let now = UNIX_EPOCH + Duration::from_secs(1_721_952_000);
    template(source)?.render(serde_json::from_value(chat).unwrap(), now)
}

#[track_caller]
fn check(source: &str, chat: Json, want: &str) {
    assert_eq!(rendered(source, chat).as_deref(), Ok(want));
}

const CHATML: &str = include_str!("testdata/chatml.jinja");

#[test]
fn a_template_of_the_chatml_kind() {
    let messages = json!([{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hi <b>&"},
        {"role": "assistant", "content": "<think>\nhm\n</think>\n\nHo"}, {"role": "user", "content": "Bye"}]);
    let start = "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nHi <b>&<|im_end|>\n\
                 <|im_start|>assistant\nHo<|im_end|>\n<|im_start|>user\nBye<|im_end|>\n";
    check(CHATML, json!({"messages": messages}), &format!("{start}<|im_start|>assistant\n"));
    check(CHATML, json!({"messages": messages, "add_generation_prompt": false}), start);
    let quiet = json!({"messages": messages, "chat_template_kwargs": {"enable_thinking": false}});
    check(CHATML, quiet, &format!("{start}<|im_start|>assistant\n<think>\n\n</think>\n\n"));
}

#[test]
fn tools_keep_their_order_and_are_written_as_python_does() {
    let chat: Chat = serde_json::from_str(
        r#"{"tools":[{"type":"function","function":{"name":"f","parameters":{"z":1.0,"a":["é<",true,null]}}}],
            "messages":[{"role":"user","content":"Hi"},
            {"role":"assistant","tool_calls":[{"id":"1","function":{"name":"f","arguments":"{\"y\":1,\"b\":\"x\"}"}}]},
            {"role":"tool","tool_call_id":"1","content":"ok"},{"role":"tool","content":[{"type":"text","text":"so"}]}]}"#,
    )
    .unwrap();
    let want = "<|im_start|>system\n# Tools\n<tools>\n{\"type\": \"function\", \"function\": {\"name\": \"f\", \
                \"parameters\": {\"z\": 1.0, \"a\": [\"é<\", true, null]}}}\n</tools><|im_end|>\n\
                <|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<tool_call>\n{\"name\": \"f\", \"arguments\": \
                {\"y\": 1, \"b\": \"x\"}}\n</tool_call><|im_end|>\n<|im_start|>user\n<tool_response>\nok\n</tool_response>\n\
                <tool_response>\nso\n</tool_response><|im_end|>\n<|im_start|>assistant\n";
    assert_eq!(template(CHATML).unwrap().render(chat, UNIX_EPOCH).as_deref(), Ok(want));
}

const LLAMA: &str = include_str!("testdata/llama.jinja");

#[test]
fn a_template_of_the_llama_kind() {
    let call = json!({"function": {"name": "f", "arguments": "{\"a\": 1}"}});
    let messages = json!([{"role": "system", "content": " Be kind. "}, {"role": "user", "content": "Hi"},
        {"role": "assistant", "tool_calls": [call]}, {"role": "tool", "content": "ok"}]);
    let want = "<s><|start_header_id|>system<|end_header_id|>\n\nToday Date: 26 Jul 2024\n\nBe kind.<|eot_id|>\
                <|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>\
                <|start_header_id|>assistant<|end_header_id|>\n\n{\"name\": \"f\", \"parameters\": {\"a\": 1}}<|eot_id|>\
                <|start_header_id|>ipython<|end_header_id|>\n\nok<|eot_id|>\
                <|start_header_id|>assistant<|end_header_id|>\n\n";
    check(LLAMA, json!({"messages": messages}), want);
    let two = json!({"messages": [{"role": "assistant", "tool_calls": [call, call]}]});
    assert!(rendered(LLAMA, two).unwrap_err().starts_with("the chat template fails at line 25"));
}

#[test]
fn contents_are_lists_for_templates_that_go_through_them() {
    let listing =
        "{% for m in messages %}{% for c in m['content'] %}[{{ c.type }} {{ c.text }}]{% endfor %}{% endfor %}";
    let texts = json!([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]);
    let both = json!({"messages": [{"role": "user", "content": texts}, {"role": "user", "content": "c"}]});
    check(listing, both.clone(), "[text a][text b][text c]");
    check("{% for m in messages %}{{ m.content }}|{% endfor %}", both, "a\nb|c|");
}

#[test]
fn lines_of_blocks_alone_leave_nothing_behind() {
    let source = "{% for m in messages %}\n  {% if true %}\n{{ m.content }}\n  {% endif %}\n{% endfor %}\n";
    check(source, json!({"messages": [{"content": "a"}, {"content": "b"}]}), "a\nb\n");
}

#[test]
fn reasoning_is_known_by_both_names_and_methods_of_python_work() {
    let source = "{% for m in messages %}{{ m.reasoning_content.strip().upper() }}{% for k, v in m.x.items() %}{{ k }}={{ v }};{% endfor %}{{ m.get('y', 'none') }}{% endfor %}";
    check(source, json!({"messages": [{"reasoning": " hm ", "content": "", "x": {"b": 1, "a": 2}}]}), "HMa=2;b=1;none");
    check("{{ messages | tojson(indent=2) }}", json!({"messages": []}), "[]");
}

#[test]
fn a_template_that_runs_in_circles_comes_to_an_end() {
    let circles = "{% macro f(n) %}{% for i in range(10000) %}{% for j in range(10000) %}{{ i }}{% endfor %}{% endfor %}{% endmacro %}{{ f(1) }}";
    assert!(rendered(circles, json!({"messages": []})).unwrap_err().starts_with("the chat template fails"));
    let deep = "{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(1) }}";
    assert!(rendered(deep, json!({"messages": []})).is_err());
}

#[test]
fn what_cannot_be_rendered_is_an_error_that_tells_nothing_of_the_chat() {
    let exception = "{{ raise_exception(messages[0].content) }}";
    let secret = json!({"messages": [{"role": "user", "content": "secret"}]});
    let why = rendered(exception, secret).unwrap_err();
    assert!(why.starts_with("the chat template fails at line 1") && !why.contains("secret"), "{why}");
    let goes_on = json!({"messages": [], "continue_final_message": true});
    assert!(rendered("x", goes_on).unwrap_err().contains("goes on with its last"));
    assert!(template("{% if %}").err().unwrap().contains("expected a chat template, found"));
}

#[test]
fn a_template_for_tools_is_taken_for_chats_with_tools() {
    let sources = [(DEFAULT, "plain"), (WITH_TOOLS, "tools")].map(|(name, text)| (name.to_owned(), text.to_owned()));
    let template = Template::new(BTreeMap::from(sources), BTreeMap::new()).unwrap();
    for (tools, want) in [(json!(null), "plain"), (json!([]), "plain"), (json!([{"type": "function"}]), "tools")] {
        let chat = serde_json::from_value(json!({"messages": [], "tools": tools})).unwrap();
        assert_eq!(template.render(chat, UNIX_EPOCH).as_deref(), Ok(want));
    }
}
