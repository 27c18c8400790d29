//! Recordings of before what plugins look at was recorded.

use super::*;

/// Two decisions among three endpoints, as they were written then.
fn old() -> Vec<u8> {
    let config = "plugins:\n- {type: queue-scorer}\n- {type: kv-cache-utilization-scorer}\n- {type: decode-filter}\n\
                  schedulingProfiles: [{name: default, plugins: [{pluginRef: decode-filter}, {pluginRef: queue-scorer}, {pluginRef: kv-cache-utilization-scorer}]}]\n";
    let lines = [
        serde_json::json!({"config": 1, "text": config}).to_string(),
        r#"{"endpoints":["a:1","b:1","c:1"],"names":["default/a","default/b","default/c"]}"#.into(),
        r#"{"cycle":1,"id":"x","model":"m","target":"m","priority":0,"seed":5,"candidates":3,"primary":0,"runs":[{"profile":0,"seed":5,"kept":[2],"left":[0,2],"scores":["0.5 1","0.25"],"picked":[2]}]}"#.into(),
        r#"{"cycle":2,"id":"y","model":"m","target":"m","priority":0,"seed":6,"candidates":3,"primary":0,"runs":[{"profile":0,"seed":6,"kept":[3],"scores":["1 0.5 0","0 0.3 1"],"picked":[0]}]}"#.into(),
    ];
    format!("{}\n", lines.join("\n")).into()
}

#[test]
fn their_scores_are_weighed_and_picked_by() {
    let report = replayed(&old(), None).unwrap();
    assert_eq!((report.cycles, report.judged), (2, 2));
    // The second one is a tie; the first one is none.
    assert!(report.differences.iter().all(|difference| difference.request == "y"), "{report:?}");
    let other = String::from_utf8_lossy(&old()).lines().next().map(str::to_owned).unwrap();
    let other: serde_json::Value = serde_json::from_str(&other).unwrap();
    let other =
        other["text"].as_str().unwrap().replace("{pluginRef: queue-scorer}", "{pluginRef: queue-scorer, weight: 0}");
    let report = replayed(&old(), Some(&other)).unwrap();
    assert!(report.differences.iter().any(|d| d.request == "y" && d.now.as_deref() == Some("c:1")), "{report:?}");
}

#[test]
fn what_they_do_not_say_is_refused_by_name() {
    let more = "plugins: [{type: load-aware-scorer}, {type: prefill-filter}]\n\
                schedulingProfiles: [{name: default, plugins: [{pluginRef: load-aware-scorer}, {pluginRef: prefill-filter}]}]\n";
    let why = replayed(&old(), Some(more)).unwrap_err().to_string();
    for name in [
        "scorer load-aware-scorer of profile default was not there, and what plugins look at was not recorded",
        "filter prefill-filter of profile default was not there",
    ] {
        assert!(why.contains(name), "{why}");
    }
    let less = "plugins: [{type: queue-scorer}]\nschedulingProfiles: [{name: default, plugins: [{pluginRef: queue-scorer}]}]\n";
    let report = replayed(&old(), Some(less)).unwrap();
    assert!(report.notes.iter().any(|note| note.starts_with("filter decode-filter")), "{:?}", report.notes);
}
